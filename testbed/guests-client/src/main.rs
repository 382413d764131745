//! Stores documents in a server over loopback and says which are acknowledged; later tells whether they are
//! complete. It runs in guests, so it is small and static and takes nothing but the protocol.
//!
//! ```text
//! millrace-guests-client load   --port 27017 [--documents 5000] [--writers 2] [--seed 1]
//! millrace-guests-client verify --port 27017 [--writers 2] [--seed 1]
//! ```
//! `load` prints `client: writer W acknowledged N` when the server has acknowledged, with its journal on the medium,
//! the first N documents of writer W. `verify` prints `client: writer W holds N` when the server holds the first N
//! and no more, and fails if one is missing in between or is not what was sent.

#![forbid(unsafe_code)]

mod connection;
mod documents;
mod error;
mod load;
mod verify;

use std::env;
use std::process::ExitCode;

use crate::documents::{Documents, STRIDE};
use crate::error::{Error, Result};

/// What the command line says.
#[derive(Clone, Copy, Debug)]
struct Settings {
    port: u16,
    /// Of all writers together.
    documents: u32,
    writers: u32,
    contents: Documents,
}

impl Settings {
    /// How many of the documents are a writer's.
    fn share(self, writer: u32) -> u32 {
        self.documents / self.writers + u32::from(writer < self.documents % self.writers)
    }
}

fn main() -> ExitCode {
    match run(env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("client: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let work = match words.next().as_deref() {
        Some("load") => load::load,
        Some("verify") => verify::verify,
        other => return Err(Error::Usage(format!("load or verify, not {other:?}"))),
    };
    let mut settings = Settings {
        port: 27017,
        documents: 5000,
        writers: 2,
        contents: Documents { seed: 1 },
    };
    while let Some(word) = words.next() {
        let value = words.next();
        let number: u32 = value
            .as_deref()
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| Error::Usage(format!("{word} needs a number")))?;
        let wrong = || Error::Usage(format!("{word} {number} is out of range"));
        match word.as_str() {
            "--port" => settings.port = u16::try_from(number).map_err(|_| wrong())?,
            "--documents" if i64::from(number) <= STRIDE => settings.documents = number,
            "--writers" if (1..=64).contains(&number) => settings.writers = number,
            "--seed" => settings.contents.seed = u64::from(number),
            "--documents" | "--writers" => return Err(wrong()),
            _ => return Err(Error::Usage(format!("no such option: {word}"))),
        }
    }
    work(settings)
}
