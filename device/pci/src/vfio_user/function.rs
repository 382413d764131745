//! A function behind a socket.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_memory::{
    Domain, Error as MemoryError, ErrorKind as MemoryErrorKind, Iova, IovaRange,
    Region as MemoryRegion, Result as MemoryResult, base_page_size,
};
use rustix::fs::{FileType, fstat};
use vfio_bindings::bindings::vfio;

use super::connection::{Answer, Connection};
use super::message::{Command, Payload};
use crate::argument::Argument;
use crate::domain::{Flat, Mapper};
use crate::region::{Region, ask};
use crate::{Bar, Error, ErrorKind, Function, RegisterFile, Result, mapping};

/// Base addresses of a function.
const BARS: usize = 6;
/// Flags of a mapping: the function may read and write it.
const DMA_READ_WRITE: u32 = 1 << 0 | 1 << 1;
/// Bytes of a mapping's payload, and of one that is taken back.
const DMA_MAP_SIZE: u32 = 32;
const DMA_UNMAP_SIZE: u32 = 24;
/// Bytes of a payload that sets interrupts.
const SET_IRQS_SIZE: u32 = 20;
/// A server can translate any address; this leaves out the first and the far ones, which are worth nothing
/// and would be good at hiding a mistake.
const ADDRESSES: IovaRange = IovaRange {
    first: Iova(0x1_0000),
    last: Iova(0xffff_ffff_ffff),
};
/// No device has smaller pages.
const GRANULE: u64 = 4096;

/// Registers of a region, by messages.
#[derive(Debug)]
struct RegionFile {
    connection: Arc<Connection>,
    region: u32,
}

