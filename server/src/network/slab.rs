//! Connections by number, with numbers that are never mistaken for an earlier connection's.

use millrace_sync::HotKey;
use slotmap::{Key, KeyData, SlotMap, new_key_type};

new_key_type! {
    /// A place in a [`Slab`] and how often it was used before.
    pub(super) struct Token;
}

impl Token {
    /// The first key of tokens. Smaller keys are free for other uses: the upper half of a token's key is never 0.
    pub(super) const KEY_MIN: u64 = 1 << 32;

    /// The token as the poller's key.
    pub(super) fn key(self) -> u64 {
        self.data().as_ffi()
    }

    pub(super) fn from_key(key: u64) -> Self {
        KeyData::from_ffi(key).into()
    }
}

/// The lower half of a token's key is the number of its place.
impl HotKey for Token {
    fn index(self) -> usize {
        usize::try_from(self.key() & u64::from(u32::MAX)).unwrap_or(usize::MAX)
    }
}

/// Values by [`Token`], which can be taken out for a while.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// `None` for a value that is taken out.
    values: SlotMap<Token, Option<T>>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            values: SlotMap::with_key(),
        }
    }

    /// How many values there are, those that are taken out included.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn insert(&mut self, value: T) -> Token {
        let token = self.values.insert(Some(value));
        // How the library lays out a key is not a part of its interface.
        assert!(
            token.key() >= Token::KEY_MIN,
            "the keys of connections and of others are disjoint"
        );
        token
    }

    /// A value that is in its place.
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        self.values.get_mut(token)?.as_mut()
    }

    /// Takes a value out for a while: [`Slab::put_back`] or [`Slab::remove`] must follow.
    pub(super) fn take(&mut self, token: Token) -> Option<T> {
        self.values.get_mut(token)?.take()
    }

    pub(super) fn put_back(&mut self, token: Token, value: T) {
        let place = self.values.get_mut(token);
        *place.expect("only a value that was taken is put back") = Some(value);
    }

    /// Frees the place of a value that was taken out.
    pub(super) fn remove(&mut self, token: Token) {
        let removed = self.values.remove(token);
        assert!(removed.is_some(), "only a value that was taken is removed");
    }

    /// The tokens of all values that are in their places.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let in_place = self.values.iter().filter(|(_, value)| value.is_some());
        in_place.map(|(token, _)| token).collect()
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
        assert!(second.key() >= Token::KEY_MIN);
        assert_eq!(Token::from_key(second.key()), second);
    }
}
