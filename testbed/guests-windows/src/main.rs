//! Moves checked data through memory that guests share: single slots, and messages over a ring pair.
//!
//! ```text
//! millrace-guests-windows pair connecting|accepting [--seed 1] [--messages 10000]
//! millrace-guests-windows sessions connecting|accepting|again ...
//! millrace-guests-windows dax /dev/dax0.0 ...
//! millrace-guests-windows bar 0000:00:03.0 ...
//! ```
//! `pair` is one of two guests with the same two ivshmem devices, `sessions` one of two with one; the connecting one
//! prints `client: half way` when the other is to be killed, and in `sessions` `client: the peer is dead` when one
//! (`again`) is to take its place. `dax` and `bar` have both sides in one guest: a DAX device that is mapped twice;
//! an ivshmem device by VFIO, and another one with the same memory through sysfs. The memory must be zero. It runs in
//! guests, so it is small and static. What the emulated machine says of speed means nothing and is not printed.

mod alone;
mod devices;
mod error;
mod messages;
mod pair;
mod patience;
mod sessions;
mod slots;
mod talk;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use millrace_stream::Side;

use crate::error::{Error, Result};

/// What the command line says of every work.
#[derive(Clone, Copy, Debug)]
struct Settings {
    seed: u64,
    /// How many go over a ring pair in each direction.
    messages: u64,
}

impl Settings {
    /// A seed for one of several rounds.
    fn seed_of(self, round: usize) -> u64 {
        self.seed
            .wrapping_mul(0x1_0000_0001)
            .wrapping_add(round as u64)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words) {
        Ok(report) => {
            println!("client: passed: {report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("client: FAILED: {} : {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<String> {
    let [work, object, options @ ..] = words else {
        return Err(Error::Usage(
            "pair SIDE, sessions SIDE, dax PATH or bar ADDRESS".into(),
        ));
    };
    let settings = settings(options)?;
    match (work.as_str(), object.as_str()) {
        ("pair", "connecting") => pair::run(Side::Connecting, settings),
        ("pair", "accepting") => pair::run(Side::Accepting, settings),
        ("sessions", "connecting") => sessions::run(Side::Connecting, settings),
        ("sessions", "accepting") => sessions::run(Side::Accepting, settings),
        ("sessions", "again") => sessions::succeed(settings),
        ("dax", path) => alone::dax(Path::new(path), settings),
        ("bar", address) => {
            let address = address.parse().map_err(error::refused(address))?;
            alone::bar(address, settings)
        }
        _ => Err(Error::Usage(format!("no such work: {work} {object}"))),
    }
}

fn settings(options: &[String]) -> Result<Settings> {
    let mut settings = Settings {
        seed: 1,
        messages: 10_000,
    };
    for option in options.chunks(2) {
        let number = option
            .get(1)
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| Error::Usage(format!("{} needs a number", option[0])))?;
        match option[0].as_str() {
            "--seed" => settings.seed = number,
            "--messages" => settings.messages = number,
            other => return Err(Error::Usage(format!("no such option: {other}"))),
        }
    }
    Ok(settings)
}

fn report(messages: u64, (sent, received): (u64, u64)) -> String {
    let [sent, received] = [sent >> 10, received >> 10];
    format!("{messages} messages each way, {sent} and {received} KiB")
}
