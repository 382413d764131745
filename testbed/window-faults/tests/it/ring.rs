//! A ring over the faulty window: it holds for every seed, and with any one step left out some seed fails.

use millrace_window::{Attributes, Cacheability, Direction, Site, mutation};

use crate::scene::{Scene, both_blind};

/// A kind of memory, and the steps without which some seed must fail.
type Kind = (&'static str, Attributes, &'static [Site]);

const fn of(cacheability: Cacheability, coherent: bool) -> Attributes {
    Attributes {
        cacheability,
        coherent,
        direction: Direction::Both,
    }
}

const KINDS: [Kind; 4] = [
    (
        "write-back, coherent",
        Attributes::SHARED_MEMORY,
        &[Site::BeforeWord, Site::AfterPoll, Site::Settled],
    ),
    (
        "write-back, not coherent",
        of(Cacheability::WriteBack, false),
        &[
            Site::PayloadWrittenBack,
            Site::BeforeWord,
            Site::WordWrittenBack,
            Site::AfterWord,
            Site::WordInvalidated,
            Site::WordAwaited,
            Site::BeforeInvalidation,
            Site::PayloadInvalidated,
            Site::PayloadAwaited,
        ],
    ),
    (
        "write-combining",
        of(Cacheability::WriteCombining, true),
        &[Site::BeforeWord, Site::AfterWord, Site::AfterPoll],
    ),
    ("uncached", of(Cacheability::Uncached, true), &[]),
];

const SEEDS: u64 = 800;

/// What goes wrong for a seed, if anything does.
fn failure(attributes: Attributes, seed: u64) -> Option<String> {
    let blind = attributes.is_one_memory() && both_blind(attributes, seed);
    let ring = Scene::new(attributes, seed).run();
    ring.err()
        .or(blind.then(|| "both sides were blind".to_owned()))
}

#[test]
fn rings_hold() {
    for (name, attributes, _) in KINDS {
        for seed in 0..SEEDS {
            let failure = failure(attributes, seed);
            assert_eq!(failure, None, "{name}, seed {seed}");
        }
    }
}

#[test]
#[ignore = "mutation check: `make soak` runs it"]
fn every_step_is_needed() {
    let mut missed = Vec::new();
    for (name, attributes, needed) in KINDS {
        for &site in needed {
            mutation::leave_out(Some(site));
            let found = (0..SEEDS).find_map(|seed| Some((seed, failure(attributes, seed)?)));
            mutation::leave_out(None);
            match found {
                Some((seed, failure)) => {
                    println!("{name}, without {site:?}: seed {seed}: {failure}");
                }
                None => missed.push((name, site)),
            }
        }
    }
    assert!(missed.is_empty(), "no seed fails without {missed:?}");
    let shown = |site: &Site| KINDS.iter().any(|(_, _, needed)| needed.contains(site));
    assert!(Site::ALL.iter().all(shown), "each site is shown somewhere");
}

#[test]
fn the_dead_leave_a_prefix() {
    for (name, attributes, _) in KINDS {
        for seed in 0..SEEDS {
            let result = Scene::new(attributes, seed).run_with_a_death();
            assert_eq!(result, Ok(()), "{name}, seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for (_, attributes, _) in KINDS {
        let trace = |seed| Scene::new(attributes, seed).trace();
        assert_eq!(trace(3), trace(3));
        assert_ne!(trace(3), trace(4));
    }
}
