//! Random operations, done both on a volume and on a folder of the operating system's: results, contents, sizes,
//! names, and the kinds of errors must agree, also after the volume was mounted again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_blobfs::{
    ErrorKind, File, FormatOptions, Kind, OpenOptions, ReadPart, Timestamp, Volume,
};
use millrace_block::{Device, MemoryDevice};
use millrace_fixtures::seeds;

use crate::data_checksums;
use crate::support::{Rng, mount, pattern};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The two sides.
struct Both {
    seed: u64,
    rng: Rng,
    device: Arc<dyn Device>,
    volume: Volume,
    folder: tempfile::TempDir,
    open: Vec<(File, fs::File)>,
    step: usize,
}

/// What an error is on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
}

fn of_volume(error: &millrace_blobfs::Error) -> Class {
    match error.kind() {
        ErrorKind::NotFound => Class::NotFound,
        ErrorKind::Exists => Class::Exists,
        ErrorKind::NotDirectory => Class::NotDirectory,
        ErrorKind::IsDirectory => Class::IsDirectory,
        ErrorKind::NotEmpty => Class::NotEmpty,
        ErrorKind::Invalid | ErrorKind::InvalidPath => Class::Invalid,
        kind => panic!("{kind:?}: {error}"),
    }
}

fn of_system(error: &io::Error) -> Class {
    match error.raw_os_error() {
        Some(2) => Class::NotFound,
        Some(17) => Class::Exists,
        Some(20) => Class::NotDirectory,
        // Linking a directory is refused with EPERM.
        Some(21 | 1) => Class::IsDirectory,
        Some(39) => Class::NotEmpty,
        Some(22) => Class::Invalid,
        _ => panic!("{error}"),
    }
}

