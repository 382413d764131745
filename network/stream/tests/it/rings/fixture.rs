//! Two sides of a connection, with all that they have sent and received.

use std::ops::ControlFlow;

use millrace_random::Random;
use millrace_stream::{Closing, End, Geometry, ReceiveCursor, Result, RingPair, SendCursor, Side};
use millrace_window::{Attributes, Cacheability, Direction, Medium, Window};

const fn of(cacheability: Cacheability, coherent: bool) -> Attributes {
    Attributes {
        cacheability,
        coherent,
        direction: Direction::Both,
    }
}

/// All kinds of memory.
pub(crate) const KINDS: [(&str, Attributes); 4] = [
    ("write-back, coherent", Attributes::SHARED_MEMORY),
    (
        "write-back, not coherent",
        of(Cacheability::WriteBack, false),
    ),
    ("write-combining", of(Cacheability::WriteCombining, true)),
    ("uncached", of(Cacheability::Uncached, true)),
];

/// One side, and its expected behaviour.
#[derive(Debug)]
pub(crate) struct Host<M: Medium> {
    pub(crate) rings: RingPair<M>,
    pub(crate) sent: SendCursor,
    pub(crate) received: ReceiveCursor,
    pub(crate) source: Vec<u8>,
    pub(crate) got: Vec<u8>,
    pub(crate) end: Option<End>,
}

impl<M: Medium> Host<M> {
    pub(crate) fn new(window: &Window<M>, geometry: Geometry, side: Side, source: Vec<u8>) -> Self {
        Self {
            rings: RingPair::new(window, geometry, side).expect("the window is large enough"),
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
            source,
            got: Vec::new(),
            end: None,
        }
    }

    pub(crate) fn total_sent(&self) -> usize {
        usize::try_from(self.sent.total).expect("small")
    }

    /// Sends up to `bytes_max` bytes, and the end behind the last. True if anything was sent.
    pub(crate) fn send(&mut self, bytes_max: usize) -> Result<bool> {
        let start = self.total_sent();
        let end = self.source.len().min(start + bytes_max);
        if start == self.source.len() {
            let was = self.sent.ended;
            self.rings
                .sender
                .finish(&self.rings.peer_state, &mut self.sent)?;
            return Ok(self.sent.ended != was);
        }
        let bytes = &self.source[start..end];
        let sent = self
            .rings
            .sender
            .send(&self.rings.peer_state, &mut self.sent, bytes)?;
        Ok(sent > 0)
    }

    /// Sends by a reservation, of which a part is written and a part of that is sent, or nothing.
    pub(crate) fn send_in_place(&mut self, bytes_max: usize, random: &mut Random) -> Result<bool> {
        let start = self.total_sent();
        if start == self.source.len() {
            return self.send(bytes_max);
        }
        let (peer_state, sender) = (&self.rings.peer_state, &mut self.rings.sender);
        let reserved = sender.reserve(peer_state, &mut self.sent, bytes_max)?;
        assert!(reserved.length() <= bytes_max);
        // Earlier and unsent bytes of the region do not matter.
        sender.fill(reserved, 0, &vec![0xa5; reserved.length()])?;
        let end = self.source.len().min(start + reserved.length());
        let bytes = &self.source[start..end];
        let mut written = 0;
        while written < bytes.len() {
            let part = (8 * (1 + random.index(20))).min(bytes.len() - written);
            sender.fill(reserved, written, &bytes[written..written + part])?;
            written += part;
        }
        let length = if random.chance(1, 8) {
            0
        } else {
            random.index(written + 1)
        };
        sender.commit(&mut self.sent, reserved, length)?;
        Ok(length > 0)
    }

    /// Borrows up to `bytes_max` bytes, and receives a part of them.
    pub(crate) fn receive_in_place(
        &mut self,
        bytes_max: usize,
        random: &mut Random,
    ) -> Result<bool> {
        let (peer_state, receiver) = (&self.rings.peer_state, &mut self.rings.receiver);
        let (mut seen, mut pieces) = (Vec::new(), 1 + random.index(4));
        let shown = receiver.borrow(peer_state, &self.received, bytes_max, |piece| {
            let (start, cut) = (seen.len(), random.index(piece.length()));
            seen.resize(start + piece.length(), 0);
            piece.copy(0, &mut seen[start..start + cut])?;
            piece.copy(cut, &mut seen[start + cut..])?;
            pieces -= 1;
            Ok(if pieces == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        assert_eq!(shown.bytes, seen.len());
        if shown.bytes == 0 {
            // An end is received in the ordinary way.
            return self.receive(1);
        }
        let wanted = 1 + random.index(shown.bytes);
        let taken = receiver.consume(peer_state, &mut self.received, wanted)?;
        // A receive ends early where the peer's pads are close together.
        assert!(taken.bytes <= wanted);
        self.got.extend_from_slice(&seen[..taken.bytes]);
        Ok(taken.bytes > 0)
    }

    /// Receives up to `bytes_max` bytes. True if anything arrived.
    pub(crate) fn receive(&mut self, bytes_max: usize) -> Result<bool> {
        let mut bytes = vec![0; bytes_max];
        let rings = &mut self.rings;
        let taken = rings
            .receiver
            .receive(&rings.peer_state, &mut self.received, &mut bytes)?;
        self.got.extend_from_slice(&bytes[..taken.bytes]);
        let is_new = taken.end.is_some() && self.end.is_none();
        if taken.end.is_some() {
            self.end = taken.end;
        }
        Ok(taken.bytes > 0 || is_new)
    }

    /// Whether all was sent and received.
    pub(crate) const fn is_done(&self) -> bool {
        self.sent.ended != 0 && self.end.is_some()
    }

    /// The state that can be read without receiving.
    pub(crate) fn glance(
        &self,
        peer: &[u8],
        random: &mut Random,
    ) -> std::result::Result<(), String> {
        let mut bytes = vec![0; 1 + random.index(300)];
        let rings = &self.rings;
        let pending = rings.receiver.pending(&rings.peer_state, &self.received);
        let peeked = rings
            .receiver
            .peek(&rings.peer_state, &self.received, &mut bytes);
        let peeked = peeked.map_err(|error| error.to_string())?;
        let next = &peer[self.got.len()..];
        if pending > next.len() || !next.starts_with(&bytes[..peeked.bytes]) {
            return Err(format!("{pending} pending, {} peeked", peeked.bytes));
        }
        if peeked.bytes < pending.min(bytes.len()) {
            return Err(format!("{pending} pending, {} peeked", peeked.bytes));
        }
        match peeked.end {
            Some(End::Finished) if !next.is_empty() => Err("an early end".to_owned()),
            Some(End::Reset(_)) if rings.peer_state.closing() == Closing::Open => {
                Err("a reset that was none".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The invariant: received bytes are a prefix of the sent ones; the end comes last.
pub(crate) fn check<M: Medium>(host: &Host<M>, peer: &[u8]) -> std::result::Result<(), String> {
    if !peer.starts_with(&host.got) {
        return Err("no prefix".to_owned());
    }
    if host.end == Some(End::Finished) && host.got.len() != peer.len() {
        return Err("an early end".to_owned());
    }
    Ok(())
}
