//! A slot and its room in every interleaving, on cached coherent memory; and with each step left out that such
//! memory needs, a model fails.
//!
//! loom does not show loads that are done after a later store.

use std::ops::Range;
use std::panic;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use millrace_window::{
    APART, Attributes, Fence, Incoming, LINE, Medium, Outgoing, Site, WORD, Window, mutation,
};

/// Memory made of loom's words. All sides share it.
#[derive(Clone, Debug)]
struct Words(Arc<Vec<AtomicU64>>);

impl Words {
    fn new(size: usize) -> Self {
        // Only what the models use is there: loom has a limit.
        Self(Arc::new(
            (0..size / LINE * 2).map(|_| AtomicU64::new(0)).collect(),
        ))
    }

    /// The first two words of each line.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % LINE < 2 * WORD, "the models use no more");
        &self.0[offset / LINE * 2 + offset % LINE / WORD]
    }
}

impl Medium for Words {
    fn size(&self) -> usize {
        self.0.len() / 2 * LINE
    }

    fn attributes(&self) -> Attributes {
        Attributes::SHARED_MEMORY
    }

    fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    fn write_back(&self, _: Range<usize>) {}

    fn invalidate(&self, _: Range<usize>) {}

    fn fence(&self, kind: Fence) {
        fence(match kind {
            Fence::Release => Ordering::Release,
            Fence::Acquire => Ordering::Acquire,
            Fence::Drain | Fence::Full => Ordering::SeqCst,
        });
    }
}

fn explore(model: fn(), without: Option<Site>) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    // All threads of a model run on this one.
    mutation::leave_out(without);
    let result = panic::catch_unwind(|| builder.check(model));
    mutation::leave_out(None);
    match (result, without) {
        (Err(failure), None) => panic::resume_unwind(failure),
        (Ok(()), Some(site)) => panic!("the model holds without {site:?}"),
        (Ok(()), None) | (Err(_), Some(_)) => {}
    }
}

fn halves(words: &Words, own: usize, other: usize) -> (Outgoing<Words>, Incoming<Words>) {
    let window = Window::new(words.clone());
    let sound = "the halves lie within and apart";
    let half = |index: usize| index * APART..(index + 1) * APART;
    (
        window.outgoing(half(own)).expect(sound),
        window.incoming(half(other)).expect(sound),
    )
}

/// Two messages through one slot: the second waits until the room of the first is given back.
fn two_messages_through_one_slot() {
    let words = Words::new(2 * APART);
    let (mut messages, given_back) = halves(&words, 0, 1);
    let (mut giving_back, arriving) = halves(&words, 1, 0);
    let sound = "the slots lie within";
    let sender = thread::spawn(move || {
        for message in 1..=2_u64 {
            if given_back.poll(0).expect(sound).word() + 1 < message {
                return;
            }
            let mut slot = messages.slot(0, LINE).expect(sound);
            let payload = (10 * message).to_le_bytes();
            slot.store(WORD, &payload).expect(sound);
            slot.publish(message);
        }
    });
    let receiver = thread::spawn(move || {
        for message in 1..=2 {
            let slot = arriving.poll(0).expect(sound);
            if slot.word() != message {
                return;
            }
            let mut payload = [0; WORD];
            slot.load(WORD, &mut payload).expect(sound);
            assert_eq!(u64::from_le_bytes(payload), 10 * message, "torn");
            giving_back.slot(0, LINE).expect(sound).publish(message);
        }
    });
    sender.join().expect("no panic");
    receiver.join().expect("no panic");
}

/// Who publishes, settles and polls sees the other, or is seen by it.
fn two_that_settle() {
    let words = Words::new(2 * APART);
    let look = |(mut outgoing, incoming): (Outgoing<Words>, Incoming<Words>)| {
        let sound = "the slots lie within";
        outgoing.slot(0, LINE).expect(sound).publish(1);
        assert!(outgoing.settle(), "coherent memory can");
        incoming.poll(0).expect(sound).word()
    };
    let (first, second) = (halves(&words, 0, 1), halves(&words, 1, 0));
    let other = thread::spawn(move || look(first));
    let seen = look(second);
    assert!(
        seen + other.join().expect("no panic") > 0,
        "both were blind"
    );
}

#[test]
fn slots_hold() {
    explore(two_messages_through_one_slot, None);
}

#[test]
fn slots_need_the_word_last() {
    explore(two_messages_through_one_slot, Some(Site::BeforeWord));
}

#[test]
fn slots_need_the_payload_after_the_word() {
    explore(two_messages_through_one_slot, Some(Site::AfterPoll));
}

#[test]
fn settling_holds() {
    explore(two_that_settle, None);
}

#[test]
fn settling_needs_its_fence() {
    explore(two_that_settle, Some(Site::Settled));
}
