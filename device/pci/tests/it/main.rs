//! Binding of functions to drivers, and functions that another process serves.

mod binding;
#[cfg(feature = "vfio-user")]
mod vfio_user;
