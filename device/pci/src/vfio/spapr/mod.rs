//! The address spaces of POWER: translation control entries (TCE), in windows.
//!
//! # Version 1
//! There is one window, below 4 GiB, in pages of 4 KiB. All of it is charged to the limit of locked memory
//! when it is enabled.
//!
//! # Version 2
//! Memory is registered, which pins and charges it, and then mapped in a window. There is a default window
//! as in version 1, and others can be made: where they begin is the kernel's choice. [`windows`] decides
//! which window a region goes to; here is what the kernel is asked.

mod windows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_memory::{Domain, Error, ErrorKind, Iova, IovaRange, Region, Result, base_page_size};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio;

use self::windows::{Facilities, Shape, Windows};
use super::container::Container;
use super::kernel::{Call, argument_size};
use super::type1::{map_dma, map_error, unmap_dma, unmap_error, user_address};
use crate::domain::{Flat, Mapper};
use crate::refused;

/// Default size of a window, in bytes.
const WINDOW_SIZE: u64 = 16 << 30;

fn spapr_info(container: &Container) -> crate::Result<vfio::vfio_iommu_spapr_tce_info> {
    let mut info = vfio::vfio_iommu_spapr_tce_info {
        argsz: argument_size::<vfio::vfio_iommu_spapr_tce_info>(),
        ..Default::default()
    };
    container
        .call(Call::SpaprInfo(&mut info))
        .map_err(|errno| refused(errno, "asking for the DMA windows"))?;
    Ok(info)
}

/// The default window, if there is one.
fn default_window(info: &vfio::vfio_iommu_spapr_tce_info) -> Option<IovaRange> {
    let first = u64::from(info.dma32_window_start);
    let size = u64::from(info.dma32_window_size);
    Some(IovaRange {
        first: Iova(first),
        last: Iova(first + size.checked_sub(1)?),
    })
}

fn senseless(error: Error) -> crate::Error {
    let context = "the kernel described windows that cannot be";
    crate::Error::new(crate::ErrorKind::Protocol, context).caused_by(error)
}

/// Enters regions into the default window.
#[derive(Debug)]
struct DefaultWindow {
    container: Arc<Container>,
}

impl Mapper for DefaultWindow {
    fn map(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut map = map_dma(iova, region);
        let mapped = self.container.call(Call::MapDma(&mut map));
        mapped
            .map(|_| ())
            .map_err(|errno| map_error(errno, region, iova))
    }

    fn unmap(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut unmap = unmap_dma(iova, region);
        let unmapped = self.container.call(Call::UnmapDma(&mut unmap));
        unmapped
            .map(|_| ())
            .map_err(|errno| unmap_error(errno, iova))
    }
}

/// The address space of a container of version 1.
pub(super) fn domain_v1(container: Arc<Container>) -> crate::Result<Arc<dyn Domain>> {
    let info = spapr_info(&container)?;
    let Some(window) = default_window(&info) else {
        let context = "sPAPR v1 without its window";
        return Err(crate::Error::new(crate::ErrorKind::Unsupported, context));
    };
    container
        .call(Call::IommuEnable)
        .map_err(|errno| match errno {
            Errno::NOMEM | Errno::PERM => {
                let size = usize::try_from(info.dma32_window_size).unwrap_or(usize::MAX);
                let source = Error::lock_limit("enabling the DMA window", size).caused_by(errno);
                let context = "sPAPR v1 charges its whole window at once";
                crate::Error::new(crate::ErrorKind::LockLimit, context).caused_by(source)
            }
            errno => refused(errno, "enabling the DMA window"),
        })?;
    let mapper = DefaultWindow { container };
    let granule = base_page_size() as u64;
    let domain = Flat::new(mapper, vec![window], granule).map_err(senseless)?;
    Ok(Arc::new(domain))
}

