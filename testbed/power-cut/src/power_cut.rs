//! The device.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_block::{
    Device, Error, ErrorKind, Geometry, Image, MemoryDevice, Queue, Result, Size,
};
use millrace_memory::{Domain, DomainId, NoDevice};

use crate::queue::PowerCutQueue;
use crate::state::State;
use crate::{Counters, Cursor, Fault, Survivors};

/// When requests are done, and in which order they complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// They are done when they are submitted, and complete at the next poll in that order.
    #[default]
    AtOnce,
    /// They are done at random moments between submission and completion, complete in random order, and a
    /// poll may find nothing; all by this seed.
    Shuffled(u64),
}

/// Options of [`PowerCut::with_options`]: geometry, first content and order.
#[derive(Clone, Debug)]
pub struct Options {
    /// Geometry of the device, which also sets its promises of durability.
    pub geometry: Geometry,
    /// What is on its medium at first; zeros if none.
    pub image: Option<Image>,
    /// Time and order in which requests are done and completed.
    pub order: Order,
}

/// A device in memory that records what is asked of it. See the crate's page.
#[derive(Debug)]
pub struct PowerCut {
    name: String,
    geometry: Geometry,
    domain: Arc<dyn Domain>,
    state: Mutex<State>,
    /// Itself, for its queues.
    own: Weak<Self>,
}

impl PowerCut {
    /// A device of zeros that does what it is asked at once.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the geometry makes no sense.
    pub fn new(geometry: Geometry) -> Result<Arc<Self>> {
        Self::with_options(Options {
            geometry,
            image: None,
            order: Order::AtOnce,
        })
    }

    /// The same that holds what another held when its power went.
    ///
    /// # Errors
    /// As [`PowerCut::new`], and if the geometry has another number of bytes.
    pub fn on(image: Image, geometry: Geometry) -> Result<Arc<Self>> {
        Self::with_options(Options {
            geometry,
            image: Some(image),
            order: Order::AtOnce,
        })
    }

    /// A device as `options` say.
    ///
    /// # Errors
    /// As [`PowerCut::on`].
    pub fn with_options(options: Options) -> Result<Arc<Self>> {
        let geometry = options.geometry;
        geometry.check()?;
        let image = options
            .image
            .unwrap_or_else(|| Image::new(geometry.bytes()));
        if image.bytes() != geometry.bytes() {
            let (image, device) = (image.bytes(), geometry.bytes());
            let context = format!("an image of {image} bytes for a device of {device}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Ok(Arc::new_cyclic(|own| Self {
            name: format!("power-cut:{}", Size(geometry.bytes())),
            domain: NoDevice::shared(),
            state: Mutex::new(State::new(geometry.clone(), image, options.order)),
            geometry,
            own: Weak::clone(own),
        }))
    }

    /// Begins the record anew: what reads see now is on the medium.
    ///
    /// # Panics
    /// If something is in flight.
    pub fn settle(&self) {
        self.state().settle();
    }

    /// How many events were recorded. The power may go after none of them, after each, and so after as many.
    #[must_use]
    pub fn events(&self) -> usize {
        self.state().record.steps.len()
    }

    /// A cursor at the beginning of the record as it is now.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let record = self.state().record.clone();
        Cursor::new(Arc::new(record))
    }

    /// A disk whose power was cut after `events` events. It copies the record and replays it: for many images
    /// use a [`PowerCut::cursor`].
    ///
    /// # Panics
    /// If there are not so many events.
    #[must_use]
    pub fn disk(&self, point: usize, survivors: Survivors, seed: u64) -> MemoryDevice {
        let mut cursor = self.cursor();
        cursor.advance_to(point);
        cursor.disk(survivors, seed)
    }

    /// What reads see now, with the power on.
    #[must_use]
    pub fn live(&self) -> Image {
        self.state().live.clone()
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state().counters
    }

    /// What goes wrong from now on, instead of what was set before. They all count for themselves; the first
    /// that meets a request says how it fails.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.state().faults = faults;
    }

    /// Blocks that cannot be read from now on ([`ErrorKind::Medium`]).
    pub fn make_bad(&self, blocks: Range<u64>) {
        self.state().bad.insert(blocks);
    }

    /// Blocks that can be read again.
    pub fn make_good(&self, blocks: &Range<u64>) {
        self.state().bad.remove(blocks);
    }

    pub(crate) const fn own_geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for PowerCut {
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
        let own = self.own.upgrade().expect("the caller holds a reference");
        let domain = DomainId::of(&self.domain);
        Ok(Box::new(PowerCutQueue::new(own, domain)))
    }
}
