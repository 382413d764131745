//! A server in one thread: dispatch, journal and maintenance on simulated time, over a disk that loses power.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{Document, RawDocumentBuf};
use clap::Parser;
use millrace_engine::{CommitSeq, Engine, Error, ErrorKind};
use millrace_random::Random;
use millrace_value::Interrupt;
use millrace_wire::{Message, MsgFlags, OpMsg, encode_msg};

use super::disk::VolatileEngine;
use super::{Mutation, SimulatedClock};
use crate::clock::Clock;
use crate::dispatch::Dispatcher;
use crate::environment::Entropy;
use crate::journal::Action;
use crate::log::RecentLines;
use crate::maintenance::Maintenance;
use crate::network::loopback::Loopback;
use crate::parameters::Parameters;
use crate::serve::{Parts, assemble};
use crate::settings::{Cli, Settings, Subcommand};
use crate::state::ServerState;

/// The connection of the simulation itself; clients have numbers from 1.
const OWN_CONNECTION: u64 = 1_000;

/// Random numbers that follow from a seed.
#[derive(Debug)]
pub(super) struct SeededEntropy(pub(super) Mutex<Random>);

impl Entropy for SeededEntropy {
    fn number(&self) -> u64 {
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        random.number()
    }
}

/// The settings of a server that syncs every write, or else at an interval.
pub(super) fn settings(syncs_every_write: bool) -> Settings {
    let interval = if syncs_every_write { "0" } else { "100" };
    let options = ["millrace", "serve", "--dbpath", "nowhere", "--quiet"];
    let journal = ["--journalCommitInterval", interval];
    let used = if syncs_every_write {
        &journal[..0]
    } else {
        &journal[..]
    };
    let cli = Cli::try_parse_from(options.iter().chain(used)).expect("legal options");
    let Subcommand::Serve(options) = cli.command else {
        unreachable!("the subcommand is serve");
    };
    Settings::resolve(*options, Vec::new()).expect("legal settings")
}

/// A sync that the disk is at.
#[derive(Clone, Copy, Debug)]
struct Sync {
    /// Monotonic time of its end.
    end: Duration,
    /// The last commit that was there when it began.
    covers: CommitSeq,
    fails: bool,
}

/// A server between a start and a loss of power.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) engine: Arc<VolatileEngine>,
    pub(super) state: Arc<ServerState>,
    clock: Arc<SimulatedClock>,
    mutation: Mutation,
    loopback: Loopback<Dispatcher>,
    maintenance: Maintenance,
    maintenance_next: Duration,
    /// Monotonic time at which the journal wants to be polled.
    journal_next: Option<Duration>,
    /// The sync that the journal waits for.
    syncing: Option<Sync>,
    /// Syncs that the disk is at and that were reported already.
    reported: Vec<Sync>,
    /// Whether the journal has ended.
    pub(super) is_journal_over: bool,
    /// Whether a sync has failed.
    pub(super) is_broken: bool,
}

