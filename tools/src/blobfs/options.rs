//! The command line of `millrace blobfs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use millrace_block::{Size, Spec};

use super::{Place, VolumePath};

/// The options of `millrace blobfs`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "A device is named by
  file:/var/lib/disk.img         a file, or a block special of the kernel; a path alone is the same
  nvme:0000:01:00.0[/NAMESPACE]  an NVMe device that is bound to vfio-pci (`millrace nvme bind`)
  vfio-user:/run/ctrl.sock       the socket of a process that serves one
  mem:1G                         memory, empty each time: only for trying `mkfs`

A volume is one process's at a time: none of these commands works while a server has it.
ls, stat, cat, df, dump and check without --repair never write to the device.

Examples:
  millrace blobfs mkfs ./disk.img --size 10G
  millrace blobfs cp ./disk.img ./data :/backup
  millrace blobfs ls ./disk.img /backup -l
  millrace blobfs check ./disk.img")]
pub struct BlobfsOptions {
    /// The subcommand of `millrace blobfs` to run
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `millrace blobfs`, with their options.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Make an empty volume of a device: ALL ITS DATA IS LOST.
    Mkfs(MkfsOptions),
    /// Look for damage, and mend it if asked to.
    Check(CheckOptions),
    /// List directories.
    Ls(LsOptions),
    /// Say what is known of files and directories.
    Stat(StatOptions),
    /// Write a file to the standard output.
    Cat(CatOptions),
    /// Copy files and trees into the volume, out of it, or within it.
    Cp(CpOptions),
    /// Give a file or directory another name.
    Mv(MvOptions),
    /// Remove files and directories.
    Rm(RmOptions),
    /// Create directories.
    Mkdir(MkdirOptions),
    /// Show the used and free space of the volume.
    Df(DfOptions),
    /// Deallocate all free blocks on the device (TRIM).
    Trim(TrimOptions),
    /// Print all metadata, also of a damaged volume.
    Dump(DumpOptions),
}

/// The options of `millrace blobfs mkfs`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs mkfs ./disk.img --size 10G           makes the file if it is not there
  millrace blobfs mkfs nvme:0000:01:00.0 --label main
  millrace blobfs mkfs /dev/sdb --force                whatever it holds is lost
  millrace blobfs mkfs ./disk.img --size 10G --data-checksums

A device whose first or last MiB is not blank is refused without --force, which says what it holds.")]
pub struct MkfsOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], vfio-user:SOCKET[/NAMESPACE], or mem:SIZE for a trial
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Create a file of this size in bytes, with an optional K, M, G or T (powers of 1024)
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Size>,
    /// A label of at most 64 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub label: String,
    /// Bytes of the journal [default: 1/64 of the device, from 256K to 64M]
    #[arg(long, value_name = "BYTES")]
    pub journal_size: Option<Size>,
    /// Keep checksums of data too, not of metadata alone: damaged data is then an error, not wrong bytes
    #[arg(long)]
    pub data_checksums: bool,
    /// Do not deallocate the blocks of a device that gains by it (flash)
    #[arg(long)]
    pub no_discard: bool,
    /// Format a device that is not blank: its data is lost
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs check ./disk.img                what is wrong; nothing is written
  millrace blobfs check ./disk.img --read-data    and whether all files can be read and fit their checksums
  millrace blobfs check ./disk.img --repair       keeps what can be read

Ends with 0 if the volume is sound, with 1 if it was mended, with 4 if damage is left, with 8 if it could
not be checked or not be mended.")]
pub struct CheckOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Repair what can be repaired; without it nothing is written
    #[arg(long)]
    pub repair: bool,
    /// Read all files too, and compare them with their checksums if they have some
    #[arg(long)]
    pub read_data: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs ls`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs ls ./disk.img                 the root directory
  millrace blobfs ls ./disk.img /db -l          with sizes and times
  millrace blobfs ls ./disk.img / -R --json | jq -r '.[] | select(.size_bytes > 1e9) | .path'

Names are shown with escapes for what a terminal would act on; --json has them as they are.")]
pub struct LsOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The directory or file to list
    #[arg(value_name = "PATH", default_value = "/")]
    pub path: VolumePath,
    /// Also kinds, names, sizes, and times of modification (UTC)
    #[arg(long, short)]
    pub long: bool,
    /// List the directories below it too, at all depths
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs stat`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs stat ./disk.img /db/CURRENT
  millrace blobfs stat ./disk.img /db /db/CURRENT --json | jq '.[].size_bytes'")]
