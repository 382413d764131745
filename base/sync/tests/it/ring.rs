//! Rings beside a queue of the standard library, and under real threads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use millrace_sync::ring::{
    self, Consumer, Ends, HeapCells, Multi, RingCells, RingWord, Side, Single,
};
use millrace_sync::{Event, Native};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push(u64),
    PushMany(Vec<u64>),
    Pop,
    PopMany(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<u64>().prop_map(Step::Push),
        prop::collection::vec(any::<u64>(), 0..12).prop_map(Step::PushMany),
        Just(Step::Pop),
        (0..12_usize).prop_map(Step::PopMany),
    ];
    prop::collection::vec(step, 0..200)
}

/// Runs `steps` on a ring and on a queue that refuses more than the ring's capacity.
fn matches_a_queue<P: Side, C: Side>(capacity: usize, steps: &[Step]) {
    let (mut producer, mut consumer) = ring::bounded::<u64, P, C>(capacity);
    let capacity = usize::try_from(producer.capacity()).expect("small");
    assert_eq!(consumer.capacity(), producer.capacity());
    let mut queue = VecDeque::new();
    for step in steps {
        match step {
            Step::Push(item) => {
                let fits = queue.len() < capacity;
                assert_eq!(producer.try_push(*item).is_ok(), fits);
                if fits {
                    queue.push_back(*item);
                }
            }
            Step::PushMany(items) => {
                let count = items.len().min(capacity - queue.len());
                assert_eq!(producer.try_push_many(items), count);
                queue.extend(&items[..count]);
            }
            Step::Pop => assert_eq!(consumer.try_pop(), queue.pop_front()),
            Step::PopMany(count_max) => {
                let mut out = Vec::new();
                let count = consumer.try_pop_many(&mut out, *count_max);
                assert_eq!(count, out.len());
                let expected: Vec<u64> = queue.drain(..queue.len().min(*count_max)).collect();
                assert_eq!(out, expected);
            }
        }
        assert_eq!(consumer.is_empty(), queue.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn rings_are_bounded_queues(capacity in 1..20_usize, steps in steps()) {
        matches_a_queue::<Single, Single>(capacity, &steps);
        matches_a_queue::<Multi, Single>(capacity, &steps);
        matches_a_queue::<Single, Multi>(capacity, &steps);
        matches_a_queue::<Multi, Multi>(capacity, &steps);
    }
}

#[test]
#[should_panic(expected = "at least one slot")]
fn a_ring_without_slots_is_refused() {
    let _ = ring::bounded::<u64, Single, Single>(0);
}

#[test]
fn items_that_nobody_takes_are_dropped_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut producer, mut consumer) = ring::bounded::<Counted, Multi, Multi>(4);
    for _ in 0..4 {
        assert!(producer.try_push(Counted(Arc::clone(&dropped))).is_ok());
    }
    drop(consumer.try_pop());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    assert!(producer.try_push(Counted(Arc::clone(&dropped))).is_ok());
    drop(consumer);
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "a producer is left");
    drop(producer);
    assert_eq!(dropped.load(Ordering::Relaxed), 5);
}

/// How many items each producer sends.
const ITEMS: u64 = if cfg!(miri) { 12 } else { 20_000 };

