//! Connections over the faulty window: delivered bytes are always a prefix of the sent ones, all of them arrive, and
//! the end comes last. With any one mutation point disabled some seed fails.

use super::fixture::{GEOMETRY, Host, KINDS, MS, bytes, check, connect, opening, settings};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{PartitionSettings, Reset, SessionError, State};
#[cfg(debug_assertions)]
use millrace_stream::{MutationPoint, mutation};
use millrace_window::{Attributes, Window};
use millrace_window_faults::{FaultyMedium, Pair, Side as Fault};

const SEEDS: u64 = 24;
const CONNECTIONS: u32 = 3;
const ACTIONS: u64 = 120;
const ROUNDS: u64 = 400;

struct Scene {
    pair: Pair,
    windows: [Window<FaultyMedium>; 2],
    hosts: [Host<FaultyMedium>; 2],
    random: Random,
    now_ns: u64,
}

fn settings_of(seed: u64, incarnation: u64) -> PartitionSettings {
    PartitionSettings {
        has_checks: seed % 3 == 0,
        ..settings(incarnation)
    }
}

impl Scene {
    fn new(attributes: Attributes, seed: u64) -> Self {
        let pair = Pair::new(GEOMETRY.size(), attributes, seed);
        let windows = [Fault::A, Fault::B].map(|side| Window::new(pair.medium(side)));
        let sides = [Side::Connecting, Side::Accepting];
        let hosts = [0, 1].map(|side| {
            let incarnation = 1 + u64::from(side == 1);
            Host::new(&windows[side], sides[side], settings_of(seed, incarnation))
        });
        Self {
            pair,
            windows,
            hosts,
            random: Random::new(seed ^ 0xface),
            now_ns: MS,
        }
    }

    fn connect(&mut self) {
        for key in 0..CONNECTIONS {
            let openings = [0, 1].map(|_| opening(key, 64 << self.random.below(6)));
            let sources = [0, 1].map(|_| {
                let length = self.random.index(2500) >> self.random.below(6);
                bytes(&mut self.random, length)
            });
            connect(&mut self.hosts, [&openings[0], &openings[1]], sources);
            for host in &mut self.hosts {
                let end = host.ends.ends.get_mut(&key).expect("it is open");
                let length = end.source.len();
                let count = self.random.index(3).min(length);
                end.urgent = (0..count).map(|_| self.random.index(length)).collect();
            }
        }
    }

    fn act(&mut self) -> Result<(), String> {
        self.act_unseen();
        check(&self.hosts)
    }

    fn act_unseen(&mut self) {
        let side = self.random.index(2);
        let key = u32::try_from(self.random.below(u64::from(CONNECTIONS))).expect("few");
        match self.random.below(8) {
            0 => self.hosts[side].consume(key, self.random.index(300)),
            1 => {
                let id = self.hosts[side].ends.ends[&key].id.expect("open");
                self.hosts[side].partition.ready(id);
            }
            2 => self.hosts[side].send_all(key),
            _ => self.poll(side),
        }
    }

    fn poll(&mut self, side: usize) {
        self.now_ns += MS;
        self.hosts[side].poll(self.now_ns);
    }

    fn settle(&mut self, sides: &[usize]) -> Result<(), String> {
        for _ in 0..ROUNDS {
            self.pair.pass_time();
            for &side in sides {
                self.poll(side);
                for key in 0..CONNECTIONS {
                    if self.hosts[side].ends.ends.contains_key(&key) {
                        self.hosts[side].consume(key, usize::MAX);
                    }
                }
            }
            check(&self.hosts)?;
            if sides.iter().all(|side| self.hosts[*side].ends.are_closed()) {
                break;
            }
        }
        Ok(())
    }

    /// All connections move all their bytes and end.
    fn run(mut self) -> Result<(), String> {
        self.connect();
        for _ in 0..ACTIONS {
            self.act()?;
        }
        for host in &mut self.hosts {
            (0..CONNECTIONS).for_each(|key| host.send_all(key));
        }
        self.settle(&[0, 1])?;
        self.are_whole()
    }

    fn are_whole(&self) -> Result<(), String> {
        for (side, host) in self.hosts.iter().enumerate() {
            let state = host.partition.state();
            for (key, end) in &host.ends.ends {
                let sent = self.hosts[1 - side].ends.ends[key].source.len();
                if !end.finished || end.reset.is_some() || !end.closed {
                    let (got, reset) = (end.received.len(), end.reset);
                    return Err(format!(
                        "{side}.{key}: {got} of {sent}, {reset:?}, {state:?}"
                    ));
                }
            }
            if host.partition.totals().connections != 0 {
                return Err(format!("side {side} keeps numbers"));
            }
        }
        Ok(())
    }

    /// One side stops. The other's connections end with all bytes or with a reset.
    fn run_with_a_stop(mut self, accesses: u64) -> Result<(), String> {
        self.connect();
        let stopped = self.random.index(2);
        let fault = [Fault::A, Fault::B][stopped];
        self.pair.kill(fault, accesses);
        for _ in 0..2 * ACTIONS {
            self.act_unseen();
            if self.pair.is_dead(fault) {
                break;
            }
            check(&self.hosts)?;
        }
        self.pair.kill(fault, 0);
        self.poll(stopped);
        // The bytes read from cleared memory do not matter.
        let last_ends = std::mem::take(&mut self.hosts[stopped].ends);
        let survivor = 1 - stopped;
        self.settle_alone(survivor)?;
        for (key, end) in &self.hosts[survivor].ends.ends {
            let source = &last_ends.ends[key].source;
            if !source.starts_with(&end.received) {
                return Err(format!("{key} is no prefix"));
            }
            if end.finished && end.received.len() != source.len() {
                return Err(format!("{key} ended early"));
            }
            let is_whole = end.finished && end.closed;
            if !is_whole && end.reset.is_none() {
                return Err(format!(
                    "{key} hangs: {:?}",
                    self.hosts[survivor].partition.state()
                ));
            }
        }
        Ok(())
    }

