//! The broker, its registry, its peers and its forwarders through their public interface.

mod broker;
mod fixture;
mod forwarders;
mod leases;
mod limits;
mod meeting;
mod model;
mod offered;
mod peers;
mod ports;
mod reports;
