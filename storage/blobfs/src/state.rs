//! Metadata of a mounted volume, under one lock: names, sizes and extents with the effects of all operations so far,
//! and the transactions that are not written yet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::Result;
use crate::format::transaction::HEADER_BYTES;
use crate::format::{Effects, InodeId, Metadata, Operation};
use crate::inode::Inode;

/// Bytes of operations at which the next transaction begins.
pub(crate) const TRANSACTION_BYTES: usize = 128 << 10;

/// A transaction that is not written yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Number of the transaction.
    pub(crate) sequence: u64,
    /// Space for the header, then the operations.
    pub(crate) bytes: Vec<u8>,
    /// Whether it names data that was written and not flushed.
    pub(crate) needs_flush: bool,
}

/// A file that is open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    pub(crate) handles: usize,
}

/// Metadata, open files and pending transactions.
#[derive(Debug)]
pub(crate) struct State {
    /// Metadata with the effects of all operations so far.
    pub(crate) metadata: Metadata,
    /// Files with at least one handle, and files whose last handle is being closed.
    pub(crate) open: HashMap<InodeId, OpenFile>,
    /// Files with journaled data that is not written back.
    pub(crate) journaled: HashMap<InodeId, Arc<Inode>>,
    /// Locked files, by directory and name.
    pub(crate) locks: HashSet<(InodeId, String)>,
    pending: VecDeque<Pending>,
    next_sequence: u64,
    /// Whether an operation was recorded since the last checkpoint.
    pub(crate) has_changed: bool,
}

impl State {
    /// A state whose next transaction has number `next_sequence`.
    pub(crate) fn new(metadata: Metadata, next_sequence: u64) -> Self {
        Self {
            metadata,
            open: HashMap::new(),
            journaled: HashMap::new(),
            locks: HashSet::new(),
            pending: VecDeque::new(),
            next_sequence,
            has_changed: false,
        }
    }

    /// Applies an operation and adds it to a transaction; returns the transaction's number.
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

    /// Extents of open files that no operation names.
    pub(crate) fn unrecorded_extents(&self) -> u64 {
        let unrecorded = self.open.values().map(|opened| {
            let recorded = self.metadata.inode(opened.inode.id);
            let recorded = recorded.map_or(0, |record| record.extents().len());
            opened.inode.extents().saturating_sub(recorded) as u64
        });
        unrecorded.sum()
    }

    /// Number of the newest transaction, pending or not.
    pub(crate) const fn newest(&self) -> u64 {
        self.next_sequence - 1
    }

    /// Transaction to be written next, if there is one.
    pub(crate) fn first_pending(&self) -> Option<&Pending> {
        self.pending.front()
    }

    /// Removes the transaction to be written next.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }

    /// Whether more transactions are pending than should be left to the next sync.
    pub(crate) fn is_much_pending(&self) -> bool {
        self.pending.len() > 8
    }

    /// Drops all pending transactions, which a checkpoint contains now.
    pub(crate) fn clear_pending(&mut self) {
        self.pending.clear();
    }
}
