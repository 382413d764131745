//! The engine on RocksDB: its contract, and what is left after crashes, faults and power cuts.

mod conformance;
mod crash;
mod device_faults;
mod faults;
mod folder;
mod history;
mod place;
mod poisoned;
mod power_cut;
mod volumes;
