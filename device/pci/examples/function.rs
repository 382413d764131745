//! Opens a function, prints its identity, and identifies it if it is an NVMe controller.
//!
//! ```text
//! cargo run --example function -- --device 01:00.0 [--iommu type1|spapr-v1|spapr-v2|iommufd]
//! cargo run --example function -- --device 01:00.0 --rebind
//! cargo run --example function -- --device 01:00.0 --user 1000
//! cargo run --example function -- --socket PATH
//! ```
//! It needs a function that is bound to vfio-pci, or a process that serves one. With `--rebind` it first gives
//! the function back to the kernel and takes it again; with `--user` it gives the function's group to a user
//! and goes on as that user. Both need root. What it prints shows that
//! registers, memory access, interrupts and reset work; it takes nothing from the disk and leaves nothing.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::os::fd::AsFd;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use millrace_memory::{Arena, ArenaOptions, DeviceMemory, Pages, SizeClass};
use millrace_pci::binding::Binder;
use millrace_pci::vfio::{self, Iommu, Options};
use millrace_pci::{Address, Bar, Function, barrier};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Class, subclass and interface of NVMe.
const NVME: u32 = 0x01_08_02;
/// How often a register or a completion is looked at before it is given up.
const LOOKS_MAX: u32 = 50_000_000;
/// Entries of each admin queue.
const ENTRIES: u32 = 16;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let value_of = |name: &str| {
        let mut after = arguments.iter().skip_while(|argument| *argument != name);
        after.nth(1).cloned()
    };
    if let Some(path) = value_of("--socket") {
        return serve(&path);
    }
    let address = value_of("--device").ok_or("--device ADDRESS is missing")?;
    if arguments.iter().any(|argument| argument == "--rebind") {
        rebind(address.parse()?)?;
    }
    if let Some(user) = value_of("--user") {
        let iommu = value_of("--iommu");
        return become_user(address.parse()?, user.parse()?, iommu.as_deref());
    }
    let choices: &[Option<Iommu>] = match value_of("--iommu").as_deref() {
        None if cfg!(target_arch = "powerpc64") => &[Some(Iommu::SpaprV2), Some(Iommu::SpaprV1)],
        None => &[None],
        Some("type1") => &[Some(Iommu::Type1)],
        Some("spapr-v1") => &[Some(Iommu::SpaprV1)],
        Some("spapr-v2") => &[Some(Iommu::SpaprV2)],
        Some("iommufd") => &[Some(Iommu::Iommufd)],
        Some(other) => return Err(format!("no IOMMU interface {other}").into()),
    };
    for iommu in choices {
        println!("opening {address} by {iommu:?}");
        let options = Options {
            iommu: *iommu,
            removal: Some(eventfd(0, EventfdFlags::CLOEXEC)?),
            ..Options::default()
        };
        show(&*vfio::open(address.parse()?, options)?)?;
    }
    println!("all is well");
    Ok(())
}

/// Gives a function back to the kernel and takes it again.
fn rebind(address: Address) -> Outcome<()> {
    let binder = Binder::new();
    println!("{:?}", binder.list(None)?);
    for turn in [Binder::unbind, Binder::bind] {
        let plan = turn(&binder, address)?;
        for step in &plan.steps {
            println!("{step}");
        }
        println!("driver: {:?}", binder.describe(address)?.driver);
    }
    Ok(())
}

/// Gives the function's group to a user and does all as that user.
fn become_user(address: Address, user: u32, iommu: Option<&str>) -> Outcome<()> {
    let group = Binder::new().describe(address)?.group;
    let group = group.ok_or("it is in no group")?;
    chown(format!("/dev/vfio/{group}"), Some(user), Some(user))?;
    let status = Command::new(env::current_exe()?)
        .args(["--device", &address.to_string()])
        .args(iommu.iter().flat_map(|iommu| ["--iommu", iommu]))
        .uid(user)
        .gid(user)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("as user {user}: {status}").into()),
    }
}

#[cfg(feature = "vfio-user")]
fn serve(path: &str) -> Outcome<()> {
    show(&*millrace_pci::vfio_user::connect(path.as_ref())?)
}

