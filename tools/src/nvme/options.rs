//! The command line of `millrace nvme`.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::Spec;
use super::bind::BindAddress;

/// The options of `millrace nvme`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "A device is named by
  0000:01:00.0[/NAMESPACE]       its PCI address; it must be bound to vfio-pci (`millrace nvme bind`)
  nvme:0000:01:00.0[/NAMESPACE]  the same
  vfio-user:/run/ctrl.sock       the socket of a process that serves it

Examples:
  millrace nvme list
  millrace nvme bind 0000:01:00.0
  millrace nvme identify 0000:01:00.0
  millrace nvme bench 0000:01:00.0 --depth 128 --seconds 30
  millrace nvme unbind 0000:01:00.0")]
pub struct NvmeOptions {
    /// The subcommand of `millrace nvme` to run
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `millrace nvme`, with their options.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// List the NVMe devices of this machine, and what keeps them from being opened.
    List(ListOptions),
    /// Take a device from the kernel, so that processes can drive it (vfio-pci).
    Bind(BindOptions),
    /// Give a device back to the kernel's own driver.
    Unbind(BindOptions),
    /// Say what a device and its namespaces are.
    Identify(IdentifyOptions),
    /// Say how healthy a device is.
    Smart(SmartOptions),
    /// Format a namespace: ALL ITS DATA IS LOST.
    Format(FormatOptions),
    /// Measure reads, or writes, of a namespace.
    Bench(BenchOptions),
}

/// The options of `millrace nvme list`.
#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = "Examples:
  millrace nvme list
  millrace nvme list --json | jq -r '.[] | select(.can_open) | .address'")]
