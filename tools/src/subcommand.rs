//! All subcommands, for a binary that flattens them into its own.

use std::io::Write;

use crate::ToolError;
use crate::blobfs::{self, BlobfsOptions};
use crate::nvme::{self, NvmeOptions};
use crate::sockets::{self, SocketsOptions};

/// A subcommand and its options.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Look at, measure and format NVMe devices that this process drives by itself.
    Nvme(Box<NvmeOptions>),
    /// Make volumes for `serve --device`, check them, and copy files in and out.
    Blobfs(Box<BlobfsOptions>),
    /// Run programs whose TCP connections within this host go without the kernel.
    Sockets(Box<SocketsOptions>),
}

impl Subcommand {
    /// Runs the subcommand; its output goes to `out`. Returns the exit code of the process.
    ///
    /// # Errors
    /// The failure, with its advice and the exit code.
    pub fn run(self, out: &mut dyn Write) -> Result<u8, ToolError> {
        match self {
            Self::Nvme(options) => nvme::run(*options, out).map(|()| 0),
            Self::Blobfs(options) => blobfs::run(&options, out),
            Self::Sockets(options) => sockets::run(&options, out).map(|()| 0),
        }
    }
}