    fn settle_alone(&mut self, side: usize) -> Result<(), String> {
        for _ in 0..40 {
            self.pair.pass_time();
            self.poll(side);
        }
        // The survivor waits for its timeout.
        self.now_ns += 2000 * MS;
        for _ in 0..3 {
            self.poll(side);
            self.now_ns += 2000 * MS;
        }
        match self.hosts[side].partition.state() {
            State::Lost(SessionError::HeartbeatTimeout) => Ok(()),
            State::Greeting => {
                self.hosts[side].partition.close(&mut self.hosts[side].ends);
                Ok(())
            }
            other => Err(format!("{other:?} with a dead peer")),
        }
    }

    /// One side restarts while bytes move: the other's connections are reset, then both begin again.
    fn run_with_a_restart(mut self, seed: u64) -> Result<(), String> {
        self.connect();
        for _ in 0..self.random.below(ACTIONS) {
            self.act()?;
        }
        let (first, second) = (self.random.index(2), 10 + self.random.below(1000));
        self.restart(first, settings_of(seed, second));
        let other = 1 - first;
        let mut is_lost = false;
        for _ in 0..40 {
            self.pair.pass_time();
            self.poll(other);
            self.poll(first);
            is_lost |= matches!(self.hosts[other].partition.state(), State::Lost(_));
            if is_lost {
                break;
            }
        }
        let was_ready = is_lost || !self.hosts[other].ends.are_closed();
        if is_lost {
            for (key, end) in &self.hosts[other].ends.ends {
                if end.reset != Some(Reset::Lost(SessionError::PeerRestarted)) && !end.finished {
                    return Err(format!("{key}: {:?}", end.reset));
                }
            }
            if self.hosts[first].partition.state() == State::Ready {
                return Err("ready before the other has begun anew".to_owned());
            }
            self.restart(other, settings_of(seed, second + 1));
        } else if was_ready && self.hosts[other].partition.state() != State::Ready {
            return Err("neither lost nor ready".to_owned());
        }
        // Both have restarted, or the other had not started at all.
        for host in &mut self.hosts {
            host.partition.close(&mut host.ends);
        }
        for side in [0, 1] {
            self.restart(side, settings_of(seed, 5000 + side as u64));
        }
        self.connect();
        for host in &mut self.hosts {
            (0..CONNECTIONS).for_each(|key| host.send_all(key));
        }
        self.settle(&[0, 1])?;
        self.are_whole()
    }

    fn restart(&mut self, side: usize, settings: PartitionSettings) {
        let sides = [Side::Connecting, Side::Accepting];
        // The old one is dropped without a close.
        let spare = Pair::new(GEOMETRY.size(), Attributes::SHARED_MEMORY, 1);
        let spare = Window::new(spare.medium(Fault::A));
        self.hosts[side] = Host::new(&spare, sides[side], settings);
        self.hosts[side] = Host::new(&self.windows[side], sides[side], settings);
    }
}

/// The failure of a seed, if any.
fn failure(attributes: Attributes, seed: u64) -> Option<String> {
    let run = Scene::new(attributes, seed).run();
    run.and_then(|()| Scene::new(attributes, seed).run_with_a_restart(seed))
        .err()
}

#[test]
fn streams_hold() {
    for (name, attributes) in KINDS {
        for seed in 0..SEEDS {
            let run = Scene::new(attributes, seed).run();
            assert_eq!(run, Ok(()), "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_stopped_side_leaves_a_prefix() {
    // At each of the first accesses, in alternating kinds of memory; then at some later ones in all.
    let first = (0..240).zip(KINDS.into_iter().cycle());
    let later = (240..6000).step_by(100);
    let later = later.flat_map(|accesses| KINDS.map(|kind| (accesses, kind)));
    for (accesses, (name, attributes)) in first.chain(later) {
        let run = Scene::new(attributes, accesses).run_with_a_stop(accesses);
        assert_eq!(run, Ok(()), "{name}, seed and access {accesses}");
    }
}

#[test]
fn a_restarted_side_is_handshaken_again() {
    for (name, attributes) in KINDS {
        for seed in 0..SEEDS {
            let run = Scene::new(attributes, seed).run_with_a_restart(seed);
            assert_eq!(run, Ok(()), "{name}, seed {seed}");
        }
    }
}

/// The mutation points that only a hostile peer shows are in `hostile.rs`.
#[cfg(debug_assertions)]
#[test]
#[ignore = "mutation check: `make soak` runs it"]
fn every_step_is_needed() {
    const HOSTILE: [MutationPoint; 2] = [MutationPoint::CreditChecked, MutationPoint::TotalChecked];
    let mut missed = Vec::new();
    for step in MutationPoint::ALL
        .into_iter()
        .filter(|step| !HOSTILE.contains(step))
    {
        mutation::disable(Some(step));
        let found = (0..60 * SEEDS).find_map(|seed| {
            let (name, attributes) = KINDS[usize::try_from(seed % 4).expect("few")];
            Some((name, seed, failure(attributes, seed)?))
        });
        mutation::disable(None);
        match found {
            Some((name, seed, failure)) => {
                println!("without {step:?}: {name}, seed {seed}: {failure}")
            }
            None => missed.push(step),
        }
    }
    assert!(missed.is_empty(), "no seed fails without {missed:?}");
}
