//! `cargo bench -p millrace-rocksdb --bench commits`: buffered commits a second with 1 to 16 threads.
//!
//! Each commit guards a key, puts 100 bytes under it and adds to one counter. A run is a process of its own with
//! a new database, once in memory (`/dev/shm`, or the folder `--memory`) and once in a folder of the file system
//! (the temporary folder, or `--folder`). Without `--bench`, as `cargo test --benches` runs it, a run is so short
//! that it only shows that the benchmark works.
//!
//! `--beside PROGRAM` names this benchmark's program as built from another commit: the two take turns within each
//! round, and a ratio is the median of the rounds' ratios, with the lowest and the highest.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use millrace_engine::{Batch, Counter, Durability, Engine, ErrorKind};
use millrace_rocksdb::{Options, RocksEngine};

const ROUNDS: usize = 5;
const THREADS: [u64; 5] = [1, 2, 4, 8, 16];
/// Commits of one run, shared among its threads.
const COMMITS: u64 = 320_000;
/// Commits of one run without `--bench`.
const COMMITS_SHORT: u64 = 1_600;
const VALUE_BYTES: usize = 100;
/// The kernel's unit of processor time in `/proc/self/stat`, in microseconds.
const TICK_US: f64 = 10_000.0;
/// Makes a process do one run: folder, threads and commits, each on a line.
const RUN: &str = "MILLRACE_COMMITS_RUN";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    commits_per_s: f64,
    /// Time under the lock for each commit, in microseconds.
    lock_us: f64,
    /// Processor time of the process for each commit, in microseconds.
    cpu_us: f64,
    /// Commits for each write to RocksDB.
    group: f64,
}

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

/// User and system time of this process, in ticks.
fn cpu_ticks() -> Outcome<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or("no name in /proc/self/stat")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || -> Outcome<u64> { Ok(fields.next().ok_or("too few fields")?.parse()?) };
    Ok(ticks()? + ticks()?)
}

fn statistic(engine: &RocksEngine, name: &str) -> Option<u64> {
    let statistics = engine.statistics();
    let found = statistics.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value)
}

