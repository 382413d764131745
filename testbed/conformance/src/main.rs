//! Runs the driver's conformance test on a real function: what guests start.
//!
//! ```text
//! millrace-conformance --device 0000:01:00.0 [--iommu type1|spapr1|spapr2] [OPTION]...
//! millrace-conformance --socket /run/controller.sock [OPTION]...
//!
//!     --seed N, --operations N     how much of what is done
//!     --expect NAME=VALUE          what the machine must have, may be repeated; `interfaces` are those that
//!                                  the kernel offers, the best first: type1, or spapr2,spapr1
//!     --user N                     gives the IOMMU group's file to user N and does all as that user
//! Instead of the test:
//!     --stray-read ADDRESS         has the controller read at an address that nobody mapped
//!     --removal                    has the kernel want the function back while it is used
//! ```
//! **All data of the controller is lost.** Without `--iommu` every interface that the kernel has is used in
//! turn, the best one for the whole test.

#![forbid(unsafe_code)]

mod removal;

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use millrace_conformance::{Expected, Facts, Failure, Result, Settings, provoke_stray_read, run};
use millrace_nvme::{Host, SystemHost};
use millrace_pci::vfio::{self, Iommu};
use millrace_pci::{Address, ErrorKind, Function, vfio_user};

/// Operations on interfaces but the best.
const OPERATIONS_AGAIN: u32 = 2_000;
/// The kernel's interfaces and what they are called here, the best first.
const INTERFACES: [(Iommu, &str); 3] = [
    (Iommu::SpaprV2, "spapr2"),
    (Iommu::SpaprV1, "spapr1"),
    (Iommu::Type1, "type1"),
];

/// What is to be done.
#[derive(Clone, Copy, Debug, Default)]
enum Work {
    #[default]
    Test,
    StrayRead(u64),
    Removal,
}

/// What the command line says.
#[derive(Debug, Default)]
struct Arguments {
    device: Option<Address>,
    socket: Option<PathBuf>,
    iommu: Option<Iommu>,
    user: Option<u32>,
    work: Work,
    settings: Settings,
}