impl Both {
    fn new(seed: u64) -> Self {
        let block = if seed % 2 == 0 { 512 } else { 4096 };
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, block).unwrap());
        let options = FormatOptions {
            // So small that checkpoints come often.
            journal_bytes: Some(256 << 10),
            data_checksums: data_checksums(seed / 2),
            ..FormatOptions::new([1; 16], Timestamp(1))
        };
        Volume::format(&device, &options).unwrap();
        Self {
            seed,
            rng: Rng::new(seed),
            volume: mount(&device),
            device,
            folder: tempfile::tempdir().unwrap(),
            open: Vec::new(),
            step: 0,
        }
    }

    /// A path of one or two names, some of which exist.
    fn path(&mut self) -> String {
        let first = NAMES[self.rng.below(NAMES.len())];
        if self.rng.below(3) == 0 {
            return first.to_owned();
        }
        format!("{first}/{}", NAMES[self.rng.below(NAMES.len())])
    }

    fn on_system(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn same<A, B>(
        &self,
        what: &str,
        ours: Result<A, millrace_blobfs::Error>,
        theirs: io::Result<B>,
    ) -> Option<(A, B)> {
        let place = format!("seed {}, step {}: {what}", self.seed, self.step);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => Some((ours, theirs)),
            (Err(ours), Err(theirs)) => {
                assert_eq!(
                    of_volume(&ours),
                    of_system(&theirs),
                    "{place}: {ours} / {theirs}"
                );
                None
            }
            (Ok(_), Err(theirs)) => panic!("{place}: only the system refused: {theirs}"),
            (Err(ours), Ok(_)) => panic!("{place}: only the volume refused: {ours}"),
        }
    }

    fn step(&mut self) {
        self.step += 1;
        match self.rng.below(20) {
            0..=2 => self.create(),
            3 => {
                let path = self.path();
                let ours = self.volume.create_dir(&path);
                self.same(
                    &format!("mkdir {path}"),
                    ours,
                    fs::create_dir(self.on_system(&path)),
                );
            }
            4 => {
                let path = self.path();
                let ours = self.volume.remove(&path);
                self.same(
                    &format!("rm {path}"),
                    ours,
                    fs::remove_file(self.on_system(&path)),
                );
            }
            5 => {
                let path = self.path();
                let ours = self.volume.remove_dir(&path);
                self.same(
                    &format!("rmdir {path}"),
                    ours,
                    fs::remove_dir(self.on_system(&path)),
                );
            }
            6 => {
                let (from, to) = (self.path(), self.path());
                let theirs = fs::rename(self.on_system(&from), self.on_system(&to));
                let ours = self.volume.rename(&from, &to);
                self.same(&format!("mv {from} {to}"), ours, theirs);
            }
            7 => {
                let (from, to) = (self.path(), self.path());
                let theirs = fs::hard_link(self.on_system(&from), self.on_system(&to));
                let ours = self.volume.link(&from, &to);
                self.same(&format!("ln {from} {to}"), ours, theirs);
            }
            8 if self.rng.below(4) == 0 => self.remount(),
            8 => self.volume.sync().unwrap(),
            9 => {
                if !self.open.is_empty() {
                    let index = self.rng.below(self.open.len());
                    self.open.swap_remove(index);
                }
            }
            _ => self.use_file(),
        }
        if self.step % 16 == 0 {
            self.compare();
        }
    }

    fn create(&mut self) {
        let path = self.path();
        let (create_new, truncate) = (self.rng.below(4) == 0, self.rng.below(3) == 0);
        let options = OpenOptions {
            create: true,
            create_new,
            truncate: truncate && !create_new,
        };
        let ours = self.volume.open(&path, &options);
        let mut theirs = fs::OpenOptions::new();
        theirs
            .read(true)
            .write(true)
            .create(true)
            .create_new(create_new)
            .truncate(options.truncate);
        let theirs = theirs.open(self.on_system(&path));
        if let Some(both) = self.same(&format!("open {path} {options:?}"), ours, theirs) {
            if self.open.len() < 8 {
                self.open.push(both);
            }
        }
    }

    fn use_file(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let index = self.rng.below(self.open.len());
        let size = self.open[index].0.size();
        let len = match self.rng.below(10) {
            0 => 0,
            1..=5 => self.rng.below(600),
            6..=8 => self.rng.below(40_000),
            _ => self
                .rng
                .below(if size < 1 << 20 { 1_500_000 } else { 1000 }),
        };
        let offset = self.rng.below(usize::try_from(size).unwrap() + 5000) as u64;
        let bytes = pattern(self.rng.next(), len);
        let (ours, theirs) = &self.open[index];
        let place = format!("seed {}, step {}", self.seed, self.step);
        match self.rng.below(12) {
            0..=4 => {
                ours.append(&bytes).unwrap();
                theirs.write_all_at(&bytes, size).unwrap();
            }
            5 => {
                ours.write_at(offset, &bytes).unwrap();
                if !bytes.is_empty() || offset <= size {
                    theirs.write_all_at(&bytes, offset).unwrap();
                } else {
                    theirs.set_len(offset).unwrap();
                }
            }
            6 => {
                ours.truncate(offset).unwrap();
                theirs.set_len(offset).unwrap();
            }
            7 | 8 => ours.sync().unwrap(),
            9 => ours.write_behind().unwrap(),
            10 => {
                let mut expected = vec![0; len];
                let count = theirs.read_at(&mut expected, offset).unwrap();
                let mut pending = ours.start_read(offset, len).unwrap();
                assert!(
                    pending.wait().unwrap() == &expected[..count],
                    "{place}: async read at {offset}"
                );
            }
            _ => {
                let (mut first, mut second) = (vec![0; len], vec![0; 100]);
                let mut parts = [
                    ReadPart {
                        offset,
                        out: &mut first,
                        result: Ok(0),
                    },
                    ReadPart {
                        offset: offset / 2,
                        out: &mut second,
                        result: Ok(0),
                    },
                ];
                ours.read_many(&mut parts);
                for part in parts {
                    let count = part.result.unwrap();
                    let mut expected = vec![0; part.out.len()];
                    assert_eq!(
                        theirs.read_at(&mut expected, part.offset).unwrap(),
                        count,
                        "{place}"
                    );
                    assert!(
                        part.out[..count] == expected[..count],
                        "{place}: read at {}",
                        part.offset
                    );
                }
            }
        }
        assert_eq!(ours.size(), theirs.metadata().unwrap().len(), "{place}");
    }

    fn remount(&mut self) {
        self.open.clear();
        self.volume.unmount().unwrap();
        self.volume = mount(&self.device);
        self.compare();
    }

    fn compare(&self) {
        let place = format!("seed {}, step {}", self.seed, self.step);
        let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
        tree_of_volume(&self.volume, "", &mut ours);
        tree_of_system(self.folder.path(), "", &mut theirs);
        let names = |tree: &Tree| {
            tree.iter()
                .map(|(path, (links, data))| (path.clone(), *links, data.is_some()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&ours), names(&theirs), "{place}");
        for ((path, (_, ours)), (_, theirs)) in ours
            .iter()
            .zip(theirs.values().map(|value| ((), value)))
            .map(|(a, (_, b))| (a, b))
        {
            assert!(ours == theirs, "{place}: contents of {path}");
        }
        for (ours, theirs) in &self.open {
            let size = usize::try_from(theirs.metadata().unwrap().len()).unwrap();
            let (mut a, mut b) = (vec![0; size + 1], vec![0; size]);
            assert_eq!(ours.read_at(0, &mut a).unwrap(), size, "{place}");
            theirs.read_exact_at(&mut b, 0).unwrap();
            assert!(a[..size] == b, "{place}: contents of an open file");
        }
    }
}

/// Path to links and contents; directories have none.
type Tree = BTreeMap<String, (u64, Option<Vec<u8>>)>;

fn tree_of_volume(volume: &Volume, path: &str, tree: &mut Tree) {
    for entry in volume.read_dir(path).unwrap() {
        let path = format!("{path}/{}", entry.name);
        if entry.kind == Kind::Directory {
            tree.insert(path.clone(), (0, None));
            tree_of_volume(volume, &path, tree);
            continue;
        }
        let file = volume.open(&path, &OpenOptions::default()).unwrap();
        let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        let links = u64::from(volume.status(&path).unwrap().links);
        tree.insert(path, (links, Some(bytes)));
    }
}

fn tree_of_system(folder: &Path, path: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
        let status = entry.metadata().unwrap();
        if status.is_dir() {
            tree.insert(path.clone(), (0, None));
            tree_of_system(&entry.path(), &path, tree);
        } else {
            tree.insert(
                path,
                (status.nlink(), Some(fs::read(entry.path()).unwrap())),
            );
        }
    }
}

#[test]
fn random_operations_do_what_they_do_on_the_operating_systems_files() {
    for seed in seeds(0..40) {
        let mut both = Both::new(seed);
        for _ in 0..300 {
            both.step();
        }
        both.remount();
    }
}