/// The address space of a container of version 2.
pub(super) fn domain_v2(
    container: Arc<Container>,
    window_size: Option<u64>,
) -> crate::Result<Arc<dyn Domain>> {
    let info = spapr_info(&container)?;
    let offered = info.flags & vfio::VFIO_IOMMU_SPAPR_INFO_DDW != 0;
    let facilities = Facilities {
        page_sizes: if offered { info.ddw.pgsizes } else { 0 },
        windows_max: info.ddw.max_dynamic_windows_supported,
        levels_max: info.ddw.levels,
        window_size: window_size.unwrap_or(WINDOW_SIZE),
        host_page_size: base_page_size() as u64,
    };
    let windows = Windows::new(facilities, default_window(&info)).map_err(senseless)?;
    let state = State {
        windows,
        regions: BTreeMap::new(),
    };
    Ok(Arc::new(SpaprV2 {
        container,
        state: Mutex::new(state),
    }))
}

/// A container of version 2.
#[derive(Debug)]
struct SpaprV2 {
    container: Arc<Container>,
    state: Mutex<State>,
}

/// The windows there are, and what is mapped in them.
#[derive(Debug)]
struct State {
    windows: Windows,
    regions: BTreeMap<u64, Arc<Region>>,
}

impl SpaprV2 {
    fn lock(&self) -> MutexGuard<'_, State> {
        // As in `Flat`: a panic leaves addresses taken at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes addresses for a region; makes a window if that is better than those there are.
    fn take(&self, windows: &mut Windows, region: &Region) -> Result<Iova> {
        let size = region.size() as u64;
        let page_size = region.page_size() as u64;
        if let Some(iova) = windows.take_created(size, page_size) {
            return Ok(iova);
        }
        let mut created = self.create(windows, windows.attempts(size, page_size));
        if let Some(iova) = windows.take_created(size, page_size) {
            return Ok(iova);
        }
        // The kernel makes the default window when it is first asked for anything. Its table, which is
        // larger than that of a window with larger pages, may be what there is no memory for.
        if created == Err(Errno::NOMEM) {
            created = self.replace_default(windows, size, page_size).or(created);
            if let Some(iova) = windows.take_created(size, page_size) {
                return Ok(iova);
            }
        }
        if let Some(iova) = windows.take_default(size, page_size) {
            return Ok(iova);
        }
        if windows.attempts(size, page_size).is_some() {
            created = self.replace_default(windows, size, page_size).or(created);
            if let Some(iova) = windows.take_created(size, page_size) {
                return Ok(iova);
            }
        }
        Err(self.without_place(windows, size, page_size, created))
    }

    /// The error for a region that no window has a place for, when a new one was asked for with this outcome.
    fn without_place(
        &self,
        windows: &Windows,
        size: u64,
        page_size: u64,
        created: rustix::io::Result<()>,
    ) -> Error {
        let mut context = format!("{size} bytes in pages of {page_size}; {windows}");
        if created == Err(Errno::NOMEM) {
            let table = windows.table_size(size, page_size);
            let room = self.container.lock_room();
            if room.is_some_and(|room| table as u64 > room) {
                let attempted = format!("making the table of a DMA window for {context}");
                return Error::lock_limit(&attempted, table).caused_by(Errno::NOMEM);
            }
            let table = table.div_ceil(1024);
            context +=
                &format!("; the kernel has no memory for the {table} KiB of a new window's table");
        }
        let error = Error::new(ErrorKind::NoAddresses, context);
        match created {
            Err(errno) => error.caused_by(errno),
            Ok(()) => error,
        }
    }

    /// Makes a window in the place of the default one, if that is there and nothing is in it.
    fn replace_default(
        &self,
        windows: &mut Windows,
        size: u64,
        page_size: u64,
    ) -> rustix::io::Result<()> {
        let Some((start, shape)) = windows.unused_default() else {
            return Err(Errno::NOSPC);
        };
        self.remove(start)?;
        windows.forget_default();
        let created = self.create(windows, windows.attempts(size, page_size));
        if created.is_err() {
            // One like it may be had back; if not, what fits into no other window is refused from now on.
            let _ = self.create(windows, Some([shape]));
        }
        created
    }

