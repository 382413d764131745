//! What the faulty window may show, and what not.

use std::collections::BTreeSet;

use millrace_window::{Attributes, Cacheability, Direction, Fence, LINE, Medium, WORD};
use millrace_window_faults::{FaultyMedium, Pair, Side};

const SEEDS: u64 = 2000;

const fn of(cacheability: Cacheability, coherent: bool) -> Attributes {
    Attributes {
        cacheability,
        coherent,
        direction: Direction::Both,
    }
}

const KINDS: [Attributes; 4] = [
    Attributes::SHARED_MEMORY,
    of(Cacheability::WriteBack, false),
    of(Cacheability::WriteCombining, true),
    of(Cacheability::Uncached, true),
];

/// All that B sees, over the seeds, of what A does.
fn seen<T: Ord>(
    attributes: Attributes,
    program: impl Fn(&Pair, FaultyMedium, FaultyMedium) -> T,
) -> BTreeSet<T> {
    let run = |seed| {
        let pair = Pair::new(4 * LINE, attributes, seed);
        let (a, b) = (pair.medium(Side::A), pair.medium(Side::B));
        program(&pair, a, b)
    };
    (0..SEEDS).map(run).collect()
}

/// A stores to two lines, with a fence between; B loads the second, then, with a fence between, the first.
fn message(
    attributes: Attributes,
    stores: Option<Fence>,
    loads: Option<Fence>,
) -> BTreeSet<(u64, u64)> {
    seen(attributes, |_, a, b| {
        a.store(0, 1);
        stores.iter().for_each(|&fence| a.fence(fence));
        a.store(LINE, 1);
        let flag = b.load(LINE);
        loads.iter().for_each(|&fence| b.fence(fence));
        (flag, b.load(0))
    })
}

/// The flag without what it announces.
const BROKEN: (u64, u64) = (1, 0);

#[test]
fn each_kind_of_memory_has_its_own_fences() {
    let is_broken = |kind, stores, loads| message(kind, stores, loads).contains(&BROKEN);
    let (release, acquire) = (Some(Fence::Release), Some(Fence::Acquire));
    let (drain, full) = (Some(Fence::Drain), Some(Fence::Full));
    let [coherent, _, combining, uncached] = KINDS;
    assert!(is_broken(coherent, None, acquire));
    assert!(is_broken(coherent, release, None));
    assert!(!is_broken(coherent, release, acquire));
    assert!(is_broken(combining, release, full));
    assert!(is_broken(combining, drain, acquire));
    assert!(!is_broken(combining, drain, full));
    assert!(!is_broken(uncached, None, None));
}

#[test]
fn memory_that_is_not_coherent_is_not_helped_by_fences() {
    let (full, kind) = (Some(Fence::Full), KINDS[1]);
    assert!(message(kind, full, full).contains(&BROKEN));
    let flushed = seen(kind, |_, a, b| {
        a.store(0, 1);
        a.write_back(0..WORD);
        a.fence(Fence::Drain);
        a.store(LINE, 1);
        a.write_back(LINE..LINE + WORD);
        a.fence(Fence::Drain);
        let flag = b.load(LINE);
        b.fence(Fence::Full);
        b.invalidate(0..WORD);
        b.fence(Fence::Full);
        (flag, b.load(0))
    });
    assert!(!flushed.contains(&BROKEN) && flushed.contains(&(1, 1)));
}

#[test]
fn one_word_never_goes_back() {
    for attributes in KINDS {
        let went_back = seen(attributes, |_, a, b| {
            a.store(0, 1);
            let first = b.load(0);
            a.store(0, 2);
            let second = b.load(0);
            a.store(0, 3);
            second < first || b.load(0) < second
        });
        assert_eq!(went_back, BTreeSet::from([false]), "{attributes:?}");
    }
}

/// Stores to the words of one line, in order, and a peer that looks at the line once.
fn line(attributes: Attributes) -> BTreeSet<[u64; 3]> {
    seen(attributes, |_, a, b| {
        for word in 0..3 {
            a.store(word * WORD, 1);
            a.fence(Fence::Drain);
        }
        [2, 1, 0].map(|word| b.load(word * WORD))
    })
}

#[test]
fn a_line_that_is_not_coherent_is_whole() {
    let (torn, kind) = (KINDS[2], KINDS[1]);
    // In the order of the loads: the last word first.
    let legal = BTreeSet::from([[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]]);
    assert!(line(kind).is_subset(&legal));
    assert!(!line(torn).is_subset(&legal));
}

#[test]
fn time_brings_only_what_hardware_owes() {
    let after_time = |attributes, fence: Option<Fence>| {
        seen(attributes, |pair, a, b| {
            a.store(0, 1);
            fence.iter().for_each(|&fence| a.fence(fence));
            pair.pass_time();
            b.load(0)
        })
    };
    let (sure, unsure) = (BTreeSet::from([1]), BTreeSet::from([0, 1]));
    let [coherent, incoherent, combining, uncached] = KINDS;
    assert_eq!(after_time(coherent, None), sure);
    assert_eq!(after_time(uncached, None), sure);
    assert_eq!(after_time(combining, None), unsure);
    assert_eq!(after_time(combining, Some(Fence::Drain)), sure);
    assert_eq!(after_time(incoherent, Some(Fence::Full)), unsure);
}

#[test]
fn the_dead_do_nothing() {
    for attributes in KINDS {
        let seen = seen(attributes, |pair, a, b| {
            pair.kill(Side::A, 1);
            a.store(0, 1);
            a.store(WORD, 1);
            assert!(pair.is_dead(Side::A) && !pair.is_dead(Side::B));
            assert_eq!(a.load(0), 0);
            pair.pass_time();
            (b.load(0), b.load(WORD))
        });
        assert_eq!(seen, BTreeSet::from([(0, 0), (1, 0)]), "{attributes:?}");
    }
}
