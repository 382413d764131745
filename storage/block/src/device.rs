//! The trait of a device.

use std::fmt;
use std::sync::Arc;

use millrace_memory::Domain;

use crate::{Geometry, Queue, Result};

/// Blocks that can be read and written, owned by this process alone.
///
/// Whoever opens a device has it to itself: a second opening, by any process, is refused with
/// [`ErrorKind::InUse`](crate::ErrorKind::InUse) for as long as the device or one of its queues is there.
pub trait Device: fmt::Debug + Send + Sync {
    /// What it is like.
    fn geometry(&self) -> &Geometry;

    /// Its name for people: the text that opens it.
    fn name(&self) -> &str;

    /// What its user should know: why it is slower than it could be, or less safe. One sentence each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The domain that the buffers of its requests must come from.
    fn domain(&self) -> &Arc<dyn Domain>;

    /// A queue. The first [`Geometry::queues_max`] share nothing; later ones share one among them.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory), [`ErrorKind::Device`](crate::ErrorKind::Device).
    fn queue(&self) -> Result<Box<dyn Queue>>;
}