    /// Asks for a window in each of these shapes, until one is granted.
    fn create(
        &self,
        windows: &mut Windows,
        attempts: Option<impl IntoIterator<Item = Shape>>,
    ) -> rustix::io::Result<()> {
        let Some(attempts) = attempts else {
            return Ok(());
        };
        let mut refusal = Errno::INVAL;
        for attempt in attempts {
            let mut create = vfio::vfio_iommu_spapr_tce_create {
                argsz: argument_size::<vfio::vfio_iommu_spapr_tce_create>(),
                page_shift: attempt.page_shift,
                window_size: attempt.size,
                levels: attempt.levels,
                ..Default::default()
            };
            match self.container.call(Call::CreateWindow(&mut create)) {
                // A window that lies where it cannot is not used. Nor is it removed: by its start another
                // one could be meant.
                Ok(_) => {
                    let added = windows.add(create.start_addr, attempt);
                    return added.map_err(|_| Errno::PROTO);
                }
                // No shape helps if there is no place for a window.
                Err(Errno::NOSPC) => return Err(Errno::NOSPC),
                Err(errno) => refusal = errno,
            }
        }
        Err(refusal)
    }

    fn remove(&self, start: u64) -> rustix::io::Result<()> {
        let mut remove = vfio::vfio_iommu_spapr_tce_remove {
            argsz: argument_size::<vfio::vfio_iommu_spapr_tce_remove>(),
            start_addr: start,
            ..Default::default()
        };
        self.container
            .call(Call::RemoveWindow(&mut remove))
            .map(|_| ())
    }

    /// Pins a region and enters it. Nothing is left of it if that fails.
    fn enter(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut memory = memory(region);
        self.container
            .call(Call::RegisterMemory(&mut memory))
            .map_err(|errno| map_error(errno, region, iova))?;
        let mut map = map_dma(iova, region);
        let Err(errno) = self.container.call(Call::MapDma(&mut map)) else {
            return Ok(());
        };
        // If this fails it stays pinned until the container is closed; nothing can reach it.
        let _ = self.container.call(Call::UnregisterMemory(&mut memory));
        Err(map_error(errno, region, iova))
    }

    /// Takes a region out and lets its pages go.
    fn withdraw(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut unmap = unmap_dma(iova, region);
        self.container
            .call(Call::UnmapDma(&mut unmap))
            .map_err(|errno| unmap_error(errno, iova))?;
        // No entry names the pages any more: if they stay pinned, until the container is closed, that is
        // a waste and no danger.
        let _ = self
            .container
            .call(Call::UnregisterMemory(&mut memory(region)));
        Ok(())
    }
}

fn memory(region: &Region) -> vfio::vfio_iommu_spapr_register_memory {
    vfio::vfio_iommu_spapr_register_memory {
        argsz: argument_size::<vfio::vfio_iommu_spapr_register_memory>(),
        flags: 0,
        vaddr: user_address(region),
        size: region.size() as u64,
    }
}

impl Domain for SpaprV2 {
    fn map(&self, region: &Arc<Region>) -> Result<Iova> {
        let mut state = self.lock();
        let iova = self.take(&mut state.windows, region)?;
        if let Err(error) = self.enter(iova, region) {
            state.windows.give(iova)?;
            return Err(error);
        }
        state.regions.insert(iova.0, Arc::clone(region));
        Ok(iova)
    }

    unsafe fn unmap(&self, iova: Iova) -> Result<()> {
        let mut state = self.lock();
        let region = state
            .regions
            .get(&iova.0)
            .ok_or_else(|| Error::new(ErrorKind::NotMapped, format!("device address {iova}")))?;
        self.withdraw(iova, region)?;
        state.regions.remove(&iova.0);
        state.windows.give(iova)
    }
}

impl Drop for SpaprV2 {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        for (iova, region) in std::mem::take(&mut state.regions) {
            // What fails is done by the kernel when the container is closed, which keeps the pages.
            let _ = self.withdraw(Iova(iova), &region);
        }
    }
}
