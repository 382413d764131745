//! The facts that are declared, compared with lists of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_command::{
    Access, Cost, CostRule, EndedWaits, OperationKind, Requirement, StableApi, WriteConcernSupport,
};

use super::*;

/// The commands of the server.
const SERVER: &[&str] = &[
    "abortTransaction",
    "buildInfo",
    "commitTransaction",
    "configureFailPoint",
    "connectionStatus",
    "currentOp",
    "endSessions",
    "features",
    "fsync",
    "fsyncUnlock",
    "getCmdLineOpts",
    "getLog",
    "getParameter",
    "hello",
    "hostInfo",
    "isMaster",
    "killAllSessions",
    "killAllSessionsByPattern",
    "killOp",
    "killSessions",
    "listCommands",
    "logout",
    "ping",
    "refreshSessions",
    "replSetGetConfig",
    "replSetGetStatus",
    "serverStatus",
    "setParameter",
    "shutdown",
    "startSession",
    "usersInfo",
    "whatsmyuri",
];

/// The commands of the document layer that refuse `writeConcern`.
const READING: &[&str] = &[
    "collStats",
    "count",
    "dataSize",
    "dbStats",
    "distinct",
    "explain",
    "find",
    "getMore",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "validate",
];

/// The commands of the document layer that honour `writeConcern`.
const WRITING: &[&str] = &[
    "aggregate",
    "bulkWrite",
    "collMod",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "findAndModify",
    "insert",
    "renameCollection",
    "update",
];

/// The commands of version 1 of the Stable API, as far as they exist.
const API_VERSION_1: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "collMod",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
    "refreshSessions",
    "update",
];

/// The commands for the database `admin` only.
const ADMIN_ONLY: &[&str] = &[
    "abortTransaction",
    "bulkWrite",
    "commitTransaction",
    "configureFailPoint",
    "currentOp",
    "fsync",
    "fsyncUnlock",
    "getCmdLineOpts",
    "getLog",
    "getParameter",
    "killOp",
    "listDatabases",
    "renameCollection",
    "replSetGetConfig",
    "replSetGetStatus",
    "setParameter",
    "shutdown",
];

/// The commands that are allowed in transactions.
const IN_TRANSACTIONS: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "commitTransaction",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// The names of the commands with a property.
fn those(property: impl Fn(&CommandSpec) -> bool) -> BTreeSet<&'static str> {
    let registry = Registry::new();
    let commands = registry.commands().map(|entry| entry.spec);
    let those = commands.filter(|spec| property(spec));
    those.map(|spec| spec.name).collect()
}

