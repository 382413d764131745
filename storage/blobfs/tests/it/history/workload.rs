//! Random operations.

use std::sync::Arc;

use millrace_blobfs::{Error, ErrorKind, File, FormatOptions, Timestamp, Volume};
use millrace_block::{Device, Geometry, Image};
use millrace_power_cut::{Options, Order, PowerCut};

use super::record::{History, Record};
use super::{Names, collect};
use crate::support::{Rng, options, pattern};
use crate::{CREATE, data_checksums};

type Result<T> = std::result::Result<T, Error>;

/// No file becomes longer.
const SIZE_MAX: usize = 300_000;

/// A volume, and random operations on it that are recorded.
pub(crate) struct Workload {
    volume: Option<Volume>,
    pub(crate) device: Arc<PowerCut>,
    rng: Rng,
    open: Vec<(u64, File)>,
    pub(crate) record: Record,
    /// Whether the volume stays mounted.
    pub(crate) stays: bool,
    /// How many reads may still fail: what needed them is done again.
    pub(crate) failures: usize,
}

impl Workload {
    /// On a new volume, or on one that is there. The record of the device begins with the mounted volume.
    pub(crate) fn new(seed: u64, geometry: Geometry, image: Option<Image>) -> Self {
        let order = if seed % 3 == 0 {
            Order::Shuffled(seed)
        } else {
            Order::AtOnce
        };
        let is_new = image.is_none();
        let device = PowerCut::with_options(Options {
            geometry,
            image,
            order,
        });
        let device = device.expect("a good geometry");
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        if is_new {
            let format = FormatOptions {
                journal_bytes: Some(256 << 10),
                data_checksums: data_checksums(seed),
                ..FormatOptions::new([3; 16], Timestamp(1))
            };
            Volume::format(&shared, &format).expect("the device is good");
        }
        let volume = Volume::mount(shared, options()).expect("the volume is good");
        device.settle();
        let record = Record {
            names: vec![collect(&volume)],
            events: vec![device.events()],
            ..Record::default()
        };
        Self {
            volume: Some(volume),
            device,
            rng: Rng::new(seed),
            open: Vec::new(),
            record,
            stays: false,
            failures: 0,
        }
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.volume
            .as_ref()
            .expect("it is mounted between operations")
    }

    /// Files that are open, and their numbers.
    pub(crate) fn open(&self) -> &[(u64, File)] {
        &self.open
    }

    /// Closes all files.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Closes and unmounts.
    pub(crate) fn end(self) -> (Arc<PowerCut>, Record) {
        let Self {
            volume,
            device,
            open,
            record,
            ..
        } = self;
        drop(open);
        drop(volume);
        (device, record)
    }

    /// Does one operation. Whatever comes of it is recorded: an operation that fails may have been done or not.
    pub(crate) fn step(&mut self) -> Result<()> {
        let mut names = self.record.names.last().expect("never empty").clone();
        let number = self.record.names.len();
        let done = self.operation(&mut names, number);
        self.record.names.push(names);
        self.record.events.push(self.device.events());
        if done? {
            self.record.durable.push(number);
        }
        Ok(())
    }

    fn path(&mut self) -> String {
        let names = ["a", "b", "c", "d"];
        let name = names[self.rng.below(4)];
        let last = self.record.names.last();
        if self.rng.below(3) == 0 && last.is_some_and(|names| names.contains_key("dir")) {
            return format!("dir/{name}");
        }
        name.to_owned()
    }

    /// Whether all names are durable then.
    fn operation(&mut self, names: &mut Names, number: usize) -> Result<bool> {
        match self.rng.below(32) {
            0..=3 => self.create(names, number)?,
            4..=5 => {
                let (from, to) = (self.path(), self.path());
                // Of two names of one file none goes.
                let is_same = names.get(&from) == names.get(&to);
                if is_done(self.volume().rename(&from, &to))? && !is_same {
                    let id = names.remove(&from).expect("the volume knew it");
                    names.insert(to, id);
                }
            }
            6..=7 => {
                let path = self.path();
                if is_done(self.volume().remove(&path))? {
                    names.remove(&path).expect("the volume knew it");
                }
            }
            8..=9 => {
                let (from, to) = (self.path(), self.path());
                if is_done(self.volume().link(&from, &to))? {
                    let id = names[&from];
                    names.insert(to, id);
                }
            }
            10..=11 => {
                let is_new = is_done(self.volume().create_dir("dir"))?;
                names.extend(is_new.then(|| ("dir".to_owned(), 0)));
            }
            12..=13 if !self.open.is_empty() => {
                let index = self.rng.below(self.open.len());
                self.open.swap_remove(index);
            }
            14 => {
                self.volume().sync()?;
                return Ok(true);
            }
            15 if !self.stays => return self.remount(names, number),
            _ if !self.open.is_empty() => return self.use_file(number),
            _ => {}
        }
        Ok(false)
    }

