//! The commands that changes of the catalog correspond to, for the observers of commits.
//!
//! A commit of the catalog can have several: one for each index that came, went or became another. The
//! commands and their fields are those of MongoDB's log of operations.

use bson::{Bson, Document, doc};

use crate::collection::{Collection, Index};
use crate::committer::Changes;
use crate::namespace::Namespace;

/// `{create, idIndex, ...options}`.
pub(super) fn create(changes: &mut Changes<'_>, collection: &Collection) {
    let mut command = named("create", collection);
    if let Some(index) = collection.id_index() {
        command.insert("idIndex", index.spec.document.clone());
    }
    command.extend(collection.options.clone());
    add(changes, collection, command);
}

/// `{drop}`.
pub(super) fn drop(changes: &mut Changes<'_>, collection: &Collection) {
    add(changes, collection, named("drop", collection));
}

/// `{renameCollection, to, stayTemp}` with whole namespaces, and `dropTarget` with the UUID of the collection
/// that was replaced.
pub(super) fn rename(
    changes: &mut Changes<'_>,
    source: &Namespace,
    renamed: &Collection,
    replaced: Option<&Collection>,
) {
    let mut command = doc! {
        "renameCollection": source.as_str(),
        "to": renamed.namespace.as_str(),
        "stayTemp": false,
    };
    if let Some(replaced) = replaced {
        command.insert("dropTarget", replaced.uuid);
    }
    changes.command(source.database(), renamed.uuid, command);
}

/// `{collMod, ...}` with the options that are new or have another value.
pub(super) fn change_options(changes: &mut Changes<'_>, before: &Collection, after: &Collection) {
    let mut command = named("collMod", after);
    command.extend(changed_fields(&before.options, &after.options));
    add(changes, after, command);
}

/// The commands that make the indexes of `before` those of `after`: `dropIndexes` or `abortIndexBuild` for one
/// that is gone, `collMod` for one with other options, `createIndexes` for one that is ready at once,
/// `startIndexBuild` and `commitIndexBuild` for those that are built.
pub(super) fn change_indexes(changes: &mut Changes<'_>, before: &Collection, after: &Collection) {
    let (mut started, mut built, mut aborted) = (Vec::new(), Vec::new(), Vec::new());
    for index in &before.indexes {
        match same(index, after) {
            None if index.ready => {
                let mut command = named("dropIndexes", after);
                command.insert("index", index.spec.name.as_str());
                add(changes, after, command);
            }
            None => aborted.push(Bson::Document(doc! {"name": index.spec.name.as_str()})),
            Some(_) => {}
        }
    }
    for index in &after.indexes {
        let spec = &index.spec.document;
        match same(index, before) {
            None if index.ready => {
                let mut command = named("createIndexes", after);
                command.extend(spec.clone());
                add(changes, after, command);
            }
            None => started.push(Bson::Document(spec.clone())),
            Some(old) if index.ready && !old.ready => built.push(Bson::Document(spec.clone())),
            Some(old) if old.spec.document != *spec => {
                let mut change = doc! {"name": index.spec.name.as_str()};
                change.extend(changed_fields(&old.spec.document, spec));
                let mut command = named("collMod", after);
                command.insert("index", change);
                add(changes, after, command);
            }
            Some(_) => {}
        }
    }
    for (name, indexes) in [
        ("abortIndexBuild", aborted),
        ("startIndexBuild", started),
        ("commitIndexBuild", built),
    ] {
        if !indexes.is_empty() {
            let mut command = named(name, after);
            command.insert("indexes", indexes);
            add(changes, after, command);
        }
    }
}

fn named(command: &str, collection: &Collection) -> Document {
    doc! {command: collection.namespace.collection()}
}

fn add(changes: &mut Changes<'_>, collection: &Collection, command: Document) {
    changes.command(collection.namespace.database(), collection.uuid, command);
}

/// The description of the same index in `collection`.
fn same<'a>(index: &Index, collection: &'a Collection) -> Option<&'a Index> {
    let mut all = collection.indexes.iter();
    all.find(|other| other.ident == index.ident)
        .map(|other| &**other)
}

/// The fields of `after` that `before` lacks or has with another value.
fn changed_fields(before: &Document, after: &Document) -> Document {
    let changed = after
        .iter()
        .filter(|(name, value)| before.get(name) != Some(value));
    changed
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
