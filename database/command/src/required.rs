//! Privileges that depend on the request: which of those that a command declares it needs.

use bson::RawDocument;
use bson::raw::RawBsonRef;

use super::CommandRequest;
use super::privilege::Action::{
    self, BypassDocumentValidation, CollStats, ConvertToCapped, CreateCollection, CreateIndex,
    DropCollection, Find, IndexStats, Inprog, Insert, KillAnyCursor, ListSessions, Remove,
    RenameCollectionSameDb, Update,
};
use super::privilege::ResourceKind::{Any, Cluster, Collection, Namespace};
use super::privilege::{DerivePrivileges, Need, Privilege, Requirement};

/// `insert`: also without validation.
pub(super) const INSERT: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(Insert, Collection),
        Need::new(BypassDocumentValidation, Collection),
    ],
    derive: Some(of_insert),
};

/// `update`: an upsert inserts.
pub(super) const UPDATE: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(Update, Collection),
        Need::new(Insert, Collection),
        Need::new(BypassDocumentValidation, Collection),
    ],
    derive: Some(of_update),
};

/// `findAndModify`: it finds, and then removes or updates; an upsert inserts.
pub(super) const FIND_AND_MODIFY: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(Find, Collection),
        Need::new(Update, Collection),
        Need::new(Insert, Collection),
        Need::new(Remove, Collection),
        Need::new(BypassDocumentValidation, Collection),
    ],
    derive: Some(of_find_and_modify),
};

/// The privileges that some request of `explain` needs.
const EXPLAIN_NEEDS: &[Need] = &[
    Need::new(Find, Any),
    Need::new(Insert, Any),
    Need::new(Update, Any),
    Need::new(Remove, Any),
];

/// `explain`: what the explained command requires, which `derive` finds by [`of_explain`].
pub(super) const fn explain(derive: DerivePrivileges) -> Requirement {
    Requirement::ByRequest {
        at_most: EXPLAIN_NEEDS,
        derive: Some(derive),
    }
}

/// `aggregate`: the stages decide. As long as nothing derives it, every request needs them all.
pub(super) const AGGREGATE: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(Find, Any),
        Need::new(Insert, Any),
        Need::new(Update, Any),
        Need::new(Remove, Any),
        Need::new(BypassDocumentValidation, Any),
        Need::new(CollStats, Any),
        Need::new(IndexStats, Any),
        Need::new(Inprog, Cluster),
        Need::new(ListSessions, Cluster),
    ],
    derive: None,
};

/// `bulkWrite`: each operation decides, on the collection that it names.
pub(super) const BULK_WRITE: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(Insert, Any),
        Need::new(Update, Any),
        Need::new(Remove, Any),
        Need::new(BypassDocumentValidation, Any),
    ],
    derive: None,
};

/// `create`: a capped collection and a view need more than a plain collection.
pub(super) const CREATE: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(CreateCollection, Collection),
        Need::new(ConvertToCapped, Collection),
        Need::new(Find, Any),
    ],
    derive: None,
};

/// `killCursors`: cursors of others.
pub(super) const KILL_CURSORS: Requirement = Requirement::ByRequest {
    at_most: &[Need::new(KillAnyCursor, Collection)],
    derive: None,
};

/// `renameCollection`: within a database, or by a copy into another one.
pub(super) const RENAME_COLLECTION: Requirement = Requirement::ByRequest {
    at_most: &[
        Need::new(Find, Namespace),
        Need::new(DropCollection, Namespace),
        Need::new(RenameCollectionSameDb, Any),
        Need::new(Insert, Any),
        Need::new(CreateIndex, Any),
        Need::new(DropCollection, Any),
    ],
    derive: None,
};

fn of_insert<'a>(request: &CommandRequest<'a>) -> Vec<Privilege<'a>> {
    on_collection(request, vec![Insert])
}

fn of_update<'a>(request: &CommandRequest<'a>) -> Vec<Privilege<'a>> {
    let mut sequences = request
        .sequences
        .iter()
        .filter(|(name, _)| *name == "updates");
    let listed = match request.body.get("updates") {
        Ok(Some(RawBsonRef::Array(array))) => Some(array),
        _ => None,
    };
    let inserts = sequences
        .any(|(_, updates)| updates.iter().any(|update| is_set(update, "upsert")))
        || listed.is_some_and(|array| {
            let updates = array.into_iter().flatten();
            updates
                .filter_map(RawBsonRef::as_document)
                .any(|update| is_set(update, "upsert"))
        });
    let mut actions = vec![Update];
    actions.extend(inserts.then_some(Insert));
    on_collection(request, actions)
}

fn of_find_and_modify<'a>(request: &CommandRequest<'a>) -> Vec<Privilege<'a>> {
    let mut actions = vec![Find];
    if is_set(request.body, "remove") {
        actions.push(Remove);
    }
    if !matches!(request.body.get("update"), Ok(None)) {
        actions.push(Update);
    }
    if is_set(request.body, "upsert") {
        actions.push(Insert);
    }
    on_collection(request, actions)
}

