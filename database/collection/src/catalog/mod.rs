//! Which collections and indexes there are, and where in the engine their bytes lie.
//!
//! # Format
//! Every engine key begins with a 4-byte big-endian [`Ident`](millrace_value::ident::Ident). Ident 0 is the catalog's own:
//! ```text
//! 00000000 'c' namespace            -> BSON: {ns, uuid, ident, kind, options, indexes: [{ident, spec, ready}]}
//! 00000000 'i'                      -> u32 little-endian: the next free ident
//! 00000000 'k' ident                -> counter: documents and bytes of a collection
//! 00000000 'm' ident                -> u64 little-endian: which fields of an index are multikey
//! ident record_id                   -> BSON document of a collection
//! ident fields [record_id]          -> index entry, see `index::entry`
//! ```
//! A record id is the encoded `_id` ([`RecordKind::Clustered`](crate::RecordKind::Clustered)) or, for capped collections, a sequence
//! number of 8 bytes, big-endian, in insertion order ([`RecordKind::Sequenced`](crate::RecordKind::Sequenced)).
//! Views are documents of their database's collection `system.views` ([`View`]).
//!
//! # Recovery and durability
//! The catalog changes in the same atomic batch as the keys it describes, so that there is nothing to
//! repair: what is not in the catalog has no keys. An index whose build did not end carries
//! `ready: false` and is removed with its keys when the catalog is next opened.

#[expect(
    clippy::module_inception,
    reason = "the module's main type is the catalog"
)]
mod catalog;
mod entry;
mod logical;
mod state;
mod view;
mod views;

pub(crate) use catalog::namespace_not_found;
pub use catalog::{Catalog, CollectionGuard};
pub use state::CatalogState;
pub use view::View;
pub use views::ResolvedView;
