//! Urgent bytes: announced ahead, out of band or inline.

use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side, Urgent};
use millrace_window::{Attributes, Window};
use millrace_window_faults::{FaultyMedium, Pair, Side as Place};

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };

struct Ends {
    pair: Pair,
    ours: RingPair<FaultyMedium>,
    theirs: RingPair<FaultyMedium>,
    sent: SendCursor,
    received: ReceiveCursor,
}

impl Ends {
    fn new() -> Self {
        let pair = Pair::new(GEOMETRY.size(), Attributes::SHARED_MEMORY, 5);
        let rings = |place, side| {
            RingPair::new(&Window::new(pair.medium(place)), GEOMETRY, side).expect("it fits")
        };
        let (ours, theirs) = (
            rings(Place::A, Side::Connecting),
            rings(Place::B, Side::Accepting),
        );
        Self {
            pair,
            ours,
            theirs,
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let count = self
            .ours
            .sender
            .send(&self.ours.peer_state, &mut self.sent, bytes);
        assert_eq!(count.expect("sound"), bytes.len());
        self.pair.pass_time();
    }

    fn send_urgent(&mut self, byte: u8) {
        let sent = self
            .ours
            .sender
            .send_urgent(&self.ours.peer_state, &mut self.sent, byte);
        assert!(sent.expect("sound"));
        self.pair.pass_time();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut bytes = [0; 64];
        let rings = &mut self.theirs;
        let peeked = rings
            .receiver
            .peek(&rings.peer_state, &self.received, &mut bytes)
            .expect("sound")
            .bytes;
        let seen = bytes;
        let taken = rings
            .receiver
            .receive(&rings.peer_state, &mut self.received, &mut bytes)
            .expect("sound")
            .bytes;
        assert_eq!(seen[..peeked], bytes[..taken]);
        bytes[..taken].to_vec()
    }

    fn urgent(&mut self, leave: bool) -> Urgent {
        let rings = &self.theirs;
        rings
            .receiver
            .urgent(&rings.peer_state, &mut self.received, leave)
            .expect("sound")
    }

    fn is_pending(&self) -> bool {
        self.theirs.peer_state.has_urgent(&self.received)
    }

    fn is_at_mark(&self) -> bool {
        self.theirs.peer_state.is_at_mark(&self.received)
    }
}

#[test]
fn an_urgent_byte_is_had_ahead_of_what_was_sent_before() {
    let mut ends = Ends::new();
    ends.send(b"line");
    assert_eq!(ends.urgent(false), Urgent::Nothing);
    ends.send_urgent(b'!');
    ends.send(b"more");
    assert!(ends.is_pending() && !ends.is_at_mark());
    assert_eq!(ends.urgent(true), Urgent::Byte(b'!'));
    assert_eq!(ends.urgent(false), Urgent::Byte(b'!'));
    assert_eq!(ends.urgent(false), Urgent::Nothing);
    assert!(!ends.is_pending());
    // A receive ends before the mark, and the byte is not inline.
    assert_eq!(ends.receive(), b"line");
    assert!(ends.is_at_mark());
    assert_eq!(ends.receive(), b"more");
    assert!(!ends.is_at_mark());
    let rings = &mut ends.ours;
    assert!(
        rings
            .sender
            .finish(&rings.peer_state, &mut ends.sent)
            .expect("sound")
    );
    ends.pair.pass_time();
    assert!(ends.receive().is_empty());
}

#[test]
fn an_urgent_byte_that_was_passed_is_lost() {
    let mut ends = Ends::new();
    ends.send_urgent(b'!');
    ends.send(b"more");
    assert_eq!(ends.receive(), b"more");
    assert_eq!(ends.urgent(false), Urgent::Nothing);
    assert!(!ends.is_pending());
}

#[test]
fn a_newer_urgent_byte_makes_the_older_one_common() {
    let mut ends = Ends::new();
    ends.send(b"a");
    ends.send_urgent(b'1');
    ends.send(b"b");
    ends.send_urgent(b'2');
    ends.send(b"c");
    assert_eq!(ends.urgent(false), Urgent::Byte(b'2'));
    assert_eq!(ends.receive(), b"a1b");
    assert_eq!(ends.receive(), b"c");
}

#[test]
fn an_urgent_byte_in_line_is_received_behind_its_mark() {
    let mut ends = Ends::new();
    ends.received.set_urgent_inline(true);
    ends.send(b"line");
    ends.send_urgent(b'!');
    ends.send(b"more");
    assert!(ends.is_pending());
    assert_eq!(ends.urgent(false), Urgent::Nothing);
    let rings = &ends.theirs;
    assert_eq!(rings.receiver.pending(&rings.peer_state, &ends.received), 9);
    assert_eq!(ends.receive(), b"line");
    assert!(ends.is_at_mark());
    assert_eq!(ends.receive(), b"!more");
    assert!(!ends.is_pending());
}

#[test]
fn an_urgent_byte_may_be_announced_before_it_is_there() {
    let mut ends = Ends::new();
    // The peer has a ring's worth unread: there is no room for the byte itself.
    while ends
        .ours
        .sender
        .send(&ends.ours.peer_state, &mut ends.sent, &[7; 56])
        .expect("sound")
        == 56
    {}
    let refused = ends
        .ours
        .sender
        .send_urgent(&ends.ours.peer_state, &mut ends.sent, b'!');
    assert!(!refused.expect("sound"));
    ends.pair.pass_time();
    assert!(!ends.is_pending());
}