fn main() -> ExitCode {
    let outcome = parse(env::args().skip(1)).and_then(|arguments| execute(&arguments));
    match outcome {
        Ok(summary) => {
            println!("conformance: passed: {summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("conformance: FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        if word == "--removal" {
            arguments.work = Work::Removal;
            continue;
        }
        let value = words.next();
        let value = value.ok_or_else(|| Failure::new(format!("{word} needs a value")))?;
        let number = || {
            let parsed = value.parse::<u32>();
            parsed.map_err(|error| Failure::from_error(&format!("{word} {value}"), &error))
        };
        match word.as_str() {
            "--device" => {
                let parsed = value.parse::<Address>();
                let address = parsed.map_err(|error| Failure::from_error("--device", &error))?;
                arguments.device = Some(address);
            }
            "--socket" => arguments.socket = Some(value.into()),
            "--iommu" => arguments.iommu = Some(interface(&value)?),
            "--user" => arguments.user = Some(number()?),
            "--stray-read" => arguments.work = Work::StrayRead(hexadecimal(&value)?),
            "--seed" => arguments.settings.seed = u64::from(number()?),
            "--operations" => arguments.settings.operations = number()?,
            "--expect" => arguments.settings.expected.add(&value)?,
            _ => return Err(Failure::new(format!("no such option: {word}"))),
        }
    }
    Ok(arguments)
}

fn interface(name: &str) -> Result<Iommu> {
    let found = INTERFACES.iter().find(|(_, known)| *known == name);
    let (iommu, _) = found.ok_or_else(|| Failure::new(format!("no such interface: {name}")))?;
    Ok(*iommu)
}

fn hexadecimal(word: &str) -> Result<u64> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u64::from_str_radix(digits, 16).map_err(|error| Failure::from_error(word, &error))
}

fn execute(arguments: &Arguments) -> Result<String> {
    match (&arguments.device, &arguments.socket, arguments.work) {
        (Some(address), None, _) if arguments.user.is_some() => become_user(*address, arguments),
        (Some(address), None, Work::Test) => test_device(*address, arguments),
        (Some(address), None, Work::StrayRead(at)) => stray_read(*address, arguments.iommu, at),
        (Some(address), None, Work::Removal) => removal::remove(*address, arguments.iommu),
        (None, Some(socket), Work::Test) => test_socket(socket, arguments),
        _ => Err(Failure::new("give --device ADDRESS or --socket PATH")),
    }
}

/// Runs the same as another user with access to the group's file only.
fn become_user(address: Address, arguments: &Arguments) -> Result<String> {
    let user = arguments.user.unwrap_or_default();
    let link = format!("/sys/bus/pci/devices/{address}/iommu_group");
    let group = fs::read_link(&link).map_err(|error| Failure::from_error(&link, &error))?;
    let name = group.file_name().unwrap_or_default();
    let file = Path::new("/dev/vfio").join(name);
    chown(&file, Some(user), Some(user))
        .map_err(|error| Failure::from_error(&file.display().to_string(), &error))?;
    let program = env::current_exe().map_err(|error| Failure::from_error("find itself", &error))?;
    let mut words: Vec<String> = env::args().skip(1).collect();
    let place = words.iter().position(|word| word == "--user");
    if let Some(place) = place {
        words.drain(place..place + 2);
    }
    let status = Command::new(program)
        .args(words)
        .uid(user)
        .gid(user)
        .status();
    let status = status.map_err(|error| Failure::from_error("run itself", &error))?;
    match status.success() {
        true => Ok(format!("as user {user}")),
        false => Err(Failure::new(format!("as user {user}: {status}"))),
    }
}

fn test_socket(socket: &Path, arguments: &Arguments) -> Result<String> {
    let connected = vfio_user::connect(socket);
    let function = connected.map_err(|error| Failure::from_error("connect", &error))?;
    test_function(&function, &arguments.settings)
}

fn test_device(address: Address, arguments: &Arguments) -> Result<String> {
    let mut settings = arguments.settings.clone();
    let mut expected = Expected::default();
    if let Some(interfaces) = settings.expected.remove("interfaces") {
        expected.add(&format!("interfaces={interfaces}"))?;
    }
    let mut names = Vec::new();
    let mut passed = Vec::new();
    for (iommu, name) in INTERFACES {
        if arguments.iommu.is_some_and(|only| only != iommu) {
            continue;
        }
        let function = match open(address, Some(iommu)) {
            Ok(function) => function,
            Err(error) if error.kind() == ErrorKind::Unsupported && arguments.iommu.is_none() => {
                println!("{address} by {name}: {error}");
                continue;
            }
            Err(error) => return Err(Failure::from_error(&format!("open by {name}"), &error)),
        };
        println!("{address} by {name}, {} operations", settings.operations);
        let summary = test_function(&function, &settings)?;
        names.push(name);
        passed.push(format!("{name}: {summary}"));
        settings.operations = settings.operations.min(OPERATIONS_AGAIN);
    }
    let mut facts = Facts::default();
    facts.insert("interfaces", names.join(","));
    expected.check(&facts)?;
    if passed.is_empty() {
        return Err(Failure::new(format!(
            "the kernel has no interface for {address}"
        )));
    }
    Ok(passed.join("; "))
}

fn open(address: Address, iommu: Option<Iommu>) -> millrace_pci::Result<Arc<dyn Function>> {
    let options = vfio::Options {
        iommu,
        ..vfio::Options::default()
    };
    vfio::open(address, options)
}

fn stray_read(address: Address, iommu: Option<Iommu>, at: u64) -> Result<String> {
    let opened = open(address, iommu);
    let function = opened.map_err(|error| Failure::from_error("open", &error))?;
    provoke_stray_read(&*function, &SystemHost::new(Instant::now()), at)?;
    Ok(format!("{address} read at {at:#x}, where nothing is"))
}

fn test_function(function: &Arc<dyn Function>, settings: &Settings) -> Result<String> {
    let host: Arc<dyn Host> = Arc::new(SystemHost::new(Instant::now()));
    let start = Instant::now();
    let report = run(function, &host, settings, &mut |line| {
        println!("[{:6.1} s] {line}", start.elapsed().as_secs_f64());
    })?;
    Ok(report.to_string())
}
