//! A power cut at every event of random workloads, with images that a disk could hold.
//!
//! Files are only appended to and cut, so that what a file may hold is easily said: within an epoch, which a cut
//! ends, all versions are prefixes of the last.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_blobfs::{
    Barrier, ErrorKind, File, FormatOptions, Kind, OpenOptions, Timestamp, Volume, mutation,
};
use millrace_block::{Device, Geometry, MemoryDevice};
use millrace_power_cut::{Options, Order, PowerCut, Survivors};

mod support;
use support::{Rng, options, pattern};

const CREATE: OpenOptions = OpenOptions {
    create: true,
    create_new: false,
    truncate: false,
};
const DEVICE_BYTES: u64 = 8 << 20;

/// All versions of a file.
#[derive(Default)]
struct History {
    /// For each epoch its bytes, and how many it began with.
    epochs: Vec<(Vec<u8>, usize)>,
    /// When it was synced, in operations, with the epoch and size it then had.
    synced: Vec<(usize, usize, usize)>,
    /// The operation that began each epoch.
    began: Vec<usize>,
}

/// A tree of names: path to the file's id, 0 for directories.
type Names = BTreeMap<String, u64>;

/// What a workload did, and when.
#[derive(Default)]
struct Record {
    files: BTreeMap<u64, History>,
    /// The names after each operation; the first is before any.
    names: Vec<Names>,
    /// The number of events after each operation.
    events: Vec<usize>,
    /// Operations after which all names were durable.
    durable: Vec<usize>,
}

struct Workload {
    volume: Volume,
    device: Arc<PowerCut>,
    rng: Rng,
    open: Vec<(u64, File)>,
    record: Record,
}

impl Workload {
    fn new(seed: u64, geometry: Geometry) -> Self {
        let order = if seed % 3 == 0 {
            Order::Shuffled(seed)
        } else {
            Order::AtOnce
        };
        let device = PowerCut::with_options(Options {
            geometry,
            image: None,
            order,
        })
        .expect("a good geometry");
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        let format = FormatOptions {
            journal_bytes: Some(256 << 10),
            ..FormatOptions::new([3; 16], Timestamp(1))
        };
        Volume::format(&shared, &format).expect("the device is good");
        let volume = Volume::mount(Arc::clone(&shared), options()).expect("the volume is good");
        let mut names = Names::new();
        let mut volume = volume;
        if seed % 8 == 4 {
            names = scatter(&volume);
            drop(volume);
            volume = Volume::mount(shared, options()).expect("the volume is good");
        }
        device.settle();
        let record = Record {
            names: vec![names],
            events: vec![device.events()],
            ..Record::default()
        };
        Self {
            volume,
            device,
            rng: Rng::new(seed),
            open: Vec::new(),
            record,
        }
    }

    fn path(&mut self) -> String {
        let names = ["a", "b", "c", "d"];
        let name = names[self.rng.below(4)];
        if self.rng.below(3) == 0
            && self
                .record
                .names
                .last()
                .is_some_and(|names| names.contains_key("dir"))
        {
            return format!("dir/{name}");
        }
        name.to_owned()
    }

    fn run(&mut self, operations: usize) {
        for _ in 0..operations {
            let mut names = self.record.names.last().expect("never empty").clone();
            let number = self.record.names.len();
            let is_durable = self.step(&mut names, number);
            self.record.names.push(names);
            self.record.events.push(self.device.events());
            if is_durable {
                self.record.durable.push(number);
            }
        }
    }

