//! Replay of the journal on a checkpoint.

use std::collections::BTreeMap;

use super::damage::Damage;
use super::ids::InodeId;
use super::inconsistency::Inconsistency;
use super::metadata::Metadata;
use super::operation::{Operation, Operations};
use super::overlay::Overlay;
use crate::error::{Error, ErrorKind, Result};

/// Replay of transactions on the metadata of a checkpoint.
///
/// If the checkpoint has lost pages, operations that do not apply for that reason are skipped and reported; the inodes
/// that they create go to `/lost+found`.
#[derive(Debug)]
pub(crate) struct Replay {
    metadata: Metadata,
    overlay: Overlay,
    damages: Vec<Damage>,
    lenient: bool,
    operations: u64,
    /// For each file that grew during the replay, the last operation that added units.
    grown: BTreeMap<InodeId, u64>,
}

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Metadata as of the last transaction.
    pub(crate) metadata: Metadata,
    /// Journaled data to be written back.
    pub(crate) overlay: Overlay,
    /// Damage: that of the checkpoint first.
    pub(crate) damages: Vec<Damage>,
}

impl Replay {
    /// A replay that starts with a checkpoint and its damage. Without damage every operation must apply.
    pub(crate) fn new(metadata: Metadata, damages: Vec<Damage>) -> Self {
        Self {
            metadata,
            overlay: Overlay::default(),
            lenient: !damages.is_empty(),
            damages,
            operations: 0,
            grown: BTreeMap::new(),
        }
    }

    /// A replay that always skips operations that do not apply, for a check.
    pub(crate) fn lenient(metadata: Metadata, damages: Vec<Damage>) -> Self {
        Self {
            lenient: true,
            ..Self::new(metadata, damages)
        }
    }

    /// The metadata as of the last transaction so far.
    #[cfg(test)]
    pub(crate) const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Journaled bytes so far.
    #[cfg(test)]
    pub(crate) const fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Applies the operations of the next transaction.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] for an invalid operation, or (without damage) one that does not apply. The operations
    /// before it are applied.
    pub(crate) fn apply_transaction(&mut self, payload: &[u8]) -> Result<()> {
        for operation in Operations::new(payload) {
            self.apply(&operation?)?;
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<()> {
        self.operations += 1;
        match self.metadata.apply(operation) {
            Ok(effects) => {
                if let Some(removed) = effects.removed {
                    self.overlay.remove(removed);
                    self.grown.remove(&removed);
                }
                self.follow(operation);
                Ok(())
            }
            Err(why) if self.lenient => {
                self.make_do(operation, why);
                Ok(())
            }
            Err(why) => Err(Error::new(
                ErrorKind::Corruption,
                format!("the journal does not match the checkpoint: {}", operation),
            )
            .caused_by(why)),
        }
    }

    /// Applies an operation to the overlay.
    fn follow(&mut self, operation: &Operation<'_>) {
        match *operation {
            Operation::Extend { id, extents, .. } => {
                self.overlay.remove(id);
                if extents.len() > 0 {
                    self.grown.insert(id, self.operations);
                }
            }
            Operation::Data {
                id,
                offset,
                bytes,
                extents,
                ..
            } => {
                self.overlay.insert(id, offset, bytes);
                if extents.len() > 0 {
                    self.grown.insert(id, self.operations);
                }
            }
            Operation::Truncate { id, size, .. } => self.overlay.truncate(id, size),
            Operation::Create { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rename { .. }
            | Operation::SetModified { .. } => {}
        }
    }

    /// Salvages the effects of an operation that does not apply to damaged metadata.
    fn make_do(&mut self, operation: &Operation<'_>, why: Inconsistency) {
        let what = operation.to_string();
        self.damages.push(Damage::Skipped { what, why });
        if let Operation::Create {
            id, kind, modified, ..
        } = *operation
        {
            if id >= self.metadata.next_id() && id.0 < u64::MAX {
                let damage = self.metadata.insert_lost(id, kind, modified);
                self.damages.push(damage);
            }
        }
    }

    /// The metadata as of the last transaction, and the data to be written back. After damage no two files share units:
    /// the file that got them last keeps them.
    pub(crate) fn finish(mut self) -> Replayed {
        if self.lenient {
            let grown = self.grown;
            let cut = self
                .metadata
                .separate_files(&[], |id| grown.get(&id).copied().unwrap_or(0));
            for damage in &cut {
                if let Damage::Parted { id, to, .. } = *damage {
                    self.overlay.truncate(id, to);
                }
            }
            self.damages.extend(cut);
        }
        Replayed {
            metadata: self.metadata,
            overlay: self.overlay,
            damages: self.damages,
        }
    }
}
