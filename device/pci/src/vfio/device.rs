//! A function behind a device file of VFIO's.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_memory::{Domain, base_page_size};
use rustix::io;
use vfio_bindings::bindings::vfio;

use super::kernel::{Call, Kernel, argument_size};
use crate::argument::Argument;
use crate::region::{Region, ask};
use crate::{Bar, Error, ErrorKind, Function, RegisterFile, Result, mapping, refused};

/// Base addresses of a function.
const BARS: usize = 6;
/// Bytes of `struct vfio_irq_set` before its data; the structure ends in an array of none.
const IRQ_SET_HEAD: usize = offset_of!(vfio::vfio_irq_set, data);

/// What was attempted when interrupts could not be set.
const SETTING_INTERRUPTS: &str = "setting the function's interrupts";

/// A device file.
#[derive(Debug)]
struct DeviceFile {
    kernel: Arc<dyn Kernel>,
    file: OwnedFd,
}

impl DeviceFile {
    fn call(&self, call: Call<'_>) -> io::Result<u32> {
        self.kernel.call(self.file.as_fd(), call)
    }

    /// Asks for a region.
    fn region(&self, index: u32) -> Result<Region> {
        let what = format!("region {index} of the function");
        let info = ask(size_of::<vfio::vfio_region_info>(), &what, |argument| {
            let place = offset_of!(vfio::vfio_region_info, index);
            argument.put(place, &index.to_ne_bytes());
            let answered = self.call(Call::RegionInfo(argument));
            answered.map(|_| ()).map_err(|errno| refused(errno, &what))
        })?;
        Region::read(&info).map_err(|error| Error::new(error.kind(), what).caused_by(error))
    }

    /// Reads all of `bytes` at an offset of the file.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let place = offset + done as u64;
            let read = io::retry_on_intr(|| io::pread(&self.file, &mut bytes[done..], place))
                .map_err(|errno| unanswered(errno, "reading the function's registers"))?;
            done += some(read)?;
        }
        Ok(())
    }

    /// Writes all of `bytes` at an offset of the file.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let place = offset + done as u64;
            let written = self.kernel.write(self.file.as_fd(), &bytes[done..], place);
            let written =
                written.map_err(|errno| unanswered(errno, "writing the function's registers"))?;
            done += some(written)?;
        }
        Ok(())
    }

    /// Replaces the eventfds of one kind of interrupt.
    fn set_interrupts(&self, index: u32, events: &[BorrowedFd<'_>]) -> io::Result<u32> {
        let mut set = Argument::new(IRQ_SET_HEAD + events.len() * size_of::<i32>());
        let data = match events.is_empty() {
            true => vfio::VFIO_IRQ_SET_DATA_NONE,
            false => vfio::VFIO_IRQ_SET_DATA_EVENTFD,
        };
        let flags = data | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
        let count = u32::try_from(events.len()).map_err(|_| io::Errno::INVAL)?;
        set.put(offset_of!(vfio::vfio_irq_set, flags), &flags.to_ne_bytes());
        set.put(offset_of!(vfio::vfio_irq_set, index), &index.to_ne_bytes());
        set.put(offset_of!(vfio::vfio_irq_set, count), &count.to_ne_bytes());
        for (number, event) in events.iter().enumerate() {
            let descriptor = event.as_raw_fd().to_ne_bytes();
            set.put(IRQ_SET_HEAD + number * descriptor.len(), &descriptor);
        }
        self.call(Call::SetIrqs(&mut set))
    }
}

/// Registers that answer with nothing belong to a device that was taken out.
fn some(bytes: usize) -> Result<usize> {
    match bytes {
        0 => Err(Error::new(
            ErrorKind::Gone,
            "its registers answer with nothing",
        )),
        _ => Ok(bytes),
    }
}

/// As [`refused`], where an input or output error means the device.
fn unanswered(errno: io::Errno, attempted: &str) -> Error {
    match errno {
        io::Errno::IO => Error::new(ErrorKind::Gone, attempted).caused_by(errno),
        _ => refused(errno, attempted),
    }
}

/// Registers of a region, by calls.
#[derive(Debug)]
struct RegionFile {
    device: Arc<DeviceFile>,
    /// Where the region begins in the file.
    offset: u64,
}

