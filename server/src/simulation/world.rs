//! Clients, a server that they talk to, and losses of power, as they follow from a seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{Document, doc};
use millrace_engine::Engine;
use millrace_random::Random;

use super::client::{
    self, Changed, Client, Command, Concern, EXPIRE_AFTER_SECONDS, Expected, Pending,
};
use super::disk::VolatileEngine;
use super::model::Model;
use super::server::{SeededEntropy, Server, settings};
use super::{Mutation, SimulatedClock};
use crate::clock::Clock;

/// What happened in a run, to see that runs are not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) acknowledged: u64,
    pub(super) timed_out: u64,
    pub(super) failed: u64,
    pub(super) lost_commits: u64,
    pub(super) clean_ends: u64,
    pub(super) expired: u64,
    pub(super) waits: u64,
    /// A checksum of all replies and when they came.
    pub(super) digest: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.timed_out += other.timed_out;
        self.failed += other.failed;
        self.lost_commits += other.lost_commits;
        self.clean_ends += other.clean_ends;
        self.expired += other.expired;
        self.waits += other.waits;
        self.note(&other.digest.to_le_bytes());
    }

    /// FNV-1a.
    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// What a reply must not be.
type Breach = String;

fn ensure(holds: bool, breach: impl FnOnce() -> Breach) -> Result<(), Breach> {
    if holds { Ok(()) } else { Err(breach()) }
}

/// A simulation.
pub(super) struct World {
    random: Random,
    clock: Arc<SimulatedClock>,
    entropy: Arc<SeededEntropy>,
    mutation: Mutation,
    syncs_every_write: bool,
    server: Server,
    model: Model,
    clients: Vec<Client>,
    next_expiring: i32,
    tally: Tally,
}

/// Runs a seed to its end.
///
/// # Errors
/// What a client was told, or did not find, against what it may rely on.
pub(super) fn run(seed: u64, mutation: Mutation) -> Result<Tally, Breach> {
    let mut world = World::new(seed, mutation);
    for _ in 0..=world.random.below(3) {
        world.live()?;
        world.lose_power()?;
    }
    Ok(world.tally)
}

