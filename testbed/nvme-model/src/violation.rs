//! What the host did against the rules.

use std::fmt;

/// A rule of the specification that a host may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A doorbell was written with a value beyond its queue, with reserved bits, or with the value that it had.
    DoorbellValue,
    /// A doorbell of a queue that does not exist was written.
    DoorbellWithoutQueue,
    /// A submission queue's tail passed its head.
    SubmissionOverrun,
    /// A completion queue's head passed what was posted.
    CompletionHead,
    /// A command identifier was used again before its command was completed.
    CommandIdInUse,
    /// A reserved field was not zero.
    ReservedField,
    /// A PRP entry has an offset where none may be, or one that is not a multiple of 4.
    PrpOffset,
    /// A pointer to a PRP list is not a multiple of 8.
    PrpList,
    /// An SGL descriptor breaks the rules of section 4.4.
    SglDescriptor,
    /// A transfer is longer than MDTS allows.
    TransferTooLong,
    /// Blocks beyond the namespace's end were named.
    LbaOutOfRange,
    /// A namespace was named that is not active.
    NoNamespace,
    /// A command, feature or log page was asked for that the controller did not offer.
    NotOffered,
    /// A field has a value that its command does not allow.
    FieldValue,
    /// The controller was enabled before CSTS.RDY was zero, or disabled before it was one.
    EnabledTooEarly,
    /// An admin queue register or another field of CC was changed while the controller was enabled.
    ChangedWhileEnabled,
    /// A queue's base address is not aligned to the page size.
    QueueAlignment,
    /// A queue's size is zero or beyond what the controller offers.
    QueueSize,
    /// A queue's identifier is in use, zero or beyond what was granted.
    QueueId,
    /// CC names an entry size, page size, arbitration or command set that was not offered.
    Configuration,
    /// A register that is read-only, does not exist or has another size was written.
    RegisterAccess,
    /// A command of this kind may not be given now.
    Sequence,
    /// More commands of a kind are outstanding than the controller allows.
    Limit,
    /// Memory was unmapped that the controller may still use: queues, shadow doorbells, or lists and data of a
    /// command in flight. Until CSTS.RDY is zero it may, whatever CC.EN and CSTS.CFS say.
    UnmappedInUse,
    /// A command was given although memory access by the function is forbidden.
    NotBusMaster,
}

/// One breach of a rule by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Rule that the host has broken.
    pub rule: Rule,
    /// In which step it was found.
    pub step: u64,
    /// Description of the finding, with the offending values.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in step {}: {}", self.rule, self.step, self.detail)
    }
}
