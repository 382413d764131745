//! The keys under which the engine's own things and its users' keys are stored.
//!
//! One byte before each key keeps the two apart. The prefix costs one copy of the key a read, which is
//! less than a second column family costs a commit: two memtables to fill, to flush and to replay.

use millrace_engine::KeyRange;

/// The first byte of every user's key.
const DATA: u8 = 1;

/// The commit sequence number of the last commit.
pub(crate) const COMMIT_SEQ: &[u8] = &[0, b'o'];

/// The keys of counters begin with this.
pub(crate) const COUNTERS: &[u8] = &[0, b'c'];

/// The first key after the counters.
pub(crate) const COUNTERS_END: &[u8] = &[0, b'c' + 1];

/// The first key after all users' keys.
const DATA_END: &[u8] = &[DATA + 1];

/// Keys up to this length are prefixed on the stack.
const INLINE_LEN_MAX: usize = 255;

/// Calls `run` with the key under which `key` is stored.
pub(crate) fn with_stored<R>(key: &[u8], run: impl FnOnce(&[u8]) -> R) -> R {
    if key.len() <= INLINE_LEN_MAX {
        let mut stored = [0; INLINE_LEN_MAX + 1];
        stored[0] = DATA;
        stored[1..=key.len()].copy_from_slice(key);
        run(&stored[..=key.len()])
    } else {
        run(&stored(key))
    }
}

/// The key under which `key` is stored.
pub(crate) fn stored(key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(key.len() + 1);
    push_stored(&mut stored, key);
    stored
}

/// Appends the key under which `key` is stored.
pub(crate) fn push_stored(out: &mut Vec<u8>, key: &[u8]) {
    out.push(DATA);
    out.extend_from_slice(key);
}

/// The key under which the end of a range is stored, be it open or not.
pub(crate) fn stored_end(end: Option<&[u8]>) -> Vec<u8> {
    end.map_or_else(|| DATA_END.to_vec(), stored)
}

/// The first stored key of `range` and the first one after it.
pub(crate) fn stored_bounds(range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    (stored(&range.start), stored_end(range.end.as_deref()))
}

/// The user's key of a stored one.
pub(crate) fn user_key(stored: &[u8]) -> &[u8] {
    &stored[1..]
}

/// The key under which the sum of the counter `key` is stored.
pub(crate) fn counter(key: &[u8]) -> Vec<u8> {
    [COUNTERS, key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_are_stored_alike() {
        for len in [
            0,
            1,
            INLINE_LEN_MAX - 1,
            INLINE_LEN_MAX,
            INLINE_LEN_MAX + 1,
            70_000,
        ] {
            let key = vec![0xFF; len];
            with_stored(&key, |inline| assert_eq!(inline, stored(&key)));
            assert_eq!(user_key(&stored(&key)), key);
            assert!(*stored(&key) < *DATA_END);
            assert!(*COUNTERS_END < *COMMIT_SEQ && *COMMIT_SEQ < *stored(b""));
        }
    }
}
