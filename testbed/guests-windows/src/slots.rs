//! Single slots, with payload that both sides know, in both directions.

use millrace_random::Random;
use millrace_stream::Side;
use millrace_window::{Incoming, LINE, Mapped, Outgoing, WORD, Window};

use crate::error::{Error, Result, refused};
use crate::patience::Patience;

/// What each side stores to.
const HALF: usize = 64 << 10;
/// Both sides' bytes.
pub(crate) const PLACE: usize = 2 * HALF;
/// Messages of which each answers the one before.
const TURNS: u64 = 1000;
/// A message of those is no longer.
const TURN_BYTES_MAX: usize = 4 << 10;

/// One side of the exchange.
#[derive(Debug)]
struct Slots {
    outgoing: Outgoing<Mapped>,
    incoming: Incoming<Mapped>,
    side: Side,
    /// Both sides draw the same.
    random: Random,
    patience: Patience,
    messages: u64,
}

/// A message that both sides know of.
#[derive(Debug)]
struct Message {
    offset: usize,
    word: u64,
    payload: Vec<u8>,
}

/// Exchanges messages in the `PLACE` bytes from `start` on, which are zero. Returns how many.
pub(crate) fn exchange(window: &Window, start: usize, side: Side, seed: u64) -> Result<u64> {
    let first = start..start + HALF;
    let second = start + HALF..start + PLACE;
    let (own, peers) = match side {
        Side::Connecting => (first, second),
        Side::Accepting => (second, first),
    };
    let mut slots = Slots {
        outgoing: window.outgoing(own).map_err(refused("slots"))?,
        incoming: window.incoming(peers).map_err(refused("slots"))?,
        side,
        random: Random::new(seed),
        patience: Patience::new(),
        messages: 0,
    };
    slots.take_turns()?;
    for speaker in [Side::Connecting, Side::Accepting] {
        slots.fill(speaker)?;
    }
    // Another round of turns: neither side returns before the other has received the bytes of `fill`.
    slots.take_turns()?;
    Ok(slots.messages)
}

impl Slots {
    /// Each message is sent when the one before was received.
    fn take_turns(&mut self) -> Result<()> {
        let mut speaker = Side::Connecting;
        for _ in 0..TURNS {
            let room = self.random.index(TURN_BYTES_MAX);
            let line = self.random.index((HALF - TURN_BYTES_MAX) / LINE);
            let message = self.draw(line * LINE, room);
            self.say_or_hear(speaker, &message)?;
            speaker = speaker.peer();
        }
        Ok(())
    }

    /// One side fills all of its bytes, without waiting for the other.
    fn fill(&mut self, speaker: Side) -> Result<()> {
        let mut offset = 0;
        while offset < HALF {
            let room = self.random.index(1024).min(HALF - offset - WORD);
            let message = self.draw(offset, room);
            self.say_or_hear(speaker, &message)?;
            offset += (WORD + room).next_multiple_of(LINE);
        }
        Ok(())
    }

    fn draw(&mut self, offset: usize, length: usize) -> Message {
        let mut payload = vec![0; length];
        // Never what lies there: neither zero nor an older word.
        let word = self.random.number() | 1;
        self.random.fill(&mut payload);
        self.messages += 1;
        Message {
            offset,
            word,
            payload,
        }
    }

    fn say_or_hear(&mut self, speaker: Side, message: &Message) -> Result<()> {
        if speaker == self.side {
            self.say(message)
        } else {
            self.hear(message)
        }
    }

    fn say(&mut self, message: &Message) -> Result<()> {
        let size = (WORD + message.payload.len()).next_multiple_of(LINE);
        let mut slot = self
            .outgoing
            .slot(message.offset, size)
            .map_err(refused("a slot"))?;
        slot.store(WORD, &message.payload)
            .map_err(refused("a payload"))?;
        slot.publish(message.word);
        Ok(())
    }

    fn hear(&mut self, message: &Message) -> Result<()> {
        loop {
            let slot = self
                .incoming
                .poll(message.offset)
                .map_err(refused("a slot"))?;
            if slot.word() != message.word {
                self.patience.wait_for("a slot was awaited")?;
                continue;
            }
            self.patience.renew();
            let mut payload = vec![0; message.payload.len()];
            slot.load(WORD, &mut payload)
                .map_err(refused("a payload"))?;
            if payload == message.payload {
                return Ok(());
            }
            let context = format!("message {}: other bytes than were sent", self.messages);
            return Err(Error::Wrong(context));
        }
    }
}