/// Several threads on each side: every item arrives once, and those of one producer in their order.
fn everything_arrives(producers: u64, consumers: u64, capacity: usize) {
    let (producer, consumer): Ends<u64, Multi, Multi> = ring::bounded(capacity);
    let (filled, drained) = (Event::<Native>::new(), Event::<Native>::new());
    let received = AtomicUsize::new(0);
    let all = usize::try_from(producers * ITEMS).expect("small");
    let start = Barrier::new(usize::try_from(producers + consumers).expect("small"));
    let mut got: Vec<Vec<u64>> = Vec::new();
    thread::scope(|scope| {
        for number in 0..producers {
            let mut producer = producer.clone();
            let (start, filled, drained) = (&start, &filled, &drained);
            scope.spawn(move || {
                start.wait();
                for item in 0..ITEMS {
                    let item = number << 32 | item;
                    drained.wait(10, || producer.try_push(item).ok());
                    filled.notify();
                }
            });
        }
        let takers: Vec<_> = (0..consumers)
            .map(|_| {
                let mut consumer = consumer.clone();
                let (start, filled, drained, received) = (&start, &filled, &drained, &received);
                scope.spawn(move || {
                    start.wait();
                    let mut out = Vec::new();
                    loop {
                        let count = filled.wait(10, || {
                            let count = consumer.try_pop_many(&mut out, 3);
                            let over = received.load(Ordering::SeqCst) == all;
                            (count > 0 || over).then_some(count)
                        });
                        drained.notify();
                        if count == 0 {
                            return out;
                        }
                        if received.fetch_add(count, Ordering::SeqCst) + count == all {
                            filled.notify();
                        }
                    }
                })
            })
            .collect();
        got = takers
            .into_iter()
            .map(|taker| taker.join().expect("no panic"))
            .collect();
    });
    for items in &got {
        for number in 0..producers {
            let own: Vec<u64> = items
                .iter()
                .copied()
                .filter(|i| i >> 32 == number)
                .collect();
            assert!(own.is_sorted(), "a producer's items came out of order");
        }
    }
    let mut everything: Vec<u64> = got.concat();
    everything.sort_unstable();
    let sent = (0..producers).flat_map(|number| (0..ITEMS).map(move |item| number << 32 | item));
    assert!(everything.into_iter().eq(sent), "each item arrives once");
}

#[test]
fn everything_arrives_between_two() {
    everything_arrives(1, 1, 4);
}

#[test]
fn everything_arrives_between_several() {
    everything_arrives(3, 3, 8);
}

#[test]
fn everything_arrives_through_one_slot() {
    everything_arrives(2, 2, 1);
}

#[test]
#[should_panic(expected = "the words of a new ring are zero")]
fn a_ring_on_words_that_are_used_is_refused() {
    let cells = HeapCells::<Box<u64>, Native>::new(4);
    cells
        .word(RingWord::ProducerTail)
        .store(1, Ordering::Relaxed);
    let _ = ring::on_cells::<_, Single, Single>(cells);
}

thread_local! {
    /// Consumer that looks into the ring while another takes an item out.
    static BYSTANDER: RefCell<Option<Consumer<Watched, Multi>>> = const { RefCell::new(None) };
    /// Observations of the bystander: whether the ring was empty, and the item that it popped.
    static SEEN: RefCell<Vec<(bool, Option<u64>)>> = const { RefCell::new(Vec::new()) };
}

/// Cells that let somebody look between the claim of an item and its publication.
struct Watched(HeapCells<u64, Native>);

// SAFETY: every call is forwarded to the heap's cells, which satisfy the contract; the observer does not panic.
unsafe impl RingCells for Watched {
    type Item = u64;
    type Platform = Native;

    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn word(&self, word: RingWord) -> &AtomicU64 {
        self.0.word(word)
    }

    unsafe fn put(&self, position: u64, item: u64) {
        // SAFETY: the caller keeps the same promise.
        unsafe { self.0.put(position, item) };
    }

    unsafe fn take(&self, position: u64) -> u64 {
        if let Some(mut bystander) = BYSTANDER.take() {
            let is_empty = bystander.is_empty();
            SEEN.with_borrow_mut(|seen| seen.push((is_empty, bystander.try_pop())));
        }
        // SAFETY: the caller keeps the same promise.
        unsafe { self.0.take(position) }
    }
}

#[test]
fn what_another_consumer_has_claimed_is_not_there() {
    let (mut producer, mut consumer) =
        ring::on_cells::<_, Single, Multi>(Watched(HeapCells::new(4)));
    assert_eq!(producer.try_push(7), Ok(()));
    assert!(!consumer.is_empty());
    BYSTANDER.set(Some(consumer.clone()));
    assert_eq!(consumer.try_pop(), Some(7));
    assert_eq!(SEEN.take(), [(true, None)]);
}
