//! Why a command is not carried out.

use crate::host::DmaFault;
use crate::status::Status;
use crate::violation::Rule;

/// A status, and what is recorded beside it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) breach: Option<(Rule, String)>,
    pub(super) dma: Option<DmaFault>,
}

/// Rare, so that it may cost an allocation and results stay small.
pub(super) type Outcome<T> = Result<T, Box<Failure>>;

impl Failure {
    /// The host did nothing wrong.
    pub(super) fn of(status: Status) -> Box<Self> {
        Box::new(Self {
            status,
            breach: None,
            dma: None,
        })
    }

    /// The host broke a rule: doing the same again will not help.
    pub(super) fn breach(status: Status, rule: Rule, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            status: status.do_not_retry(),
            breach: Some((rule, detail.into())),
            dma: None,
        })
    }
}

impl From<DmaFault> for Box<Failure> {
    fn from(fault: DmaFault) -> Self {
        Self::new(Failure {
            status: Status::DATA_TRANSFER,
            breach: None,
            dma: Some(fault),
        })
    }
}
