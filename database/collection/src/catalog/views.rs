//! The set of views, and what the catalog does with it.
//!
//! # Format
//! A view is a document `{_id: "database.view", viewOn, pipeline}` of its database's collection
//! `system.views`, as in MongoDB. That collection is created with the first view; only the catalog
//! writes to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Document, RawDocument, RawDocumentBuf};
use millrace_engine::CommitSeq;
use millrace_value::{Collation, Environment, Error, ErrorCode, ReadView, Result};

use super::{Catalog, View, entry};
use crate::collection::Collection;
use crate::namespace::Namespace;
use crate::{WriteSet, clustered_record_id};

/// The collection that holds a database's views.
pub(super) const SYSTEM_VIEWS: &str = "system.views";

/// How many views may lie above each other.
const DEPTH_MAX: usize = 20;

/// All views by name.
#[derive(Debug, Default)]
pub(super) struct Views(BTreeMap<Namespace, Arc<View>>);

/// What reading a view comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedView {
    /// The collection that the lowest view reads, which need not exist.
    pub collection: Namespace,
    /// The pipelines of the views, the lowest view's first.
    pub pipeline: Vec<Document>,
}

impl Views {
    /// Adds the views that are stored in `system_views` at `view`.
    fn read(&mut self, view: &ReadView, system_views: &Collection) -> Result<()> {
        let mut cursor = view.cursor(system_views.ident.range())?;
        let mut found = cursor.seek_first()?;
        while found {
            let document = Document::try_from(RawDocument::from_bytes(cursor.value())?)?;
            let view = View::from_document(&document)?;
            self.0.insert(view.namespace.clone(), Arc::new(view));
            found = cursor.next()?;
        }
        Ok(())
    }

    /// The views of `database` at `view`.
    pub(super) fn of_database(view: &ReadView, database: &str) -> Result<Self> {
        let mut views = Self::default();
        let system_views = Namespace::new(database, SYSTEM_VIEWS)?;
        if let Some(collection) = entry::read_entry(view, &system_views)? {
            views.read(view, &collection)?;
        }
        Ok(views)
    }

    /// The view of this name.
    pub(super) fn get(&self, namespace: &Namespace) -> Option<Arc<View>> {
        self.0.get(namespace).cloned()
    }

    /// All views, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<View>> {
        self.0.values()
    }

    /// Forgets the views of a database.
    pub(super) fn remove_database(&mut self, database: &str) {
        self.0.retain(|name, _| name.database() != database);
    }

    /// Checks that with `added`, no view reads itself and not too many lie above each other.
    fn check(&self, added: &View) -> Result<()> {
        let mut depths = ViewDepths {
            views: self,
            added,
            known: BTreeMap::new(),
            path: Vec::new(),
        };
        // A cycle goes through the added view; too long a chain may begin anywhere above it.
        depths.measure(&added.namespace)?;
        self.0
            .keys()
            .try_for_each(|name| depths.measure(name).map(|_| ()))
    }

    /// What reading `namespace` comes to if it is a view.
    pub(super) fn resolve(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        let Some(mut view) = self.0.get(namespace) else {
            return Ok(None);
        };
        let mut pipelines = Vec::new();
        loop {
            if pipelines.len() == DEPTH_MAX {
                return Err(Error::new(
                    ErrorCode::ViewDepthLimitExceeded,
                    format!(
                        "View depth too deep or view cycle detected; maximum depth is {DEPTH_MAX}"
                    ),
                ));
            }
            pipelines.push(&view.pipeline);
            match self.0.get(&view.view_on) {
                Some(below) => view = below,
                None => {
                    return Ok(Some(ResolvedView {
                        collection: view.view_on.clone(),
                        pipeline: pipelines.into_iter().rev().flatten().cloned().collect(),
                    }));
                }
            }
        }
    }
}

/// The depths of views, in views above a collection, each measured once.
struct ViewDepths<'a> {
    views: &'a Views,
    added: &'a View,
    known: BTreeMap<Namespace, usize>,
    /// The views that are being measured, each read by the one before it.
    path: Vec<Namespace>,
}

impl ViewDepths<'_> {
    /// The depth of a view above collections, whose depth is 0. The recursion ends at the greatest
    /// depth allowed.
    fn measure(&mut self, name: &Namespace) -> Result<usize> {
        if let Some(depth) = self.known.get(name) {
            return Ok(*depth);
        }
        let view = if *name == self.added.namespace {
            self.added
        } else if let Some(view) = self.views.0.get(name) {
            view
        } else {
            return Ok(0);
        };
        if let Some(start) = self.path.iter().position(|other| other == name) {
            let cycle: Vec<&str> = self.path[start..].iter().map(Namespace::as_str).collect();
            return Err(Error::new(
                ErrorCode::GraphContainsCycle,
                format!(
                    "View cycle detected: {name} => {} => {name}",
                    cycle.join(" => ")
                ),
            ));
        }
        if self.path.len() == DEPTH_MAX {
            return Err(too_deep());
        }
        self.path.push(name.clone());
        let mut depth = 1;
        for below in view.references() {
            depth = depth.max(1 + self.measure(&below)?);
        }
        self.path.pop();
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        self.known.insert(name.clone(), depth);
        Ok(depth)
    }
}