#[cfg(not(feature = "vfio-user"))]
fn serve(_: &str) -> Outcome<()> {
    Err("built without vfio-user".into())
}

/// Tells what a function is, with more and more memory in its reach.
fn show(function: &dyn Function) -> Outcome<()> {
    let identity = function.identity()?;
    println!(
        "{} is {identity:x?}, present: {}",
        function.name(),
        function.is_present()
    );
    println!("{} vectors", function.vectors());
    let mut arenas = Vec::new();
    for pages in [Pages::Base, Pages::Auto, Pages::Base] {
        let arena = Arena::new(
            function.domain(),
            &ArenaOptions {
                classes: vec![SizeClass {
                    size: 4096,
                    count: 128,
                }],
                pages,
                node: None,
                locked: true,
            },
        )?;
        println!(
            "{} KiB in pages of {} KiB at {}",
            arena.region().size() / 1024,
            arena.region().page_size() / 1024,
            arena.iova()
        );
        if identity.class == NVME {
            identify(function, &arena)?;
        }
        arenas.push(arena);
    }
    function.reset()?;
    println!("reset");
    Ok(())
}

/// Waits for a bit of the controller status (NVM Express Base 1.4, section 3.1.6).
fn wait_for(bar: &Bar, ready: bool) -> Outcome<()> {
    let status = bar.register(0x1c)?;
    for _ in 0..LOOKS_MAX {
        if (status.load()? & 1 == 1) == ready {
            return Ok(());
        }
        thread::yield_now();
    }
    Err("the controller does not become ready".into())
}

/// Brings the admin queue up, has the controller identify itself, and waits for its interrupt.
fn identify(function: &dyn Function, arena: &Arena) -> Outcome<()> {
    let bar = function.bar(0)?;
    let capabilities = bar.load_long(0)?;
    let version = bar.register(8)?.load()?;
    println!(
        "registers: {} bytes, {} mapped; capabilities {capabilities:#x}, version {version:#x}",
        bar.size(),
        bar.mapped()
    );
    let memory = || -> Outcome<DeviceMemory> {
        let buffer = arena
            .try_buffer(4096)
            .map_err(|error| format!("{error:?}"))?;
        Ok(buffer.into_device_memory())
    };
    let (submissions, completions, answer) = (memory()?, memory()?, memory()?);
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    function.set_bus_master(true)?;
    function.set_vectors(&[event.as_fd()])?;

    let configuration = bar.register(0x14)?;
    configuration.store_released(0)?;
    wait_for(&bar, false)?;
    bar.register(0x24)?
        .store_released((ENTRIES - 1) << 16 | (ENTRIES - 1))?;
    bar.store_long(0x28, submissions.iova().0)?;
    bar.store_long(0x30, completions.iova().0)?;
    // Entries of 16 and 64 bytes, pages of 4 KiB, on.
    configuration.store_released(4 << 20 | 6 << 16 | 1)?;
    wait_for(&bar, true)?;

    submissions.store_u32(0, 0x06);
    submissions.store_u64(24, answer.iova().0);
    submissions.store_u32(40, 1);
    bar.register(0x1000)?.store_released(1)?;

    let limit = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    let signalled = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit))?;
    let mut looks = 0;
    while completions.load_u32(12) >> 16 & 1 == 0 {
        looks += 1;
        if looks == LOOKS_MAX {
            return Err("no completion".into());
        }
        thread::yield_now();
    }
    barrier::before_next_load();
    let status = completions.load_u32(12) >> 17;
    let words: Vec<u8> = (0..15)
        .flat_map(|word| answer.load_u32(word * 4).to_le_bytes())
        .collect();
    println!(
        "identify: status {status}, signalled {signalled}, serial {:?}, model {:?}",
        String::from_utf8_lossy(&words[4..24]).trim_end(),
        String::from_utf8_lossy(&words[24..]).trim_end()
    );
    configuration.store_released(0)?;
    wait_for(&bar, false)?;
    function.set_vectors(&[])?;
    function.set_bus_master(false)?;
    Ok(())
}

/// A function is shared by threads.
const _: fn() = || {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<Arc<dyn Function>>();
};
