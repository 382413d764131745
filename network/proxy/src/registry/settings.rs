//! What a registry is told once.

use millrace_stream::Geometry;

use super::{Limits, Ports};
use crate::rules::Rules;

/// For how long a process may ask to spin, unless the monitor is told otherwise.
const SPIN_US_MAX: u32 = 1000;

/// What a registry is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may what.
    pub rules: Rules,
    /// How much there may be.
    pub limits: Limits,
    /// The ports for those who ask for any.
    pub ports: Ports,
    /// The lines of each ring of a connection.
    pub ring_lines: u32,
    /// Who is to move the bytes within this host.
    pub carriage: Carriage,
    /// For how long a process may spin before it sleeps, in microseconds.
    pub spin_us_max: u32,
}

/// Who is to move the bytes of connections within this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carriage {
    /// The processes themselves; those of users that share no memory are left to the kernel.
    Direct,
    /// Planes; where there is none, the kernel.
    Proxy,
    /// The processes themselves where they may share memory, else planes if there are some, else the kernel.
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
            carriage: Carriage::Auto,
            spin_us_max: SPIN_US_MAX,
        }
    }
}