pub struct ListOptions {
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace nvme bind` and `unbind`.
#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = "Examples:
  millrace nvme bind 0000:01:00.0 --dry-run    only print what would be written to /sys
  millrace nvme bind 0000:01:00.0              take it from the kernel
  millrace nvme bind 0000:00:1f.3 --any        another function of its IOMMU group, in the way
  millrace nvme unbind 0000:01:00.0            give it back

A device whose disks are mounted, swapped to or part of another device is refused.")]
pub struct BindOptions {
    /// The PCI address of the device, as 0000:01:00.0
    #[arg(value_name = "ADDR")]
    pub address: BindAddress,
    /// Print the steps, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Accept a function that is no NVMe device
    #[arg(long)]
    pub any: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace nvme identify`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace nvme identify 0000:01:00.0                            the controller and all namespaces
  millrace nvme identify 0000:01:00.0/2                          the controller and namespace 2
  millrace nvme identify vfio-user:/run/ctrl.sock --namespace 1 --json")]
pub struct IdentifyOptions {
    /// The device: a PCI address[/NAMESPACE], or vfio-user:SOCKET
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Identify only this namespace [default: all]
    #[arg(long, value_name = "ID")]
    pub namespace: Option<u32>,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace nvme smart`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace nvme smart 0000:01:00.0
  millrace nvme smart 0000:01:00.0 --errors       with the newest entries of the error log
  millrace nvme smart vfio-user:/run/ctrl.sock --json | jq .temperature_celsius")]
pub struct SmartOptions {
    /// The device: a PCI address, or vfio-user:SOCKET
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// Also print the error log, the newest 64 entries at most
    #[arg(long)]
    pub errors: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace nvme format`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace nvme format 0000:01:00.0 --namespace 1              says what would be lost, and refuses
  millrace nvme format 0000:01:00.0 --namespace 1 --force      the format it has, all data lost
  millrace nvme format 0000:01:00.0/1 --format 1 --force       another size of blocks
  millrace nvme format 0000:01:00.0/1 --erase crypto --force   and the key of the old data destroyed

`millrace nvme identify` lists the formats.")]
pub struct FormatOptions {
    /// The device: a PCI address[/NAMESPACE], or vfio-user:SOCKET
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The id of the namespace; it must be given here or in SPEC
    #[arg(long, value_name = "ID")]
    pub namespace: Option<u32>,
    /// The number of the new format [default: the current format]
    #[arg(long, value_name = "NUMBER")]
    pub format: Option<usize>,
    /// The way to make the old data unreadable [default: none]
    #[arg(long, value_name = "HOW")]
    pub erase: Option<EraseChoice>,
    /// The time limit of the format, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Do it: all data of the namespace is lost
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Erase modes of a format (Secure Erase Settings of NVMe).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EraseChoice {
    /// Overwrite user data or make it unreadable.
    User,
    /// Destroy the key that it is encrypted with.
    Crypto,
}

/// The options of `millrace nvme bench`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace nvme bench 0000:01:00.0                                       4 KiB random reads for 10 s
  millrace nvme bench 0000:01:00.0 --depth 1 --waiting hybrid            latency of one at a time
  millrace nvme bench 0000:01:00.0 --block-size 1M --pattern sequential --threads 2
  millrace nvme bench 0000:01:00.0/2 --operations 1000000 --json
  millrace nvme bench 0000:01:00.0 --read-percent 70 --write --force     DESTROYS the namespace's data

Each thread has a queue of its own. Ctrl-C ends the run and prints what was measured so far; so does the
kernel when it wants the device back (`echo 1 > /sys/bus/pci/devices/ADDR/remove`).")]
pub struct BenchOptions {
    /// The device: a PCI address[/NAMESPACE], or vfio-user:SOCKET
    #[arg(value_name = "SPEC")]
    pub spec: Spec,
    /// The id of the namespace [default: the first active]
    #[arg(long, value_name = "ID")]
    pub namespace: Option<u32>,
    /// The percentage of reads, 0 to 100 [default: 100, with --write 0]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_percent: Option<u8>,
    /// The bytes of each operation, up to 64M, with an optional K or M (1024, 1024²)
    #[arg(long, value_name = "BYTES", default_value = "4K")]
    pub block_size: BlockSize,
    /// The number of operations in flight on each thread, 1 to 4095
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub depth: u16,
    /// The number of threads, 1 to 1024, each with a queue of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// The duration in seconds, at most 604800 [default: 10, unless --operations is given]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400 * 7))]
    pub seconds: Option<u64>,
    /// The number of operations of all threads; with --seconds, the first limit reached ends the run
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// The order of the blocks: random or sequential
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pub pattern: Pattern,
    /// The way that threads wait for completions
    #[arg(long, value_enum, default_value_t = WaitingChoice::Poll)]
    pub waiting: WaitingChoice,
    /// The seed of the random addresses and of the written data [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Allow writes, which destroy the data of the blocks written
    #[arg(long)]
    pub write: bool,
    /// Confirm --write: the data of the namespace is lost
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Which blocks are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Anywhere in the namespace.
    Random,
    /// One after the other, each thread in a part of its own.
    Sequential,
}

/// Modes in which a thread waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitingChoice {
    /// Look all the time: the lowest latency, a whole processor a thread.
    Poll,
    /// Sleep until the device interrupts.
    Interrupt,
    /// Look for about as long as operations took of late, then sleep.
    Hybrid,
}

/// Bytes of one operation, from 1 to [`BlockSize::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(pub usize);

impl BlockSize {
    /// Longest operation, in bytes: 64 MiB.
    pub const MAX: usize = 64 << 20;
}

impl FromStr for BlockSize {
    type Err = String;

    /// Reads `4096`, `4K`, `4KiB`, `1M` or `1MiB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let digits = lower.trim_end_matches(|last: char| !last.is_ascii_digit());
        let shift = match &lower[digits.len()..] {
            "" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            unit => return Err(format!("{unit:?} is not K or M")),
        };
        let number: usize = digits
            .parse()
            .map_err(|_| "it has to be a number, with K or M behind it or not".to_owned())?;
        number
            .checked_mul(1 << shift)
            .filter(|bytes| (1..=Self::MAX).contains(bytes))
            .map(Self)
            .ok_or_else(|| "it has to be from 1 byte to 64M".to_owned())
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::terminal::quantity::power_of_two_size(self.0 as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_read() {
        let rows = [
            ("512", 512),
            ("4k", 4096),
            ("4KiB", 4096),
            ("1M", 1 << 20),
            ("64MiB", 64 << 20),
        ];
        for (text, bytes) in rows {
            assert_eq!(text.parse(), Ok(BlockSize(bytes)), "{text}");
        }
        let wrong = [
            "",
            "K",
            "4G",
            "-1",
            "0",
            "65M",
            "4 K",
            "1.5K",
            "18446744073709551615M",
        ];
        for text in wrong {
            assert!(text.parse::<BlockSize>().is_err(), "{text}");
        }
    }
}
