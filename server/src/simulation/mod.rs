//! The server in one thread on simulated time, over a disk that loses power.
//!
//! ```text
//!   clients of a seed --requests--> dispatch --commits--> engine in memory --syncs--> disk
//!          ^                          |                        ^                        |
//!          '------- replies ---- parked replies <--watermarks- journal      loss of power: what was
//!                                                                            synced, and perhaps more
//! ```
//! Dispatch, the journal's state machine, parked replies, waits and maintenance are those of production; the simulation
//! drives them in place of threads. Time passes only from one event to the next. A model says what a client may rely on:
//! a write that was acknowledged as durable is there after a loss of power, and what is there is the history up to some
//! commit. Everything follows from a seed.
//!
//! `MILLRACE_SEEDS=FROM..TO` runs other seeds; a run that fails prints its own.

mod client;
mod clock;
mod disk;
mod model;
mod server;
mod world;

use std::ops::Range;

pub(crate) use clock::SimulatedClock;
use millrace_fixtures::seeds;
use world::{Tally, run};

/// The seeds of a usual run.
const SEEDS: Range<u64> = 0..1_000;

/// A journal that is wrong: the simulation must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// It is right.
    None,
    /// A sync is reported when it begins.
    ReportsSyncsAtTheirBegin,
    /// A sync is said to cover commits that were made while it ran.
    CountsWhatCameDuringTheSync,
    /// A failed sync is reported as one that succeeded.
    TakesFailuresForSuccess,
}

/// Says which seed a panic comes from.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("seed {seed} fails: MILLRACE_SEEDS={seed}..{}", seed + 1);
        }
    }
}

#[test]
fn no_acknowledged_write_is_lost() {
    let mut tally = Tally::default();
    let seeds = seeds(SEEDS);
    for number in seeds.clone() {
        let seed = Seed(number);
        match run(number, Mutation::None) {
            Ok(of_seed) => tally.add(&of_seed),
            Err(breach) => panic!("{breach}"),
        }
        drop(seed);
    }
    if seeds == SEEDS {
        // A simulation in which nothing happens finds nothing.
        let counts = [
            tally.acknowledged,
            tally.timed_out,
            tally.failed,
            tally.lost_commits,
            tally.clean_ends,
            tally.expired,
            tally.waits,
        ];
        assert!(counts.iter().all(|count| *count >= 100), "{tally:?}");
    }
}

#[test]
fn a_wrong_acknowledgement_is_found_in_fewer_than_100_seeds() {
    for mutation in [
        Mutation::ReportsSyncsAtTheirBegin,
        Mutation::CountsWhatCameDuringTheSync,
        Mutation::TakesFailuresForSuccess,
    ] {
        let found = (0..100).find_map(|seed| Some((seed, run(seed, mutation).err()?)));
        let (seed, breach) = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?} is found by seed {seed}");
        assert!(
            breach.contains("loss of power") || breach.contains("is gone"),
            "{mutation:?} is found by something else: {breach}"
        );
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..10 {
        let _seed = Seed(seed);
        assert_eq!(run(seed, Mutation::None), run(seed, Mutation::None));
    }
}
