#![forbid(unsafe_code)]
//! Serves a controller to a driver in another process. One client at a time; the media outlive clients.

use std::env;
use std::hint;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millrace_nvme_model::{Faults, NamespaceOptions, Options, Service, SglSupport};

const USAGE: &str = "\
usage: millrace-nvme-model --socket PATH [option]...
  --size BYTES      of the namespace, with K, M or G (default 1G)
  --block BYTES     512 or 4096 (default 4096)
  --namespaces N    all alike (default 1)
  --queues N        I/O queue pairs (default 16)
  --mdts N          longest transfer, 2^N pages of 4 KiB; 0 for no limit (default 5)
  --boundary N      optimal boundary in blocks (default 0: none)
  --seed N          of everything that is left to chance (default 0)
  --fault FAULT     something that goes wrong; may be said again, the first that strikes counts
  --sgl             offer scatter-gather lists
  --no-cache        no volatile write cache
  --no-data         neither store nor copy data
  --spin            never sleep
  --once            end when the first client leaves
  --help            say this, and which faults there are
";

const EXAMPLES: &str = "examples:
  --fault read@3=fail:281              the third read ends with an unrecovered read error
  --fault io@1/1000=lose --seed 7      one I/O command in a thousand is never completed
  --fault write@100+=delay:2000        writes take 2,000 steps from the hundredth on
  --fault admin@5=fatal                CSTS.CFS at the fifth admin command
  --fault never-disabled               CSTS.RDY stays one after CC.EN = 0
";

/// Steps without work before the thread sleeps.
const IDLE_STEPS: u32 = 20_000;
const IDLE_SLEEP: Duration = Duration::from_micros(50);

/// What the command line says.
#[derive(Debug, Default)]
struct Arguments {
    help: bool,
    socket: Option<PathBuf>,
    options: Options,
    spin: bool,
    once: bool,
}

fn main() -> ExitCode {
    let arguments = match parse(env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprint!("millrace-nvme-model: {wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.help {
        print!("{USAGE}FAULT is {}\n{EXAMPLES}", Faults::WORDS);
        return ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("millrace-nvme-model: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let socket = arguments.socket.ok_or("--socket is missing")?;
    let bound = Service::bind(arguments.options, &socket);
    let service = bound.map_err(|error| format!("{error}{}", source_of(&error)))?;
    let controller = service.controller();
    println!("serving {}", socket.display());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                if let Err(error) = service.serve_client() {
                    eprintln!("millrace-nvme-model: {error}{}", source_of(&error));
                }
                if arguments.once {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut idle = 0;
        while !stop.load(Ordering::Relaxed) {
            if controller.step() > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if arguments.spin || idle < IDLE_STEPS {
                hint::spin_loop();
            } else {
                thread::sleep(IDLE_SLEEP);
            }
        }
    });
    for violation in controller.violations() {
        eprintln!("violation: {violation}");
    }
    for fault in controller.dma_faults() {
        eprintln!("memory that was not mapped: {fault:x?}");
    }
    Ok(())
}

fn source_of(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(String::new, |source| format!(": {source}"))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut namespace = NamespaceOptions::default();
    let mut size = 1 << 30;
    let mut count = 1;
    while let Some(word) = words.next() {
        let mut value = || {
            let next = words.next();
            next.ok_or_else(|| format!("{word} needs a value"))
        };
        match word.as_str() {
            "--socket" => arguments.socket = Some(value()?.into()),
            "--size" => size = bytes(&value()?)?,
            "--block" => namespace.block_size = number(&value()?)?,
            "--namespaces" => count = number(&value()?)?,
            "--queues" => {
                arguments.options.queues = number(&value()?)?;
                arguments.options.vectors = arguments.options.queues.saturating_add(1);
            }
            "--mdts" => arguments.options.transfer_max = number(&value()?)?,
            "--boundary" => namespace.optimal_boundary = number(&value()?)?,
            "--seed" => arguments.options.seed = number(&value()?)?,
            "--fault" => {
                let added = arguments.options.faults.add(&value()?);
                added.map_err(|error| error.to_string())?;
            }
            "--help" => arguments.help = true,
            "--sgl" => arguments.options.sgl = SglSupport::Any,
            "--no-cache" => arguments.options.volatile_cache = false,
            "--no-data" => arguments.options.no_data = true,
            "--spin" => arguments.spin = true,
            "--once" => arguments.once = true,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    namespace.blocks = size / u64::from(namespace.block_size.max(1));
    arguments.options.namespaces = vec![namespace; count];
    Ok(arguments)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is not a number that fits here"))
}

/// A number with a suffix of 1024, its square or its cube.
fn bytes(word: &str) -> Result<u64, String> {
    let (digits, shift) = match word.char_indices().last() {
        Some((at, 'K')) => (&word[..at], 10),
        Some((at, 'M')) => (&word[..at], 20),
        Some((at, 'G')) => (&word[..at], 30),
        _ => (word, 0),
    };
    let count: u64 = number(digits)?;
    count
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{word} is too large"))
}
