//! Messages from one side to the other, and room given back.

use millrace_random::mix;
use millrace_window::{Attributes, Error, Incoming, Outgoing, Window};
use millrace_window_faults::{FaultyMedium, Pair, Side};

/// Each direction has so many bytes.
const HALF: usize = 1024;
const SLOTS: u64 = 4;
/// Three lines.
const SLOT: usize = 192;
const PAYLOAD_MAX: u64 = 184;
const MESSAGES: u64 = 20;
/// How often a side is let act before time is passed for it.
const ACTIONS: u64 = 600;
const ROUNDS: u64 = 3 * MESSAGES;

/// The draw of this number of a seed, in any order of numbers.
fn draw(seed: u64, number: u64) -> u64 {
    mix(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn payload(seed: u64, message: u64) -> Vec<u8> {
    let max = PAYLOAD_MAX >> (draw(seed ^ 3, message) % 3);
    let len = max - draw(seed ^ 1, message) % max.min(80);
    let byte = |index| draw(seed ^ message << 32, index).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

fn place(message: u64) -> usize {
    usize::try_from(message % SLOTS).expect("a few") * SLOT
}

pub(crate) struct Scene {
    pair: Pair,
    seed: u64,
    messages: Outgoing<FaultyMedium>,
    given_back: Incoming<FaultyMedium>,
    arriving: Incoming<FaultyMedium>,
    giving_back: Outgoing<FaultyMedium>,
    sent: u64,
    received: u64,
}

impl Scene {
    pub(crate) fn new(attributes: Attributes, seed: u64) -> Self {
        let pair = Pair::new(2 * HALF, attributes, seed);
        let sender = Window::new(pair.medium(Side::A));
        let receiver = Window::new(pair.medium(Side::B));
        let sound = "the halves lie within and apart";
        Self {
            seed,
            messages: sender.outgoing(0..HALF).expect(sound),
            given_back: sender.incoming(HALF..2 * HALF).expect(sound),
            arriving: receiver.incoming(0..HALF).expect(sound),
            giving_back: receiver.outgoing(HALF..2 * HALF).expect(sound),
            pair,
            sent: 0,
            received: 0,
        }
    }

    /// Sends all messages. What goes wrong is told.
    pub(crate) fn run(mut self) -> Result<(), String> {
        self.act_for(ACTIONS)?;
        for _ in 0..ROUNDS {
            self.pair.pass_time();
            self.send()?;
            self.receive()?;
        }
        if self.received == MESSAGES {
            return Ok(());
        }
        Err(format!("{} of {MESSAGES} arrived", self.received))
    }

    /// As [`Scene::run`], but one side dies: what arrives is a prefix in any case.
    pub(crate) fn run_with_a_death(mut self) -> Result<(), String> {
        let dying = [Side::A, Side::B][usize::from(draw(self.seed, 0) % 2 == 0)];
        self.pair.kill(dying, draw(self.seed, 1) % 500);
        for action in 0..ACTIONS {
            if self.pair.is_dead(dying) {
                break;
            }
            self.act(action)?;
        }
        // The other goes on alone.
        for _ in 0..ROUNDS {
            self.pair.pass_time();
            match dying {
                Side::A => self.receive()?,
                Side::B => self.send()?,
            }
        }
        Ok(())
    }

    /// How far each side had got after each action.
    pub(crate) fn trace(mut self) -> Vec<(u64, u64)> {
        let step = |action| {
            self.act(action).expect("the ring holds");
            (self.sent, self.received)
        };
        (0..ACTIONS).map(step).collect()
    }

    fn act_for(&mut self, actions: u64) -> Result<(), String> {
        (0..actions).try_for_each(|action| self.act(action))
    }

    fn act(&mut self, action: u64) -> Result<(), String> {
        // Half of the seeds take turns.
        let turn = if self.seed % 2 == 0 {
            action
        } else {
            draw(self.seed ^ 2, action)
        };
        if turn % 2 == 0 {
            self.send()
        } else {
            self.receive()
        }
    }

    fn send(&mut self) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        if self.sent == MESSAGES {
            return Ok(());
        }
        if self.sent >= SLOTS {
            let given_back = self.given_back.poll(0).map_err(text)?.word();
            if given_back > self.sent {
                return Err(format!("{given_back} given back of {}", self.sent));
            }
            if self.sent - given_back >= SLOTS {
                return Ok(());
            }
        }
        let bytes = payload(self.seed, self.sent);
        let mut slot = self.messages.slot(place(self.sent), SLOT).map_err(text)?;
        slot.store(8, &bytes).map_err(text)?;
        self.sent += 1;
        slot.publish(self.sent << 16 | bytes.len() as u64);
        Ok(())
    }

    fn receive(&mut self) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let slot = self.arriving.poll(place(self.received)).map_err(text)?;
        if slot.word() >> 16 != self.received + 1 || self.pair.is_dead(Side::B) {
            return Ok(());
        }
        let expected = payload(self.seed, self.received);
        if slot.word() & 0xffff != expected.len() as u64 {
            return Err(format!("message {}: a wrong length", self.received));
        }
        let mut bytes = vec![0; expected.len()];
        slot.load(8, &mut bytes).map_err(text)?;
        if bytes != expected && !self.pair.is_dead(Side::B) {
            return Err(format!("message {}: torn", self.received));
        }
        self.received += 1;
        let slot = self.giving_back.slot(0, 64).map_err(text)?;
        slot.publish(self.received);
        Ok(())
    }
}

/// Both sides publish, settle and poll: whether neither saw what the other had published.
pub(crate) fn both_blind(attributes: Attributes, seed: u64) -> bool {
    let pair = Pair::new(2 * HALF, attributes, seed);
    let sides = [Side::A, Side::B].map(|side| Window::new(pair.medium(side)));
    let sound = "the halves lie within and apart";
    let mut seen = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        let (own, other) = (index * HALF, (1 - index) * HALF);
        let mut outgoing = side.outgoing(own..own + HALF).expect(sound);
        let incoming = side.incoming(other..other + HALF).expect(sound);
        outgoing.slot(0, 64).expect(sound).publish(1);
        assert!(outgoing.settle(), "coherent memory can");
        seen.push(incoming.poll(0).expect(sound).word());
    }
    seen == [0, 0]
}