impl World {
    fn new(seed: u64, mutation: Mutation) -> Self {
        let mut random = Random::new(seed);
        let clock = Arc::new(SimulatedClock::default());
        let entropy = Arc::new(SeededEntropy(Mutex::new(Random::new(random.number()))));
        let syncs_every_write = random.chance(3, 4);
        let mut server = Server::start(
            settings(syncs_every_write),
            Arc::new(VolatileEngine::default()),
            clock.clone(),
            entropy.clone(),
            mutation,
        );
        let index = doc! {
            "key": { "at": 1 }, "name": "at", "expireAfterSeconds": EXPIRE_AFTER_SECONDS,
        };
        for command in [
            doc! { "create": "c", "writeConcern": { "w": 0 } },
            doc! { "create": "log", "capped": true, "size": 1 << 20, "writeConcern": { "w": 0 } },
            doc! { "createIndexes": "expiring", "indexes": [index], "writeConcern": { "w": 0 } },
        ] {
            let reply = server.ask(command);
            assert!(is_ok(&reply), "{reply}");
        }
        server.engine.sync().expect("nothing has failed yet");
        let clients = (0..1 + random.below(4)).map(|_| Client::default());
        let mut world = Self {
            random,
            clock,
            entropy,
            mutation,
            syncs_every_write,
            server,
            model: Model::new(),
            clients: clients.collect(),
            next_expiring: 0,
            tally: Tally::default(),
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        for index in 0..self.clients.len() {
            self.server.open(connection(index));
            let next = self.clock.now() + self.think();
            self.clients[index] = Client {
                next,
                ..Client::default()
            };
        }
    }

    fn think(&mut self) -> Duration {
        let longest_us = if self.random.chance(1, 8) { 4_000 } else { 300 };
        Duration::from_micros(self.random.below(longest_us))
    }

    /// Lets clients work until the power fails.
    fn live(&mut self) -> Result<(), Breach> {
        let mut requests = 5 + self.random.below(30);
        let mut end = None;
        loop {
            if end.is_none() && (requests == 0 || self.server.is_broken) {
                end = Some(self.clock.now() + Duration::from_micros(self.random.below(400)));
            }
            let idle = self
                .clients
                .iter()
                .filter(|client| client.pending.is_none());
            let next = idle
                .map(|client| client.next)
                .chain([self.server.next_event()])
                .chain(end)
                .min()
                .expect("the server always has something to do");
            self.clock.advance_to(next);
            if end.is_some_and(|end| end <= next) {
                return Ok(());
            }
            let is_maintained = self.server.step(&mut self.random);
            self.take_replies()?;
            if is_maintained && !self.server.is_broken {
                self.check_expiring(true, false)?;
            }
            for index in 0..self.clients.len() {
                let client = &self.clients[index];
                if client.pending.is_none() && client.next <= self.clock.now() {
                    requests = requests.saturating_sub(1);
                    self.act(index)?;
                }
            }
            self.server.drive_journal(&mut self.random);
        }
    }

    /// Sends the next request of a client.
    fn act(&mut self, index: usize) -> Result<(), Breach> {
        let command = Command::draw(&mut self.random);
        let concern = client::draw_concern(&mut self.random);
        let now_ms = self.clock.wall_clock_ms();
        let places = (self.next_expiring, self.model.log_len());
        let body = self.clients[index].body(&command, concern, now_ms, places);
        let mut pending = Pending {
            command,
            concern,
            sent: self.clock.now(),
            changed: None,
            expected: None,
        };
        let before = self.server.engine.last_commit_seq().get();
        self.server.send(connection(index), body);
        let commits = self.server.engine.last_commit_seq().get() - before;
        if self.server.is_broken {
            ensure(commits == 0, || "a commit after a failed sync".to_owned())?;
        } else {
            self.predict(&mut pending, commits)?;
        }
        self.clients[index].pending = Some(pending);
        self.take_replies()
    }

    /// Notes what a request that was applied in so many commits has done to the model.
    fn predict(&mut self, pending: &mut Pending, commits: u64) -> Result<(), Breach> {
        match &pending.command {
            Command::InsertExpiring => {
                let expires_ms = self.clock.wall_clock_ms() + 1_000 * EXPIRE_AFTER_SECONDS;
                self.model.add_expiring(self.next_expiring, expires_ms);
                pending.changed = Some(Changed::Expiring(self.next_expiring));
                self.next_expiring += 1;
            }
            Command::Append => pending.changed = Some(Changed::Log(self.model.append_to_log())),
            Command::Find => {
                pending.expected = Some(Expected::Contents(self.model.contents().clone()));
            }
            Command::Tail(_) => {}
            command => {
                let (steps, touched) = command.effects(self.model.contents());
                pending.expected = Some(Expected::Touched(touched));
                let Some(last) = steps.last().cloned() else {
                    return ensure(commits == 0, || format!("{command:?} changes nothing"));
                };
                if commits == 1 {
                    self.model.change(last);
                } else {
                    let each = steps.len() as u64 == commits;
                    ensure(each, || format!("{command:?} in {commits} commits"))?;
                    steps.into_iter().for_each(|step| self.model.change(step));
                }
                pending.changed = Some(Changed::Contents(self.model.moment()));
            }
        }
        Ok(())
    }

    fn take_replies(&mut self) -> Result<(), Breach> {
        loop {
            let replies = self.server.take_replies();
            if replies.is_empty() {
                return Ok(());
            }
            for (connection, reply) in replies {
                self.tally.note(&self.clock.now().as_nanos().to_le_bytes());
                self.tally.note(reply.to_string().as_bytes());
                let index = usize::try_from(connection - 1).expect("a small number");
                let pending = self.clients[index].pending.take();
                let pending = pending.expect("a reply answers a request");
                let context = format!("{pending:?} at {:?}: {reply}", self.clock.now());
                self.on_reply(index, &pending, &reply)
                    .map_err(|breach| format!("{breach}: {context}"))?;
                self.rest(index);
            }
        }
    }

    /// Says when a client goes on. Now and then all of them pause for minutes.
    fn rest(&mut self, index: usize) {
        self.clients[index].next = self.clock.now() + self.think();
        if self.random.chance(1, 40) {
            let pause = Duration::from_secs(61 + self.random.below(90));
            for client in &mut self.clients {
                client.next += pause;
            }
        }
    }

    fn on_reply(
        &mut self,
        index: usize,
        pending: &Pending,
        reply: &Document,
    ) -> Result<(), Breach> {
        if !is_ok(reply) {
            self.tally.failed += 1;
            if let Command::Tail(_) = pending.command {
                self.clients[index].tail = None;
                let is_gone = reply.get_i32("code").ok() == Some(43);
                return ensure(is_gone, || "a tailable cursor fails".to_owned());
            }
            let is_broken = self.server.is_broken;
            return ensure(is_broken, || "an error without a reason".to_owned());
        }
        match &pending.command {
            Command::Tail(ms) => return self.on_tail(index, pending, *ms, reply),
            Command::Find => {
                let found = client::contents(reply);
                let Some(Expected::Contents(expected)) = &pending.expected else {
                    return Ok(()); // reads of a broken server go on, and see what is there
                };
                return ensure(found == *expected, || format!("not {expected:?}"));
            }
            _ => {}
        }
        if let Some(Expected::Touched(touched)) = pending.expected {
            ensure(reply.get_i32("n").ok() == Some(touched), || {
                format!("touched are {touched}")
            })?;
        }
        self.on_write(pending, reply)
    }

    /// An acknowledgement, or a `writeConcernError`.
    fn on_write(&mut self, pending: &Pending, reply: &Document) -> Result<(), Breach> {
        let waited = self.clock.now().saturating_sub(pending.sent);
        let limit = match pending.concern {
            Concern::Majority(Some(ms)) => Some(Duration::from_millis(ms)),
            _ => None,
        };
        if let Ok(error) = reply.get_document("writeConcernError") {
            self.tally.timed_out += 1;
            let is_timeout = error.get_i32("code").ok() == Some(64);
            let is_due = limit.is_some_and(|limit| waited >= limit);
            return ensure(is_timeout && is_due && pending.changed.is_some(), || {
                format!("a write concern error after {waited:?}")
            });
        }
        ensure(limit.is_none_or(|limit| waited <= limit), || {
            format!("wtimeout was over after {waited:?}")
        })?;
        if pending.concern.is_durable(self.syncs_every_write) {
            if let Some(changed) = pending.changed {
                self.tally.acknowledged += 1;
                changed.acknowledge(&mut self.model);
            }
        } else {
            ensure(waited.is_zero(), || "w: 1 waits".to_owned())?;
        }
        Ok(())
    }

    /// A tailable cursor was opened, or has waited for data for at most so many milliseconds.
    fn on_tail(
        &mut self,
        index: usize,
        pending: &Pending,
        ms: u64,
        reply: &Document,
    ) -> Result<(), Breach> {
        let cursor = reply.get_document("cursor");
        let id = cursor.and_then(|cursor| cursor.get_i64("id"));
        let id = id.map_err(|_| "no cursor".to_owned())?;
        let (batch, from) = match self.clients[index].tail {
            None => ("firstBatch", 0),
            Some((_, from)) => ("nextBatch", from),
        };
        let (found, len) = (client::ids(reply, batch), self.model.log_len());
        ensure(found.iter().copied().eq(from..len), || {
            format!("the cursor does not return {from}..{len}")
        })?;
        let waited = self.clock.now().saturating_sub(pending.sent);
        if batch == "nextBatch" {
            let patience = Duration::from_millis(ms);
            self.tally.waits += u64::from(!waited.is_zero());
            ensure(waited <= patience, || format!("it waited {waited:?}"))?;
            ensure(!found.is_empty() || waited == patience, || {
                format!("it waited only {waited:?}")
            })?;
        }
        self.clients[index].tail = (id != 0).then_some((id, len));
        Ok(())
    }

    fn check_expiring(&mut self, is_swept: bool, is_recovered: bool) -> Result<(), Breach> {
        let reply = self.server.ask(doc! { "find": "expiring" });
        let found = client::ids(&reply, "firstBatch");
        let now_ms = self.clock.wall_clock_ms();
        self.tally.expired += self.model.expired(&found, now_ms);
        self.model
            .check_expiring(&found, now_ms, is_swept, is_recovered)
    }

    /// Takes the power away, after a clean end now and then, and starts the server again on what is left.
    fn lose_power(&mut self) -> Result<(), Breach> {
        let mut survivors = 0;
        if !self.server.is_broken && self.random.chance(1, 4) {
            self.server.stop(&mut self.random);
            while !self.server.is_journal_over {
                self.clock.advance_to(self.server.next_event());
                self.server.step(&mut self.random);
                self.take_replies()?;
            }
            if !self.server.is_broken {
                self.tally.clean_ends += 1;
                self.model.acknowledge_everything();
            }
        } else {
            let unsynced = self.server.engine.unsynced();
            survivors = self.random.index(unsynced + 1);
            self.tally.lost_commits += (unsynced - survivors) as u64;
        }
        let found = Arc::new(self.server.engine.after_power_loss(survivors));
        self.server = Server::start(
            settings(self.syncs_every_write),
            found,
            self.clock.clone(),
            self.entropy.clone(),
            self.mutation,
        );
        let reply = self.server.ask(doc! { "find": "c" });
        self.model.recover(client::contents(&reply))?;
        let reply = self.server.ask(doc! { "find": "log" });
        self.model.recover_log(&client::ids(&reply, "firstBatch"))?;
        self.check_expiring(false, true)?;
        self.connect();
        Ok(())
    }
}

fn is_ok(reply: &Document) -> bool {
    reply.get_f64("ok").ok() == Some(1.0)
}

/// The connection of a client.
fn connection(index: usize) -> u64 {
    index as u64 + 1
}
