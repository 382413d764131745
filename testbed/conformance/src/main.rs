//! Runs the driver's conformance test on a real function: what guests start.
//!
//! ```text
//! millrace-conformance --device 0000:01:00.0 [--iommu type1|spapr1|spapr2] [--seed N] [--operations N]
//! millrace-conformance --socket /run/controller.sock ...
//! ```
//! **All data of the controller is lost.** Without `--iommu` every interface that the kernel has is used in
//! turn, the best one for the whole test.

#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use millrace_conformance::{Failure, Result, Settings, run};
use millrace_nvme::{Host, SystemHost};
use millrace_pci::vfio::{self, Iommu};
use millrace_pci::{Address, ErrorKind, Function, vfio_user};

/// Operations on interfaces but the best.
const OPERATIONS_AGAIN: u32 = 500;
/// The kernel's interfaces, the best first.
const INTERFACES: [Iommu; 3] = [Iommu::SpaprV2, Iommu::SpaprV1, Iommu::Type1];

/// What the command line says.
#[derive(Debug, Default)]
struct Arguments {
    device: Option<Address>,
    socket: Option<PathBuf>,
    iommu: Option<Iommu>,
    settings: Settings,
}

fn main() -> ExitCode {
    let outcome = parse(env::args().skip(1)).and_then(|arguments| test(&arguments));
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
            "--seed" => arguments.settings.seed = u64::from(number()?),
            "--operations" => arguments.settings.operations = number()?,
            _ => return Err(Failure::new(format!("no such option: {word}"))),
        }
    }
    Ok(arguments)
}

fn interface(name: &str) -> Result<Iommu> {
    match name {
        "type1" => Ok(Iommu::Type1),
        "spapr1" => Ok(Iommu::SpaprV1),
        "spapr2" => Ok(Iommu::SpaprV2),
        _ => Err(Failure::new(format!("no such interface: {name}"))),
    }
}

fn test(arguments: &Arguments) -> Result<String> {
    match (&arguments.device, &arguments.socket) {
        (Some(address), None) => test_device(*address, arguments),
        (None, Some(socket)) => test_socket(socket, arguments),
        _ => Err(Failure::new("give --device ADDRESS or --socket PATH")),
    }
}

fn test_socket(socket: &Path, arguments: &Arguments) -> Result<String> {
    let connected = vfio_user::connect(socket);
    let function = connected.map_err(|error| Failure::from_error("connect", &error))?;
    test_function(&function, arguments.settings)
}

fn test_device(address: Address, arguments: &Arguments) -> Result<String> {
    let interfaces = match arguments.iommu {
        Some(only) => vec![only],
        None => INTERFACES.to_vec(),
    };
    let mut settings = arguments.settings;
    let mut passed = Vec::new();
    for iommu in interfaces {
        let options = vfio::Options {
            iommu: Some(iommu),
            ..vfio::Options::default()
        };
        let function = match vfio::open(address, options) {
            Ok(function) => function,
            Err(error) if error.kind() == ErrorKind::Unsupported && arguments.iommu.is_none() => {
                continue;
            }
            Err(error) => return Err(Failure::from_error(&format!("open by {iommu:?}"), &error)),
        };
        println!("{address} by {iommu:?}, {} operations", settings.operations);
        passed.push(format!(
            "{iommu:?}: {}",
            test_function(&function, settings)?
        ));
        settings.operations = settings.operations.min(OPERATIONS_AGAIN);
    }
    if passed.is_empty() {
        return Err(Failure::new(format!(
            "the kernel has no interface for {address}"
        )));
    }
    Ok(passed.join("; "))
}

fn test_function(function: &Arc<dyn Function>, settings: Settings) -> Result<String> {
    let host: Arc<dyn Host> = Arc::new(SystemHost::new(Instant::now()));
    let start = Instant::now();
    let report = run(function, &host, settings, &mut |line| {
        println!("[{:6.1} s] {line}", start.elapsed().as_secs_f64());
    })?;
    Ok(report.to_string())
}
