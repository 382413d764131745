//! A mounted volume: its names.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_block::Device;

use crate::counters::Counters;
use crate::file::File;
use crate::format::{Effects, InodeId, Kind, Metadata, Operation};
use crate::inode::Inode;
use crate::map::Map;
use crate::mount;
use crate::room::name_growth;
use crate::shared::{Clock, Shared};
use crate::state::{Opened, State};
use crate::{Error, ErrorKind, FormatOptions, Result, Timestamp};

/// How a volume is mounted.
#[derive(Clone)]
pub struct MountOptions {
    /// Nothing is written to the device, not even to mend what a power cut left.
    pub read_only: bool,
    /// Gives the times of modification.
    pub clock: Clock,
    /// Memory for transfers, in bytes; at least 1 MiB is used.
    pub arena_bytes: usize,
    /// Whether freed blocks are deallocated on the device; none leaves it to what the device gains by it.
    pub discard: Option<bool>,
}

impl MountOptions {
    /// For reading and writing, with 16 MiB for transfers.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            read_only: false,
            clock,
            arena_bytes: 16 << 20,
            discard: None,
        }
    }
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountOptions")
            .field("read_only", &self.read_only)
            .field("arena_bytes", &self.arena_bytes)
            .field("discard", &self.discard)
            .finish_non_exhaustive()
    }
}

/// How [`Volume::open`] opens a file. Without any of these it must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Make it if it is not there.
    pub create: bool,
    /// Make it, and fail if it is there.
    pub create_new: bool,
    /// Make it empty.
    pub truncate: bool,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Which file or directory; the same for all names of one.
    pub id: u64,
}

/// What is known of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The same for all names of one, and never used again.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file; of a directory, its entries.
    pub size: u64,
    /// Bytes of the device that it holds.
    pub allocated_bytes: u64,
    /// Names of a file.
    pub links: u32,
    /// When it was last changed.
    pub modified: Timestamp,
}

impl Status {
    pub(crate) fn of(shared: &Shared, id: InodeId) -> Result<Self> {
        let (mut status, opened) = {
            let state = shared.state();
            let record = state.metadata.inode(id)?;
            let units: u64 = record
                .extents()
                .iter()
                .map(|extent| u64::from(extent.units))
                .sum();
            let status = Self {
                id: id.0,
                kind: record.kind(),
                size: record
                    .entries()
                    .map_or(record.size(), |entries| entries.len() as u64),
                allocated_bytes: units * shared.unit_bytes(),
                links: record.links(),
                modified: record.modified(),
            };
            (
                status,
                state.open.get(&id).map(|opened| Arc::clone(&opened.inode)),
            )
        };
        if let Some(inode) = opened {
            status.size = inode.size();
            status.allocated_bytes = inode.units() * shared.unit_bytes();
            status.modified = inode.modified().unwrap_or(status.modified);
        }
        Ok(status)
    }
}

/// How full a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes for files, used or not.
    pub total_bytes: u64,
    /// Bytes that files can have.
    pub free_bytes: u64,
    /// Bytes of superblocks, journal and checkpoints, and what is kept for the next one.
    pub metadata_bytes: u64,
    /// Files and directories.
    pub files: u64,
}

/// A volume that is mounted. Clones are shares of it; with the last, and the last open file, it is unmounted.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Shared>,
}