pub struct StatOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The files and directories to describe
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<VolumePath>,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs cat`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs cat ./disk.img /db/LOG
  millrace blobfs cat ./disk.img /db/000012.sst --offset 4K --length 512 | xxd")]
pub struct CatOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The file to write to the standard output
    #[arg(value_name = "PATH")]
    pub path: VolumePath,
    /// The offset of the first byte to write, with an optional K, M, G or T
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub offset: Size,
    /// The largest number of bytes to write [default: up to the end of the file]
    #[arg(long, value_name = "BYTES")]
    pub length: Option<Size>,
}

/// The options of `millrace blobfs cp`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A path with ':' before it is the volume's, any other the host's.

Examples:
  millrace blobfs cp ./disk.img ./data :/backup     the tree ./data becomes /backup, or /backup/data if
                                                    there is a directory /backup already
  millrace blobfs cp ./disk.img a.sst b.sst :/db    two files into a directory
  millrace blobfs cp ./disk.img :/backup ./data     out again
  millrace blobfs cp ./disk.img :/db :/db.old       within the volume

Nothing is copied if something is in the way, or does not fit. A file appears when it is complete and on the
medium, with its time of modification. Directories are copied with all that is in them. A volume has no
owners and modes: what is copied out belongs to the user alone."
)]
pub struct CpOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The sources, and last the destination; a path of the volume begins with a colon
    #[arg(value_name = "PATH", num_args = 2.., required = true)]
    #[arg(value_parser = OsStringValueParser::new().try_map(parse_place))]
    pub paths: Vec<Place>,
    /// Replace files that are in the way
    #[arg(long)]
    pub force: bool,
    /// Leave out what is neither file nor directory: symbolic links, sockets
    #[arg(long)]
    pub skip_special: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs mv`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs mv ./disk.img /db /db.old
  millrace blobfs mv ./disk.img /new/CURRENT /db           into the directory /db
  millrace blobfs mv ./disk.img /new/CURRENT /db --force   and over a /db/CURRENT that is there")]
pub struct MvOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The file or directory to rename or move
    #[arg(value_name = "FROM")]
    pub from: VolumePath,
    /// The new name, or a directory to put it into
    #[arg(value_name = "TO")]
    pub to: VolumePath,
    /// Replace what is in the way: a file, or an empty directory
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs rm`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs rm ./disk.img /db/LOG.old /db/LOG.older
  millrace blobfs rm ./disk.img /backup --recursive")]
pub struct RmOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The files and empty directories to remove
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<VolumePath>,
    /// Also directories with all that is in them
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs mkdir`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs mkdir ./disk.img /db
  millrace blobfs mkdir ./disk.img /a/b/c --parents")]
pub struct MkdirOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The directories to create, one or more
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<VolumePath>,
    /// Also those above them, and no error if there is one already
    #[arg(long, short)]
    pub parents: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs df`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs df ./disk.img
  millrace blobfs df nvme:0000:01:00.0 --json | jq .free_bytes")]
pub struct DfOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs trim`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs trim nvme:0000:01:00.0      faster writes and less wear on flash
  millrace blobfs trim ./disk.img             the file keeps its size and frees its unused space

On flash, a server deallocates freed blocks as it runs; this command deallocates all free blocks once. A later
write to a file allocates the space again: slower the first time, and it fails if the file system is full.
Ctrl-C stops the command safely.")]
pub struct TrimOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace blobfs dump`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace blobfs dump ./disk.img | less
  millrace blobfs dump ./disk.img --json | jq .findings
  millrace blobfs dump ./disk.img --json | jq '.inodes[] | {path, extents}'    which bytes of the device

It shows names and places of files, and nothing of what is in them.")]
pub struct DumpOptions {
    /// The device: PATH, nvme:ADDRESS[/NAMESPACE], or vfio-user:SOCKET[/NAMESPACE]
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

fn parse_place(text: OsString) -> Result<Place, String> {
    match text.to_str().and_then(|text| text.strip_prefix(':')) {
        Some(path) => path.parse().map(Place::Volume),
        None if text.is_empty() => Err("an empty path".to_owned()),
        None => Ok(Place::Host(PathBuf::from(text))),
    }
}
