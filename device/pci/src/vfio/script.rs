//! A simulated kernel for tests: it obeys the rules of the real one, fails on demand, and counts leaks.
//!
//! Files are memfds: what is read from and written to a device's is in it, and it can be mapped.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CStr;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{self, Errno};
use vfio_bindings::bindings::vfio;

use super::kernel::{Call, Kernel};
use crate::argument::Argument;

/// Where region `index` begins in a device's file, as the kernel has it.
pub(super) const fn region_offset(index: u32) -> u64 {
    (index as u64) << 40
}

/// Size of the configuration space and of base address 0.
pub(super) const CONFIG_SIZE: u64 = 4096;
pub(super) const BAR_SIZE: u64 = 16 << 10;
/// How many vectors the device has.
pub(super) const VECTORS: u32 = 9;
/// What the host's page is to this kernel.
pub(super) const PAGE: u64 = 4096;

/// What the machine is.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The IOMMU interfaces that are offered.
    pub(super) extensions: Vec<u32>,
    pub(super) viable: bool,
    /// How often the IOMMU is refused with EAGAIN.
    pub(super) again: u32,
    pub(super) resettable: bool,
    /// How many vectors the host has left.
    pub(super) vectors_free: u32,
    /// Whether the kernel finds that there are fewer only when it takes them, and does not say how many.
    pub(super) vectors_silent: bool,
    /// The answer to `VFIO_IOMMU_GET_INFO`.
    pub(super) type1: Vec<u8>,
    /// Where the default window is; none if its size is 0.
    pub(super) default_window: (u32, u32),
    pub(super) window_pages: u64,
    pub(super) windows_max: u32,
    pub(super) levels_max: u32,
    /// Where a window begins, for each place in the order of their use; the default has the first.
    pub(super) window_starts: Vec<u64>,
    /// No larger window is made.
    pub(super) window_size_max: u64,
    /// With fewer levels a window has no memory for its table.
    pub(super) levels_needed: u32,
    /// How many more bytes may be locked, if that is limited; tables of windows alone are held against it.
    pub(super) lock_room: Option<u64>,
    /// The answers to `VFIO_DEVICE_GET_REGION_INFO`, but for configuration space.
    pub(super) regions: HashMap<u32, Vec<u8>>,
    /// The ranges of an iommufd's address space.
    pub(super) iommufd_ranges: Vec<(u64, u64)>,
}

impl Default for Machine {
    /// A machine that can do anything.
    fn default() -> Self {
        Self {
            extensions: vec![],
            viable: true,
            again: 0,
            resettable: true,
            vectors_free: u32::MAX,
            vectors_silent: false,
            type1: type1_info(PAGE, &[(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)]),
            default_window: (0, 2 << 30),
            window_pages: 1 << 12 | 1 << 16 | 1 << 21,
            windows_max: 2,
            levels_max: 5,
            window_starts: vec![0, 0x800_0000_0000_0000],
            window_size_max: 64 << 30,
            levels_needed: 1,
            lock_room: None,
            regions: HashMap::from([(0, whole_bar())]),
            iommufd_ranges: vec![(0, 0xfedf_ffff), (0xfef0_0000, u64::MAX)],
        }
    }
}

/// A window of TCEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    place: usize,
    start: u64,
    size: u64,
    page: u64,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Container,
    Group,
    Device,
    Iommufd,
}

/// What the kernel remembers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    roles: HashMap<RawFd, Role>,
    iommu: Option<u32>,
    enabled: bool,
    windows: Vec<Window>,
    /// Size and address of what is mapped.
    pub(super) mapped: BTreeMap<u64, (u64, u64)>,
    /// Address and size of what is registered, with how often.
    pub(super) registered: BTreeMap<(u64, u64), u32>,
    /// How many vectors have events.
    pub(super) vectors: u32,
    /// Whether the function may assert INTx, whatever its configuration space shows.
    pub(super) intx_allowed: bool,
    /// What is to be signalled for interrupts that are no vectors: index, flags and descriptor.
    pub(super) signals: Vec<(u32, u32, RawFd)>,
    pub(super) resets: u32,
    /// The names of all calls.
    pub(super) calls: Vec<&'static str>,
    /// How many calls are left until one is refused, and how.
    pub(super) refuse_after: Option<(usize, Errno)>,
    /// Calls of a name that are refused, each once.
    pub(super) refuse: HashMap<&'static str, VecDeque<Errno>>,
}

/// The kernel.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) machine: Machine,
    memory: Mutex<Memory>,
}