fn too_deep() -> Error {
    Error::new(
        ErrorCode::ViewDepthLimitExceeded,
        format!("View depth limit exceeded; maximum depth is {DEPTH_MAX}"),
    )
}

/// The error of a command that is for collections alone.
pub(super) fn is_a_view(namespace: &Namespace) -> Error {
    Error::new(
        ErrorCode::CommandNotSupportedOnView,
        format!("Namespace {namespace} is a view, not a collection"),
    )
}

impl Catalog {
    /// The view of this name; `None` if there is none.
    #[must_use]
    pub fn view(&self, namespace: &Namespace) -> Option<Arc<View>> {
        self.views.read().get(namespace)
    }

    /// The views of a database, in the order of their names.
    #[must_use]
    pub fn views(&self, database: &str) -> Vec<Arc<View>> {
        self.views
            .read()
            .iter()
            .filter(|view| view.namespace.database() == database)
            .cloned()
            .collect()
    }

    /// What reading `namespace` comes to if it is a view.
    ///
    /// # Errors
    /// `ViewDepthLimitExceeded`.
    pub fn resolve_view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        self.views.read().resolve(namespace)
    }

    /// Refuses views, for commands that are for collections alone.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView`.
    pub fn refuse_view(&self, namespace: &Namespace) -> Result<()> {
        match self.view(namespace) {
            Some(_) => Err(is_a_view(namespace)),
            None => Ok(()),
        }
    }

    /// Creates a view.
    ///
    /// # Errors
    /// `NamespaceExists`, `GraphContainsCycle`, `ViewDepthLimitExceeded`.
    pub fn create_view(&self, view: View, environment: &dyn Environment) -> Result<CommitSeq> {
        let mut changes = self.changes.lock();
        if self.find(&view.namespace).is_some() || self.view(&view.namespace).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("namespace {} already exists", view.namespace),
            ));
        }
        self.views.read().check(&view)?;
        let system_views = Namespace::new(view.namespace.database(), SYSTEM_VIEWS)?;
        if self.find(&system_views).is_none() {
            self.create_locked(&mut changes, &system_views, Document::new(), environment)?;
        }
        let commit_seq = self.write_view(&view.namespace, None, Some(&view))?;
        self.views
            .write()
            .0
            .insert(view.namespace.clone(), Arc::new(view));
        Ok(commit_seq)
    }

    /// Gives a view another definition.
    ///
    /// # Errors
    /// `NamespaceNotFound`, `GraphContainsCycle`, `ViewDepthLimitExceeded`, or what `change` answers.
    pub fn change_view(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut View) -> Result<()>,
    ) -> Result<CommitSeq> {
        let _changes = self.changes.lock();
        let before = self
            .view(namespace)
            .ok_or_else(|| super::namespace_not_found(namespace))?;
        let mut after = View::clone(&before);
        change(&mut after)?;
        self.views.read().check(&after)?;
        let commit_seq = self.write_view(namespace, Some(&before), Some(&after))?;
        self.views
            .write()
            .0
            .insert(namespace.clone(), Arc::new(after));
        Ok(commit_seq)
    }

    /// Removes a view; none when there was none.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn drop_view(&self, namespace: &Namespace) -> Result<Option<CommitSeq>> {
        let _changes = self.changes.lock();
        let Some(view) = self.view(namespace) else {
            return Ok(None);
        };
        let commit_seq = self.write_view(namespace, Some(&view), None)?;
        self.views.write().0.remove(namespace);
        Ok(Some(commit_seq))
    }

    /// Writes the new state of a view's document. The caller holds `changes`, so that no other thread
    /// writes to `system.views`.
    fn write_view(
        &self,
        namespace: &Namespace,
        before: Option<&View>,
        after: Option<&View>,
    ) -> Result<CommitSeq> {
        let system_views = Namespace::new(namespace.database(), SYSTEM_VIEWS)?;
        let guard = self
            .share(&system_views)
            .ok_or_else(|| super::namespace_not_found(&system_views))?;
        let record_id = clustered_record_id(
            RawBsonRef::String(namespace.as_str()),
            // Names are never compared by a collation.
            Collation::SIMPLE,
        )?;
        let raw = |view: Option<&View>| {
            view.map(|view| RawDocumentBuf::try_from(&view.to_document()))
                .transpose()
        };
        let mut set = WriteSet::new(self.committer(), self.latest(), guard.collection());
        match (raw(before)?, raw(after)?) {
            (None, Some(new)) => set.insert(&record_id, &new)?,
            (Some(old), Some(new)) => set.replace(&record_id, &old, &new)?,
            (Some(old), None) => set.delete(&record_id, &old)?,
            (None, None) => {}
        }
        let commit_seq = set.commit()?;
        Ok(commit_seq.unwrap_or_else(|| self.engine().last_commit_seq()))
    }

    /// Reads the views of all databases.
    pub(super) fn read_views(&self) -> Result<()> {
        let mut views = Views::default();
        for database in self.databases() {
            if let Some(collection) = self.find(&Namespace::new(&database, SYSTEM_VIEWS)?) {
                views.read(self.latest(), &collection)?;
            }
        }
        *self.views.write() = views;
        Ok(())
    }
}
