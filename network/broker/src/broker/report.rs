//! The broker's reports as JSON.

use std::os::fd::OwnedFd;

use millrace_stream::slab::Totals;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Result, write};
use serde_json::{Value, json};

use super::forwarded::Forwarded;
use super::peers::Peers;
use super::slabs::{Slabs, add};
use super::view::{Seen, View};
use crate::registry::Registry;
use millrace_stream::sockets::packets::retry;

/// What a report is made from.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    pub(super) registry: &'a Registry,
    pub(super) slabs: &'a Slabs,
    /// The forwarded connections and the count of each forwarder's; `None` without forwarders.
    pub(super) forwarded: Option<(&'a Forwarded, Vec<u64>)>,
    pub(super) peers: Option<&'a Peers>,
}

/// A report from the counters of the last round through the slabs.
pub(super) fn describe(sources: &Sources<'_>, view: View, seen: Seen) -> String {
    let mut sum = sources.slabs.exited_totals(|user| seen.has(user));
    let mut processes = Vec::new();
    for (id, client) in sources.registry.clients() {
        let credentials = client.credentials;
        if !client.greeted || !seen.has(credentials.user) {
            continue;
        }
        let counted = sources.slabs.counted(id);
        add(&mut sum, &counted.totals);
        let mut process = json!({
            "process": credentials.process,
            "program": counted.program,
            "user": credentials.user,
            "waiting": client.waiting,
        });
        extend(&mut process, counters(&counted.totals));
        processes.push(process);
    }
    let value = match view {
        View::Totals => json!({
            "processes": processes.len(),
            "listeners": listeners(sources, seen),
            "requests": requests(sources.registry),
            "forwarders": forwarders(sources, seen),
            "peers": sources.peers.map(Peers::report),
            "totals": counters(&sum),
        }),
        View::Processes => json!({
            "processes": processes,
            "totals": counters(&sum),
        }),
    };
    value.to_string()
}
fn listeners(sources: &Sources<'_>, seen: Seen) -> Vec<Value> {
    let programs = sources.slabs.programs();
    let listeners = sources.registry.listeners();
    let listeners = listeners.filter(|(_, listener)| seen.has(listener.owner.user));
    let described = listeners.map(|(_, listener)| {
        json!({
            "address": listener.proof.address.to_string(),
            "process": listener.owner.process,
            "program": programs.get(&listener.owner.process),
            "user": listener.owner.user,
            "backlog": listener.backlog,
            "waiting": listener.waiting_count(),
            "accepted": listener.accepted,
        })
    });
    described.collect()
}

/// The section on forwarders; null without forwarders.
fn forwarders(sources: &Sources<'_>, seen: Seen) -> Value {
    let Some((forwarded, loads)) = &sources.forwarded else {
        return Value::Null;
    };
    let (within, across) = forwarded.counts();
    let totals = forwarded.totals();
    let limits = sources.registry.settings().limits;
    let users = forwarded
        .table()
        .users()
        .filter(|(user, _)| seen.has(*user));
    let users = users.map(|(user, count)| json!({"user": user, "connections": count}));
    json!({
        "connections": loads,
        "users": users.collect::<Vec<Value>>(),
        "connections_max": limits.forwarded_max,
        "connections_per_user_max": limits.forwarded_per_user_max,
        "turned_away": forwarded.table().turned_away(),
        "within": within,
        "across": across,
        "ended": totals.ended,
        "ended_bytes_sent": totals.bytes.0,
        "ended_bytes_received": totals.bytes.1,
    })
}

fn requests(registry: &Registry) -> Value {
    let counters = registry.counters();
    json!({
        "processes": counters.processes,
        "listeners": counters.listeners,
        "connects": counters.requests,
        "connected": counters.connections,
        "leases": counters.leases,
        "forwarded": counters.forwarded,
        "to_hosts": counters.across.0,
        "from_hosts": counters.across.1,
        "waited": counters.waited,
        "kernel": counters.kernel,
        "refused": counters.refused,
    })
}

fn counters(totals: &Totals) -> Value {
    json!({
        "connections": totals.live,
        "bytes_sent": totals.sent,
        "bytes_received": totals.received,
        "connects": totals.connects,
        "accepts": totals.accepts,
        "kernel_connects": totals.kernel_connects,
        "kernel_accepts": totals.kernel_accepts,
        "notifications": totals.notifications,
        "sleeps": totals.sleeps,
        "resets": totals.resets,
    })
}

fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// The text in a sealed memory file.
pub(super) fn file(text: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"millrace-report", flags)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = retry(|| write(&file, rest))?;
        rest = &rest[written..];
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}
