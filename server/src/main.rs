//! The binary: reads the command line and runs what it says.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use millrace::blobfs::{BlobfsError, BlobfsOptions};
use millrace::commands::compatibility;
use millrace::echo::Echo;
use millrace::nvme::{NvmeError, NvmeOptions};
use millrace::serve::serve;
use millrace::settings::{Cli, EchoOptions, ServeOptions, Settings, Subcommand};
use millrace::sockets::{SocketsError, SocketsOptions};

/// Whatever ends the program.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Subcommand::Serve(options) => serve_with(*options),
        Subcommand::Nvme(options) => nvme(*options).map_err(Failure::from),
        Subcommand::Blobfs(options) => return blobfs(&options),
        Subcommand::Sockets(options) => sockets(&options).map_err(Failure::from),
        Subcommand::Echo(options) => echo(options).map_err(Failure::from),
        Subcommand::Compatibility(options) => {
            compatibility::rewrite(&options.page).map_err(Failure::from)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&*error);
            ExitCode::FAILURE
        }
    }
}

fn serve_with(options: ServeOptions) -> Result<(), Failure> {
    let settings = Settings::resolve(options, std::env::args().collect())?;
    serve(settings)?;
    Ok(())
}

/// Serves until a signal comes.
fn echo(options: EchoOptions) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT])?;
    Echo::serve(options, || {
        signals.forever().next();
    })
}

/// Runs a command for NVMe devices.
fn nvme(options: NvmeOptions) -> Result<(), NvmeError> {
    millrace::nvme::run(options, &mut std::io::stdout().lock())
}

/// Runs a command for volumes, which says by itself what to end with.
fn blobfs(options: &BlobfsOptions) -> ExitCode {
    let ended = millrace::blobfs::run(options, &mut std::io::stdout().lock());
    ExitCode::from(ended.unwrap_or_else(|error| {
        report(&error);
        error.exit_code()
    }))
}

/// Runs a command for user-level sockets.
fn sockets(options: &SocketsOptions) -> Result<(), SocketsError> {
    millrace::sockets::run(options, &mut std::io::stdout().lock())
}

/// Says what went wrong and why, on one line; what can be done about it, on lines of its own.
fn report(error: &(dyn std::error::Error + 'static)) {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    eprintln!("millrace: {text}");
    let nvme = error.downcast_ref().map(NvmeError::advice);
    let blobfs = || error.downcast_ref().map(BlobfsError::advice);
    let sockets = || error.downcast_ref().map(SocketsError::advice);
    let advice = nvme.or_else(blobfs).or_else(sockets);
    for advice in advice.unwrap_or_default() {
        eprintln!("  help: {advice}");
    }
}
