//! Command lines.

use clap::Parser as _;
use millrace::settings::{Cli, Subcommand};
use millrace_tools::Subcommand as Tool;
use millrace_tools::nvme::Command;

/// What a command line says.
pub(crate) fn parse(line: &str) -> Command {
    let all = ["millrace", "nvme"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(all).expect(line).command {
        Subcommand::Tool(Tool::Nvme(options)) => options.command,
        other => panic!("{line}: {other:?}"),
    }
}
