//! On-disk format, and the changes of metadata: pure functions of bytes. Nothing here accesses a device.

pub(crate) mod block_trailer;
pub(crate) mod checkpoint_image;
pub(crate) mod damage;
pub(crate) mod data_layout;
#[cfg(any(test, feature = "exercise"))]
pub mod exercise;
pub(crate) mod extent;
pub(crate) mod ids;
pub(crate) mod inconsistency;
pub(crate) mod inode;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod metadata;
pub(crate) mod operation;
pub(crate) mod overlay;
mod reader;
pub(crate) mod replay;
pub(crate) mod superblock;
#[cfg(test)]
mod tests;
pub(crate) mod transaction;

pub(crate) use block_trailer::BlockTrailer;
pub(crate) use data_layout::DataLayout;
pub(crate) use extent::Extent;
pub use ids::{InodeId, Kind, Timestamp};
pub(crate) use key::VolumeKey;
pub use layout::FormatOptions;
pub(crate) use layout::Layout;
pub(crate) use metadata::{Effects, Metadata};
pub(crate) use operation::Operation;
pub(crate) use overlay::Overlay;