impl Script {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine,
            memory: Mutex::default(),
        }
    }

    /// Looks into what is remembered, or changes it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Memory) -> T) -> T {
        look(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a call, and refuses it if that was asked for.
    fn count(&self, name: &'static str) -> io::Result<()> {
        self.with(|memory| {
            memory.calls.push(name);
            if let Some(errno) = memory.refuse.get_mut(name).and_then(VecDeque::pop_front) {
                return Err(errno);
            }
            match &mut memory.refuse_after {
                Some((0, errno)) => {
                    let errno = *errno;
                    memory.refuse_after = None;
                    Err(errno)
                }
                Some((left, _)) => {
                    *left -= 1;
                    Ok(())
                }
                None => Ok(()),
            }
        })
    }

    fn file(&self, role: Role) -> io::Result<OwnedFd> {
        let file = memfd_create("script", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, region_offset(9))?;
        if role == Role::Device {
            let header = [0x36, 0x1b, 0x10, 0, 0, 0, 0, 0, 2, 2, 8, 1];
            io::pwrite(
                &file,
                &header,
                region_offset(vfio::VFIO_PCI_CONFIG_REGION_INDEX),
            )?;
            self.with(|memory| memory.intx_allowed = true);
        }
        self.with(|memory| memory.roles.insert(file.as_raw_fd(), role));
        Ok(file)
    }

    /// Checks that a call is made on the right file.
    fn on(&self, file: BorrowedFd<'_>, role: Role) -> io::Result<()> {
        let is = self.with(|memory| memory.roles.get(&file.as_raw_fd()).copied());
        assert_eq!(is, Some(role), "a call on a file that does not take it");
        Ok(())
    }

    fn region_info(&self, argument: &mut Argument) -> io::Result<()> {
        let index = argument
            .word(offset_of!(vfio::vfio_region_info, index))
            .ok_or(Errno::INVAL)?;
        let answer = match self.machine.regions.get(&index) {
            _ if index == vfio::VFIO_PCI_CONFIG_REGION_INDEX => {
                region_info(index, 3, CONFIG_SIZE, &[])
            }
            Some(answer) => answer.clone(),
            None => region_info(index, 0, 0, &[]),
        };
        fill(argument, &answer)
    }

    fn set_iommu(&self, kind: u32) -> io::Result<()> {
        if !self.machine.extensions.contains(&kind) {
            return Err(Errno::NODEV);
        }
        self.with(|memory| {
            let tried = memory.calls.iter().filter(|name| **name == "SetIommu");
            if tried.count() <= self.machine.again as usize {
                return Err(Errno::AGAIN);
            }
            memory.iommu = Some(kind);
            let (start, size) = self.machine.default_window;
            let spapr = kind == vfio::VFIO_SPAPR_TCE_IOMMU || kind == vfio::VFIO_SPAPR_TCE_v2_IOMMU;
            if spapr && size > 0 {
                memory.windows.push(Window {
                    place: 0,
                    start: start.into(),
                    size: size.into(),
                    page: PAGE,
                });
            }
            Ok(())
        })
    }

    fn create_window(&self, create: &mut vfio::vfio_iommu_spapr_tce_create) -> io::Result<()> {
        let page = 1_u64 << create.page_shift;
        let shaped = create.window_size.is_power_of_two()
            && self.machine.window_pages & page != 0
            && (1..=self.machine.levels_max).contains(&create.levels);
        self.with(|memory| {
            let places = 0..self.machine.window_starts.len();
            let free = |place: &usize| memory.windows.iter().all(|window| window.place != *place);
            let place = places.into_iter().find(free).ok_or(Errno::NOSPC)?;
            if !shaped || create.window_size > self.machine.window_size_max {
                return Err(Errno::INVAL);
            }
            let table = create.window_size / page * 16;
            let too_large = self.machine.lock_room.is_some_and(|room| table > room);
            if create.levels < self.machine.levels_needed || too_large {
                return Err(Errno::NOMEM);
            }
            create.start_addr = self.machine.window_starts[place];
            memory.windows.push(Window {
                place,
                start: create.start_addr,
                size: create.window_size,
                page,
            });
            Ok(())
        })
    }

    fn remove_window(&self, start: u64) -> io::Result<()> {
        self.with(|memory| {
            let found = memory
                .windows
                .iter()
                .position(|window| window.start == start);
            let window = memory.windows.remove(found.ok_or(Errno::INVAL)?);
            let mut inside = memory.mapped.range(start..=start + (window.size - 1));
            assert_eq!(inside.next(), None, "a window that is used is not removed");
            Ok(())
        })
    }

    fn map(&self, iova: u64, size: u64, vaddr: u64) -> io::Result<()> {
        let last = iova.checked_add(size.checked_sub(1).ok_or(Errno::INVAL)?);
        let last = last.ok_or(Errno::INVAL)?;
        self.with(|memory| {
            let page = match memory.iommu {
                Some(kind @ (vfio::VFIO_SPAPR_TCE_IOMMU | vfio::VFIO_SPAPR_TCE_v2_IOMMU)) => {
                    if kind == vfio::VFIO_SPAPR_TCE_IOMMU && !memory.enabled {
                        return Err(Errno::PERM);
                    }
                    let registered = memory.registered.contains_key(&(vaddr, size));
                    if kind == vfio::VFIO_SPAPR_TCE_v2_IOMMU && !registered {
                        return Err(Errno::FAULT);
                    }
                    let mut windows = memory.windows.iter();
                    let window = windows.find(|window| {
                        window.start <= iova && last <= window.start + (window.size - 1)
                    });
                    window.ok_or(Errno::INVAL)?.page
                }
                _ => PAGE,
            };
            if iova % page != 0 || size % page != 0 || vaddr % page != 0 {
                return Err(Errno::INVAL);
            }
            let before = memory.mapped.range(..=last).next_back();
            if before.is_some_and(|(first, (size, _))| first + (size - 1) >= iova) {
                return Err(Errno::EXIST);
            }
            memory.mapped.insert(iova, (size, vaddr));
            Ok(())
        })
    }

    fn unmap(&self, iova: u64, size: u64) -> io::Result<()> {
        self.with(|memory| {
            let (mapped, _) = memory.mapped.get(&iova).copied().ok_or(Errno::NOENT)?;
            assert_eq!(mapped, size, "what is unmapped is what was mapped");
            memory.mapped.remove(&iova);
            Ok(())
        })
    }

    fn register(&self, vaddr: u64, size: u64) -> io::Result<()> {
        self.with(|memory| *memory.registered.entry((vaddr, size)).or_default() += 1);
        Ok(())
    }

    fn unregister(&self, vaddr: u64, size: u64) -> io::Result<()> {
        self.with(|memory| {
            let used = memory
                .mapped
                .values()
                .any(|mapped| *mapped == (size, vaddr));
            assert!(!used, "memory that is mapped stays registered");
            let times = memory.registered.get_mut(&(vaddr, size));
            let times = times.ok_or(Errno::NOENT)?;
            *times -= 1;
            if *times == 0 {
                memory.registered.remove(&(vaddr, size));
            }
            Ok(())
        })
    }

    fn set_irqs(&self, set: &Argument) -> io::Result<u32> {
        let field = |offset| set.word(offset).ok_or(Errno::INVAL);
        let index = field(offset_of!(vfio::vfio_irq_set, index))?;
        let count = field(offset_of!(vfio::vfio_irq_set, count))?;
        let flags = field(offset_of!(vfio::vfio_irq_set, flags))?;
        let events = flags & vfio::VFIO_IRQ_SET_DATA_EVENTFD != 0;
        if events && set.bytes().len() < 20 + count as usize * 4 {
            return Err(Errno::INVAL);
        }
        if index != vfio::VFIO_PCI_MSIX_IRQ_INDEX {
            let descriptor = field(offset_of!(vfio::vfio_irq_set, data))?;
            let descriptor = RawFd::from_ne_bytes(descriptor.to_ne_bytes());
            self.with(|memory| memory.signals.push((index, flags, descriptor)));
            return Ok(0);
        }
        self.with(|memory| match (count, memory.vectors) {
            // It cannot be switched off twice, nor changed in number.
            (0, 0) => Err(Errno::INVAL),
            (1.., 1..) => Err(Errno::INVAL),
            (VECTORS.., _) if count > VECTORS => Err(Errno::INVAL),
            (1.., _) if self.machine.vectors_free == 0 => Err(Errno::NOSPC),
            (count, _) if count > self.machine.vectors_free => {
                memory.intx_allowed = true;
                if self.machine.vectors_silent {
                    return Err(Errno::NOSPC);
                }
                Ok(self.machine.vectors_free)
            }
            (count, _) => {
                memory.vectors = count;
                memory.intx_allowed = count == 0;
                Ok(0)
            }
        })
    }

    fn address_ranges(
        &self,
        question: &mut super::kernel::IoasIovaRanges,
        room: &mut [vfio::vfio_iova_range],
    ) -> io::Result<()> {
        let ranges = &self.machine.iommufd_ranges;
        question.num_iovas = u32::try_from(ranges.len()).unwrap_or(u32::MAX);
        question.out_iova_alignment = PAGE;
        if room.len() < ranges.len() {
            return Err(Errno::MSGSIZE);
        }
        for (place, (start, end)) in room.iter_mut().zip(ranges) {
            *place = vfio::vfio_iova_range {
                start: *start,
                end: *end,
            };
        }
        Ok(())
    }

    /// The calls of containers.
    fn container_call(&self, file: BorrowedFd<'_>, call: Call<'_>) -> io::Result<u32> {
        self.on(file, Role::Container)?;
        match call {
            Call::CheckExtension(kind) => {
                return Ok(u32::from(self.machine.extensions.contains(&kind)));
            }
            Call::SetIommu(kind) => self.set_iommu(kind)?,
            Call::Type1Info(argument) => fill(argument, &self.machine.type1)?,
            Call::MapDma(map) => self.map(map.iova, map.size, map.vaddr)?,
            Call::UnmapDma(unmap) => self.unmap(unmap.iova, unmap.size)?,
            Call::IommuEnable => self.with(|memory| memory.enabled = true),
            Call::SpaprInfo(info) => {
                (info.dma32_window_start, info.dma32_window_size) = self.machine.default_window;
                info.flags = vfio::VFIO_IOMMU_SPAPR_INFO_DDW;
                info.ddw = vfio::vfio_iommu_spapr_tce_ddw_info {
                    pgsizes: self.machine.window_pages,
                    max_dynamic_windows_supported: self.machine.windows_max,
                    levels: self.machine.levels_max,
                };
            }
            Call::RegisterMemory(memory) => self.register(memory.vaddr, memory.size)?,
            Call::UnregisterMemory(memory) => self.unregister(memory.vaddr, memory.size)?,
            Call::CreateWindow(create) => self.create_window(create)?,
            Call::RemoveWindow(remove) => self.remove_window(remove.start_addr)?,
            _ => {}
        }
        Ok(0)
    }

    /// The calls of devices.
    fn device_call(&self, file: BorrowedFd<'_>, call: Call<'_>) -> io::Result<u32> {
        self.on(file, Role::Device)?;
        match call {
            Call::DeviceInfo(info) => {
                info.flags = vfio::VFIO_DEVICE_FLAGS_PCI | u32::from(self.machine.resettable);
                info.num_regions = 9;
                info.num_irqs = 5;
            }
            Call::RegionInfo(argument) => self.region_info(argument)?,
            Call::IrqInfo(info) => {
                info.flags = vfio::VFIO_IRQ_INFO_EVENTFD;
                info.count = VECTORS;
            }
            Call::SetIrqs(set) => return self.set_irqs(set),
            Call::DeviceReset => self.with(|memory| memory.resets += 1),
            _ => {}
        }
        Ok(0)
    }
}

