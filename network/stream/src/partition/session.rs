//! Who the two sides are, and whether they live.

use millrace_window::{Incoming, LINE, Medium, Outgoing};

use super::endpoints::Loss;
use super::geometry::{ACKNOWLEDGED, BEAT, GREETING, INCARNATION, RETURNED, RING, WAITS};
use crate::step::Step;

/// This side's incarnation and what it knows of the peer's.
///
/// # Invariants
/// 1. Before a side shows its incarnation, its words are those of a start and its ring begins with nothing.
/// 2. A side uses the rings after the peer has acknowledged its incarnation and it has the peer's: each has then
///    begun anew since the other did.
/// 3. The rings' salts follow from both incarnations, so a slot of another session is none of this one.
#[derive(Debug)]
pub(super) struct Session {
    incarnation: u64,
    greeting: u64,
    /// The peer's incarnation that was acknowledged; 0 if none.
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
    /// When the peer's count was last seen to change.
    heard_ns: Option<u64>,
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
                heard_ns: None,
            },
        }
    }

    /// Shows this side's incarnation, with all else as at a start.
    pub(super) fn begin<M: Medium>(&self, outgoing: &mut Outgoing<M>) {
        say(outgoing, INCARNATION, 0);
        for offset in [ACKNOWLEDGED, BEAT, RETURNED, WAITS, RING] {
            say(outgoing, offset, 0);
        }
        say(outgoing, GREETING, self.greeting);
        say(outgoing, INCARNATION, self.incarnation);
    }

    /// Takes this side's incarnation back.
    pub(super) fn end<M: Medium>(outgoing: &mut Outgoing<M>) {
        say(outgoing, INCARNATION, 0);
    }

    /// Goes on until both know of each other. True when that is so.
    pub(super) fn greet<M: Medium>(
        &mut self,
        outgoing: &mut Outgoing<M>,
        incoming: &Incoming<M>,
        expected: u64,
    ) -> Result<bool, Loss> {
        // What was acknowledged is looked at first: the incarnation is then as new.
        let acknowledged = hear(incoming, ACKNOWLEDGED);
        let peer = hear(incoming, INCARNATION);
        if peer == 0 {
            return Ok(false);
        }
        if peer != self.peer {
            if hear(incoming, GREETING) != expected {
                return Err(Loss::Greeting);
            }
            self.peer = peer;
            say(outgoing, ACKNOWLEDGED, peer);
        }
        self.is_ready = acknowledged == self.incarnation || !Step::Greeted.is_kept();
        Ok(self.is_ready)
    }

    /// Whether the peer has shown itself, or answered, since it was last looked at.
    pub(super) fn has_news<M: Medium>(&self, incoming: &Incoming<M>) -> bool {
        let peer = hear(incoming, INCARNATION);
        // One that has left may have acknowledged before: that is no news.
        peer != 0 && (peer != self.peer || hear(incoming, ACKNOWLEDGED) == self.incarnation)
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the peer is the one that was greeted.
    pub(super) fn is_same<M: Medium>(&self, incoming: &Incoming<M>) -> bool {
        hear(incoming, INCARNATION) == self.peer || !Step::IncarnationChecked.is_kept()
    }

    /// What it comes from when the rings do not fit: the peer has started anew, or breaks the protocol.
    pub(super) fn blame<M: Medium>(&self, loss: Loss, incoming: &Incoming<M>) -> Loss {
        if self.is_same(incoming) {
            loss
        } else {
            Loss::Incarnation
        }
    }

    /// The salts of what goes out and of what comes in.
    pub(super) const fn salts(&self) -> (u32, u32) {
        (
            salt(self.incarnation, self.peer),
            salt(self.peer, self.incarnation),
        )
    }

    /// Beats, when it is time, and listens.
    pub(super) fn beat<M: Medium>(
        &mut self,
        outgoing: &mut Outgoing<M>,
        incoming: &Incoming<M>,
        now_ns: u64,
    ) -> Result<(), Loss> {
        let beat = &mut self.beat;
        if now_ns < beat.due_ns {
            return Ok(());
        }
        beat.due_ns = now_ns.saturating_add(beat.every_ns);
        beat.count += 1;
        say(outgoing, BEAT, beat.count);
        let peer = hear(incoming, BEAT);
        if peer != beat.peer || !self.is_ready {
            (beat.peer, beat.heard_ns) = (peer, Some(now_ns));
        }
        let heard = *beat.heard_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(heard) > beat.lost_after_ns {
            return Err(Loss::Silence);
        }
        Ok(())
    }

    /// When it must beat again.
    pub(super) const fn due_ns(&self) -> u64 {
        self.beat.due_ns
    }
}

pub(super) fn say<M: Medium>(outgoing: &mut Outgoing<M>, offset: usize, word: u64) {
    outgoing
        .slot(offset, LINE)
        .expect("the area was checked when the partition was made")
        .publish(word);
}

pub(super) fn hear<M: Medium>(incoming: &Incoming<M>, offset: usize) -> u64 {
    incoming
        .poll(offset)
        .expect("the area was checked when the partition was made")
        .word()
}

/// What a writer mixes its places with, for this reader (the finaliser of `SplitMix64`, twice).
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
