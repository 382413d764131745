//! The handshake and the heartbeat of a partition.

use millrace_window::{Incoming, LINE, Medium, Outgoing};

use super::endpoints::SessionError;
use super::geometry::{ACKNOWLEDGED, BEAT, GREETING, INCARNATION, RETURNED, RING, WAITS};
use crate::mutation_point::MutationPoint;

/// This side's incarnation and its knowledge of the peer's.
///
/// # Invariants
/// 1. Before a side stores its incarnation, its words are zero and its ring is empty.
/// 2. A side uses the rings after the peer has acknowledged its incarnation and it has acknowledged the peer's: each
///    side has then started after it saw the other's start.
/// 3. The rings' salts follow from both incarnations, so no slot of another session is valid.
#[derive(Debug)]
pub(super) struct Session {
    incarnation: u64,
    greeting: u64,
    /// The acknowledged incarnation of the peer; 0 if none.
    peer: u64,
    is_ready: bool,
    beat: Beat,
}

#[derive(Debug)]
struct Beat {
    every_ns: u64,
    lost_after_ns: u64,
    count: u64,
    due_ns: u64,
    peer: u64,
    /// The time of the last change of the peer's counter, in nanoseconds.
    seen_ns: Option<u64>,
}

impl Session {
    pub(super) const fn new(
        incarnation: u64,
        greeting: u64,
        every_ns: u64,
        lost_after_ns: u64,
    ) -> Self {
        Self {
            incarnation,
            greeting,
            peer: 0,
            is_ready: false,
            beat: Beat {
                every_ns,
                lost_after_ns,
                count: 0,
                due_ns: 0,
                peer: 0,
                seen_ns: None,
            },
        }
    }

    /// Clears this side's words, then stores its incarnation.
    pub(super) fn begin<M: Medium>(&self, outgoing: &mut Outgoing<M>) {
        store_word(outgoing, INCARNATION, 0);
        for offset in [ACKNOWLEDGED, BEAT, RETURNED, WAITS, RING] {
            store_word(outgoing, offset, 0);
        }
        store_word(outgoing, GREETING, self.greeting);
        store_word(outgoing, INCARNATION, self.incarnation);
    }

    /// Clears this side's incarnation.
    pub(super) fn end<M: Medium>(outgoing: &mut Outgoing<M>) {
        store_word(outgoing, INCARNATION, 0);
    }

    /// Continues the handshake. True when it is complete.
    pub(super) fn greet<M: Medium>(
        &mut self,
        outgoing: &mut Outgoing<M>,
        incoming: &Incoming<M>,
        expected: u64,
    ) -> Result<bool, SessionError> {
        // The acknowledgement is read first: the incarnation is then at least as new.
        let acknowledged = load_word(incoming, ACKNOWLEDGED);
        let peer = load_word(incoming, INCARNATION);
        if peer == 0 {
            return Ok(false);
        }
        if peer != self.peer {
            if load_word(incoming, GREETING) != expected {
                return Err(SessionError::Handshake);
            }
            self.peer = peer;
            store_word(outgoing, ACKNOWLEDGED, peer);
        }
        self.is_ready = acknowledged == self.incarnation || !MutationPoint::Greeted.is_enabled();
        Ok(self.is_ready)
    }

    /// Whether the peer has started or acknowledged since the last check.
    pub(super) fn has_news<M: Medium>(&self, incoming: &Incoming<M>) -> bool {
        let peer = load_word(incoming, INCARNATION);
        // A peer that has left may have acknowledged before.
        peer != 0 && (peer != self.peer || load_word(incoming, ACKNOWLEDGED) == self.incarnation)
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the peer still has the acknowledged incarnation.
    pub(super) fn is_same<M: Medium>(&self, incoming: &Incoming<M>) -> bool {
        load_word(incoming, INCARNATION) == self.peer
            || !MutationPoint::IncarnationChecked.is_enabled()
    }

    /// The cause of an invalid ring: the peer has restarted, or breaks the protocol.
    pub(super) fn attribute_loss<M: Medium>(
        &self,
        loss: SessionError,
        incoming: &Incoming<M>,
    ) -> SessionError {
        if self.is_same(incoming) {
            loss
        } else {
            SessionError::PeerRestarted
        }
    }

    /// The salts of the outgoing and the incoming ring.
    pub(super) const fn salts(&self) -> (u32, u32) {
        (
            salt(self.incarnation, self.peer),
            salt(self.peer, self.incarnation),
        )
    }

    /// Sends a heartbeat when due, and checks the peer's.
    pub(super) fn beat<M: Medium>(
        &mut self,
        outgoing: &mut Outgoing<M>,
        incoming: &Incoming<M>,
        now_ns: u64,
    ) -> Result<(), SessionError> {
        let beat = &mut self.beat;
        if now_ns < beat.due_ns {
            return Ok(());
        }
        beat.due_ns = now_ns.saturating_add(beat.every_ns);
        beat.count += 1;
        store_word(outgoing, BEAT, beat.count);
        let peer = load_word(incoming, BEAT);
        if peer != beat.peer || !self.is_ready {
            (beat.peer, beat.seen_ns) = (peer, Some(now_ns));
        }
        let seen = *beat.seen_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(seen) > beat.lost_after_ns {
            return Err(SessionError::HeartbeatTimeout);
        }
        Ok(())
    }

    /// The time of the next heartbeat, in nanoseconds.
    pub(super) const fn due_ns(&self) -> u64 {
        self.beat.due_ns
    }
}

pub(super) fn store_word<M: Medium>(outgoing: &mut Outgoing<M>, offset: usize, word: u64) {
    outgoing
        .slot(offset, LINE)
        .expect("the area was checked when the partition was made")
        .publish(word);
}

pub(super) fn load_word<M: Medium>(incoming: &Incoming<M>, offset: usize) -> u64 {
    incoming
        .poll(offset)
        .expect("the area was checked when the partition was made")
        .word()
}

/// The salt of a writer's tags for one reader (the finaliser of `SplitMix64`, twice).
const fn salt(writer: u64, reader: u64) -> u32 {
    let mixed = mix(mix(writer) ^ reader);
    (mixed >> 32) as u32
}

const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
