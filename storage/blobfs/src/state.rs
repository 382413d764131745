//! What all threads share of a mounted volume's metadata: names, sizes and extents as the next transactions will
//! have them, and those transactions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::Result;
use crate::format::transaction::HEADER_BYTES;
use crate::format::{Effects, InodeId, Metadata, Operation};
use crate::inode::Inode;

/// Operations beyond so many bytes go to a further transaction.
pub(crate) const TRANSACTION_BYTES: usize = 128 << 10;

/// A transaction that is not written yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Its number.
    pub(crate) sequence: u64,
    /// Room for the header, then its operations.
    pub(crate) bytes: Vec<u8>,
    /// Whether it names data that was written, but not put on the medium.
    pub(crate) needs_flush: bool,
}

/// A file that is open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) inode: Arc<Inode>,
    pub(crate) handles: usize,
}

/// Metadata and what is to become of it.
#[derive(Debug)]
pub(crate) struct State {
    /// With the effects of all operations up to now.
    pub(crate) metadata: Metadata,
    /// Files with at least one handle, and those whose last one is being closed.
    pub(crate) open: HashMap<InodeId, Opened>,
    /// Files of which transactions carry data that is not at home.
    pub(crate) carried: HashMap<InodeId, Arc<Inode>>,
    /// Files that somebody has locked, by directory and name.
    pub(crate) locks: HashSet<(InodeId, String)>,
    pending: VecDeque<Pending>,
    next_sequence: u64,
    /// Whether the last checkpoint lacks an operation.
    pub(crate) has_changed: bool,
}

impl State {
    /// The next transaction has number `next_sequence`.
    pub(crate) fn new(metadata: Metadata, next_sequence: u64) -> Self {
        Self {
            metadata,
            open: HashMap::new(),
            carried: HashMap::new(),
            locks: HashSet::new(),
            pending: VecDeque::new(),
            next_sequence,
            has_changed: false,
        }
    }

    /// Does an operation and adds it to a transaction, whose number is returned.
    pub(crate) fn record(
        &mut self,
        operation: &Operation<'_>,
        needs_flush: bool,
    ) -> Result<(u64, Effects)> {
        let effects = self.metadata.apply(operation)?;
        let is_full = |pending: &Pending| pending.bytes.len() >= TRANSACTION_BYTES;
        if self.pending.back().is_none_or(is_full) {
            self.pending.push_back(Pending {
                sequence: self.next_sequence,
                bytes: vec![0; HEADER_BYTES],
                needs_flush: false,
            });
            self.next_sequence += 1;
        }
        let pending = self
            .pending
            .back_mut()
            .expect("one was pushed if there was none");
        operation.encode(&mut pending.bytes);
        self.has_changed = true;
        pending.needs_flush |= needs_flush;
        Ok((pending.sequence, effects))
    }

    /// Extents of open files that no operation has told of.
    pub(crate) fn unrecorded_extents(&self) -> u64 {
        let unrecorded = self.open.values().map(|opened| {
            let recorded = self.metadata.inode(opened.inode.id);
            let recorded = recorded.map_or(0, |record| record.extents().len());
            opened.inode.extents().saturating_sub(recorded) as u64
        });
        unrecorded.sum()
    }

    /// The number of the newest transaction, pending or not.
    pub(crate) const fn newest(&self) -> u64 {
        self.next_sequence - 1
    }

    /// The transaction to be written next, if there is one.
    pub(crate) fn first_pending(&self) -> Option<&Pending> {
        self.pending.front()
    }

    /// Takes the transaction to be written next.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }

    /// Whether so much is pending that somebody should write it.
    pub(crate) fn is_much_pending(&self) -> bool {
        self.pending.len() > 8
    }

    /// Forgets all that is pending, which a checkpoint contains now.
    pub(crate) fn clear_pending(&mut self) {
        self.pending.clear();
    }
}