    fn create(&mut self, names: &mut Names, number: usize) -> Result<()> {
        let path = self.path();
        let file = match self.volume().open(&path, &CREATE) {
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
            file => file?,
        };
        let id = file.status()?.id;
        names.insert(path, id);
        let history = self.record.files.entry(id);
        history.or_insert_with(|| History::new(number));
        if self.open.len() < 4 && self.open.iter().all(|(open, _)| *open != id) {
            self.open.push((id, file));
        }
        Ok(())
    }

    /// Unmounts, which puts everything on the medium, and mounts again.
    fn remount(&mut self, names: &Names, number: usize) -> Result<bool> {
        self.open.clear();
        self.volume().unmount()?;
        self.volume = None;
        let shared: Arc<dyn Device> = Arc::clone(&self.device) as _;
        self.volume = Some(Volume::mount(shared, options())?);
        for id in names.values() {
            if let Some(history) = self.record.files.get_mut(id) {
                history.sync(number);
            }
        }
        Ok(true)
    }

    fn use_file(&mut self, number: usize) -> Result<bool> {
        let index = self.rng.below(self.open.len());
        let (id, file) = self.open[index].clone();
        let history = self.record.files.get_mut(&id).expect("it was made");
        let size = history.bytes().len();
        if file.size() != size as u64 {
            // A failed close may lose unsynced bytes; only the volume reports that.
            let volume = self.volume.as_ref().expect("it is mounted");
            volume.sync()?;
            panic!(
                "file {id}, operation {number}: {} bytes, not {size}",
                file.size()
            );
        }
        match self.rng.below(12) {
            0..=4 => {
                let len = match self.rng.below(8) {
                    0..=4 => self.rng.below(700),
                    5 | 6 => self.rng.below(20_000),
                    _ => self.rng.below(200_000),
                };
                let len = len.min(SIZE_MAX.saturating_sub(size));
                let bytes = pattern(self.rng.next(), len);
                let result = again(&mut self.failures, || file.append(&bytes));
                let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
                if !result.as_ref().is_err_and(is_full) {
                    history.append(&bytes);
                    result?;
                }
            }
            5 => {
                let size = self.rng.below(size + 1);
                history.cut(number, size);
                again(&mut self.failures, || file.truncate(size as u64))?;
            }
            6 => {
                let at = self.rng.below(size + 1);
                let bytes = pattern(self.rng.next(), self.rng.below(9000).min(size - at));
                history.overwrite(number, at, &bytes);
                again(&mut self.failures, || file.write_at(at as u64, &bytes))?;
            }
            7 => file.write_behind()?,
            8 => {
                let at = self.rng.below(size + 1);
                let mut out = vec![0; self.rng.below(50_000)];
                let read = again(&mut self.failures, || file.read_at(at as u64, &mut out))?;
                let expected = &history.bytes()[at..size.min(at + out.len())];
                assert!(&out[..read] == expected, "file {id}, operation {number}");
                let read = again(&mut self.failures, || {
                    let mut begun = file.start_read(at as u64, out.len())?;
                    begun.wait().map(<[u8]>::to_vec)
                });
                assert!(read? == expected, "file {id}, operation {number}");
            }
            _ => {
                file.sync()?;
                history.sync(number);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Does something, once more for each read that may fail.
fn again<T>(failures: &mut usize, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match work() {
            Err(error) if *failures > 0 && error.kind() == ErrorKind::Io => *failures -= 1,
            result => return result,
        }
    }
}

/// Whether an operation on names was done, which depends on what there is.
fn is_done(result: Result<()>) -> Result<bool> {
    use ErrorKind::{
        Exists, Invalid, InvalidPath, IsDirectory, NoSpace, NotDirectory, NotEmpty, NotFound,
    };
    let usual = [
        Exists,
        Invalid,
        InvalidPath,
        IsDirectory,
        NotDirectory,
        NoSpace,
        NotEmpty,
        NotFound,
    ];
    match result {
        Ok(()) => Ok(true),
        Err(error) if usual.contains(&error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}