/// Commits `commits` batches with keys of this thread, in no order of the keys.
fn commit_many(engine: &RocksEngine, thread: u64, commits: u64) -> millrace_engine::Result<()> {
    let value = [0xAB; VALUE_BYTES];
    let delta = Counter {
        count: 1,
        bytes: 100,
    };
    let mut batch = Batch::new();
    for number in 0..commits {
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ thread;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&spread.to_be_bytes());
        key[8..].copy_from_slice(&thread.to_be_bytes());
        batch.clear();
        batch.put(&key, &value);
        batch.add(b"collection", delta);
        loop {
            let mut read_set = engine.read_set();
            read_set.add(&key);
            match engine.commit(&batch, &read_set, Durability::Buffered) {
                Ok(_) => break,
                // Two keys may share a slot of the conflict table.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// One run, in a process of its own; its figures on one line.
fn run(order: &str) -> Outcome<()> {
    let mut order = order.lines();
    let mut next = || order.next().ok_or("an incomplete order");
    let (folder, threads, commits) = (next()?, next()?.parse()?, next()?.parse::<u64>()?);
    let options = Options {
        commit_clock: Some(clock),
        ..Options::default()
    };
    let engine = RocksEngine::open(Path::new(folder), options)?;
    let each = commits / threads;
    let start = Barrier::new(usize::try_from(threads)? + 1);
    let (took, ticks) = thread::scope(|scope| -> Outcome<_> {
        let mut committers = Vec::new();
        for thread in 0..threads {
            let (engine, start) = (&engine, &start);
            committers.push(scope.spawn(move || {
                start.wait();
                commit_many(engine, thread, each)
            }));
        }
        let ticks = cpu_ticks()?;
        start.wait();
        let began = Instant::now();
        for committer in committers {
            committer.join().map_err(|_| "a committer panicked")??;
        }
        Ok((began.elapsed().as_secs_f64(), cpu_ticks()? - ticks))
    })?;
    let done = float(each * threads);
    let lock_ns = statistic(&engine, "commit_lock_nanoseconds_total").unwrap_or(0);
    let groups = statistic(&engine, "commit_groups_total").unwrap_or(each * threads);
    println!(
        "{} {} {} {}",
        done / took,
        float(lock_ns) / 1_000.0 / done,
        float(ticks) * TICK_US / done,
        done / float(groups)
    );
    Ok(())
}

/// Lets `program` do one run in a new folder below `place`.
fn measure(program: &Path, place: &Path, threads: u64, commits: u64) -> Outcome<Figures> {
    let folder = tempfile::tempdir_in(place)?;
    let order = format!("{}\n{threads}\n{commits}", folder.path().display());
    let output = Command::new(program).env(RUN, order).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let line = String::from_utf8(output.stdout)?;
    let figures = line.split_whitespace().map(str::parse);
    let figures: Vec<f64> = figures.collect::<Result<_, _>>()?;
    let [commits_per_s, lock_us, cpu_us, group] = figures[..] else {
        return Err(format!("not the figures of a run: {line}").into());
    };
    Ok(Figures {
        commits_per_s,
        lock_us,
        cpu_us,
        group,
    })
}

/// A median with the lowest and the highest.
struct Spread([f64; 3]);

impl Spread {
    fn of(rounds: &[Figures], figure: impl Fn(&Figures) -> f64) -> Self {
        Self::of_all(rounds.iter().map(figure).collect())
    }

    fn of_ratios(own: &[Figures], peer: &[Figures], figure: impl Fn(&Figures) -> f64) -> Self {
        let ratios = own.iter().zip(peer);
        Self::of_all(
            ratios
                .map(|(own, peer)| figure(own) / figure(peer))
                .collect(),
        )
    }

    fn of_all(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self([values[last / 2], values[0], values[last]])
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let [median, low, high] = self.0;
        write!(f, "{median:.digits$} ({low:.digits$}-{high:.digits$})")
    }
}

fn print_row(place: &str, threads: u64, own: &[Figures], peer: &[Figures]) {
    let lock = |side: &[Figures]| format!("{:.2}", Spread::of(side, |run| run.lock_us));
    let cpu = |side: &[Figures]| format!("{:.1}", Spread::of(side, |run| run.cpu_us));
    print!(
        "| {place} | {threads} | {:.0} | {} | {} | {:.1} |",
        Spread::of(own, |run| run.commits_per_s),
        lock(own),
        cpu(own),
        Spread::of(own, |run| run.group),
    );
    if !peer.is_empty() {
        print!(
            " {:.0} | {} | {} | {:.2} |",
            Spread::of(peer, |run| run.commits_per_s),
            lock(peer),
            cpu(peer),
            Spread::of_ratios(own, peer, |run| run.commits_per_s),
        );
    }
    println!();
}

struct Arguments {
    memory: PathBuf,
    folder: PathBuf,
    beside: Option<PathBuf>,
    rounds: usize,
    commits: u64,
}

fn arguments() -> Outcome<Arguments> {
    let shm = Path::new("/dev/shm");
    let mut parsed = Arguments {
        memory: if shm.is_dir() {
            shm.to_path_buf()
        } else {
            env::temp_dir()
        },
        folder: env::temp_dir(),
        beside: None,
        rounds: 1,
        commits: COMMITS_SHORT,
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--bench" => (parsed.rounds, parsed.commits) = (ROUNDS, COMMITS),
            "--memory" => parsed.memory = value()?.into(),
            "--folder" => parsed.folder = value()?.into(),
            "--beside" => parsed.beside = Some(value()?.into()),
            "--rounds" => parsed.rounds = value()?.parse()?,
            "--commits" => parsed.commits = value()?.parse()?,
            // What cargo hands to every benchmark, and filters.
            _ => {}
        }
    }
    Ok(parsed)
}

fn compare(arguments: &Arguments) -> Outcome<()> {
    let own_program = env::current_exe()?;
    print!("| place | threads | commits/s | lock, us | processor, us | commits a group |");
    let beside = arguments.beside.as_ref();
    println!(
        "{}",
        beside.map_or(
            "",
            |_| " before: commits/s | lock, us | processor, us | ratio |"
        )
    );
    println!(
        "|---|---|---|---|---|---|{}",
        beside.map_or("", |_| "---|---|---|---|")
    );
    let places = [("memory", &arguments.memory), ("folder", &arguments.folder)];
    for (name, place) in places {
        for threads in THREADS {
            let (mut own, mut peer) = (Vec::new(), Vec::new());
            for _ in 0..arguments.rounds {
                own.push(measure(&own_program, place, threads, arguments.commits)?);
                if let Some(beside) = beside {
                    peer.push(measure(beside, place, threads, arguments.commits)?);
                }
            }
            print_row(name, threads, &own, &peer);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match env::var(RUN) {
        Ok(order) => run(&order),
        Err(_) => arguments().and_then(|arguments| compare(&arguments)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("commits: {error}");
            ExitCode::FAILURE
        }
    }
}
