//! A mounted volume: operations on names.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_block::Device;

use crate::checkpoint_reservation::name_growth;
use crate::counters::Counters;
use crate::file::File;
use crate::format::{Effects, InodeId, Kind, Metadata, Operation};
use crate::inode::Inode;
use crate::map::Map;
use crate::mount;
use crate::shared::Shared;
use crate::state::{OpenFile, State};
use crate::types::{Entry, MountOptions, OpenOptions, Space, Status};
use crate::{Error, ErrorKind, FormatOptions, Result, Timestamp};

/// A mounted volume. Clones share it; dropping the last clone and the last open file unmounts it.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Shared>,
}

impl Volume {
    /// Formats a device with an empty volume. The device's contents are lost.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the device is too small or the options are invalid, [`ErrorKind::Io`].
    pub fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
        mount::format(device, options)
    }

    /// Mounts the volume of a device; recovers it first unless it is mounted read-only.
    ///
    /// # Errors
    /// [`ErrorKind::NotAVolume`], [`ErrorKind::NewerFormat`], [`ErrorKind::Corruption`], [`ErrorKind::Io`],
    /// [`ErrorKind::Memory`]; [`ErrorKind::Unsupported`] if the device's blocks are larger than the volume's, or for
    /// writing if the volume has data checksums and the device does not write its blocks atomically.
    pub fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<Self> {
        let shared = Arc::new(mount::mount(device, options)?);
        Ok(Self { shared })
    }

    /// Makes everything durable, marks the volume as cleanly unmounted and rejects further changes.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if files are open, [`ErrorKind::Io`], [`ErrorKind::Poisoned`].
    pub fn unmount(&self) -> Result<()> {
        self.shared.check_not_poisoned()?;
        let open = self.shared.state().open.len();
        if open > 0 {
            return Err(Error::new(
                ErrorKind::InUse,
                format!("{open} files are open"),
            ));
        }
        self.shared.unmount()
    }

    /// Opens a file by path, and creates or truncates it as the options say.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Exists`] with `create_new`, [`ErrorKind::IsDirectory`],
    /// [`ErrorKind::NotDirectory`], [`ErrorKind::InvalidPath`], [`ErrorKind::ReadOnly`], [`ErrorKind::Poisoned`].
    pub fn open(&self, path: &str, options: &OpenOptions) -> Result<File> {
        let (file, is_new) = self.retry_after_reclaim(|| self.open_or_create(path, options))?;
        if options.truncate {
            file.truncate(0)?;
        }
        if is_new {
            self.write_if_much()?;
        }
        Ok(file)
    }

    /// Opens a file; true if it was created.
    fn open_or_create(&self, path: &str, options: &OpenOptions) -> Result<(File, bool)> {
        let mut state = self.shared.state();
        let may_create = options.create || options.create_new;
        let mut is_new = false;
        let id = match state.metadata.resolve(path) {
            Ok(_) if options.create_new => {
                return Err(at(path, ErrorKind::Exists, "exists already"));
            }
            Ok(id) => id,
            Err(error) if may_create && error.kind() == ErrorKind::NotFound => {
                is_new = true;
                self.create(&mut state, path, Kind::File)?
            }
            Err(error) => return Err(Error::from(error).at(path)),
        };
        let record = state.metadata.inode(id)?;
        if record.kind() == Kind::Directory {
            return Err(at(path, ErrorKind::IsDirectory, "is a directory"));
        }
        let (map, size) = (Map::new(record.extents()), record.size());
        let opened = state.open.entry(id).or_insert_with(|| OpenFile {
            inode: Arc::new(Inode::new(id, map, size)),
            handles: 0,
        });
        opened.handles += 1;
        let file = File::new(Arc::clone(&self.shared), Arc::clone(&opened.inode));
        drop(state);
        Ok((file, is_new))
    }

    fn create(&self, state: &mut State, path: &str, kind: Kind) -> Result<InodeId> {
        self.shared.check_writable()?;
        let (parent, name) = state
            .metadata
            .locate(path)
            .map_err(|error| Error::from(error).at(path))?;
        let id = state.metadata.next_id();
        let modified = self.shared.now();
        let operation = Operation::Create {
            id,
            kind,
            parent,
            name,
            modified,
        };
        self.record_name(state, &operation, name)
            .map_err(|error| error.at(path))?;
        Ok(id)
    }

    /// Records an operation that adds a name, after reserving space for it in the next checkpoint.
    fn record_name(
        &self,
        state: &mut State,
        operation: &Operation<'_>,
        name: &str,
    ) -> Result<(u64, Effects)> {
        let shared = &self.shared;
        let growth = name_growth(name);
        if !shared.reservation.grow(&shared.allocator, growth) {
            return Err(shared.no_space(1));
        }
        let recorded = state.record(operation, false);
        recorded.inspect_err(|_| shared.reservation.shrink(growth))
    }

    /// Runs an operation that may allocate units; if the volume is full, again after deleted units were freed.
    fn retry_after_reclaim<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let mut result = work();
        for attempt in 0..2 {
            let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
            let is_full = result.as_ref().is_err_and(is_full);
            if !is_full {
                break;
            }
            if self.shared.reclaim_space(attempt)? {
                result = work();
            }
        }
        result
    }

    /// Renames a file or directory. It atomically replaces a file by a file, or an empty directory by a directory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Exists`], [`ErrorKind::NotEmpty`], [`ErrorKind::Invalid`] for a
    /// directory moved into itself, and as [`Volume::open`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.change(from, |metadata| {
            let (source, target) = (metadata.locate(from)?, metadata.locate(to)?);
            let replaced = metadata.lookup(target.0, target.1).ok();
            let mut above = metadata
                .lookup(source.0, source.1)
                .is_ok()
                .then_some(source.0);
            while let Some(id) = above {
                if replaced == Some(id) {
                    return Err(at(
                        to,
                        ErrorKind::NotEmpty,
                        "contains the directory that is to replace it",
                    ));
                }
                above = metadata.inode(id)?.parent().filter(|&parent| parent != id);
            }
            Ok(Operation::Rename {
                from: source,
                to: target,
            })
        })
    }

    /// Adds a hard link `new` to the file `existing`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Exists`], [`ErrorKind::IsDirectory`], and as [`Volume::open`].
    pub fn link(&self, existing: &str, new: &str) -> Result<()> {
        self.change(new, |metadata| {
            let id = metadata.resolve(existing)?;
            if metadata.resolve(new).is_ok() {
                return Err(at(new, ErrorKind::Exists, "exists already"));
            }
            let (parent, name) = metadata.locate(new)?;
            Ok(Operation::Link { id, parent, name })
        })
    }

    /// Removes a name of a file, and the file with its last name. Open handles stay valid.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::IsDirectory`], and as [`Volume::open`].
    pub fn remove(&self, path: &str) -> Result<()> {
        self.remove_kind(path, Kind::File)
    }

    /// Creates an empty directory whose parent exists.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], [`ErrorKind::NotFound`] if the one above it is missing, and as [`Volume::open`].
    pub fn create_dir(&self, path: &str) -> Result<()> {
        self.retry_after_reclaim(|| {
            let mut state = self.shared.state();
            match state.metadata.resolve(path) {
                Ok(_) => return Err(at(path, ErrorKind::Exists, "exists already")),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::from(error).at(path)),
            }
            self.create(&mut state, path.trim_end_matches('/'), Kind::Directory)
                .map(|_| ())
        })?;
        self.write_if_much()
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`], [`ErrorKind::NotEmpty`], and as [`Volume::open`].
    pub fn remove_dir(&self, path: &str) -> Result<()> {
        self.remove_kind(path.trim_end_matches('/'), Kind::Directory)
    }

    fn remove_kind(&self, path: &str, kind: Kind) -> Result<()> {
        self.change(path, |metadata| {
            let (parent, name) = metadata.locate(path)?;
            let found = metadata.kind(metadata.lookup(parent, name)?)?;
            match (found, kind) {
                (Kind::Directory, Kind::File) => {
                    Err(at(path, ErrorKind::IsDirectory, "is a directory"))
                }
                (Kind::File, Kind::Directory) => {
                    Err(at(path, ErrorKind::NotDirectory, "is not a directory"))
                }
                _ => Ok(Operation::Unlink { parent, name }),
            }
        })
    }

    /// Entries of a directory, sorted by name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`], [`ErrorKind::InvalidPath`].
    pub fn read_dir(&self, path: &str) -> Result<Vec<Entry>> {
        let state = self.shared.state();
        let id = state
            .metadata
            .resolve(path)
            .map_err(|error| Error::from(error).at(path))?;
        let children = state
            .metadata
            .children(id)
            .map_err(|error| Error::from(error).at(path))?;
        let entries = children.iter().map(|(name, &id)| {
            Ok(Entry {
                name: name.to_string(),
                kind: state.metadata.kind(id)?,
                id: id.0,
            })
        });
        entries.collect()
    }

    /// Attributes of a file or directory, as `stat` returns them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`], [`ErrorKind::InvalidPath`].
    pub fn status(&self, path: &str) -> Result<Status> {
        let id = self.shared.state().metadata.resolve(path);
        self.shared
            .status(id.map_err(|error| Error::from(error).at(path))?)
    }

    /// Sets the modification time of a file or directory.
    ///
    /// # Errors
    /// As [`Volume::status`], [`ErrorKind::ReadOnly`], [`ErrorKind::Poisoned`].
    pub fn set_modified(&self, path: &str, modified: Timestamp) -> Result<()> {
        // A later sync must not set the time of bytes written before.
        let opened = {
            let state = self.shared.state();
            let id = state.metadata.resolve(path).ok();
            let opened = id.and_then(|id| state.open.get(&id));
            opened.map(|opened| Arc::clone(&opened.inode))
        };
        let writing = opened.as_ref().map(|inode| inode.lock());
        self.apply(path, |metadata| {
            let id = metadata.resolve(path)?;
            Ok(Operation::SetModified { id, modified })
        })?;
        if let Some(mut writing) = writing {
            Inode::clear_modified(&mut writing);
        }
        self.write_if_much()
    }

    /// Makes all earlier changes of names durable, then returns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        self.shared.counters.syncs.add(1);
        self.shared.check_not_poisoned()?;
        self.shared.commit_all()
    }

    /// Locks a file against other callers in this process; creates it if it does not exist. The device's own lock
    /// excludes other processes.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if the file is locked, and as [`Volume::open`].
    pub fn lock(&self, path: &str) -> Result<FileLock> {
        let create = OpenOptions {
            create: true,
            ..OpenOptions::default()
        };
        drop(self.open(path, &create)?);
        let mut state = self.shared.state();
        let (directory, name) = state
            .metadata
            .locate(path)
            .map_err(|error| Error::from(error).at(path))?;
        let key = (directory, name.to_owned());
        if !state.locks.insert(key.clone()) {
            return Err(at(path, ErrorKind::InUse, "is locked by this process"));
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        Ok(FileLock { shared, key })
    }

    /// Space usage of the volume, in bytes and files.
    #[must_use]
    pub fn space(&self) -> Space {
        let shared = &self.shared;
        let allocator = &shared.allocator;
        let data = shared.layout.data();
        let free = allocator.free_units() + allocator.pending_free_units();
        let fixed = shared.layout.units() - (data.end - data.start);
        Space {
            total_bytes: (data.end - data.start) * shared.unit_bytes(),
            free_bytes: free * shared.unit_bytes(),
            metadata_bytes: (fixed + shared.reservation.units()) * shared.unit_bytes(),
            files: shared.state().metadata.len() as u64,
        }
    }

    /// Deallocates (TRIM) all free units on the device; returns the number of bytes deallocated. Calls `progress` with
    /// the bytes done and the bytes in all; `ControlFlow::Break` ends the trim.
    ///
    /// Units under deallocation count as free and cannot be allocated: a write to a nearly full volume may fail
    /// meanwhile with [`ErrorKind::NoSpace`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device does not support TRIM, [`ErrorKind::ReadOnly`], [`ErrorKind::Io`],
    /// [`ErrorKind::Poisoned`]. A failed deallocation damages no file.
    pub fn trim(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        self.shared.check_writable()?;
        self.shared.trim(progress)
    }

    /// Label of the volume, at most 64 bytes; empty if it has none.
    #[must_use]
    pub fn label(&self) -> String {
        let superblock = self.shared.superblock.lock();
        let superblock = superblock.expect("no holder of the lock panics");
        superblock.label.clone()
    }

    /// Identifier of the volume, given at format time.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        let superblock = self.shared.superblock.lock();
        superblock.expect("no holder of the lock panics").uuid
    }

    /// Event counters since the volume was mounted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters.read()
    }

    /// Bytes of a logical block: reads of whole blocks transfer no other bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.shared.layout.block_bytes()
    }

    /// Whether blocks of file data end in a checksum.
    #[must_use]
    pub fn data_checksums(&self) -> bool {
        self.shared.data.has_checksums()
    }

    /// Applies one operation on names.
    fn change<'p>(
        &self,
        path: &str,
        operation: impl Fn(&Metadata) -> Result<Operation<'p>>,
    ) -> Result<()> {
        self.retry_after_reclaim(|| self.apply(path, &operation))?;
        self.write_if_much()
    }

    fn apply<'p>(
        &self,
        path: &str,
        operation: impl Fn(&Metadata) -> Result<Operation<'p>>,
    ) -> Result<()> {
        self.shared.check_writable()?;
        let mut state = self.shared.state();
        let operation = operation(&state.metadata).map_err(|error| error.at(path))?;
        let recorded = match operation {
            Operation::Link { name, .. } | Operation::Rename { to: (_, name), .. } => {
                self.record_name(&mut state, &operation, name)
            }
            _ => state.record(&operation, false),
        };
        let (sequence, effects) = recorded.map_err(|error| error.at(path))?;
        if let Some(id) = effects.removed {
            self.shared
                .removed(&mut state, id, sequence, &effects.freed);
        }
        Ok(())
    }

    /// Commits if many transactions are pending, to bound their memory.
    fn write_if_much(&self) -> Result<()> {
        if self.shared.state().is_much_pending() {
            return self.shared.commit_all();
        }
        Ok(())
    }
}

fn at(path: &str, kind: ErrorKind, what: &str) -> Error {
    Error::new(kind, format!("{path} {what}"))
}

/// Lock on a file, released on drop.
pub struct FileLock {
    shared: Arc<Shared>,
    key: (InodeId, String),
}

impl Drop for FileLock {
    fn drop(&mut self) {
        self.shared.state().locks.remove(&self.key);
    }
}

impl fmt::Debug for FileLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLock")
            .field("name", &self.key.1)
            .finish_non_exhaustive()
    }
}