impl RegisterFile for RegionFile {
    fn load(&self, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.connection.read(self.region, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn store(&self, offset: u64, value: u32) -> Result<()> {
        let bytes = value.to_le_bytes();
        self.connection.write(self.region, offset, &bytes)
    }

    fn load_long(&self, offset: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.connection.read(self.region, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store_long(&self, offset: u64, value: u64) -> Result<()> {
        let bytes = value.to_le_bytes();
        self.connection.write(self.region, offset, &bytes)
    }
}

/// DMA region announced to the server.
#[derive(Debug)]
struct Memory {
    connection: Arc<Connection>,
}

impl Memory {
    fn ask(
        &self,
        command: Command,
        payload: &Payload,
        region: &[BorrowedFd<'_>],
    ) -> MemoryResult<()> {
        let attempted = "announcing memory to the server";
        let asked = self.connection.ask(command, payload, region, attempted);
        asked
            .map(|_| ())
            .map_err(|error| MemoryError::new(MemoryErrorKind::Refused, attempted).caused_by(error))
    }
}

impl Mapper for Memory {
    fn map(&self, iova: Iova, region: &MemoryRegion) -> MemoryResult<()> {
        let payload = Payload::default()
            .word(DMA_MAP_SIZE)
            .word(DMA_READ_WRITE)
            .long(0)
            .long(iova.0)
            .long(region.size() as u64);
        self.ask(Command::DmaMap, &payload, &[region.file()])
    }

    fn unmap(&self, iova: Iova, region: &MemoryRegion) -> MemoryResult<()> {
        let payload = Payload::default()
            .word(DMA_UNMAP_SIZE)
            .word(0)
            .long(iova.0)
            .long(region.size() as u64);
        self.ask(Command::DmaUnmap, &payload, &[])
    }
}

/// A region, and the file that it can be mapped from if the server gave one.
#[derive(Debug)]
struct ServedRegion {
    region: Region,
    file: Option<OwnedFd>,
}

/// A function that a server hands to this process.
#[derive(Debug)]
pub(super) struct UserFunction {
    name: String,
    connection: Arc<Connection>,
    domain: Arc<dyn Domain>,
    config_size: u64,
    regions: Vec<ServedRegion>,
    bars: Mutex<[Option<Arc<Bar>>; BARS]>,
    vectors: u16,
    /// Whether the server has eventfds for vectors.
    vectors_set: Mutex<bool>,
    resettable: bool,
}

impl UserFunction {
    /// Asks for all that is to be known of the function.
    pub(super) fn new(name: String, connection: Connection) -> Result<Self> {
        let connection = Arc::new(connection);
        let info = device_info(&connection)?;
        let pci = info.flags & vfio::VFIO_DEVICE_FLAGS_PCI != 0;
        if !pci || info.regions <= vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            let context = format!("{name} serves no PCI function");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let config = region(&connection, vfio::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let bars = vfio::VFIO_PCI_BAR0_REGION_INDEX..=vfio::VFIO_PCI_BAR5_REGION_INDEX;
        let regions = bars.map(|index| region(&connection, index));
        let memory = Memory {
            connection: Arc::clone(&connection),
        };
        let domain = Flat::new(memory, vec![ADDRESSES], GRANULE);
        let domain = domain
            .map_err(|error| Error::new(ErrorKind::Refused, "an address space").caused_by(error))?;
        Ok(Self {
            name,
            domain: Arc::new(domain),
            config_size: config.region.size,
            regions: regions.collect::<Result<Vec<ServedRegion>>>()?,
            bars: Mutex::default(),
            vectors: vectors(&connection, info.interrupts)?,
            vectors_set: Mutex::new(false),
            resettable: info.flags & vfio::VFIO_DEVICE_FLAGS_RESET != 0,
            connection,
        })
    }

    fn check_config(&self, offset: u16, size: usize) -> Result<()> {
        if u64::from(offset) + size as u64 <= self.config_size {
            return Ok(());
        }
        let context = format!(
            "{size} bytes at {offset:#x} of {:#x} of configuration space",
            self.config_size
        );
        Err(Error::new(ErrorKind::OutOfRange, context))
    }

    /// Maps what can be mapped of a region.
    fn make_bar(&self, index: u32, served: &ServedRegion) -> Bar {
        let mut areas = Vec::new();
        if let Some(file) = &served.file {
            for area in served.region.areas(base_page_size() as u64) {
                let offset = served.region.offset + area.start;
                // An access beyond the end of a file is a signal.
                if has(file, offset + (area.end - area.start)) {
                    areas.extend(mapping::map(file.as_fd(), area, offset));
                }
            }
        }
        let file = RegionFile {
            connection: Arc::clone(&self.connection),
            region: index,
        };
        Bar::new(served.region.size, areas, Arc::new(file))
    }

    /// Has the server signal these events, those of vector 0 and on; none switches interrupts off.
    fn set_events(&self, events: &[BorrowedFd<'_>]) -> Result<()> {
        let chunk_max = self.connection.descriptors_max();
        let chunks = events.chunks(chunk_max).zip((0_u32..).step_by(chunk_max));
        for (chunk, start) in chunks {
            self.set_chunk(vfio::VFIO_IRQ_SET_DATA_EVENTFD, start, chunk)?;
        }
        if events.is_empty() {
            self.set_chunk(vfio::VFIO_IRQ_SET_DATA_NONE, 0, &[])?;
        }
        Ok(())
    }

    fn set_chunk(&self, data: u32, start: u32, events: &[BorrowedFd<'_>]) -> Result<()> {
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let payload = Payload::default()
            .word(SET_IRQS_SIZE)
            .word(data | vfio::VFIO_IRQ_SET_ACTION_TRIGGER)
            .word(vfio::VFIO_PCI_MSIX_IRQ_INDEX)
            .word(start)
            .word(count);
        let attempted = "setting the function's interrupts";
        self.connection
            .ask(Command::SetIrqs, &payload, events, attempted)?;
        Ok(())
    }
}

/// Whether a file reaches to `end`.
fn has(file: &OwnedFd, end: u64) -> bool {
    fstat(file).is_ok_and(|stat| {
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        regular && u64::try_from(stat.st_size).is_ok_and(|size| end <= size)
    })
}

/// A server's description of its device.
struct DeviceInfo {
    flags: u32,
    regions: u32,
    interrupts: u32,
}

fn device_info(connection: &Connection) -> Result<DeviceInfo> {
    // `argsz` and three words that the answer fills in.
    let question = Payload::default().word(16).word(0).word(0).word(0);
    let attempted = "asking what is served";
    let answer = connection.ask(Command::DeviceInfo, &question, &[], attempted)?;
    Ok(DeviceInfo {
        flags: word(&answer.payload, 4, attempted)?,
        regions: word(&answer.payload, 8, attempted)?,
        interrupts: word(&answer.payload, 12, attempted)?,
    })
}

/// Asks for a region, and for the file that it can be mapped from.
fn region(connection: &Connection, index: u32) -> Result<ServedRegion> {
    let attempted = format!("asking for region {index}");
    let mut file = None;
    let info = ask(
        size_of::<vfio::vfio_region_info>(),
        &attempted,
        |argument| {
            let place = offset_of!(vfio::vfio_region_info, index);
            argument.put(place, &index.to_ne_bytes());
            // The request is the structure; `argsz` is the space for the answer.
            let (structure, _) = argument
                .bytes()
                .split_at(size_of::<vfio::vfio_region_info>());
            let question = Payload::default().raw(structure);
            let answer = connection.ask(Command::RegionInfo, &question, &[], &attempted)?;
            let Answer {
                payload,
                descriptors,
            } = answer;
            *argument = payload;
            file = descriptors.into_iter().next();
            Ok(())
        },
    )?;
    let region = Region::read(&info)
        .map_err(|error| Error::new(error.kind(), attempted).caused_by(error))?;
    Ok(ServedRegion { region, file })
}

fn vectors(connection: &Connection, interrupts: u32) -> Result<u16> {
    let index = vfio::VFIO_PCI_MSIX_IRQ_INDEX;
    if interrupts <= index {
        return Ok(0);
    }
    let question = Payload::default().word(16).word(0).word(index).word(0);
    let attempted = "asking for interrupts";
    let answer = connection.ask(Command::IrqInfo, &question, &[], attempted)?;
    if word(&answer.payload, 4, attempted)? & vfio::VFIO_IRQ_INFO_EVENTFD == 0 {
        return Ok(0);
    }
    let count = word(&answer.payload, 12, attempted)?;
    Ok(u16::try_from(count).unwrap_or(u16::MAX))
}

fn word(payload: &Argument, offset: usize, attempted: &str) -> Result<u32> {
    payload.word(offset).ok_or_else(|| {
        let context = format!("{attempted}: the answer is too short");
        Error::new(ErrorKind::Protocol, context)
    })
}

impl Function for UserFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        self.check_config(offset, bytes.len())?;
        let region = vfio::VFIO_PCI_CONFIG_REGION_INDEX;
        self.connection.read(region, offset.into(), bytes)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<()> {
        self.check_config(offset, bytes.len())?;
        let region = vfio::VFIO_PCI_CONFIG_REGION_INDEX;
        self.connection.write(region, offset.into(), bytes)
    }

    fn bar(&self, index: u8) -> Result<Arc<Bar>> {
        let number = usize::from(index);
        let served = self.regions.get(number);
        let Some(served) = served.filter(|served| served.region.size > 0) else {
            let context = format!("{} has no registers at base address {index}", self.name);
            return Err(Error::new(ErrorKind::OutOfRange, context));
        };
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bars[number].get_or_insert_with(|| Arc::new(self.make_bar(index.into(), served)));
        Ok(Arc::clone(bar))
    }

    fn domain(&self) -> Arc<dyn Domain> {
        Arc::clone(&self.domain)
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_vectors(&self, events: &[BorrowedFd<'_>]) -> Result<usize> {
        if events.len() > usize::from(self.vectors) {
            let context = format!("{} vectors of {}", events.len(), self.vectors);
            return Err(Error::new(ErrorKind::OutOfRange, context));
        }
        let mut set = self
            .vectors_set
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *set {
            self.set_events(&[])?;
            *set = false;
        }
        if events.is_empty() {
            return Ok(0);
        }
        // Some of them may be set even if it fails.
        *set = true;
        self.set_events(events)?;
        Ok(events.len())
    }

    fn reset(&self) -> Result<()> {
        let context = format!("resetting {}", self.name);
        if !self.resettable {
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        self.connection
            .ask(Command::Reset, &Payload::default(), &[], &context)?;
        Ok(())
    }
}
