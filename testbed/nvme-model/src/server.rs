//! The controller for a driver in another process, over vfio-user.
//!
//! The doorbells' pages are a file that the client maps; ringing one is a store there and no message. All
//! other registers, and the doorbells where pages are larger than 4 KiB, are reached by messages.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
    vfio_region_sparse_mmap_area,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion, SparseArea};

use crate::config_space;
use crate::controller::Inner;
use crate::host::{Access, Doorbells, MappedFile, Mapping};
use crate::options::Options;
use crate::registers::DOORBELLS;
use crate::{Controller, Error, ErrorKind, Result};

/// A controller and the socket that it is served on.
pub struct Service {
    controller: Controller,
    server: vfio_user::Server,
    /// What the client maps.
    _doorbells: OwnedFd,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Makes a controller and listens on a new socket at `path`, which is removed when this is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] as [`Controller::new`]; [`ErrorKind::Server`] if the socket exists or cannot
    /// be made.
    pub fn bind(options: Options, path: &Path) -> Result<Self> {
        options.check()?;
        let size = usize::try_from(options.bar_size()).expect("BAR 0 is small");
        // Where pages are larger the client cannot map the doorbells alone, and nobody but this process does.
        let offset = if Options::can_map_doorbells() {
            DOORBELLS
        } else {
            0
        };
        let (file, mapped) = MappedFile::create(offset, size).map_err(|source| {
            Error::new(ErrorKind::Server, "memory for the doorbells").caused_by(source)
        })?;
        let stride = 1 << options.doorbell_stride;
        let doorbells = Doorbells::shared(options.doorbells(), stride, &Arc::new(mapped));
        let regions = regions(&options, &file);
        let controller = Controller::with_doorbells(options, doorbells);
        let irqs = irqs(controller.inner().vectors);
        let server = vfio_user::Server::new(path, true, irqs, regions).map_err(|source| {
            Error::new(ErrorKind::Server, path.display().to_string()).caused_by(source)
        })?;
        Ok(Self {
            controller,
            server,
            _doorbells: file,
        })
    }

    /// The controller, which another thread must step.
    #[must_use]
    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// Waits for a client and serves it until it leaves; then all that it set up is undone. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if the connection breaks. Another client may be served then.
    pub fn serve_client(&self) -> Result<()> {
        let inner = Arc::clone(self.controller.inner());
        let mut backend = Backend { inner };
        let served = self.server.run(&mut backend);
        backend.forget_client();
        served.map_err(|source| Error::new(ErrorKind::Server, "a client").caused_by(source))
    }
}

fn regions(options: &Options, doorbells: &OwnedFd) -> Vec<ServerRegion> {
    let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => options.bar_size(),
                VFIO_PCI_CONFIG_REGION_INDEX => config_space::SIZE as u64,
                _ => 0,
            };
            let is_mapped = index == VFIO_PCI_BAR0_REGION_INDEX && Options::can_map_doorbells();
            let mut flags = if size > 0 { access } else { 0 };
            let mut sparse_areas = Vec::new();
            if is_mapped {
                flags |= VFIO_REGION_INFO_FLAG_MMAP;
                let area = vfio_region_sparse_mmap_area {
                    offset: DOORBELLS,
                    size: options.vector_table() - DOORBELLS,
                };
                sparse_areas.push(SparseArea { area });
            }
            let header = size_of::<vfio_region_info>();
            ServerRegion {
                region_info: vfio_region_info {
                    argsz: u32::try_from(header).expect("a small structure"),
                    flags,
                    index,
                    cap_offset: 0,
                    size,
                    offset: 0,
                },
                sparse_areas,
                mmap_fd: is_mapped.then(|| doorbells.as_raw_fd()),
            }
        })
        .collect()
}

fn irqs(vectors: u16) -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let is_msix = index == VFIO_PCI_MSIX_IRQ_INDEX;
            IrqInfo {
                index,
                flags: if is_msix { VFIO_IRQ_INFO_EVENTFD } else { 0 },
                count: if is_msix { u32::from(vectors) } else { 0 },
            }
        })
        .collect()
}

/// What the client's messages do.
struct Backend {
    inner: Arc<Inner>,
}

