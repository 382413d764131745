//! A block device in memory.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use millrace_memory::{Domain, DomainId, NoDevice};

use crate::{
    Completion, Deallocation, Device, Error, ErrorKind, Geometry, Image, Operation, Queue, Refused,
    Request, Result, Size,
};

/// A device whose blocks are in memory, freed with it. Blocks that were never written take no memory.
///
/// Requests execute when they are submitted, and complete when they are polled. They never fail. All queues share one
/// reader-writer lock.
#[derive(Debug)]
pub struct MemoryDevice {
    name: String,
    geometry: Geometry,
    domain: Arc<dyn Domain>,
    image: Arc<RwLock<Image>>,
}

impl MemoryDevice {
    /// A device of zeros, with [`MemoryDevice::geometry_of`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the sizes make no valid geometry.
    pub fn new(bytes: u64, block_bytes: u32) -> Result<Self> {
        Self::with_geometry(Self::geometry_of(bytes, block_bytes))
    }

    /// Geometry of a memory device: atomic single blocks, no cache, deallocated blocks read as zeros.
    #[must_use]
    pub fn geometry_of(bytes: u64, block_bytes: u32) -> Geometry {
        Geometry {
            block_bytes,
            blocks: bytes / u64::from(block_bytes.max(1)),
            atomic_blocks: 1,
            optimal_bytes: block_bytes.max(4096),
            transfer_bytes_max: 1 << 20,
            volatile_cache: false,
            write_through: true,
            deallocation: Deallocation::Cheap,
            deallocated_reads_zero: true,
            queues_max: 64,
            queue_depth: 256,
        }
    }

    /// A device of zeros with any valid geometry, for tests of other layers.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the geometry is invalid.
    pub fn with_geometry(geometry: Geometry) -> Result<Self> {
        geometry.check()?;
        if usize::try_from(geometry.bytes()).is_err() {
            let context = format!("{} in memory", Size(geometry.bytes()));
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let image = Image::new(geometry.bytes());
        Self::on(image, geometry)
    }

    /// A device with the bytes of `image` and any valid geometry.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the geometry is invalid or has another size than the image.
    pub fn on(image: Image, geometry: Geometry) -> Result<Self> {
        geometry.check()?;
        if geometry.bytes() != image.bytes() {
            let (image, device) = (image.bytes(), geometry.bytes());
            let context = format!("an image of {image} bytes for a device of {device}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(Self {
            name: format!("mem:{}", Size(geometry.bytes())),
            geometry,
            domain: NoDevice::shared(),
            image: Arc::new(RwLock::new(image)),
        })
    }

    /// Snapshot of the device's bytes; later writes to the device do not change it.
    #[must_use]
    pub fn image(&self) -> Image {
        let image = self.image.read();
        image.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn domain(&self) -> &Arc<dyn Domain> {
        &self.domain
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(MemoryQueue {
            geometry: self.geometry.clone(),
            domain: DomainId::of(&self.domain),
            image: Arc::clone(&self.image),
            done: VecDeque::with_capacity(self.geometry.queue_depth),
        }))
    }
}

/// A queue of a [`MemoryDevice`].
#[derive(Debug)]
struct MemoryQueue {
    geometry: Geometry,
    domain: DomainId,
    image: Arc<RwLock<Image>>,
    done: VecDeque<Completion>,
}

impl MemoryQueue {
    fn apply(&self, mut request: Request) -> Completion {
        let offset = request.lba.0 << self.geometry.block_shift();
        let write = || self.image.write().unwrap_or_else(PoisonError::into_inner);
        match (request.operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => {
                let image = self.image.read().unwrap_or_else(PoisonError::into_inner);
                image.read(offset, buffer);
            }
            (Operation::Write | Operation::WriteThrough, Some(buffer)) => {
                write().write(offset, buffer);
            }
            (Operation::Deallocate(blocks) | Operation::WriteZeroes(blocks), _) => {
                write().zero(offset, blocks << self.geometry.block_shift());
            }
            (
                Operation::Flush | Operation::Read | Operation::Write | Operation::WriteThrough,
                _,
            ) => {}
        }
        Completion {
            token: request.token,
            result: Ok(()),
            buffer: request.buffer,
        }
    }
}

impl Queue for MemoryQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.done.len() >= self.geometry.queue_depth {
            return Err(Refused::full(request));
        }
        let request = self.geometry.check_request(self.domain, request)?;
        let completion = self.apply(request);
        self.done.push_back(completion);
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if !self.done.is_empty() {
            return Err(Refused::busy(request));
        }
        let request = self.geometry.check_request(self.domain, request)?;
        Ok(self.apply(request))
    }
}
