//! The binary: reads the command line and runs what it says.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use millrace::commands::compatibility;
use millrace::echo::Echo;
use millrace::serve::serve;
use millrace::settings::{Cli, EchoOptions, ServeOptions, Settings, Subcommand};

/// Whatever ends the program.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Subcommand::Serve(options) => done(serve_with(*options)),
        Subcommand::Echo(options) => done(echo(options)),
        Subcommand::Compatibility(options) => done(compatibility::rewrite(&options.page)),
        #[cfg(feature = "tools")]
        Subcommand::Tool(tool) => tool
            .run(&mut std::io::stdout().lock())
            .map_err(Failure::from),
        #[cfg(not(feature = "tools"))]
        Subcommand::Tool(tool) => Err(tool.refusal().into()),
    };
    ExitCode::from(ended.unwrap_or_else(|error| report(&*error)))
}

/// The exit code of a command that has one for success alone.
fn done<E: Into<Failure>>(result: Result<(), E>) -> Result<u8, Failure> {
    result.map(|()| 0).map_err(Into::into)
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

/// Prints a failure and its causes on one line, and advice on lines of its own; returns the exit code.
fn report(error: &(dyn std::error::Error + 'static)) -> u8 {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    eprintln!("millrace: {text}");
    #[cfg(feature = "tools")]
    if let Some(error) = error.downcast_ref::<millrace_tools::ToolError>() {
        for advice in error.advice() {
            eprintln!("  help: {advice}");
        }
        return error.exit_code();
    }
    1
}
