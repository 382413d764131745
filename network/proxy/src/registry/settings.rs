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
    /// For how long a process may spin before it sleeps, in microseconds.
    pub spin_us_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            limits: Limits::DEFAULT,
            ports: Ports::new(Ports::DEFAULT_RANGE),
            ring_lines: Geometry::DEFAULT.ring_lines,
            spin_us_max: SPIN_US_MAX,
        }
    }
}
