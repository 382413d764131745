//! The catalog as a command sees it.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_value::{Error, ReadView, Result};

use super::views::{Views, is_a_view};
use super::{Catalog, ResolvedView, View, entry, namespace_not_found};
use crate::collection::Collection;
use crate::namespace::Namespace;

/// The collections and views that there are at one [`ReadView`]: at the latest view the present ones, which
/// the catalog keeps in memory; at a fixed view those that its state holds, read from there at each call.
///
/// A collection that is found at a fixed view describes that state for good: its multikey masks are those
/// of the state, it never counts as dropped, and uses of its indexes are not counted.
#[derive(Clone, Copy, Debug)]
pub struct CatalogState<'a> {
    catalog: &'a Catalog,
    view: &'a ReadView,
}

impl<'a> CatalogState<'a> {
    pub(super) const fn new(catalog: &'a Catalog, view: &'a ReadView) -> Self {
        Self { catalog, view }
    }

    /// The description of the collection of this name.
    ///
    /// # Errors
    /// At a fixed view, when the engine fails or an entry cannot be read.
    #[inline]
    pub fn find(self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        if self.view.is_fixed() {
            return Ok(entry::read_entry(self.view, namespace)?.map(Arc::new));
        }
        Ok(self.catalog.find(namespace))
    }

    /// All databases, by name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn databases(self) -> Result<BTreeSet<String>> {
        if !self.view.is_fixed() {
            return Ok(self.catalog.databases());
        }
        let collections = entry::read_entries(self.view, "")?;
        let names = collections.iter().map(|found| found.namespace.database());
        Ok(names.map(str::to_owned).collect())
    }

    /// The collections of a database, by name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn collections(self, database: &str) -> Result<Vec<Arc<Collection>>> {
        if !self.view.is_fixed() {
            return Ok(self.catalog.collections(database));
        }
        let collections = entry::read_entries(self.view, &format!("{database}."))?;
        Ok(collections.into_iter().map(Arc::new).collect())
    }

    /// The view of this name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn view(self, namespace: &Namespace) -> Result<Option<Arc<View>>> {
        if self.view.is_fixed() {
            return Ok(self.stored_views(namespace.database())?.get(namespace));
        }
        Ok(self.catalog.view(namespace))
    }

    /// The views of a database, by name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn views(self, database: &str) -> Result<Vec<Arc<View>>> {
        if self.view.is_fixed() {
            return Ok(self.stored_views(database)?.iter().cloned().collect());
        }
        Ok(self.catalog.views(database))
    }

    /// What reading `namespace` comes to if it is a view.
    ///
    /// # Errors
    /// `ViewDepthLimitExceeded`, and as [`find`](Self::find).
    pub fn resolve_view(self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        if self.view.is_fixed() {
            return self.stored_views(namespace.database())?.resolve(namespace);
        }
        self.catalog.resolve_view(namespace)
    }

    /// Refuses views, for commands that are for collections alone.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView`, and as [`find`](Self::find).
    pub fn refuse_view(self, namespace: &Namespace) -> Result<()> {
        match self.view(namespace)? {
            Some(_) => Err(is_a_view(namespace)),
            None => Ok(()),
        }
    }

    /// The error for a command on a collection that is not there: because it is a view, or at all.
    pub fn missing(self, namespace: &Namespace) -> Error {
        match self.refuse_view(namespace) {
            Err(error) => error,
            Ok(()) => namespace_not_found(namespace),
        }
    }

    fn stored_views(self, database: &str) -> Result<Views> {
        Views::of_database(self.view, database)
    }
}