    fn step(&mut self, names: &mut Names, number: usize) -> bool {
        match self.rng.below(16) {
            0..=1 => {
                let path = self.path();
                let file = self.volume.open(&path, &CREATE).unwrap();
                let id = file.status().unwrap().id;
                names.insert(path, id);
                let history = self.record.files.entry(id).or_default();
                if history.epochs.is_empty() {
                    history.epochs.push((Vec::new(), 0));
                    history.began.push(number);
                }
                if self.open.len() < 4 && self.open.iter().all(|(open, _)| *open != id) {
                    self.open.push((id, file));
                }
            }
            2 => {
                let (from, to) = (self.path(), self.path());
                // Of two names of one file none goes.
                let is_same = names.get(&from) == names.get(&to);
                if self.volume.rename(&from, &to).is_ok() && !is_same {
                    let id = names.remove(&from).expect("the volume knew it");
                    names.insert(to, id);
                }
            }
            3 => {
                let path = self.path();
                if self.volume.remove(&path).is_ok() {
                    names.remove(&path).expect("the volume knew it");
                }
            }
            4 => {
                let (from, to) = (self.path(), self.path());
                if self.volume.link(&from, &to).is_ok() {
                    let id = names[&from];
                    names.insert(to, id);
                }
            }
            5 => {
                if self.volume.create_dir("dir").is_ok() {
                    names.insert("dir".to_owned(), 0);
                }
            }
            6 if !self.open.is_empty() => {
                let index = self.rng.below(self.open.len());
                self.open.swap_remove(index);
            }
            7 => {
                self.volume.sync().unwrap();
                return true;
            }
            _ if !self.open.is_empty() => return self.use_file(number),
            _ => {}
        }
        false
    }

    fn use_file(&mut self, number: usize) -> bool {
        let index = self.rng.below(self.open.len());
        let (id, file) = &self.open[index];
        let history = self.record.files.get_mut(id).expect("it was made");
        let epoch = history.epochs.len() - 1;
        match self.rng.below(10) {
            0..=4 => {
                let len = match self.rng.below(8) {
                    0..=4 => self.rng.below(700),
                    5 | 6 => self.rng.below(20_000),
                    _ => self.rng.below(200_000),
                };
                if file.size() > 300_000 {
                    return false;
                }
                let bytes = pattern(self.rng.next(), len);
                if file
                    .append(&bytes)
                    .is_err_and(|error| error.kind() == ErrorKind::NoSpace)
                {
                    return false;
                }
                history.epochs[epoch].0.extend_from_slice(&bytes);
            }
            5 => {
                let size = self.rng.below(usize::try_from(file.size()).unwrap() + 1);
                file.truncate(size as u64).unwrap();
                let kept = history.epochs[epoch].0[..size].to_vec();
                history.epochs.push((kept, size));
                history.began.push(number);
            }
            6 => file.write_behind().unwrap(),
            _ => {
                file.sync().unwrap();
                let size = usize::try_from(file.size()).unwrap();
                history.synced.push((number, epoch, size));
                return true;
            }
        }
        false
    }
}

impl Record {
    /// What is wrong with a disk that is left when the power goes after so many events; nothing if it is right.
    fn fault(&self, disk: Arc<dyn Device>, point: usize) -> Option<String> {
        let volume = match Volume::mount(disk, options()) {
            Ok(volume) => volume,
            Err(error) => {
                let source = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                return Some(format!("no mount: {error} {source}"));
            }
        };
        // Operations that were done, and perhaps the one after them.
        let done = self
            .events
            .partition_point(|&events| events <= point)
            .saturating_sub(1);
        let issued = (done + 1).min(self.names.len() - 1);
        let durable = self
            .durable
            .iter()
            .copied()
            .take_while(|&number| number <= done)
            .last()
            .unwrap_or(0);
        let mut names = Names::new();
        collect(&volume, "", &mut names);
        if !self.names[durable..=issued].contains(&names) {
            let known = self.names.iter().rposition(|known| *known == names);
            let wanted = &self.names[durable];
            return Some(format!(
                "names {names:?} are those after operation {known:?}, none of {durable}..={issued} ({wanted:?})"
            ));
        }
        for (path, id) in names.iter().filter(|(_, id)| self.files.contains_key(id)) {
            let file = match volume.open(path, &OpenOptions::default()) {
                Ok(file) => file,
                Err(error) => return Some(format!("{path}: {error}")),
            };
            let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
            if let Err(error) = file.read_at(0, &mut bytes) {
                return Some(format!("{path}: {error}"));
            }
            if let Some(fault) = self.files[id].fault(&bytes, done, issued) {
                return Some(format!("{path} (#{id}) of {} bytes: {fault}", bytes.len()));
            }
        }
        // It can be used.
        let file = volume
            .open("after", &CREATE)
            .and_then(|file| file.append(b"x").and_then(|()| file.sync()));
        file.err().map(|error| format!("no use: {error}"))
    }
}

