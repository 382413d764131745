//! Received bytes are always a prefix of the sent ones, and all of them arrive. With any one mutation point disabled
//! some seed fails.

use millrace_random::Random;
use millrace_stream::{End, Geometry, Side};
#[cfg(debug_assertions)]
use millrace_stream::{MutationPoint, mutation};
use millrace_window::{Attributes, Window};
use millrace_window_faults::{FaultyMedium, Pair, Side as Fault};

use super::fixture::{Host, KINDS, check};

const SEEDS: u64 = 30;
const ACTIONS: u64 = 200;
const ROUNDS: u64 = 400;

struct Scene {
    pair: Pair,
    hosts: [Host<FaultyMedium>; 2],
    random: Random,
}

impl Scene {
    fn new(attributes: Attributes, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x1a4e);
        // The larger is one in which writers rewind.
        let geometry = Geometry {
            ring_lines: [64, 256][random.index(2)],
        };
        let pair = Pair::new(geometry.size(), attributes, seed);
        let sides = [(Fault::A, Side::Connecting), (Fault::B, Side::Accepting)];
        let hosts = sides.map(|(fault, side)| {
            let mut source = vec![0; random.index(1500)];
            random.fill(&mut source);
            Host::new(&Window::new(pair.medium(fault)), geometry, side, source)
        });
        Self {
            pair,
            hosts,
            random,
        }
    }

    fn act(&mut self, side: usize) -> Result<(), String> {
        let random = &mut self.random;
        let most = if random.chance(1, 24) { 400 } else { 30 };
        let size = 1 + random.index(most);
        if random.chance(1, 24) {
            self.pair.pass_time();
        }
        let choice = random.below(12);
        let [first, second] = &mut self.hosts;
        let (host, peer) = if side == 0 {
            (first, &*second)
        } else {
            (second, &*first)
        };
        let done = match choice {
            0..=3 => host.send(size),
            4..=6 => host.receive(size),
            7..=8 => host.send_in_place(size, random),
            9..=10 => host.receive_in_place(size, random),
            _ => return host.glance(&peer.source, random),
        };
        done.map_err(|error| error.to_string())?;
        check(host, &peer.source)
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..ACTIONS {
            let side = self.random.index(2);
            self.act(side)?;
        }
        for _ in 0..ROUNDS {
            self.pair.pass_time();
            for side in 0..2 {
                let [first, second] = &mut self.hosts;
                let (host, peer) = if side == 0 {
                    (first, &*second)
                } else {
                    (second, &*first)
                };
                let text = |error: millrace_stream::Error| error.to_string();
                host.send(20).map_err(text)?;
                host.receive(4000).map_err(text)?;
                check(host, &peer.source)?;
            }
            if self.hosts.iter().all(Host::is_done) {
                return Ok(());
            }
        }
        let got = self.hosts.each_ref().map(|host| host.got.len());
        Err(format!("{got:?} arrived"))
    }

    /// One side stops after `accesses` accesses, or resets.
    fn run_with_a_stop(mut self, accesses: u64) -> Result<(), String> {
        let stopped = self.random.index(2);
        let fault = [Fault::A, Fault::B][stopped];
        self.pair.kill(fault, accesses);
        for _ in 0..2 * ACTIONS {
            let side = self.random.index(2);
            let done = self.act(side);
            if self.pair.is_dead(fault) {
                break;
            }
            done?;
        }
        self.pair.kill(fault, 0);
        let survivor = 1 - stopped;
        // The bytes read from cleared memory do not matter.
        let source = self.hosts[stopped].source.clone();
        let host = &mut self.hosts[survivor];
        for _ in 0..60 {
            self.pair.pass_time();
            let text = |error: millrace_stream::Error| error.to_string();
            host.send(300).map_err(text)?;
            host.receive(600).map_err(text)?;
            check(host, &source)?;
        }
        Ok(())
    }

    /// One side resets: the other has the bytes sent before, and then the reset.
    fn run_with_a_reset(mut self) -> Result<(), String> {
        for _ in 0..self.random.below(ACTIONS) {
            let side = self.random.index(2);
            self.act(side)?;
        }
        let breaking = self.random.index(2);
        let (sent, is_ended) = {
            let host = &mut self.hosts[breaking];
            host.rings.sender.reset(104);
            (host.total_sent(), host.sent.ended != 0)
        };
        let source = self.hosts[breaking].source.clone();
        let host = &mut self.hosts[1 - breaking];
        for _ in 0..60 {
            self.pair.pass_time();
            host.receive(600).map_err(|error| error.to_string())?;
            check(host, &source)?;
        }
        let expected = if is_ended {
            End::Finished
        } else {
            End::Reset(104)
        };
        if host.got.len() == sent && host.end == Some(expected) {
            return Ok(());
        }
        Err(format!("{} of {sent}, {:?}", host.got.len(), host.end))
    }
}

#[test]
fn ring_pairs_hold() {
    for (name, attributes) in KINDS {
        for seed in 0..SEEDS {
            let run = Scene::new(attributes, seed).run();
            assert_eq!(run, Ok(()), "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_stopped_side_leaves_a_prefix() {
    for (name, attributes) in KINDS {
        // At each of the first accesses, and at some later ones.
        for accesses in (0..300).chain((300..3000).step_by(40)) {
            let run = Scene::new(attributes, accesses).run_with_a_stop(accesses);
            assert_eq!(run, Ok(()), "{name}, seed and access {accesses}");
        }
    }
}

#[test]
fn a_reset_comes_behind_what_was_sent() {
    for (name, attributes) in KINDS {
        for seed in 0..SEEDS {
            let run = Scene::new(attributes, seed).run_with_a_reset();
            assert_eq!(run, Ok(()), "{name}, seed {seed}");
        }
    }
}

#[cfg(debug_assertions)]
#[test]
#[ignore = "mutation check: `make soak` runs it"]
fn every_step_is_needed() {
    for step in [MutationPoint::ZeroAhead, MutationPoint::GivenBack] {
        mutation::disable(Some(step));
        let mut seeds =
            (0..8 * SEEDS).map(|seed| (seed, KINDS[usize::try_from(seed % 4).expect("few")]));
        let found = seeds.find_map(|(seed, (name, attributes))| {
            Some((name, seed, Scene::new(attributes, seed).run().err()?))
        });
        mutation::disable(None);
        let (name, seed, failure) =
            found.unwrap_or_else(|| panic!("no seed fails without {step:?}"));
        println!("without {step:?}: {name}, seed {seed}: {failure}");
    }
}
