//! The device trait: a block device of which this process is the only user.

use std::fmt;
use std::sync::Arc;

use millrace_memory::Domain;

use crate::{Geometry, Queue, Result};

/// A block device of which this process is the only user.
///
/// An open device is exclusive: a second open, by any process, fails with [`ErrorKind::InUse`](crate::ErrorKind::InUse)
/// as long as the device or one of its queues exists.
pub trait Device: fmt::Debug + Send + Sync {
    /// Geometry of the device, constant while it is open.
    fn geometry(&self) -> &Geometry;

    /// Name of the device: the [`Spec`](crate::Spec) that opens it.
    fn name(&self) -> &str;

    /// Notes for the operator on reduced performance or safety, one sentence each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// DMA domain that the buffers of all requests must belong to.
    fn domain(&self) -> &Arc<dyn Domain>;

    /// Opens a queue. The first [`Geometry::queues_max`] are independent; further queues share one.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory), [`ErrorKind::Device`](crate::ErrorKind::Device).
    fn queue(&self) -> Result<Box<dyn Queue>>;
}
