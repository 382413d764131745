//! What processes have counted.

use std::os::fd::AsFd;

use millrace_stream::slab::{HEADER_SIZE, Totals, used};
use rustix::io::pread;

use crate::packets::retry;

/// Bytes of records that one report reads at most, so that nobody can keep the monitor busy with slabs that say that
/// they are full: a million connections. Of what lies beyond, only what has ended is counted.
const RECORDS_PER_REPORT: usize = 512 << 20;

/// Reads slabs, and adds up what those of processes that are gone said last, so that sums never go back.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    dead: Totals,
    snapshot: Vec<u8>,
    /// Bytes of records that the report at hand has read.
    spent: usize,
}

impl Slabs {
    /// A report begins.
    pub(super) const fn begin(&mut self) {
        self.spent = 0;
    }

    /// What a process counts; zeros if that is no slab.
    pub(super) fn read(&mut self, slab: impl AsFd) -> Totals {
        self.snapshot.resize(HEADER_SIZE, 0);
        if !fill(&slab, 0, &mut self.snapshot) {
            return Totals::default();
        }
        let mut size = used(&self.snapshot).unwrap_or(HEADER_SIZE);
        self.spent += size - HEADER_SIZE;
        if self.spent > RECORDS_PER_REPORT {
            size = HEADER_SIZE;
        }
        self.snapshot.resize(size, 0);
        if !fill(&slab, HEADER_SIZE, &mut self.snapshot[HEADER_SIZE..]) {
            self.snapshot.truncate(HEADER_SIZE);
        }
        Totals::read(&self.snapshot).unwrap_or_default()
    }

    /// Keeps what a process that is gone has counted.
    pub(super) fn bury(&mut self, slab: impl AsFd) {
        self.begin();
        let last = self.read(slab);
        add(&mut self.dead, &last);
        self.dead.live = 0;
    }

    /// What processes that are gone have counted.
    pub(super) const fn dead(&self) -> Totals {
        self.dead
    }
}

/// Whether all the bytes from an offset on were there.
fn fill(file: impl AsFd, offset: usize, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        let at = (offset + done) as u64;
        match retry(|| pread(&file, &mut bytes[done..], at)) {
            Ok(0) | Err(_) => return false,
            Ok(count) => done += count,
        }
    }
    true
}

/// Adds up. Counters come from strangers: they wrap.
pub(super) fn add(sum: &mut Totals, more: &Totals) {
    let Totals {
        sent,
        received,
        connects,
        accepts,
        kernel_connects,
        kernel_accepts,
        bells,
        sleeps,
        resets,
        live,
    } = more;
    for (sum, more) in [
        (&mut sum.sent, sent),
        (&mut sum.received, received),
        (&mut sum.connects, connects),
        (&mut sum.accepts, accepts),
        (&mut sum.kernel_connects, kernel_connects),
        (&mut sum.kernel_accepts, kernel_accepts),
        (&mut sum.bells, bells),
        (&mut sum.sleeps, sleeps),
        (&mut sum.resets, resets),
        (&mut sum.live, live),
    ] {
        *sum = sum.wrapping_add(*more);
    }
}
