//! The broker's reports as JSON.

use std::os::fd::OwnedFd;

use millrace_stream::slab::Totals;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Result, write};
use serde_json::{Value, json};

use super::Broker;
use super::slabs::add;
use crate::registry::Registry;
use millrace_stream::sockets::packets::retry;

/// The kind of a report that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The reply to STATUS: sums and listeners.
    Totals,
    /// The reply to TOP: each process's counters.
    Processes,
}

/// The users whose processes and listeners a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    /// The processes of all users.
    All,
    /// The processes of one user.
    Of(u32),
}

impl Seen {
    /// The view of a user: root and the broker's user see all, other users see their own.
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

impl Broker {
    /// A report from the counters of the last round through the slabs.
    pub(super) fn describe(&self, view: View, seen: Seen) -> String {
        let mut sum = self.slabs.exited_totals(|user| seen.has(user));
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
                "forwarders": self.forwarders(seen),
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

impl Broker {
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

    /// The section on forwarders; null without forwarders.
    fn forwarders(&self, seen: Seen) -> Value {
        let Some(forwarders) = &self.forwarders else {
            return Value::Null;
        };
        let (within, across) = forwarders.counts();
        let limits = self.registry.settings().limits;
        let users = forwarders.flows.users().filter(|(user, _)| seen.has(*user));
        let users = users.map(|(user, count)| json!({"user": user, "connections": count}));
        let loads = forwarders
            .pool
            .forwarders()
            .iter()
            .map(|forwarder| forwarder.load());
        json!({
            "connections": loads.collect::<Vec<u64>>(),
            "users": users.collect::<Vec<Value>>(),
            "connections_max": limits.forwarded_max,
            "connections_per_user_max": limits.forwarded_per_user_max,
            "turned_away": forwarders.flows.turned_away(),
            "within": within,
            "across": across,
            "ended": forwarders.ended,
            "ended_bytes_sent": forwarders.bytes.0,
            "ended_bytes_received": forwarders.bytes.1,
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
