//! A slot and its room in every interleaving, on cached coherent memory; and with each step left out that such
//! memory needs, a model fails.
//!
//! loom does not show loads that are done after a later store.

use loom::thread;
use millrace_window::{APART, Incoming, LINE, Outgoing, Site, WORD, Window};
use millrace_window_faults::loom::{Words, explore};

/// Of so many bytes the first two words of each line are there.
fn words(size: usize) -> Words {
    let lines = (0..size).step_by(LINE);
    Words::new(size, lines.flat_map(|line| [line, line + WORD]))
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
    let words = words(2 * APART);
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
    let words = words(2 * APART);
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
