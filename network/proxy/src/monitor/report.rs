//! What the monitor says of itself, as JSON.

use std::os::fd::OwnedFd;

use millrace_stream::slab::Totals;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Result, write};
use serde_json::{Value, json};

use super::Monitor;
use super::slabs::add;
use crate::packets::retry;
use crate::registry::Registry;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// STATUS: sums, and who listens.
    Totals,
    /// TOP: each process's counters.
    Processes,
}

impl Monitor {
    /// What a user may see: root and the monitor's own user all, others only what is theirs.
    pub(super) fn describe(&mut self, view: View, user: u32) -> String {
        let own = rustix::process::geteuid().as_raw();
        let sees = |owner: u32| user == 0 || user == own || user == owner;
        self.slabs.begin();
        let mut sum = if sees(own) {
            self.slabs.dead()
        } else {
            Totals::default()
        };
        let mut processes = Vec::new();
        for (id, client) in self.registry.clients() {
            let credentials = client.credentials;
            if !client.greeted || !sees(credentials.user) {
                continue;
            }
            let slab = self.clients.get(&id).and_then(|found| found.slab.as_ref());
            let totals = slab.map_or_else(Totals::default, |slab| self.slabs.read(slab));
            add(&mut sum, &totals);
            let mut process = json!({
                "process": credentials.process,
                "program": program(credentials.process),
                "user": credentials.user,
                "waiting": client.waiting,
            });
            extend(&mut process, counters(&totals));
            processes.push(process);
        }
        let value = match view {
            View::Totals => json!({
                "processes": processes.len(),
                "listeners": listeners(&self.registry, sees),
                "requests": requests(&self.registry),
                "planes": self.planes(),
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
    /// What planes carry; null without planes.
    fn planes(&self) -> Value {
        let Some(carriers) = &self.carriers else {
            return Value::Null;
        };
        let (within, across) = carriers.counts();
        let loads = carriers.planes.planes().iter().map(|plane| plane.load());
        json!({
            "connections": loads.collect::<Vec<u64>>(),
            "within": within,
            "across": across,
            "ended": carriers.ended,
            "ended_bytes_sent": carriers.bytes.0,
            "ended_bytes_received": carriers.bytes.1,
        })
    }
}

fn listeners(registry: &Registry, sees: impl Fn(u32) -> bool) -> Vec<Value> {
    let seen = registry
        .listeners()
        .filter(|(_, listener)| sees(listener.owner.user));
    seen.map(|(_, listener)| {
        json!({
            "address": listener.proof.address.to_string(),
            "process": listener.owner.process,
            "program": program(listener.owner.process),
            "user": listener.owner.user,
            "backlog": listener.backlog,
            "waiting": listener.waiting_count(),
            "accepted": listener.accepted,
        })
    })
    .collect()
}

fn requests(registry: &Registry) -> Value {
    let counters = registry.counters();
    json!({
        "processes": counters.processes,
        "listeners": counters.listeners,
        "connects": counters.requests,
        "connected": counters.connections,
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

/// The name of what a process runs; null if it is gone. For people: the number may have been given to another.
fn program(process: u32) -> Value {
    let name = std::fs::read(format!("/proc/{process}/comm"));
    name.map_or(Value::Null, |name| {
        String::from_utf8_lossy(name.trim_ascii_end()).into()
    })
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
