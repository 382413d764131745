//! Larger programs than loom can exhaust, in many random interleavings. A failure prints the schedule
//! with which it is run again. Memory is sequentially consistent here: this looks for mistakes in the
//! algorithms, loom for those in the orderings.

use std::io;
use std::sync::atomic::Ordering;

use millrace_sync::ring::{self, HeapCells, Multi};
use millrace_sync::{Event, Parker, Platform, Shared, Site, Word};
use shuttle::sync::atomic::{AtomicU64, AtomicUsize};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

#[derive(Debug)]
struct Shuttle;

#[derive(Debug)]
struct ShuttleWord(AtomicU64);

// SAFETY: shuttle's threads take turns, and its memory is sequentially consistent without fences.
unsafe impl Platform for Shuttle {
    type Word = ShuttleWord;
    type Parker = ShuttleParker;

    fn fence(_: Site) {
        thread::yield_now();
    }

    fn relax(_: u32) {
        thread::yield_now();
    }
}

// SAFETY: shuttle's words do what the standard library's do, all in the strongest ordering.
unsafe impl Word for ShuttleWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    fn load(&self, _: Ordering) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn store(&self, value: u64, _: Ordering) {
        self.0.store(value, Ordering::SeqCst);
    }

    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.0.fetch_add(value, Ordering::SeqCst)
    }

    fn fetch_sub(&self, value: u64, _: Ordering) -> u64 {
        self.0.fetch_sub(value, Ordering::SeqCst)
    }

    fn compare_exchange_weak(&self, current: u64, new: u64, _: Ordering) -> Result<u64, u64> {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        self.0.compare_exchange(current, new, success, failure)
    }
}

#[derive(Debug, Default)]
struct ShuttleParker {
    wakings: Mutex<u32>,
    changed: Condvar,
}

impl Parker for ShuttleParker {
    fn try_new() -> io::Result<Self> {
        Ok(Self::default())
    }

    fn ticket(&self) -> u32 {
        *self.wakings.lock().expect("no holder panics")
    }

    fn sleep(&self, ticket: u32) {
        let mut wakings = self.wakings.lock().expect("no holder panics");
        while *wakings == ticket {
            wakings = self.changed.wait(wakings).expect("no holder panics");
        }
    }

    fn wake(&self) {
        *self.wakings.lock().expect("no holder panics") += 1;
        self.changed.notify_all();
    }
}

const PRODUCERS: u64 = 3;
const CONSUMERS: usize = 2;
const ITEMS: u64 = 6;

/// What the threads of [`many_threads`] share beside the ring.
struct Scene {
    filled: Event<Shuttle>,
    drained: Event<Shuttle>,
    received: AtomicUsize,
}

fn many_threads() {
    let all = usize::try_from(PRODUCERS * ITEMS).expect("small");
    let (producer, consumer) = ring::on_cells::<_, Multi, Multi>(HeapCells::<u64, Shuttle>::new(2));
    let scene = Arc::new(Scene {
        filled: Event::new(),
        drained: Event::new(),
        received: AtomicUsize::new(0),
    });
    let mut senders = Vec::new();
    for number in 0..PRODUCERS {
        let (mut producer, scene) = (producer.clone(), Arc::clone(&scene));
        senders.push(thread::spawn(move || {
            for item in 0..ITEMS {
                let item = number * 100 + item;
                scene.drained.wait(1, || producer.try_push(item).ok());
                scene.filled.notify();
            }
        }));
    }
    let mut takers = Vec::new();
    for _ in 0..CONSUMERS {
        let (mut consumer, scene) = (consumer.clone(), Arc::clone(&scene));
        takers.push(thread::spawn(move || {
            let mut out = Vec::new();
            loop {
                let count = scene.filled.wait(1, || {
                    let count = consumer.try_pop_many(&mut out, 2);
                    let over = scene.received.load(Ordering::SeqCst) == all;
                    (count > 0 || over).then_some(count)
                });
                if count == 0 {
                    return out;
                }
                scene.drained.notify();
                if scene.received.fetch_add(count, Ordering::SeqCst) + count == all {
                    scene.filled.notify();
                }
            }
        }));
    }
    for sender in senders {
        sender.join().expect("no panic");
    }
    let mut got = Vec::new();
    for taker in takers {
        got.extend(taker.join().expect("no panic"));
    }
    got.sort_unstable();
    let sent = (0..PRODUCERS).flat_map(|number| (0..ITEMS).map(move |item| number * 100 + item));
    assert!(got.into_iter().eq(sent));
}

#[test]
fn everything_arrives_and_nobody_sleeps_on() {
    shuttle::check_random(many_threads, 2_000);
}

#[test]
fn the_last_of_many_owners_frees() {
    struct Freed(Arc<AtomicUsize>);
    impl Drop for Freed {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let owners = || {
        let freed = Arc::new(AtomicUsize::new(0));
        let share = Shared::<_, Shuttle>::new(Freed(Arc::clone(&freed)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let share = share.clone();
                thread::spawn(move || drop((share.clone(), share)))
            })
            .collect();
        drop(share);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(freed.load(Ordering::SeqCst), 1);
    };
    shuttle::check_random(owners, 2_000);
}