/// The privileges that a request of `explain` needs; `requirement_of` is that of the command of a name.
pub(super) fn of_explain<'a>(
    request: &CommandRequest<'a>,
    requirement_of: impl Fn(&str) -> Option<Requirement>,
) -> Vec<Privilege<'a>> {
    let all = || {
        let needs = EXPLAIN_NEEDS.iter();
        needs.map(|need| need.of_request(request)).collect()
    };
    let Ok(Some(RawBsonRef::Document(body))) = request.body.get("explain") else {
        return all();
    };
    let Some(Ok((name, _))) = body.iter().next() else {
        return all();
    };
    let name = name.as_str();
    match requirement_of(name) {
        // An explain cannot be explained: nothing is derived through any number of them.
        Some(requirement) if name != "explain" => requirement.of_request(&CommandRequest {
            name,
            body,
            ..*request
        }),
        _ => all(),
    }
}

/// The actions on the request's collection, and another one if it bypasses validation.
fn on_collection<'a>(request: &CommandRequest<'a>, mut actions: Vec<Action>) -> Vec<Privilege<'a>> {
    let bypasses = is_set(request.body, "bypassDocumentValidation");
    actions.extend(bypasses.then_some(BypassDocumentValidation));
    let resource = Collection.of_request(request);
    let privilege = |action| Privilege { action, resource };
    actions.into_iter().map(privilege).collect()
}

/// Whether a flag is there and may be true: a value of another type counts as true, so that a privilege
/// is required rather than skipped.
fn is_set(body: &RawDocument, flag: &str) -> bool {
    match body.get(flag) {
        Ok(None | Some(RawBsonRef::Boolean(false) | RawBsonRef::Null | RawBsonRef::Int32(0))) => {
            false
        }
        Ok(Some(_)) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::{RawDocumentBuf, rawdoc};
    use millrace_value::ErrorCode;

    use super::super::privilege::{Grants, Principal, Resource};
    use super::super::table::command;
    use super::*;

    /// Actions on the collection `d.c`, and on no other.
    #[derive(Debug)]
    struct OnOne(&'static [Action]);

    impl Grants for OnOne {
        fn is_authenticated(&self) -> bool {
            true
        }

        fn allows(&self, privilege: &Privilege<'_>) -> bool {
            let expected = Resource::Collection {
                database: "d",
                collection: "c",
            };
            privilege.resource == expected && self.0.contains(&privilege.action)
        }
    }

    fn is_allowed(actions: &'static [Action], body: &RawDocumentBuf) -> bool {
        let name = body.iter().next().expect("a field").expect("BSON").0;
        let principal = Principal::with_grants(Arc::new(OnOne(actions)));
        let request = |principal| CommandRequest {
            database: "d",
            name: name.as_str(),
            body,
            sequences: &[],
            session: None,
            principal,
        };
        let spec = &command(name.as_str()).expect("it exists").spec;
        let everybody = spec.authorize(&request(&Principal::EVERYBODY));
        everybody.expect("everybody is allowed everything");
        match spec.authorize(&request(&principal)) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Unauthorized);
                false
            }
        }
    }

    #[test]
    fn a_write_needs_what_it_does() {
        let insert = rawdoc! { "insert": "c", "documents": [] };
        assert!(is_allowed(&[Insert], &insert));
        assert!(!is_allowed(&[Find, Update], &insert));
        assert!(!is_allowed(&[Insert], &rawdoc! { "insert": "other" }));
        let bypassing = rawdoc! { "insert": "c", "bypassDocumentValidation": true };
        assert!(!is_allowed(&[Insert], &bypassing));
        assert!(is_allowed(&[Insert, BypassDocumentValidation], &bypassing));

        let update = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {}, "upsert": false }] };
        assert!(is_allowed(&[Update], &update));
        let upsert =
            rawdoc! { "update": "c", "updates": [{ "q": {} }, { "q": {}, "upsert": true }] };
        assert!(!is_allowed(&[Update], &upsert));
        assert!(is_allowed(&[Update, Insert], &upsert));

        let remove = rawdoc! { "findAndModify": "c", "remove": true };
        assert!(is_allowed(&[Find, Remove], &remove));
        assert!(!is_allowed(&[Find, Update, Insert], &remove));
        let modify = rawdoc! { "findandmodify": "c", "update": {} };
        assert!(is_allowed(&[Find, Update], &modify));
        assert!(!is_allowed(&[Find], &modify));
    }

    #[test]
    fn an_explain_needs_what_the_explained_command_needs() {
        assert!(is_allowed(&[Find], &rawdoc! { "explain": { "find": "c" } }));
        assert!(!is_allowed(
            &[Find],
            &rawdoc! { "explain": { "find": "other" } }
        ));
        assert!(!is_allowed(
            &[Find],
            &rawdoc! { "explain": { "delete": "c" } }
        ));
        assert!(is_allowed(
            &[Remove],
            &rawdoc! { "explain": { "delete": "c" } }
        ));
        let nested = rawdoc! { "explain": { "explain": { "find": "c" } } };
        assert!(!is_allowed(&[Find, Insert, Update, Remove], &nested));
        assert!(!is_allowed(
            &[Find],
            &rawdoc! { "explain": { "unknown": "c" } }
        ));
    }

    #[test]
    fn a_pipeline_needs_all_that_any_pipeline_needs() {
        let aggregate = rawdoc! { "aggregate": "c", "pipeline": [] };
        assert!(!is_allowed(&[Find], &aggregate));
    }
}