// That the register lies in the region was checked by the `Bar`.
impl RegisterFile for RegionFile {
    fn load(&self, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.device.read(self.offset + offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn store(&self, offset: u64, value: u32) -> Result<()> {
        self.device
            .write(self.offset + offset, &value.to_le_bytes())
    }

    fn load_long(&self, offset: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.device.read(self.offset + offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store_long(&self, offset: u64, value: u64) -> Result<()> {
        self.device
            .write(self.offset + offset, &value.to_le_bytes())
    }
}

/// A function that VFIO has handed to this process.
#[derive(Debug)]
pub(super) struct VfioFunction {
    name: String,
    device: Arc<DeviceFile>,
    domain: Arc<dyn Domain>,
    config: Region,
    regions: Vec<Region>,
    bars: Mutex<[Option<Arc<Bar>>; BARS]>,
    vectors: u16,
    /// Whether the kernel has eventfds for vectors: it refuses to take back what it does not have.
    vectors_set: Mutex<bool>,
    resettable: bool,
    /// Event by which the kernel requests the function back; kept as long as the kernel signals it.
    _removal: Option<OwnedFd>,
}

impl VfioFunction {
    /// Asks for all that is to be known of a device file.
    pub(super) fn new(
        name: String,
        kernel: Arc<dyn Kernel>,
        file: OwnedFd,
        domain: Arc<dyn Domain>,
        removal: Option<OwnedFd>,
    ) -> Result<Self> {
        let device = Arc::new(DeviceFile { kernel, file });
        let mut info = vfio::vfio_device_info {
            argsz: argument_size::<vfio::vfio_device_info>(),
            ..Default::default()
        };
        device
            .call(Call::DeviceInfo(&mut info))
            .map_err(|errno| refused(errno, &format!("asking what {name} is")))?;
        if info.flags & vfio::VFIO_DEVICE_FLAGS_PCI == 0
            || info.num_regions <= vfio::VFIO_PCI_CONFIG_REGION_INDEX
        {
            let context = format!("{name} is not a PCI function to VFIO");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let config = device.region(vfio::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let bars = vfio::VFIO_PCI_BAR0_REGION_INDEX..=vfio::VFIO_PCI_BAR5_REGION_INDEX;
        let regions = bars
            .map(|index| device.region(index))
            .collect::<Result<Vec<Region>>>()?;
        let vectors = vectors(&device, &name, info.num_irqs)?;
        let function = Self {
            name,
            device,
            domain,
            config,
            regions,
            bars: Mutex::default(),
            vectors,
            vectors_set: Mutex::new(false),
            resettable: info.flags & vfio::VFIO_DEVICE_FLAGS_RESET != 0,
            _removal: removal,
        };
        function.watch_removal(info.num_irqs)?;
        Ok(function)
    }

    /// Has the kernel signal the event when it wants the function back, if it can.
    fn watch_removal(&self, interrupts: u32) -> Result<()> {
        let Some(event) = &self._removal else {
            return Ok(());
        };
        let index = vfio::VFIO_PCI_REQ_IRQ_INDEX;
        if interrupts <= index {
            let context = format!("{}: the kernel does not report removals", self.name);
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        self.device
            .set_interrupts(index, &[event.as_fd()])
            .map_err(|errno| refused(errno, "requesting the removal event"))?;
        Ok(())
    }

    /// Sets as many of the events as the host has vectors for, where none are set; returns how many.
    fn take_vectors(&self, events: &[BorrowedFd<'_>]) -> Result<usize> {
        let index = vfio::VFIO_PCI_MSIX_IRQ_INDEX;
        let mut count = events.len();
        while count > 0 {
            match self.device.set_interrupts(index, &events[..count]) {
                Ok(0) => return Ok(count),
                // No vector is in use; the answer is the number available. Another device may take some meanwhile.
                Ok(free) if (free as usize) < count => count = free as usize,
                Ok(free) => {
                    let context = format!("{count} vectors where {free} are free were refused");
                    return Err(Error::new(ErrorKind::Protocol, context));
                }
                // Where vectors run out only when they are allocated, as on x86-64, the error does not contain their
                // number.
                Err(io::Errno::NOSPC) => count /= 2,
                Err(errno) => return Err(refused(errno, SETTING_INTERRUPTS)),
            }
        }
        Ok(0)
    }

    /// Where the bytes of configuration space are in the file.
    fn config_place(&self, offset: u16, size: usize) -> Result<u64> {
        let end = u64::from(offset) + size as u64;
        if end > self.config.size {
            let context = format!(
                "{size} bytes at {offset:#x} of {:#x} of configuration space",
                self.config.size
            );
            return Err(Error::new(ErrorKind::OutOfRange, context));
        }
        Ok(self.config.offset + u64::from(offset))
    }

    /// Maps what can be mapped; what the kernel then refuses is reached by calls as well.
    fn make_bar(&self, region: &Region) -> Bar {
        let areas = region
            .areas(base_page_size() as u64)
            .into_iter()
            .filter_map(|area| {
                let offset = region.offset + area.start;
                mapping::map(self.device.file.as_fd(), area, offset).ok()
            })
            .collect();
        let file = RegionFile {
            device: Arc::clone(&self.device),
            offset: region.offset,
        };
        Bar::new(region.size, areas, Arc::new(file))
    }
}

/// How many MSI-X vectors can be had by eventfds.
fn vectors(device: &DeviceFile, name: &str, interrupts: u32) -> Result<u16> {
    let index = vfio::VFIO_PCI_MSIX_IRQ_INDEX;
    if interrupts <= index {
        return Ok(0);
    }
    let mut info = vfio::vfio_irq_info {
        argsz: argument_size::<vfio::vfio_irq_info>(),
        index,
        ..Default::default()
    };
    device
        .call(Call::IrqInfo(&mut info))
        .map_err(|errno| refused(errno, &format!("asking for the interrupts of {name}")))?;
    if info.flags & vfio::VFIO_IRQ_INFO_EVENTFD == 0 {
        return Ok(0);
    }
    Ok(u16::try_from(info.count).unwrap_or(u16::MAX))
}

impl Function for VfioFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        let place = self.config_place(offset, bytes.len())?;
        self.device.read(place, bytes)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<()> {
        let place = self.config_place(offset, bytes.len())?;
        self.device.write(place, bytes)
    }

    fn bar(&self, index: u8) -> Result<Arc<Bar>> {
        let number = usize::from(index);
        let region = self.regions.get(number).filter(|region| region.size > 0);
        let Some(region) = region else {
            let context = format!("{} has no registers at base address {index}", self.name);
            return Err(Error::new(ErrorKind::OutOfRange, context));
        };
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bars[number].get_or_insert_with(|| Arc::new(self.make_bar(region)));
        Ok(Arc::clone(bar))
    }

    fn domain(&self) -> Arc<dyn Domain> {
        Arc::clone(&self.domain)
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_vectors(&self, events: &[BorrowedFd<'_>]) -> Result<usize> {
        let vectors = usize::from(self.vectors);
        if events.len() > vectors {
            let context = format!("{} vectors of {vectors}", events.len());
            return Err(Error::new(ErrorKind::OutOfRange, context));
        }
        let mut set = self
            .vectors_set
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let had_some = *set;
        // Their number can only be changed from none.
        if had_some {
            self.device
                .set_interrupts(vfio::VFIO_PCI_MSIX_IRQ_INDEX, &[])
                .map_err(|errno| refused(errno, SETTING_INTERRUPTS))?;
            *set = false;
        }
        let taken = self.take_vectors(events);
        *set = taken.as_ref().is_ok_and(|taken| *taken > 0);
        if *set || events.is_empty() && !had_some {
            return taken;
        }
        // When the kernel takes a function's vectors from it, or has too few after all, it allows INTx.
        let masked = (self as &dyn Function).disable_intx_again();
        taken.and_then(|taken| masked.map(|()| taken))
    }

    fn reset(&self) -> Result<()> {
        let context = format!("{} cannot be reset alone", self.name);
        if !self.resettable {
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        match self.device.call(Call::DeviceReset) {
            Ok(_) => Ok(()),
            Err(errno @ (io::Errno::NOTTY | io::Errno::INVAL)) => {
                Err(Error::new(ErrorKind::Unsupported, context).caused_by(errno))
            }
            Err(errno) => Err(refused(errno, &format!("resetting {}", self.name))),
        }
    }
}
