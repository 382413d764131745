//! What goes wrong.

use millrace_block::{ErrorKind, Operation};

/// Kind of a request: its [`Operation`] without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Write`].
    Write,
    /// [`Operation::WriteThrough`].
    WriteThrough,
    /// [`Operation::Flush`].
    Flush,
    /// [`Operation::Deallocate`].
    Deallocate,
    /// [`Operation::WriteZeroes`].
    WriteZeroes,
}

impl Kind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::WriteThrough,
        Self::Flush,
        Self::Deallocate,
        Self::WriteZeroes,
    ];

    /// The kind of `operation`, whatever its parameters.
    #[must_use]
    pub const fn of(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write => Self::Write,
            Operation::WriteThrough => Self::WriteThrough,
            Operation::Flush => Self::Flush,
            Operation::Deallocate(_) => Self::Deallocate,
            Operation::WriteZeroes(_) => Self::WriteZeroes,
        }
    }

    /// Whether requests of this kind change blocks: all but reads and flushes.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }
}

/// Requests that fail: taken, and completed with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of which kind; none means any.
    pub kind: Option<Kind>,
    /// How many of this kind pass first, from when the fault was set.
    pub after: u64,
    /// Number of requests that fail after those; `u64::MAX` for all.
    pub count: u64,
    /// Kind of error with which they complete.
    pub error: ErrorKind,
}

impl Fault {
    /// The request of a kind that comes after so many others.
    #[must_use]
    pub const fn nth(kind: Option<Kind>, after: u64, error: ErrorKind) -> Self {
        Self {
            kind,
            after,
            count: 1,
            error,
        }
    }

    /// The same, and all after it.
    #[must_use]
    pub const fn from_nth(kind: Option<Kind>, after: u64, error: ErrorKind) -> Self {
        Self {
            kind,
            after,
            count: u64::MAX,
            error,
        }
    }

    /// Whether the request of `kind` that comes now fails; counts it.
    pub(crate) fn meets(&mut self, kind: Kind) -> bool {
        if self.kind.is_some_and(|own| own != kind) || self.count == 0 {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.count = self.count.saturating_sub(u64::from(self.count != u64::MAX));
        true
    }
}
