//! The settings of a registry.

use millrace_stream::Geometry;

use super::{Limits, Ports};
use crate::rules::Rules;

/// The default for the longest spin of a process, in microseconds.
const SPIN_US_MAX: u32 = 1000;

/// The settings of a registry, fixed for its lifetime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rules for listening and connecting.
    pub rules: Rules,
    /// The limits of all state that it keeps.
    pub limits: Limits,
    /// The ports for connections that name none.
    pub ports: Ports,
    /// The lines of each ring of a connection.
    pub ring_lines: u32,
    /// The data path of connections within this host.
    pub data_path: DataPath,
    /// The longest spin of a process before it sleeps, in microseconds.
    pub spin_us_max: u32,
}

/// The data path of connections within this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPath {
    /// Shared memory; users that may not share memory use the kernel.
    Direct,
    /// Forwarders; if none is attached, the kernel.
    Forwarded,
    /// Shared memory where rules allow it, else forwarders if some are attached, else the kernel.
    #[default]
    Auto,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            limits: Limits::DEFAULT,
            ports: Ports::new(Ports::DEFAULT_RANGE),
            ring_lines: Geometry::DEFAULT.ring_lines,
            data_path: DataPath::Auto,
            spin_us_max: SPIN_US_MAX,
        }
    }
}
