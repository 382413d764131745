//! Going to sleep and being woken, in every interleaving, on cached coherent memory: no side sleeps on while there
//! is what it waits for. Without the fence on both sides a model fails.

use std::ops::Range;
use std::panic;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::{Attributes, Fence, LINE, Medium, Site, WORD, Window, mutation};

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };
const AREA: usize = GEOMETRY.size() / 2;

/// What the models use of an area: its four words, two lines of the ring with a word of payload, and the line that
/// the second model ends at.
const USED: [usize; 8] = [
    0,
    128,
    256,
    384,
    4096,
    4096 + WORD,
    4096 + LINE,
    4096 + 60 * LINE,
];

/// Memory made of loom's words, as few as will do: loom has a limit. All sides share it.
#[derive(Clone, Debug)]
struct Words(Arc<Vec<AtomicU64>>);

impl Words {
    fn new() -> Self {
        Self(Arc::new(
            (0..2 * USED.len()).map(|_| AtomicU64::new(0)).collect(),
        ))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let index = USED
            .iter()
            .position(|used| *used == offset % AREA)
            .expect("the models use no more");
        &self.0[offset / AREA * USED.len() + index]
    }
}

impl Medium for Words {
    fn size(&self) -> usize {
        2 * AREA
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

fn lanes() -> [Lane<Words>; 2] {
    let words = Words::new();
    [Side::Connecting, Side::Accepting].map(|side| {
        Lane::new(&Window::new(words.clone()), GEOMETRY, side).expect("the words are enough")
    })
}

/// One sends and wakes; the other receives, or goes to sleep.
fn sleeping_for_data() {
    let [mut ours, mut theirs] = lanes();
    let sender = thread::spawn(move || {
        let mut cursor = SendCursor::default();
        let sent = ours.sender.send(&ours.sight, &mut cursor, &[7]);
        assert_eq!(sent.expect("sound"), 1);
        ours.sender.wake(&ours.sight, &mut cursor)
    });
    let mut cursor = ReceiveCursor::default();
    let mut byte = [0];
    let taken = theirs
        .receiver
        .receive(&theirs.sight, &mut cursor, &mut byte);
    let has_received = taken.expect("sound").bytes == 1;
    let sleeps = !has_received && !theirs.receiver.arm(&theirs.sight, &mut cursor);
    let is_woken = sender.join().expect("no panic");
    assert!(!sleeps || is_woken, "it sleeps on beside a byte");
}

/// One gives room back and wakes; the other goes to sleep for room.
fn sleeping_for_room() {
    let [mut ours, mut theirs] = lanes();
    let reader = thread::spawn(move || {
        // It has taken 60 lines and given none back.
        let mut cursor = ReceiveCursor {
            position: 60,
            ..ReceiveCursor::default()
        };
        let taken = theirs
            .receiver
            .receive(&theirs.sight, &mut cursor, &mut [0]);
        assert_eq!(taken.expect("sound").bytes, 0);
        theirs.receiver.wake(&theirs.sight, &mut cursor)
    });
    let mut cursor = SendCursor {
        position: 60,
        ..SendCursor::default()
    };
    let sleeps = !ours.sender.arm(&ours.sight, &mut cursor);
    let is_woken = reader.join().expect("no panic");
    assert!(!sleeps || is_woken, "it sleeps on beside room");
}

#[test]
fn a_sleeper_for_data_is_woken() {
    explore(sleeping_for_data, None);
}

#[test]
fn a_sleeper_for_data_needs_the_fence() {
    explore(sleeping_for_data, Some(Site::Settled));
}

#[test]
fn a_sleeper_for_room_is_woken() {
    explore(sleeping_for_room, None);
}

#[test]
fn a_sleeper_for_room_needs_the_fence() {
    explore(sleeping_for_room, Some(Site::Settled));
}

#[test]
fn a_byte_needs_its_word_last() {
    fn a_byte_passes() {
        let [mut ours, mut theirs] = lanes();
        let sender = thread::spawn(move || {
            let mut cursor = SendCursor::default();
            let sent = ours.sender.send(&ours.sight, &mut cursor, &[7]);
            assert_eq!(sent.expect("sound"), 1);
        });
        let mut cursor = ReceiveCursor::default();
        let mut byte = [0];
        let taken = theirs
            .receiver
            .receive(&theirs.sight, &mut cursor, &mut byte);
        assert!(taken.expect("sound").bytes == 0 || byte == [7], "torn");
        sender.join().expect("no panic");
    }
    explore(a_byte_passes, None);
    explore(a_byte_passes, Some(Site::BeforeWord));
}