impl History {
    fn fault(&self, bytes: &[u8], done: usize, issued: usize) -> Option<String> {
        let synced = self
            .synced
            .iter()
            .rev()
            .find(|(number, ..)| *number <= done);
        let (epoch, size) = synced.map_or((0, 0), |&(_, epoch, size)| (epoch, size));
        let is_right = (epoch..self.epochs.len()).any(|index| {
            let (all, began_with) = &self.epochs[index];
            let least = if index == epoch { size } else { *began_with };
            self.began[index] <= issued && all.starts_with(bytes) && bytes.len() >= least
        });
        (!is_right).then(|| {
            let (all, _) = &self.epochs[epoch];
            let same = all.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            format!(
                "the first {same} bytes are right, {size} were synced in epoch {epoch} of {}",
                self.epochs.len()
            )
        })
    }
}

/// Leaves free units one by one, so that a checkpoint has many extents and a superblock many blocks.
fn scatter(volume: &Volume) -> Names {
    let mut names = Names::new();
    let long = "x".repeat(40);
    let made = (0..).map_while(|number| {
        let path = format!("{long}{number}");
        let file = volume.open(&path, &CREATE).expect("names need no space");
        file.append(b"one unit").ok()?;
        Some((path, file.status().expect("it has a name").id))
    });
    for (number, (path, id)) in made.collect::<Vec<_>>().into_iter().enumerate() {
        if number % 2 == 0 {
            volume.remove(&path).expect("it was made");
        } else {
            names.insert(path, id);
        }
    }
    for entry in volume.read_dir("/").expect("the root") {
        if !names.contains_key(&entry.name) {
            volume
                .remove(&entry.name)
                .expect("the one that met the end");
        }
    }
    volume.sync().expect("the device is good");
    // The run that was kept for checkpoints.
    let file = volume.open("run", &CREATE).expect("names need no space");
    file.append(&pattern(1, 400_000))
        .and_then(|()| file.sync())
        .expect("half of the volume is free");
    names.insert("run".to_owned(), file.status().expect("it has a name").id);
    names
}

fn collect(volume: &Volume, path: &str, names: &mut Names) {
    for entry in volume.read_dir(path).expect("a directory that was listed") {
        let path = if path.is_empty() {
            entry.name
        } else {
            format!("{path}/{}", entry.name)
        };
        if entry.kind == Kind::Directory {
            collect(volume, &path, names);
            names.insert(path, 0);
        } else {
            names.insert(path, entry.id);
        }
    }
}

fn geometry(seed: u64) -> Geometry {
    let block = if seed % 4 == 3 { 4096 } else { 512 };
    let bytes = if seed % 8 == 4 {
        DEVICE_BYTES / 2
    } else {
        DEVICE_BYTES
    };
    let mut geometry = MemoryDevice::geometry_of(bytes, block);
    geometry.volatile_cache = true;
    geometry.write_through = seed % 2 == 1;
    geometry.deallocation = millrace_block::Deallocation::Cheap;
    geometry.atomic_blocks = 1;
    geometry
}