impl Volume {
    /// Makes an empty volume of a device. Whatever it holds is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the device is too small or the options make no sense, [`ErrorKind::Io`].
    pub fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
        mount::format(device, options)
    }

    /// Mounts the volume of a device.
    ///
    /// # Errors
    /// [`ErrorKind::NotAVolume`], [`ErrorKind::NewerFormat`], [`ErrorKind::Corruption`], [`ErrorKind::Io`],
    /// [`ErrorKind::Memory`]; [`ErrorKind::Unsupported`] if the device has larger blocks than the volume, or for writing
    /// if there are checksums of data and the device writes less than their blocks as a whole.
    pub fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<Self> {
        let shared = Arc::new(mount::mount(device, options)?);
        Ok(Self { shared })
    }

    /// Puts everything on the medium, marks the volume as cleanly unmounted and takes no more changes.
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

    /// Opens a file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Exists`] with `create_new`, [`ErrorKind::IsDirectory`],
    /// [`ErrorKind::NotDirectory`], [`ErrorKind::InvalidPath`], [`ErrorKind::ReadOnly`], [`ErrorKind::Poisoned`].
    pub fn open(&self, path: &str, options: &OpenOptions) -> Result<File> {
        let (file, is_new) = self.with_room(|| self.open_or_create(path, options))?;
        if options.truncate {
            file.truncate(0)?;
        }
        if is_new {
            self.write_if_much()?;
        }
        Ok(file)
    }

    /// Opens a file, and tells whether it was made.
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
        let opened = state.open.entry(id).or_insert_with(|| Opened {
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

    /// Records an operation that makes a name, for which the next checkpoint must have room.
    fn record_name(
        &self,
        state: &mut State,
        operation: &Operation<'_>,
        name: &str,
    ) -> Result<(u64, Effects)> {
        let shared = &self.shared;
        let growth = name_growth(name);
        if !shared.room.grow(&shared.allocator, growth) {
            return Err(shared.no_space(1));
        }
        let recorded = state.record(operation, false);
        recorded.inspect_err(|_| shared.room.shrink(growth))
    }

    /// Does what may need units; should there be none, once more when what was deleted is free.
    fn with_room<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let mut result = work();
        for attempt in 0..2 {
            let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
            let is_full = result.as_ref().is_err_and(is_full);
            if !is_full {
                break;
            }
            if self.shared.make_room(attempt)? {
                result = work();
            }
        }
        result
    }

    /// Gives a file or directory another name. A file takes the place of a file, a directory that of an empty
    /// directory, at once.
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
                        "holds what is to take its place",
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

    /// Gives a file a further name.
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

    /// Takes a file's name away, and with the last name the file. Who has it open goes on.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::IsDirectory`], and as [`Volume::open`].
    pub fn remove(&self, path: &str) -> Result<()> {
        self.remove_kind(path, Kind::File)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], [`ErrorKind::NotFound`] if the one above it is missing, and as [`Volume::open`].
    pub fn create_dir(&self, path: &str) -> Result<()> {
        self.with_room(|| {
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
                    Err(at(path, ErrorKind::NotDirectory, "is no directory"))
                }
                _ => Ok(Operation::Unlink { parent, name }),
            }
        })
    }

    /// What a directory holds, by name.
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

    /// What is known of a file or directory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`], [`ErrorKind::InvalidPath`].
    pub fn status(&self, path: &str) -> Result<Status> {
        let id = self.shared.state().metadata.resolve(path);
        Status::of(
            &self.shared,
            id.map_err(|error| Error::from(error).at(path))?,
        )
    }

    /// Sets the time of modification.
    ///
    /// # Errors
    /// As [`Volume::status`], [`ErrorKind::ReadOnly`], [`ErrorKind::Poisoned`].
    pub fn set_modified(&self, path: &str, modified: Timestamp) -> Result<()> {
        // A sync that comes later must not set the time of what was written before.
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
            Inode::forget_modified(&mut writing);
        }
        self.write_if_much()
    }

    /// Returns when every change of names so far is on the medium.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        self.shared.counters.syncs.add(1);
        self.shared.check_not_poisoned()?;
        self.shared.commit_all()
    }

    /// Locks a file, which is made if it is not there, against others in this process. Other processes are kept
    /// out by the device.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if somebody has it, and as [`Volume::open`].
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

    /// How full it is.
    #[must_use]
    pub fn space(&self) -> Space {
        let shared = &self.shared;
        let allocator = &shared.allocator;
        let data = shared.layout.data();
        let free = allocator.free_units() + allocator.limbo_units();
        let fixed = shared.layout.units() - (data.end - data.start);
        Space {
            total_bytes: (data.end - data.start) * shared.unit_bytes(),
            free_bytes: free * shared.unit_bytes(),
            metadata_bytes: (fixed + shared.room.units()) * shared.unit_bytes(),
            files: shared.state().metadata.len() as u64,
        }
    }

    /// Tells the device of everything that is free, so that it may forget what is there; how many bytes that were.
    /// `progress` is called with the bytes that are done and all that are to be, and may end it.
    ///
    /// What the device is just being told of counts as free, and yet is not to be had: whoever writes meanwhile to a
    /// volume that is nearly full may find that it is.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device forgets nothing, [`ErrorKind::ReadOnly`], [`ErrorKind::Io`],
    /// [`ErrorKind::Poisoned`]. No file is harmed by a deallocation that fails.
    pub fn trim(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        self.shared.check_writable()?;
        self.shared.trim(progress)
    }

    /// Its name for people; empty if it has none.
    #[must_use]
    pub fn label(&self) -> String {
        let superblock = self.shared.superblock.lock();
        let superblock = superblock.expect("no holder of the lock panics");
        superblock.label.clone()
    }

    /// Its identifier.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        let superblock = self.shared.superblock.lock();
        superblock.expect("no holder of the lock panics").uuid
    }

    /// What it has done since it was mounted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters.read()
    }

    /// Bytes of a logical block of the device: reads of whole ones move nothing more.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.shared.layout.block_bytes()
    }

    /// Whether the bytes of files have checksums.
    #[must_use]
    pub fn data_checksums(&self) -> bool {
        self.shared.data.is_sealed()
    }

    /// Does one operation on names.
    fn change<'p>(
        &self,
        path: &str,
        operation: impl Fn(&Metadata) -> Result<Operation<'p>>,
    ) -> Result<()> {
        self.with_room(|| self.apply(path, &operation))?;
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

    /// Keeps what is pending bounded.
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

/// A lock on a file, given up when dropped.
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