fn set(names: &[&'static str]) -> BTreeSet<&'static str> {
    names.iter().copied().collect()
}

#[test]
fn access_and_write_concern_go_together() {
    assert_eq!(those(|spec| spec.access == Access::Admin), set(SERVER));
    assert_eq!(those(|spec| spec.access == Access::Read), set(READING));
    assert_eq!(those(|spec| spec.access == Access::Write), set(WRITING));
    for (access, support) in [
        (Access::Admin, WriteConcernSupport::Ignored),
        (Access::Read, WriteConcernSupport::Refused),
        (Access::Write, WriteConcernSupport::Honoured),
    ] {
        let with_access = those(|spec| spec.access == access);
        assert_eq!(those(|spec| spec.write_concern == support), with_access);
    }
    let registry = Registry::new();
    for entry in registry.commands() {
        let is_servers = matches!(entry.handler, Handler::Server(_));
        assert_eq!(is_servers, SERVER.contains(&entry.name), "{}", entry.name);
    }
}

#[test]
fn names_that_clients_use_are_there() {
    let registry = Registry::new();
    let mut aliases = BTreeSet::new();
    for entry in registry.commands() {
        aliases.extend(entry.spec.aliases);
        assert_eq!(registry.find(entry.name).map(|e| e.name), Some(entry.name));
    }
    assert_eq!(aliases, set(&["buildinfo", "findandmodify", "ismaster"]));
}

#[test]
fn memberships_are_those_of_mongodb() {
    let in_version_1 = those(|spec| spec.stable_api.versions() == ["1"]);
    assert_eq!(in_version_1, set(API_VERSION_1));
    let handshake = those(|spec| spec.stable_api.is_handshake());
    assert_eq!(handshake, set(&["hello", "isMaster"]));
    let outside = those(|spec| spec.stable_api == StableApi::Outside);
    assert!(outside.is_disjoint(&in_version_1) && outside.is_disjoint(&handshake));
    assert_eq!(those(|spec| spec.admin_only), set(ADMIN_ONLY));
    assert_eq!(those(|spec| spec.in_transactions), set(IN_TRANSACTIONS));
}

#[test]
fn costs_are_declared() {
    let is = |rule: &CostRule, cost| matches!(rule, CostRule::Always(other) if *other == cost);
    let by_request = those(|spec| matches!(spec.cost, CostRule::ByRequest(_)));
    let point = ["delete", "find", "findAndModify", "insert", "update"];
    assert_eq!(by_request, set(&point));
    let inline = those(|spec| is(&spec.cost, Cost::Inline));
    let mut expected = set(SERVER);
    expected.retain(|name| !["currentOp", "fsync"].contains(name));
    expected.insert("killCursors");
    assert_eq!(inline, expected);
}

#[test]
fn counters_and_waits_are_declared() {
    let counted = |kind| those(|spec| spec.counted_as == kind);
    assert_eq!(counted(OperationKind::Insert), set(&["insert"]));
    assert_eq!(counted(OperationKind::Query), set(&["find"]));
    assert_eq!(counted(OperationKind::Update), set(&["update"]));
    assert_eq!(counted(OperationKind::Delete), set(&["delete"]));
    assert_eq!(counted(OperationKind::GetMore), set(&["getMore"]));
    let ended = |waits| those(|spec| spec.ends_waits == waits);
    assert_eq!(ended(EndedWaits::OfCollection), set(&["killCursors"]));
}

#[test]
fn every_command_requires_a_privilege_or_says_why_not() {
    let registry = Registry::new();
    for entry in registry.commands() {
        let name = entry.name;
        assert!(!entry.spec.help.is_empty(), "{name}");
        match entry.spec.privileges {
            Requirement::Nothing(reason) | Requirement::Authentication(reason) => {
                assert!(reason.len() > 10, "{name} has no reason");
            }
            requirement => assert!(!requirement.needs().is_empty(), "{name}"),
        }
        // OP_QUERY serves these without a look at privileges.
        if entry.spec.stable_api.is_handshake() {
            assert!(!entry.spec.privileges.needs_authentication(), "{name}");
        }
        // Commands on documents always require a privilege.
        if entry.spec.access != Access::Admin {
            assert!(!entry.spec.privileges.needs().is_empty(), "{name}");
        }
    }
}

#[test]
fn an_alias_is_the_same_command_with_the_same_counters() {
    let registry = Registry::new();
    let find = |name| registry.find(name).expect("it exists");
    let (name, alias) = (find("findAndModify"), find("findandmodify"));
    assert_eq!((name.name, alias.name), ("findAndModify", "findandmodify"));
    assert!(std::ptr::eq(name.spec, alias.spec));
    assert!(Arc::ptr_eq(&name.metrics, &alias.metrics));
    let listed: Vec<_> = registry.commands().map(|entry| entry.name).collect();
    assert!(listed.is_sorted());
    assert!(listed.contains(&"findAndModify") && !listed.contains(&"findandmodify"));
    assert!(registry.find("FIND").is_none() && registry.find("").is_none());
}

#[test]
#[should_panic(expected = "the command hello is declared twice")]
fn a_name_is_declared_once() {
    let hello = COMMANDS
        .iter()
        .filter(|command| command.spec.name == "hello");
    Registry::of(hello.clone().chain(hello).map(Handler::Server));
}

#[test]
#[should_panic(expected = "the command ismaster is declared twice")]
fn an_alias_is_declared_once() {
    let hello = COMMANDS
        .iter()
        .filter(|command| command.spec.name == "isMaster");
    let mut renamed = hello.clone().next().copied().expect("it exists");
    renamed.spec.name = "other";
    let renamed: &'static Command = Box::leak(Box::new(renamed));
    Registry::of(hello.chain([renamed]).map(Handler::Server));
}
