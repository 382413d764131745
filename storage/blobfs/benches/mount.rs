//! `cargo bench -p millrace-blobfs --bench mount`: how long it takes to mount a volume of 100,000 files.
//!
//! The volume lies in a file, by default in the target folder's file system. Each round a child process mounts it,
//! appends to a thousand files, syncs each, and ends at once, so that the next mount finds a journal; that mount is
//! timed, then one after an unmount in order. Beside both: the time to read as many bytes as the mount has read, in
//! pieces of 256 KiB from the beginning of the same file, which is what the disk needs at least.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrace_blobfs::{FormatOptions, MountOptions, OpenOptions, Timestamp, Volume};
use millrace_block::{Device, FileDevice, FileOptions, Lba, Request};
use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};

const FILES: usize = 100_000;
const FOLDERS: usize = 100;
const FILE_BYTES: usize = 2_000;
const DEVICE_BYTES: u64 = 2 << 30;
const ROUNDS: usize = 5;
const PIECE: usize = 256 << 10;
/// Says to a child what to do.
const CHILD: &str = "MILLRACE_BLOBFS_MOUNT";
/// Says to it that it is to make the volume.
const FILL: &str = "MILLRACE_BLOBFS_FILL";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn device(image: &Path) -> Outcome<Arc<dyn Device>> {
    Ok(Arc::new(FileDevice::open(image, FileOptions::default())?))
}

fn options() -> MountOptions {
    MountOptions::new(Arc::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp(now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(0)))
    }))
}

fn name(number: usize) -> String {
    format!("{}/{number:06}.sst", number % FOLDERS)
}

/// Makes the volume and its files.
fn fill(image: &Path) -> Outcome<()> {
    fs::File::create(image)?.set_len(DEVICE_BYTES)?;
    let device = device(image)?;
    Volume::format(&device, &FormatOptions::new([1; 16], Timestamp(1)))?;
    let volume = Volume::mount(device, options())?;
    for folder in 0..FOLDERS {
        volume.create_dir(&folder.to_string())?;
    }
    let bytes = vec![1; FILE_BYTES];
    for number in 0..FILES {
        let create = OpenOptions {
            create: true,
            create_new: true,
            truncate: false,
        };
        volume.open(&name(number), &create)?.append(&bytes)?;
    }
    volume.unmount()?;
    Ok(())
}

/// Changes some files and leaves the volume as a kill would.
fn change(image: &Path) -> Outcome<()> {
    let volume = Volume::mount(device(image)?, options())?;
    let open = OpenOptions {
        create: false,
        create_new: false,
        truncate: false,
    };
    for number in (0..FILES).step_by(FILES / 1_000) {
        let file = volume.open(&name(number), &open)?;
        file.append(b"a little more")?;
        file.sync()?;
    }
    std::process::exit(0)
}

/// Bytes that this process has read from disks.
fn bytes_read() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("no read_bytes in /proc/self/io")?.parse()?)
}

/// Bytes of this process in memory.
fn resident() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(number
        .ok_or("no VmRSS in /proc/self/status")?
        .parse::<u64>()?
        << 10)
}

/// How long a mount takes, how many bytes it reads, and whether it had a journal to do again.
fn mount(image: &Path) -> Outcome<(Duration, u64)> {
    let device = device(image)?;
    let before = bytes_read()?;
    let start = Instant::now();
    let volume = Volume::mount(device, options())?;
    let time = start.elapsed();
    let bytes = bytes_read()? - before;
    volume.unmount()?;
    Ok((time, bytes))
}

/// How long the disk takes for so many bytes.
fn read(image: &Path, bytes: u64) -> Outcome<Duration> {
    let device = device(image)?;
    let mut queue = device.queue()?;
    let classes = vec![SizeClass {
        size: PIECE,
        count: 1,
    }];
    let options = ArenaOptions {
        classes,
        pages: Pages::Auto,
        locked: false,
        ..ArenaOptions::default()
    };
    let arena = Arena::new(Arc::clone(device.domain()), &options)?;
    let blocks = PIECE as u64 / u64::from(device.geometry().block_bytes);
    let start = Instant::now();
    for piece in 0..bytes.div_ceil(PIECE as u64) {
        let buffer = arena.try_buffer(PIECE)?;
        let done = queue.run(Request::read(Lba(piece * blocks), buffer, piece));
        done.map_err(|refused| refused.error)?.result?;
    }
    Ok(start.elapsed())
}

fn median(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    format!(
        "{:.2} ({:.2}-{:.2})",
        values[values.len() / 2],
        values[0],
        values[values.len() - 1]
    )
}

fn measure(image: &Path) -> Outcome<()> {
    let child = Command::new(env::current_exe()?)
        .env(CHILD, image)
        .env(FILL, "")
        .status()?;
    if !child.success() {
        return Err("the child that makes files failed".into());
    }
    // The first mount of this process takes memory that is not its own yet.
    let before = resident()?;
    let volume = Volume::mount(device(image)?, options())?;
    let memory = (resident()? - before) / FILES as u64;
    volume.unmount()?;
    drop(volume);
    let mut table = [
        ("after a kill", Vec::new(), Vec::new(), 0),
        ("after an unmount", Vec::new(), Vec::new(), 0),
    ];
    for _ in 0..ROUNDS {
        let child = Command::new(env::current_exe()?)
            .env(CHILD, image)
            .status()?;
        if !child.success() {
            return Err("the child that changes files failed".into());
        }
        for (_, times, ratios, bytes_max) in &mut table {
            let (time, bytes) = mount(image)?;
            times.push(time.as_secs_f64() * 1e3);
            ratios.push(time.as_secs_f64() / read(image, bytes)?.as_secs_f64());
            *bytes_max = bytes.max(*bytes_max);
        }
    }
    println!(
        "{FILES} files in {FOLDERS} directories, {ROUNDS} rounds; {memory} bytes of memory a file\n"
    );
    println!("| mount | ms, median (low-high) | MiB read | / reading them alone |");
    println!("|---|---|---|---|");
    for (name, times, ratios, bytes) in &mut table {
        println!(
            "| {name} | {} | {:.1} | {} |",
            median(times),
            *bytes >> 20,
            median(ratios)
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match env::var_os(CHILD) {
        Some(image) if env::var_os(FILL).is_some() => fill(Path::new(&image)),
        Some(image) => change(Path::new(&image)),
        None => {
            let folder = env::var_os("MILLRACE_BENCH_FOLDER")
                .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
            let image = folder.join("mount.img");
            let outcome = measure(&image);
            let removed = fs::remove_file(&image);
            outcome.and_then(|()| Ok(removed?))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mount: {error}");
            ExitCode::FAILURE
        }
    }
}