impl Kernel for Script {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        self.count("open")?;
        let text = path.to_string_lossy();
        self.file(match () {
            () if text.ends_with("/vfio/vfio") => Role::Container,
            () if text.ends_with("/iommu") => Role::Iommufd,
            () if text.contains("/vfio/devices/") => Role::Device,
            () => Role::Group,
        })
    }

    fn call(&self, file: BorrowedFd<'_>, call: Call<'_>) -> io::Result<u32> {
        self.count(name_of(&call))?;
        match call {
            Call::GroupStatus(status) => {
                self.on(file, Role::Group)?;
                status.flags = u32::from(self.machine.viable);
                Ok(0)
            }
            Call::SetContainer(_) => self.on(file, Role::Group).map(|()| 0),
            Call::DeviceInfo(_)
            | Call::RegionInfo(_)
            | Call::IrqInfo(_)
            | Call::SetIrqs(_)
            | Call::DeviceReset
            | Call::BindIommufd(_)
            | Call::AttachAddressSpace(_) => self.device_call(file, call),
            Call::AllocateAddressSpace(space) => {
                self.on(file, Role::Iommufd)?;
                space.out_ioas_id = 7;
                Ok(0)
            }
            Call::AddressRanges(question, room) => self.address_ranges(question, room).map(|()| 0),
            Call::MapAddressSpace(map) => {
                assert_eq!(map.ioas_id, 7);
                self.map(map.iova, map.length, map.user_va).map(|()| 0)
            }
            Call::UnmapAddressSpace(unmap) => {
                assert_eq!(unmap.ioas_id, 7);
                self.unmap(unmap.iova, unmap.length).map(|()| 0)
            }
            call => self.container_call(file, call),
        }
    }

    fn device(&self, _: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
        self.count("device")?;
        assert_eq!(name, c"0000:01:00.0");
        self.file(Role::Device)
    }

    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.on(file, Role::Device)?;
        let command = region_offset(vfio::VFIO_PCI_CONFIG_REGION_INDEX) + 4;
        if offset == command {
            let mut before = [0; 2];
            io::pread(file, &mut before, command)?;
            let allows = |bytes: &[u8]| bytes[1] & 1 << 2 == 0;
            // What is shown is not the function's own bit, which follows it only when it changes.
            if allows(&before) != allows(bytes) {
                self.with(|memory| memory.intx_allowed = allows(bytes));
            }
        }
        io::pwrite(file, bytes, offset)
    }

    fn lock_room(&self) -> Option<u64> {
        self.machine.lock_room
    }
}

