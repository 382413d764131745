//! `serverStatus`: counters as monitoring tools know them.

use std::sync::atomic::Ordering;

use bson::{Bson, DateTime, Document, doc};
use millrace_command::OperationKind;
use millrace_value::{Environment, Result};

use super::information::COMPATIBLE_VERSION;
use super::{Answer, CommandContext, count};
use crate::machine;
use crate::memory::Share;
use crate::state::ServerState;

pub(super) fn server_status(context: &mut CommandContext<'_>) -> Result<Answer> {
    let state = context.state;
    let uptime = state.environment.monotonic();
    let uptime_ms = i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX);
    let mut status = doc! {
        "host": format!("{}:{}", state.host, state.settings.port),
        "version": COMPATIBLE_VERSION,
        "process": "mongod",
        "service": ["shard"],
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64().floor(),
        "uptimeMillis": uptime_ms,
        "uptimeEstimate": uptime_ms / 1000,
        "localTime": DateTime::from_millis(context.operation.started_wall_ms()),
        "asserts": asserts(state),
        "connections": connections(state),
        "globalLock": global_lock(state),
        "logicalSessionRecordCache": {
            "activeSessionsCount": count(u64::try_from(state.sessions.count()).unwrap_or(0)),
        },
        "mem": memory(),
        "metrics": metrics(state),
        "network": network(state),
        "opcounters": operation_counters(state),
        "storageEngine": {
            "name": "rocksdb",
            "supportsCommittedReads": true,
            "oldestRequiredTimestampForCrashRecovery": Bson::Timestamp(
                bson::Timestamp { time: 0, increment: 0 }
            ),
            "supportsPendingDrops": false,
            "dropPendingIdents": 0_i64,
            "supportsSnapshotReadConcern": false,
            "readOnly": false,
            "persistent": true,
            "backupCursorOpen": false,
        },
        "rocksdb": engine(state),
        "memoryBudget": memory_budget(state),
    };
    // A section is left out when the command says `section: 0`.
    for (name, wanted) in &context.arguments()? {
        if !super::truthy(Some(wanted)) {
            status.remove(name);
        }
    }
    Ok(Answer::Reply(status))
}

fn asserts(state: &ServerState) -> Document {
    let user = state.metrics.errors().values().sum();
    doc! {
        "regular": 0_i64, "warning": 0_i64, "msg": 0_i64, "user": count(user),
        "tripwire": 0_i64, "rollovers": 0_i64,
    }
}

fn connections(state: &ServerState) -> Document {
    let open = state.counters.open.load(Ordering::Relaxed);
    let available = state.settings.connections_max.saturating_sub(open);
    let active = state
        .operations
        .slots()
        .iter()
        .filter(|slot| slot.running().is_some())
        .count();
    let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    doc! {
        "current": number(open),
        "available": number(available),
        "totalCreated": count(state.counters.accepted.load(Ordering::Relaxed)),
        "rejected": count(state.counters.rejected.load(Ordering::Relaxed)),
        "active": number(active),
    }
}

fn global_lock(state: &ServerState) -> Document {
    let slots = state.operations.slots();
    let clients = i32::try_from(slots.len()).unwrap_or(i32::MAX);
    let total = i64::try_from(state.environment.monotonic().as_micros()).unwrap_or(i64::MAX);
    doc! {
        "totalTime": total,
        "currentQueue": { "total": 0, "readers": 0, "writers": 0 },
        "activeClients": { "total": clients, "readers": 0, "writers": 0 },
    }
}

fn memory() -> Document {
    let (resident, size) = machine::process_memory_bytes();
    let mib = |bytes: u64| i32::try_from(bytes >> 20).unwrap_or(i32::MAX);
    doc! {
        "bits": i32::try_from(usize::BITS).unwrap_or(64),
        "resident": mib(resident),
        "virtual": mib(size),
        "supported": true,
    }
}

fn metrics(state: &ServerState) -> Document {
    let mut commands = Document::new();
    commands.insert("<UNKNOWN>", count(state.metrics.unknown_commands()));
    for entry in state.commands.commands() {
        let command = &entry.metrics;
        commands.insert(
            entry.name,
            doc! {
                "failed": count(command.failed.load(Ordering::Relaxed)),
                "total": count(command.total.load(Ordering::Relaxed)),
            },
        );
    }
    let documents = state.metrics.documents();
    let cursors = state.documents.cursors().statistics();
    doc! {
        "commands": commands,
        "cursor": {
            "timedOut": count(cursors.timed_out_total),
            "totalOpened": count(cursors.opened_total),
            "open": {
                "noTimeout": count(cursors.open_no_timeout),
                "pinned": 0_i64,
                "total": count(cursors.open),
            },
        },
        "document": {
            "deleted": count(documents.deleted),
            "inserted": count(documents.inserted),
            "returned": count(documents.returned),
            "updated": count(documents.updated),
        },
        "ttl": { "deletedDocuments": count(state.documents.expired_documents()) },
    }
}

fn network(state: &ServerState) -> Document {
    let counters = &state.counters;
    let load = |counter: &std::sync::atomic::AtomicU64| count(counter.load(Ordering::Relaxed));
    doc! {
        "bytesIn": load(&counters.bytes_in),
        "bytesOut": load(&counters.bytes_out),
        "physicalBytesIn": load(&counters.bytes_in),
        "physicalBytesOut": load(&counters.bytes_out),
        "numRequests": load(&counters.requests),
    }
}

fn operation_counters(state: &ServerState) -> Document {
    OperationKind::ALL
        .into_iter()
        .map(|kind| {
            (
                kind.name().to_owned(),
                count(state.metrics.operations(kind)),
            )
        })
        .collect()
}

fn engine(state: &ServerState) -> Document {
    let journal = state.journal.counters();
    let mut engine: Document = state
        .engine
        .statistics()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), count(value)))
        .collect();
    engine.insert("journalSyncs", count(journal.syncs));
    engine.insert("journalParkedReplies", count(journal.parked));
    engine
}

fn memory_budget(state: &ServerState) -> Document {
    let mut budget = Document::new();
    for share in Share::ALL {
        let gauge = state.budget.gauge(share);
        let number = |number: usize| count(u64::try_from(number).unwrap_or(u64::MAX));
        budget.insert(
            share.name(),
            doc! {
                "limitBytes": number(gauge.limit),
                "usedBytes": number(gauge.used),
                "refused": count(gauge.refused),
            },
        );
    }
    budget
}