impl Backend {
    /// As if the function had been given back: reset, with no memory and no vectors.
    fn forget_client(&mut self) {
        self.inner.reset();
        self.inner.memory.clear();
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= self.inner.bar_size) {
            return Ok(());
        }
        Err(invalid(format!("{length} bytes at {offset:#x} of BAR 0")))
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            return match self.inner.read_config(at, data) {
                true => Ok(()),
                false => Err(invalid(format!("configuration space at {offset:#x}"))),
            };
        }
        if region != VFIO_PCI_BAR0_REGION_INDEX {
            return Err(invalid(format!("region {region}")));
        }
        self.check(offset, data.len())?;
        for (byte, at) in data.iter_mut().zip(offset..) {
            // Parts of words may be read; a word is read once for each of its bytes, which shows nothing.
            let word = self.inner.registers.load(at & !3).to_le_bytes();
            *byte = word[usize::from((at & 3) as u8)];
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            return match self.inner.write_config(at, data) {
                true => Ok(()),
                false => Err(invalid(format!("configuration space at {offset:#x}"))),
            };
        }
        if region != VFIO_PCI_BAR0_REGION_INDEX {
            return Err(invalid(format!("region {region}")));
        }
        self.check(offset, data.len())?;
        if offset % 4 != 0 || data.len() % 4 != 0 {
            return Err(invalid(format!("{} bytes at {offset:#x}", data.len())));
        }
        for (word, at) in data.chunks_exact(4).zip((offset..).step_by(4)) {
            let word = word.try_into().expect("four bytes");
            self.inner.registers.store(at, u32::from_le_bytes(word));
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        let file = fd.ok_or_else(|| invalid("memory without a file".to_owned()))?;
        let length = usize::try_from(size).map_err(|_| invalid(format!("{size} bytes")))?;
        let access = Access {
            read: flags.contains(DmaMapFlags::READ),
            write: flags.contains(DmaMapFlags::WRITE),
        };
        let mapped = MappedFile::of_client(file.as_fd(), offset, length, access)?;
        let mapping = Mapping::of_file(address, access, &Arc::new(mapped));
        if self.inner.memory.insert(mapping) {
            return Ok(());
        }
        Err(invalid(format!("{size} bytes at {address:#x} overlap")))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.inner.unmap_all();
            return Ok(());
        }
        if self.inner.unmap(address, Some(size)) {
            return Ok(());
        }
        Err(invalid(format!(
            "{size} bytes at {address:#x} are not mapped"
        )))
    }

    fn reset(&mut self) -> io::Result<()> {
        self.inner.reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        let end = start.checked_add(count);
        let vectors = u32::from(self.inner.vectors);
        if index != VFIO_PCI_MSIX_IRQ_INDEX || end.is_none_or(|end| end > vectors) {
            return Err(invalid(format!("interrupts {start}+{count} of {index}")));
        }
        if flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0 {
            self.inner.lines.set(Vec::new());
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let first = usize::try_from(start).expect("checked above");
        let mut events: Vec<Option<OwnedFd>> =
            fds.into_iter().map(|file| Some(file.into())).collect();
        events.resize_with(usize::try_from(count).expect("checked above"), || None);
        self.inner.lines.set_from(first, events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const ADDRESS: u64 = 0x10_0000;
    const PAGE: u64 = 64 << 10;

    fn backend() -> Backend {
        let controller = Controller::new(Options::default()).expect("the options are sound");
        let inner = Arc::clone(controller.inner());
        Backend { inner }
    }

    fn file(size: u64) -> File {
        let file = memfd_create("millrace-test", MemfdFlags::CLOEXEC).expect("memory for a file");
        ftruncate(&file, size).expect("it can be as long");
        file.into()
    }

    #[test]
    fn a_file_has_what_a_client_says_that_it_maps() {
        let mut backend = backend();
        let all = DmaMapFlags::READ_WRITE;
        for (offset, size) in [
            (0, 2 * PAGE),
            (PAGE, PAGE),
            (3 * PAGE, PAGE),
            (0, 0),
            (0, u64::MAX / 2),
            (u64::MAX - PAGE + 1, PAGE),
        ] {
            let refused = backend.dma_map(all, offset, ADDRESS, size, Some(file(PAGE)));
            assert!(refused.is_err(), "{size:#x} bytes from {offset:#x} on");
        }
        assert!(backend.dma_map(all, 0, ADDRESS, PAGE, None).is_err());
        let mapped = backend.dma_map(all, PAGE, ADDRESS, PAGE, Some(file(2 * PAGE)));
        mapped.expect("it lies in the file");
        let table = backend.inner.memory.table();
        table.write(ADDRESS + PAGE - 4, &[1; 4]).expect("mapped");
    }

    #[test]
    fn memory_is_used_as_the_client_allows() {
        let mut backend = backend();
        let mut address = ADDRESS;
        for (flags, readable, writable) in [
            (DmaMapFlags::READ_WRITE, true, true),
            (DmaMapFlags::READ, true, false),
            (DmaMapFlags::WRITE, false, true),
            (DmaMapFlags::empty(), false, false),
        ] {
            let mapped = backend.dma_map(flags, 0, address, PAGE, Some(file(PAGE)));
            mapped.expect("it is as long as it says");
            let table = backend.inner.memory.table();
            let read = table.read(address, &mut [0; 8]);
            let write = table.write(address, &[1; 8]);
            let entry = table.write_entry(address, [1; 2]);
            drop(table);
            assert_eq!(read.is_ok(), readable, "{flags:?}");
            assert_eq!(write.is_ok(), writable, "{flags:?}");
            assert_eq!(entry.is_ok(), writable, "{flags:?}");
            address += PAGE;
        }
    }
}
