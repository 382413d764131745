//! What was asked of a device, in numbers.

use crate::Kind;

/// Requests and the bytes that they were about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of requests, with those that failed.
    pub requests: u64,
    /// Bytes of all of them together.
    pub bytes: u64,
}

/// How much was asked of a device, by kind; requests that failed are among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([Count; Kind::ALL.len()]);

impl Counters {
    /// Requests of `kind` and their bytes.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> Count {
        self.0[kind as usize]
    }

    /// Sum of the requests of all kinds and of their bytes.
    #[must_use]
    pub fn all(&self) -> Count {
        let mut all = Count::default();
        for count in &self.0 {
            all.requests += count.requests;
            all.bytes += count.bytes;
        }
        all
    }

    /// What has come since the same device had counted `earlier`.
    ///
    /// # Panics
    /// If that was not earlier.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (count, before) in since.0.iter_mut().zip(&earlier.0) {
            let requests = count.requests.checked_sub(before.requests);
            let bytes = count.bytes.checked_sub(before.bytes);
            count.requests = requests.expect("counters only rise");
            count.bytes = bytes.expect("counters only rise");
        }
        since
    }

    pub(crate) fn add(&mut self, kind: Kind, bytes: u64) {
        let count = &mut self.0[kind as usize];
        count.requests += 1;
        count.bytes += bytes;
    }
}
