//! What the monitor says of itself, as JSON.

use std::os::fd::OwnedFd;

use millrace_stream::slab::Totals;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Result, write};
use serde_json::{Value, json};

use super::Monitor;
use super::slabs::add;
use crate::registry::Registry;
use millrace_stream::sockets::packets::retry;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// STATUS: sums, and who listens.
    Totals,
    /// TOP: each process's counters.
    Processes,
}

/// Whose processes and listeners somebody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    /// All.
    All,
    /// Those of one user.
    Of(u32),
}

impl Seen {
    /// What a user may see: root and the monitor's own user all, others only what is theirs.
    pub(super) fn by(user: u32) -> Self {
        if user == 0 || user == rustix::process::geteuid().as_raw() {
            Self::All
        } else {
            Self::Of(user)
        }
    }

    fn has(self, user: u32) -> bool {
        self == Self::All || self == Self::Of(user)
    }
}

impl Monitor {
    /// What is known by the last round through the slabs.
    pub(super) fn describe(&self, view: View, seen: Seen) -> String {
        let mut sum = self.slabs.dead(|user| seen.has(user));
        let mut processes = Vec::new();
        for (id, client) in self.registry.clients() {
            let credentials = client.credentials;
            if !client.greeted || !seen.has(credentials.user) {
                continue;
            }
            let counted = self.slabs.counted(id);
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
                "listeners": self.listeners(seen),
                "requests": requests(&self.registry),
                "planes": self.planes(seen),
                "peers": self.peers.as_ref().map(super::peers::Peers::report),
                "totals": counters(&sum),
            }),
            View::Processes => json!({
                "processes": processes,
                "totals": counters(&sum),
            }),
        };
        value.to_string()
    }
}

impl Monitor {
    fn listeners(&self, seen: Seen) -> Vec<Value> {
        let programs = self.slabs.programs();
        let listeners = self.registry.listeners();
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

    /// What planes carry; null without planes.
    fn planes(&self, seen: Seen) -> Value {
        let Some(carriers) = &self.carriers else {
            return Value::Null;
        };
        let (within, across) = carriers.counts();
        let limits = self.registry.settings().limits;
        let users = carriers.flows.users().filter(|(user, _)| seen.has(*user));
        let users = users.map(|(user, count)| json!({"user": user, "connections": count}));
        let loads = carriers.planes.planes().iter().map(|plane| plane.load());
        json!({
            "connections": loads.collect::<Vec<u64>>(),
            "users": users.collect::<Vec<Value>>(),
            "connections_max": limits.carried_max,
            "connections_per_user_max": limits.carried_per_user_max,
            "turned_away": carriers.flows.turned_away(),
            "within": within,
            "across": across,
            "ended": carriers.ended,
            "ended_bytes_sent": carriers.bytes.0,
            "ended_bytes_received": carriers.bytes.1,
        })
    }
}

fn requests(registry: &Registry) -> Value {
    let counters = registry.counters();
    json!({
        "processes": counters.processes,
        "listeners": counters.listeners,
        "connects": counters.requests,
        "connected": counters.connections,
        "leases": counters.leases,
        "proxied": counters.proxied,
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
        "bells": totals.bells,
        "sleeps": totals.sleeps,
        "resets": totals.resets,
    })
}

fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// The text in a file that nobody can change.
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
