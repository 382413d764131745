//! What requests to a file cost: in the calling thread and through its ring.
//!
//! The file is made in the folder of the build, or in the one that `MILLRACE_BENCH_FOLDER` names.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_block::{Device, FileDevice, FileOptions, Lba, Queue, Request};
use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};

const BYTES: u64 = 256 << 20;
const LEN: usize = 4096;
const ROUNDS: u64 = 2000;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

struct Bench {
    queue: Box<dyn Queue>,
    arena: Arena,
    block_bytes: u64,
    draws: u64,
}

impl Bench {
    fn new(path: &Path, options: FileOptions) -> Outcome<Self> {
        let device = FileDevice::open(path, options)?;
        let class = |size, count| SizeClass { size, count };
        let options = ArenaOptions {
            classes: vec![class(LEN, 64), class(1 << 20, 1)],
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        Ok(Self {
            queue: device.queue()?,
            arena: Arena::new(Arc::clone(device.domain()), &options)?,
            block_bytes: device.geometry().block_bytes.into(),
            draws: 0,
        })
    }

    /// A place of the file, another one each time, all over it.
    fn place(&mut self) -> Lba {
        self.draws += 1;
        let places = BYTES / LEN as u64;
        let place = self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15) % places;
        Lba(place * (LEN as u64 / self.block_bytes))
    }

    fn run(&mut self, request: Request) -> Outcome {
        Ok(self.queue.run(request)?.result?)
    }

    fn write(&mut self, flush: bool, through: bool) -> Outcome {
        let (place, buffer) = (self.place(), self.arena.try_buffer(LEN)?);
        self.run(match through {
            true => Request::write_through(place, buffer, 0),
            false => Request::write(place, buffer, 0),
        })?;
        if flush {
            self.run(Request::flush(0))?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Outcome {
        let blocks = (1 << 20) / self.block_bytes;
        for part in 0..BYTES >> 20 {
            let buffer = self.arena.try_buffer(1 << 20)?;
            self.run(Request::write(Lba(part * blocks), buffer, 0))?;
        }
        self.run(Request::flush(0))
    }

    fn read(&mut self) -> Outcome {
        let (place, buffer) = (self.place(), self.arena.try_buffer(LEN)?);
        self.run(Request::read(place, buffer, 0))
    }

    /// Reads through the ring, so many at once.
    fn read_many(&mut self, depth: usize, rounds: u64) -> Outcome {
        for _ in 0..rounds {
            while self.queue.in_flight() < depth {
                let (place, buffer) = (self.place(), self.arena.try_buffer(LEN)?);
                self.queue.submit(Request::read(place, buffer, 0))?;
            }
            self.queue.wait().ok_or("reads are in flight")?.result?;
        }
        while let Some(completion) = self.queue.wait() {
            completion.result?;
        }
        Ok(())
    }
}

fn median(mut once: impl FnMut() -> Outcome, rounds: u64) -> Outcome<Duration> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        once()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn each(all: impl FnOnce() -> Outcome, rounds: u64) -> Outcome<Duration> {
    let start = Instant::now();
    all()?;
    Ok(start.elapsed() / u32::try_from(rounds)?)
}

fn show(name: &str, time: Duration) {
    println!("block/file/{name:<32} {:9.2} us", time.as_secs_f64() * 1e6);
}

fn main() -> Outcome {
    let folder = env::var_os("MILLRACE_BENCH_FOLDER")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let folder = tempfile::tempdir_in(folder)?;
    let path = folder.path().join("device");
    FileDevice::create(&path, BYTES)?;
    let mut bench = Bench::new(&path, FileOptions::default())?;
    show(
        "write, flush/allocated",
        median(|| bench.write(true, false), ROUNDS / 4)?,
    );
    show(
        "write through/allocated",
        median(|| bench.write(false, true), ROUNDS / 4)?,
    );
    bench.fill()?;
    show(
        "write, flush/written",
        median(|| bench.write(true, false), ROUNDS / 4)?,
    );
    show(
        "write through/written",
        median(|| bench.write(false, true), ROUNDS / 4)?,
    );
    show(
        "write/written",
        median(|| bench.write(false, false), ROUNDS)?,
    );
    show("read/run", median(|| bench.read(), ROUNDS)?);
    for depth in [1, 4, 16] {
        let all = || bench.read_many(depth, ROUNDS);
        show(&format!("read/ring, {depth} at once"), each(all, ROUNDS)?);
    }
    Ok(())
}
