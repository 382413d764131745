//! A function that the kernel wants back while it is used.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_conformance::{Failure, Result};
use millrace_memory::{Arena, ArenaOptions};
use millrace_nvme::{Controller, Lba, Options, QueueOptions, Request, SystemHost};
use millrace_pci::Address;
use millrace_pci::vfio::{self, Iommu};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// So long the kernel may take to say that it wants the function back, and a read may.
const LIMIT: Duration = Duration::from_secs(60);

/// Has the function removed while the controller is used: the kernel says so and waits, a read still
/// completes, and when all is given back the function is gone.
pub(crate) fn remove(address: Address, iommu: Option<Iommu>) -> Result<String> {
    let folder = PathBuf::from(format!("/sys/bus/pci/devices/{address}"));
    let doing = |error: &dyn Error| Failure::from_error("orderly removal", error);
    let wanted = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| doing(&error))?;
    let removal = wanted.try_clone().map_err(|error| doing(&error))?;
    let options = vfio::Options {
        iommu,
        removal: Some(removal),
        ..vfio::Options::default()
    };
    let function = vfio::open(address, options).map_err(|error| doing(&error))?;
    let host = Arc::new(SystemHost::new(Instant::now()));
    let controller =
        Controller::open(function, host, Options::default()).map_err(|error| doing(&error))?;
    let ids = controller.namespaces().map_err(|error| doing(&error))?;
    let namespace = controller
        .namespace(ids[0])
        .map_err(|error| doing(&error))?;
    let domain = Arc::clone(controller.domain());
    let arena = Arena::new(domain, &ArenaOptions::default()).map_err(|error| doing(&error))?;
    let mut pair = controller
        .queue_pair(QueueOptions::default())
        .map_err(|error| doing(&error))?;

    // The write ends when the function is given back.
    let file = folder.join("remove");
    let remover = thread::spawn(move || fs::write(file, "1"));
    let limit = Timespec::try_from(LIMIT).map_err(|error| doing(&error))?;
    let told = poll(&mut [PollFd::new(&wanted, PollFlags::IN)], Some(&limit));
    if told.map_err(|error| doing(&error))? == 0 {
        return Err(Failure::new(
            "nobody said that the function is to be removed",
        ));
    }
    let buffer = arena.try_buffer(4096).map_err(|error| doing(&error))?;
    pair.submit(&namespace, Request::read(Lba(0), buffer, 0))
        .map_err(|error| doing(&error))?;
    let mut ended = None;
    pair.wait(LIMIT, |completion| ended = Some(completion.result));
    match ended {
        Some(result) => result.map_err(|error| doing(&error))?,
        None => return Err(Failure::new("a read before the removal did not end")),
    }
    if !folder.exists() {
        return Err(Failure::new("the function went before it was given back"));
    }
    drop((pair, arena, controller));

    let removed = remover.join();
    let removed = removed.map_err(|_| Failure::new("the remover panicked"))?;
    removed.map_err(|error| doing(&error))?;
    if folder.exists() {
        return Err(Failure::new("the function is still there"));
    }
    Ok(format!("{address} was removed"))
}
