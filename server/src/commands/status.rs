//! `serverStatus`: counters as monitoring tools know them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use millrace_command::OperationKind;
use millrace_value::Result;

use super::information::COMPATIBLE_VERSION;
use super::server_info::ServerInfo;
use super::{Answer, CommandContext, count};
use crate::arguments::truthy;
use crate::machine;
use crate::metrics::{Metrics, Statistics};
use crate::network::Counters;

pub(super) fn server_status(
    context: &CommandContext<'_>,
    server: &ServerInfo,
    statistics: &dyn Statistics,
) -> Result<Answer> {
    let uptime = context.operation.environment().monotonic();
    let uptime_ms = i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX);
    let mut status = doc! {
        "host": format!("{}:{}", server.host, server.port),
        "version": COMPATIBLE_VERSION,
        "process": "mongod",
        "service": ["shard"],
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64().floor(),
        "uptimeMillis": uptime_ms,
        "uptimeEstimate": uptime_ms / 1000,
        "localTime": DateTime::from_millis(context.operation.started_wall_ms()),
        "asserts": asserts(statistics.metrics()),
        "connections": connections(server.connections_max, statistics),
        "globalLock": global_lock(uptime, statistics),
        "logicalSessionRecordCache": {
            "activeSessionsCount": count(statistics.sessions()),
        },
        "mem": memory(),
        "metrics": metrics(statistics),
        "network": network(statistics.network()),
        "opcounters": operation_counters(statistics.metrics()),
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
        "rocksdb": engine(statistics),
        "memoryBudget": memory_budget(statistics),
    };
    // A section is left out when the command says `section: 0`.
    for (name, wanted) in &context.arguments()? {
        if !truthy(Some(wanted)) {
            status.remove(name);
        }
    }
    Ok(Answer::Reply(status))
}

fn asserts(metrics: &Metrics) -> Document {
    let user = metrics.errors().values().sum();
    doc! {
        "regular": 0_i64, "warning": 0_i64, "msg": 0_i64, "user": count(user),
        "tripwire": 0_i64, "rollovers": 0_i64,
    }
}

fn connections(connections_max: usize, statistics: &dyn Statistics) -> Document {
    let counters = statistics.network();
    let open = counters.open.load(Ordering::Relaxed);
    let available = connections_max.saturating_sub(open);
    let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    doc! {
        "current": number(open),
        "available": number(available),
        "totalCreated": count(counters.accepted.load(Ordering::Relaxed)),
        "rejected": count(counters.rejected.load(Ordering::Relaxed)),
        "active": number(statistics.connections().active),
    }
}

fn global_lock(uptime: Duration, statistics: &dyn Statistics) -> Document {
    let clients = i32::try_from(statistics.connections().all).unwrap_or(i32::MAX);
    let total = i64::try_from(uptime.as_micros()).unwrap_or(i64::MAX);
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

fn metrics(statistics: &dyn Statistics) -> Document {
    let metrics = statistics.metrics();
    let mut commands = Document::new();
    commands.insert("<UNKNOWN>", count(metrics.unknown_commands()));
    for (name, command) in statistics.commands() {
        commands.insert(
            name,
            doc! {
                "failed": count(command.failed.load(Ordering::Relaxed)),
                "total": count(command.total.load(Ordering::Relaxed)),
            },
        );
    }
    let documents = metrics.documents();
    let cursors = statistics.cursors();
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
        "ttl": { "deletedDocuments": count(statistics.expired_documents()) },
    }
}

fn network(counters: &Counters) -> Document {
    let load = |counter: &std::sync::atomic::AtomicU64| count(counter.load(Ordering::Relaxed));
    doc! {
        "bytesIn": load(&counters.bytes_in),
        "bytesOut": load(&counters.bytes_out),
        "physicalBytesIn": load(&counters.bytes_in),
        "physicalBytesOut": load(&counters.bytes_out),
        "numRequests": load(&counters.requests),
    }
}

fn operation_counters(metrics: &Metrics) -> Document {
    OperationKind::ALL
        .into_iter()
        .map(|kind| {
            let operations = metrics.operations(kind);
            (kind.name().to_owned(), count(operations))
        })
        .collect()
}

fn engine(statistics: &dyn Statistics) -> Document {
    let journal = statistics.journal();
    let mut engine: Document = statistics
        .engine()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), count(value)))
        .collect();
    engine.insert("journalSyncs", count(journal.syncs));
    engine.insert("journalParkedReplies", count(journal.parked));
    engine
}

fn memory_budget(statistics: &dyn Statistics) -> Document {
    let mut budget = Document::new();
    for gauge in statistics.memory() {
        let number = |number: usize| count(u64::try_from(number).unwrap_or(u64::MAX));
        budget.insert(
            gauge.share.name(),
            doc! {
                "limitBytes": number(gauge.limit),
                "usedBytes": number(gauge.used),
                "refused": count(gauge.refused),
            },
        );
    }
    budget
}