fn name_of(call: &Call<'_>) -> &'static str {
    match call {
        Call::ApiVersion => "ApiVersion",
        Call::CheckExtension(_) => "CheckExtension",
        Call::SetIommu(_) => "SetIommu",
        Call::SetIrqs(_) => "SetIrqs",
        Call::DeviceReset => "DeviceReset",
        Call::MapDma(_) => "MapDma",
        Call::UnmapDma(_) => "UnmapDma",
        Call::IommuEnable => "IommuEnable",
        Call::RegisterMemory(_) => "RegisterMemory",
        Call::UnregisterMemory(_) => "UnregisterMemory",
        Call::CreateWindow(_) => "CreateWindow",
        Call::RemoveWindow(_) => "RemoveWindow",
        Call::BindIommufd(_) => "BindIommufd",
        _ => "other",
    }
}

/// Writes as much of an answer as there is room for, and how much it is.
fn fill(argument: &mut Argument, answer: &[u8]) -> io::Result<()> {
    let room = argument.bytes().len().min(answer.len());
    argument.put(0, &answer[..room]);
    Ok(())
}

/// The answer for a region, with capabilities: id and payload of each. The first word says its length.
pub(super) fn region_info(
    index: u32,
    flags: u32,
    size: u64,
    capabilities: &[(u32, Vec<u8>)],
) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    let (flags, first) = match capabilities.is_empty() {
        true => (flags, 0_u32),
        false => (flags | vfio::VFIO_REGION_INFO_FLAG_CAPS, 32),
    };
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(index.to_ne_bytes());
    bytes.extend(first.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(region_offset(index).to_ne_bytes());
    with_capabilities(bytes, capabilities)
}

/// A region of which all may be mapped, with the vectors in it.
pub(super) fn whole_bar() -> Vec<u8> {
    let mappable = [(vfio::VFIO_REGION_INFO_CAP_MSIX_MAPPABLE, vec![])];
    region_info(0, 7, BAR_SIZE, &mappable)
}

/// The payload of a list of areas or of ranges.
pub(super) fn list(pairs: &[(u64, u64)]) -> Vec<u8> {
    let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::from(count.to_ne_bytes());
    bytes.extend([0; 4]);
    for (a, b) in pairs {
        bytes.extend(a.to_ne_bytes());
        bytes.extend(b.to_ne_bytes());
    }
    bytes
}

/// The answer for an address space of Type1.
pub(super) fn type1_info(page_sizes: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    let flags = vfio::VFIO_IOMMU_INFO_PGSIZES | vfio::VFIO_IOMMU_INFO_CAPS;
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(page_sizes.to_ne_bytes());
    bytes.extend(24_u32.to_ne_bytes());
    bytes.extend([0; 4]);
    let capabilities = [
        (
            vfio::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL,
            Vec::from(65535_u32.to_ne_bytes()),
        ),
        (vfio::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, list(ranges)),
    ];
    with_capabilities(bytes, &capabilities)
}

fn with_capabilities(fixed: Vec<u8>, capabilities: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = fixed;
    for (number, (id, payload)) in capabilities.iter().enumerate() {
        let end = bytes.len() + 8 + payload.len();
        let next = match number + 1 == capabilities.len() {
            true => 0,
            false => u32::try_from(end).unwrap_or(u32::MAX),
        };
        // The id and a version of 1, as two halves of a word.
        let [a, b, ..] = id.to_le_bytes();
        bytes.extend(u16::from_le_bytes([a, b]).to_ne_bytes());
        bytes.extend(1_u16.to_ne_bytes());
        bytes.extend(next.to_ne_bytes());
        bytes.extend(payload);
    }
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&size.to_ne_bytes());
    bytes
}
