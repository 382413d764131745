//! Connections by number, with numbers that are never mistaken for an earlier connection's.

use millrace_stream::HotKey;

/// A place in a [`Slab`] and how often it was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token(u64);

impl Token {
    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// The token as the poller's key. Never above [`Token::KEY_MAX`].
    pub(super) const fn key(self) -> u64 {
        self.0
    }

    pub(super) const fn from_key(key: u64) -> Self {
        Self(key)
    }

    /// Keys above this one are free for other uses: generations end before.
    pub(super) const KEY_MAX: u64 = (GENERATION_MAX as u64) << 32 | u32::MAX as u64;

    fn parts(self) -> (usize, u32) {
        let bytes = self.0.to_le_bytes();
        let half = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        (usize::try_from(half(0)).unwrap_or(usize::MAX), half(4))
    }
}

impl HotKey for Token {
    fn index(self) -> usize {
        self.parts().0
    }
}

const GENERATION_MAX: u32 = u32::MAX >> 1;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`Token`].
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }

    /// How many values there are, those that are taken out included.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> Token {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[usize::try_from(index).unwrap_or(usize::MAX)];
            slot.value = Some(value);
            return Token::new(index, slot.generation);
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 connections");
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Token::new(index, 0)
    }

    /// A value that is in its place.
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let (index, generation) = token.parts();
        let slot = self.slots.get_mut(index)?;
        if slot.generation == generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// Takes a value out for a while: [`Slab::put_back`] or [`Slab::remove`] must follow.
    pub(super) fn take(&mut self, token: Token) -> Option<T> {
        let (index, generation) = token.parts();
        let slot = self.slots.get_mut(index)?;
        if slot.generation == generation {
            slot.value.take()
        } else {
            None
        }
    }

    pub(super) fn put_back(&mut self, token: Token, value: T) {
        let (index, generation) = token.parts();
        let slot = &mut self.slots[index];
        assert_eq!(
            slot.generation, generation,
            "only a value that was taken is put back"
        );
        slot.value = Some(value);
    }

    /// Frees the place of a value that was taken out.
    pub(super) fn remove(&mut self, token: Token) {
        let (index, generation) = token.parts();
        let slot = &mut self.slots[index];
        assert_eq!(
            slot.generation, generation,
            "only a value that was taken is removed"
        );
        slot.generation = (generation + 1) % GENERATION_MAX;
        slot.value = None;
        self.len -= 1;
        self.free
            .push(u32::try_from(index).expect("tokens have 32 bits of index"));
    }

    /// The tokens of all values that are in their places.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::with_capacity(self.len);
        for (index, slot) in (0..).zip(&self.slots) {
            if slot.value.is_some() {
                tokens.push(Token::new(index, slot.generation));
            }
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_removed_values_find_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.get_mut(first), Some(&mut 'a'));
        assert_eq!(slab.take(first), Some('a'));
        assert_eq!(slab.get_mut(first), None);
        slab.remove(first);
        let second = slab.insert('b');
        assert_ne!(first, second);
        assert_eq!(slab.take(first), None);
        assert_eq!(slab.take(second), Some('b'));
        slab.put_back(second, 'c');
        assert_eq!(slab.tokens(), [second]);
        assert_eq!(slab.len(), 1);
        assert!(second.key() <= Token::KEY_MAX);
    }
}