impl Server {
    pub(super) fn start(
        settings: Settings,
        engine: Arc<VolatileEngine>,
        clock: Arc<SimulatedClock>,
        entropy: Arc<SeededEntropy>,
        mutation: Mutation,
    ) -> Self {
        let (stop, _) = channel();
        let parts = Parts {
            engine: engine.clone(),
            clock: clock.clone(),
            entropy,
            recent_lines: Arc::new(RecentLines::default()),
            stop,
        };
        let state = assemble(settings, Parameters::default(), parts);
        let state = state.expect("what the engine holds is whole");
        let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&state)));
        let notifier = Arc::clone(state.waiters.notifier());
        let mut loopback = Loopback::new(dispatcher, notifier);
        loopback.open(OWN_CONNECTION);
        let mut maintenance = Maintenance::new(Arc::clone(&state), Arc::new(Interrupt::default()));
        let maintenance_next = maintenance.poll(clock.now());
        Self {
            engine,
            state,
            clock,
            mutation,
            loopback,
            maintenance,
            maintenance_next,
            journal_next: None,
            syncing: None,
            reported: Vec::new(),
            is_journal_over: false,
            is_broken: false,
        }
    }

    pub(super) fn open(&mut self, connection: u64) {
        self.loopback.open(connection);
    }

    /// Serves a command on the database `test`.
    pub(super) fn send(&mut self, connection: u64, mut body: Document) {
        body.insert("$db", "test");
        let raw = RawDocumentBuf::try_from(body).expect("the request is small");
        let mut bytes = Vec::new();
        encode_msg(&mut bytes, 1, MsgFlags::NONE, &raw, &[]);
        self.loopback.send(connection, bytes, self.clock.now());
    }

    /// The replies since the last time.
    pub(super) fn take_replies(&mut self) -> Vec<(u64, Document)> {
        let replies = self.loopback.take_replies().into_iter();
        let read = |bytes: &[u8]| {
            let message = Message::parse(bytes).expect("a reply is well-formed");
            let reply = OpMsg::parse(&message).expect("a reply is well-formed");
            Document::try_from(reply.body).expect("a reply is well-formed")
        };
        replies
            .map(|(connection, bytes)| (connection, read(&bytes)))
            .collect()
    }

    /// The reply to a command that waits for nothing, while no other reply is there.
    pub(super) fn ask(&mut self, body: Document) -> Document {
        self.send(OWN_CONNECTION, body);
        let replies = self.take_replies();
        let [(OWN_CONNECTION, reply)] = &replies[..] else {
            panic!("one reply, at once: {replies:?}");
        };
        reply.clone()
    }

    /// Monotonic time at which something happens by itself.
    pub(super) fn next_event(&self) -> Duration {
        let syncs = self.syncing.iter().chain(&self.reported);
        syncs
            .map(|sync| sync.end)
            .chain(self.journal_next)
            .chain(self.loopback.next_deadline())
            .chain([self.maintenance_next])
            .min()
            .expect("there is always maintenance")
    }

    /// Does what is due now. Returns whether a round of maintenance has run.
    pub(super) fn step(&mut self, random: &mut Random) -> bool {
        let now = self.clock.now();
        self.reported.retain(|sync| {
            if sync.end <= now && !sync.fails {
                self.engine.sync_up_to(sync.covers);
            }
            sync.end > now
        });
        if let Some(sync) = self.syncing.take_if(|sync| sync.end <= now) {
            self.finish_sync(sync);
        }
        let is_maintained = now >= self.maintenance_next;
        self.maintenance_next = self.maintenance.poll(now);
        let reached = self.state.journal.watermarks().reached();
        self.loopback.poll(&reached, now);
        self.drive_journal(random);
        is_maintained
    }

    /// Does what the journal says, as its thread would.
    pub(super) fn drive_journal(&mut self, random: &mut Random) {
        self.loopback.request_sync(&self.state.journal);
        if self.syncing.is_some() || self.is_journal_over {
            return;
        }
        self.journal_next = None;
        match self.state.journal.poll() {
            Action::Sync => self.begin_sync(random),
            Action::WaitUntil(until) => self.journal_next = Some(until),
            Action::Wait => {}
            Action::Stop => self.is_journal_over = true,
        }
    }

    fn begin_sync(&mut self, random: &mut Random) {
        let time_us = match random.below(10) {
            0 => 2_000 + random.below(20_000),
            _ => 50 + random.below(250),
        };
        let sync = Sync {
            end: self.clock.now() + Duration::from_micros(time_us),
            covers: self.engine.last_commit_seq(),
            fails: random.chance(1, 40),
        };
        if self.mutation == Mutation::ReportsSyncsAtTheirBegin {
            self.reported.push(sync);
            let _ = self.state.journal.synced(Ok(sync.covers));
            self.journal_next = Some(self.clock.now());
        } else {
            self.syncing = Some(sync);
        }
    }

    fn finish_sync(&mut self, sync: Sync) {
        let journal = &self.state.journal;
        if sync.fails {
            self.engine.drop_unsynced();
        }
        if !sync.fails {
            self.engine.sync_up_to(sync.covers);
            let covered = if self.mutation == Mutation::CountsWhatCameDuringTheSync {
                self.engine.last_commit_seq()
            } else {
                sync.covers
            };
            let _ = journal.synced(Ok(covered));
        } else if self.mutation == Mutation::TakesFailuresForSuccess {
            let _ = journal.synced(Ok(sync.covers));
        } else {
            self.is_broken = true;
            self.engine.poison();
            let error = Error::new(ErrorKind::Io, "the simulated disk has failed");
            let _ = journal.synced(Err(error));
        }
    }

    /// Begins a clean shutdown: the journal ends after a last sync.
    pub(super) fn stop(&mut self, random: &mut Random) {
        self.state.journal.stop();
        self.drive_journal(random);
    }
}