/// Cuts the power at events of a workload; the first fault found, and how many images were looked at.
fn campaign(seed: u64, operations: usize, stride: usize) -> (Option<String>, usize) {
    let geometry = geometry(seed);
    let mut workload = Workload::new(seed, geometry.clone());
    workload.run(operations);
    let Workload {
        volume,
        device,
        open,
        record,
        ..
    } = workload;
    drop(open);
    drop(volume);
    let mut cursor = device.cursor();
    let mut images = 0;
    let mut rng = Rng::new(seed);
    loop {
        if rng.below(stride) == 0 {
            for survivors in Survivors::ALL {
                let chosen = rng.next();
                let disk = cursor.image(survivors, chosen);
                images += 1;
                // One of the two superblocks may be unreadable besides.
                let disk = PowerCut::on(disk, geometry.clone()).expect("a good geometry");
                let lost = chosen % 4 == 0;
                if lost {
                    disk.make_bad(0..1);
                }
                // The power may go again while the volume is mounted.
                let shared: Arc<dyn Device> = Arc::clone(&disk) as _;
                if chosen % 16 == 1 && Volume::mount(shared, options()).is_ok() {
                    let again = disk.disk(rng.below(disk.events() + 1), survivors, chosen);
                    images += 1;
                    if let Some(fault) = record.fault(Arc::new(again), cursor.point()) {
                        let place = format!(
                            "seed {seed}, event {} of {}",
                            cursor.point(),
                            cursor.events()
                        );
                        return (
                            Some(format!(
                                "{place}, {survivors:?} {chosen}, cut again: {fault}"
                            )),
                            images,
                        );
                    }
                    continue;
                }
                if let Some(fault) = record.fault(disk, cursor.point()) {
                    let place = format!(
                        "seed {seed}, event {} of {}",
                        cursor.point(),
                        cursor.events()
                    );
                    let lost = if lost {
                        ", first superblock unreadable"
                    } else {
                        ""
                    };
                    return (
                        Some(format!("{place}, {survivors:?} {chosen}{lost}: {fault}")),
                        images,
                    );
                }
            }
        }
        if !cursor.advance() {
            return (None, images);
        }
    }
}

fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    std::env::var("MILLRACE_SEEDS").map_or(usual, |text| {
        let (from, to) = text.split_once("..").expect("MILLRACE_SEEDS=FROM..TO");
        from.parse().expect("a number")..to.parse().expect("a number")
    })
}

#[test]
fn whatever_a_disk_holds_after_a_power_cut_what_was_synced_is_there() {
    mutation::leave_out(None);
    let mut images = 0;
    for seed in seeds(0..12) {
        let (fault, looked_at) = campaign(seed, 150, 3);
        images += looked_at;
        assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    }
    println!("{images} images");
    assert!(images > 1000);
}

/// In a process of its own for each barrier, since the switch is the process's.
#[test]
fn no_barrier_can_be_left_out() {
    if let Ok(name) = std::env::var("MILLRACE_LEFT_OUT") {
        let barrier = Barrier::ALL
            .into_iter()
            .find(|barrier| format!("{barrier:?}") == name);
        mutation::leave_out(Some(barrier.expect("the name of a barrier")));
        let fault = (0..60).find_map(|seed| campaign(seed, 150, 1).0);
        println!("{name}: {}", fault.as_deref().unwrap_or("nothing was lost"));
        assert!(fault.is_some(), "{name} can be left out");
        return;
    }
    for barrier in Barrier::ALL {
        let this = std::env::current_exe().expect("a test has a path");
        let mut child = std::process::Command::new(this);
        child.args(["--exact", "no_barrier_can_be_left_out", "--nocapture"]);
        let output = child
            .env("MILLRACE_LEFT_OUT", format!("{barrier:?}"))
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        println!(
            "{}",
            text.lines()
                .filter(|line| line.starts_with(&format!("{barrier:?}")))
                .collect::<String>()
        );
        assert!(output.status.success(), "{barrier:?}: {text}");
    }
}
