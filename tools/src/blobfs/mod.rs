//! `millrace blobfs`: makes volumes, looks into them, and copies files in and out.
//!
//! ```text
//!   options -> Spec -> device ---> ls, stat, cat, df, dump, check -> report -> text or JSON
//!                             \--> mkfs, cp, rm, mkdir, mv, trim, check --repair --^
//! ```
//! A volume belongs to one process at a time: the device's own lock refuses a second one. Commands that only
//! look mount it for reading and write nothing, not even what a power cut left to be mended. Those that
//! change it unmount it before they say that they are done, so that all of it is on the medium.
//!
//! A command that did what it was asked ends with 0; one that failed or refused with 1; arguments that make
//! no sense with 2; one that Ctrl-C has ended with 130. `check` ends as its help says.

mod blocks;
mod cat;
mod check;
mod contents;
mod copy;
mod device;
mod dump;
mod error;
mod list;
mod mkfs;
mod names;
mod options;
mod place;
mod report;
mod space;
mod stat;
mod stop;
mod trim;
mod warnings;

use crate::ToolError;
use std::io::Write;

use tracing_subscriber::layer::SubscriberExt as _;

pub use contents::Contents;
pub use options::{
    BlobfsOptions, CatOptions, CheckOptions, Command, CpOptions, DfOptions, DumpOptions, LsOptions,
    MkdirOptions, MkfsOptions, MvOptions, RmOptions, StatOptions, TrimOptions,
};
pub use place::{Place, VolumePath};

use self::warnings::Warnings;

/// Runs a command; what it has to say goes to `out`. Returns what the process is to end with.
///
/// # Errors
/// Why it failed or refused, and what can be done about it.
pub fn run(options: &BlobfsOptions, out: &mut dyn Write) -> Result<u8, ToolError> {
    let warnings = tracing_subscriber::registry().with(Warnings::default());
    let result = tracing::subscriber::with_default(warnings, || run_command(options, out));
    match result {
        // The reader closed the pipe: it has read enough.
        Err(error) if error.is_broken_pipe() => Ok(0),
        result => result,
    }
}

fn run_command(options: &BlobfsOptions, out: &mut dyn Write) -> Result<u8, ToolError> {
    match &options.command {
        Command::Check(options) => return check::run(options, out),
        Command::Mkfs(options) => mkfs::run(options, out),
        Command::Ls(options) => list::run(options, out),
        Command::Stat(options) => stat::run(options, out),
        Command::Cat(options) => cat::run(options, out),
        Command::Cp(options) => copy::run(options, out),
        Command::Mv(options) => names::rename(options, out),
        Command::Rm(options) => names::remove(options, out),
        Command::Mkdir(options) => names::make_directories(options, out),
        Command::Df(options) => space::run(options, out),
        Command::Trim(options) => trim::run(options, out),
        Command::Dump(options) => dump::run(options, out),
    }
    .map(|()| 0)
}
