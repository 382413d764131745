//! Block devices: files, NVMe controllers, and what all of them promise.

mod conformance;
mod files;
mod nvme;
