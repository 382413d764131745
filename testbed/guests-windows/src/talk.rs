//! Messages over a ring pair, in both directions at once.

use std::time::Duration;

use millrace_stream::{End, Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;

use crate::error::{Error, Result, refused};
use crate::messages::Messages;
use crate::patience::Patience;

const GEOMETRY: Geometry = Geometry { ring_lines: 4096 };
/// The bytes of a window that a ring pair has, from the first on.
pub(crate) const PLACE: usize = GEOMETRY.size();
/// A peer that says nothing for so long is dead, where one may die.
const DEAD: Duration = Duration::from_secs(3);

/// One side of a ring pair that sends and checks what it receives, by polling.
#[derive(Debug)]
pub(crate) struct Talk {
    rings: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
    outgoing: Messages,
    incoming: Messages,
    patience: Patience,
    buffer: Vec<u8>,
}

impl Talk {
    /// A side of the ring pair in memory that is zero.
    pub(crate) fn new(window: &Window, side: Side, seed: u64) -> Result<Self> {
        let seed_of = |side| match side {
            Side::Connecting => seed,
            Side::Accepting => !seed,
        };
        Ok(Self {
            rings: RingPair::new(window, GEOMETRY, side).map_err(refused("a ring pair"))?,
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
            outgoing: Messages::new(seed_of(side)),
            incoming: Messages::new(seed_of(side.peer())),
            patience: Patience::new(),
            buffer: vec![0; 16 << 10],
        })
    }

    /// Sends and receives so many messages and the end. Returns how many bytes went each way.
    pub(crate) fn exchange(&mut self, messages: u64) -> Result<(u64, u64)> {
        let mut has_ended = false;
        let mut end = None;
        while !has_ended || end.is_none() {
            let mut moved = 0;
            if self.outgoing.count() < messages {
                moved += self.send()?;
            } else if !has_ended {
                has_ended = self.finish()?;
                moved += usize::from(has_ended);
            }
            if end.is_none() {
                let received = self.receive()?;
                (moved, end) = (moved + received.0, received.1);
            }
            if moved > 0 {
                self.patience.renew();
            } else {
                self.patience.wait_for("a ring pair stood still")?;
            }
        }
        let count = self.incoming.count();
        if end == Some(End::Finished) && count == messages && self.incoming.partly() == 0 {
            return Ok((self.sent.total, self.received.total));
        }
        Err(Error::Wrong(format!("{end:?} after {count} messages")))
    }

    /// Sends and receives until the peer does nothing any more, at first for ever. Calls `half_way` when so many
    /// messages were received. Returns what was received: whole messages, and bytes of the next.
    pub(crate) fn outlive(&mut self, messages: u64, half_way: impl Fn()) -> Result<(u64, usize)> {
        let mut is_half_way = false;
        loop {
            let (received, end) = self.receive()?;
            if let Some(end) = end {
                return Err(Error::Wrong(format!("{end:?} of a peer that died")));
            }
            if self.send()? + received > 0 {
                self.patience.renew();
            } else if is_half_way {
                if self.patience.wait().is_some_and(|silence| silence > DEAD) {
                    return Ok((self.incoming.count(), self.incoming.partly()));
                }
            } else {
                self.patience.wait_for("a ring pair stood still")?;
            }
            if !is_half_way && self.incoming.count() >= messages {
                is_half_way = true;
                half_way();
            }
        }
    }

    fn send(&mut self) -> Result<usize> {
        let sent = self
            .rings
            .sender
            .send(&self.rings.peer_state, &mut self.sent, self.outgoing.rest())
            .map_err(refused("sending"))?;
        self.outgoing.take(sent);
        Ok(sent)
    }

    fn finish(&mut self) -> Result<bool> {
        let finished = self
            .rings
            .sender
            .finish(&self.rings.peer_state, &mut self.sent);
        finished.map_err(refused("sending the end"))
    }

    fn receive(&mut self) -> Result<(usize, Option<End>)> {
        let received = self
            .rings
            .receiver
            .receive(&self.rings.peer_state, &mut self.received, &mut self.buffer)
            .map_err(refused("receiving"))?;
        if !self.incoming.check(&self.buffer[..received.bytes]) {
            let count = self.incoming.count();
            return Err(Error::Wrong(format!(
                "message {count}: other bytes than were sent"
            )));
        }
        Ok((received.bytes, received.end))
    }
}
