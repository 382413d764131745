//! A resumable walk over a range of keys.

use millrace_engine::{Cursor, KeyRange};
use millrace_value::Result;

/// Where a walk is.
#[derive(Debug)]
enum Place {
    /// Before its first key.
    Start,
    /// On a key that has not been returned yet, because a seek led to it.
    At,
    /// On the key that was returned last.
    On,
    /// Without a cursor; `key` is where it was.
    Saved { key: Vec<u8>, returned: bool },
    /// After its last key.
    End,
}

/// A walk over the keys of a range in one direction, which can let go of the engine's cursor and go on
/// later from the same key.
#[derive(Debug)]
pub(super) struct Walk {
    range: KeyRange,
    backward: bool,
    cursor: Option<Box<dyn Cursor>>,
    place: Place,
}

/// How a walk came to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// In the course of the walk.
    Moved,
    /// After the walk was saved, because the key at which it was saved is gone. The walk may be at its
    /// end.
    Displaced,
    /// There is no key left.
    End,
}

impl Walk {
    /// A walk over `range`, which has not begun.
    pub(super) const fn new(range: KeyRange, backward: bool) -> Self {
        Self {
            range,
            backward,
            cursor: None,
            place: Place::Start,
        }
    }

    /// Whether the next move needs a cursor that is not there.
    pub(super) const fn needs_cursor(&self) -> bool {
        self.cursor.is_none() && !matches!(self.place, Place::End)
    }

    /// The range for which a cursor is needed.
    pub(super) const fn range(&self) -> &KeyRange {
        &self.range
    }

    /// Gives the walk a cursor over its range.
    pub(super) fn attach(&mut self, cursor: Box<dyn Cursor>) {
        self.cursor = Some(cursor);
    }

    /// Moves to the next key. A cursor must be attached unless the walk is at its end. With `tail`, the
    /// end is only the end for now: once a new cursor is attached, the walk goes on behind its last key.
    pub(super) fn advance(&mut self, tail: bool) -> Result<Arrival> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(Arrival::End);
        };
        let mut arrival = Arrival::Moved;
        let found = match &self.place {
            Place::Start if self.backward => cursor.seek_last()?,
            Place::Start => cursor.seek_first()?,
            Place::At => true,
            Place::On => step(cursor.as_mut(), self.backward)?,
            Place::Saved { key, returned } => {
                let found = if self.backward {
                    cursor.seek_back(key)?
                } else {
                    cursor.seek(key)?
                };
                if found && cursor.key() == key.as_slice() {
                    if *returned {
                        step(cursor.as_mut(), self.backward)?
                    } else {
                        true
                    }
                } else {
                    arrival = Arrival::Displaced;
                    found
                }
            }
            Place::End => false,
        };
        if found {
            self.place = Place::On;
            return Ok(arrival);
        }
        if tail && arrival == Arrival::Moved {
            // The cursor still sees what it saw, so that its last key is the one returned last.
            self.place = if cursor.seek_last()? {
                Place::Saved {
                    key: cursor.key().to_vec(),
                    returned: true,
                }
            } else {
                Place::Start
            };
            self.cursor = None;
            return Ok(Arrival::End);
        }
        self.finish();
        Ok(if arrival == Arrival::Displaced {
            arrival
        } else {
            Arrival::End
        })
    }

    /// Goes to where a bounds check says: forward to the first key not less than `target`, backward to
    /// the last one less. The next [`advance`](Self::advance) stays there.
    pub(super) fn seek(&mut self, target: &[u8]) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        let found = if self.backward {
            cursor.seek_back(target)? && (cursor.key() != target || cursor.previous()?)
        } else {
            cursor.seek(target)?
        };
        if found {
            self.place = Place::At;
        } else {
            self.finish();
        }
        Ok(())
    }

    /// The key the walk is on and its value.
    pub(super) fn entry(&self) -> (&[u8], &[u8]) {
        let cursor = self
            .cursor
            .as_ref()
            .expect("invariant: a walk on a key has a cursor");
        (cursor.key(), cursor.value())
    }

    /// Ends the walk.
    pub(super) fn finish(&mut self) {
        self.place = Place::End;
        self.cursor = None;
    }

    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.place, Place::End)
    }

    /// Lets go of the cursor.
    pub(super) fn save(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            match self.place {
                Place::At | Place::On => {
                    let returned = matches!(self.place, Place::On);
                    self.place = Place::Saved {
                        key: cursor.key().to_vec(),
                        returned,
                    };
                }
                Place::Start | Place::Saved { .. } | Place::End => {}
            }
        }
    }
}

fn step(cursor: &mut dyn Cursor, backward: bool) -> Result<bool> {
    Ok(if backward {
        cursor.previous()?
    } else {
        cursor.next()?
    })
}

#[cfg(test)]
mod tests {
    use millrace_engine::{Batch, Durability, Engine, MemoryEngine, ReadSet};

    use super::*;

    fn engine() -> MemoryEngine {
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        for key in [b"a", b"c", b"e", b"g"] {
            batch.put(key, b"");
        }
        engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("a commit");
        engine
    }

    fn walk(engine: &MemoryEngine, walk: &mut Walk) -> Option<Vec<u8>> {
        if walk.needs_cursor() {
            walk.attach(engine.cursor(walk.range().clone()).expect("a cursor"));
        }
        let arrival = walk.advance(false).expect("an advance");
        (arrival != Arrival::End && !walk.is_finished()).then(|| walk.entry().0.to_vec())
    }

    #[test]
    fn a_saved_walk_goes_on_where_it_was() {
        let engine = engine();
        for backward in [false, true] {
            let mut subject = Walk::new(KeyRange::all(), backward);
            let mut keys = Vec::new();
            while let Some(key) = walk(&engine, &mut subject) {
                keys.push(key);
                subject.save();
            }
            let mut expected = [b"a", b"c", b"e", b"g"].map(|key| key.to_vec());
            if backward {
                expected.reverse();
            }
            assert_eq!(keys, expected);
        }
    }

    #[test]
    fn a_seek_is_not_lost_by_saving() {
        let engine = engine();
        for (backward, target, expected) in
            [(false, b"d", b"e"), (true, b"c", b"a"), (true, b"d", b"c")]
        {
            let mut subject = Walk::new(KeyRange::all(), backward);
            walk(&engine, &mut subject);
            subject.seek(target).expect("a seek");
            subject.save();
            assert_eq!(walk(&engine, &mut subject).as_deref(), Some(&expected[..]));
        }
    }

    #[test]
    fn a_tailing_walk_finds_what_is_added_behind_its_end() {
        let engine = engine();
        let mut subject = Walk::new(KeyRange::prefix(b"x"), false);
        for added in [&b"x1"[..], b"x2"] {
            subject.attach(engine.cursor(subject.range().clone()).expect("a cursor"));
            assert_eq!(subject.advance(true).expect("an advance"), Arrival::End);
            let mut batch = Batch::new();
            batch.put(added, b"");
            engine
                .commit(&batch, &ReadSet::none(), Durability::Buffered)
                .expect("a commit");
            subject.attach(engine.cursor(subject.range().clone()).expect("a cursor"));
            assert_eq!(subject.advance(true).expect("an advance"), Arrival::Moved);
            assert_eq!(subject.entry().0, added);
        }
    }

    #[test]
    fn a_walk_notices_that_its_key_is_gone() {
        let engine = engine();
        let mut subject = Walk::new(KeyRange::all(), false);
        walk(&engine, &mut subject);
        subject.save();
        let mut batch = Batch::new();
        batch.delete(b"a");
        engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("a commit");
        subject.attach(engine.cursor(KeyRange::all()).expect("a cursor"));
        assert_eq!(
            subject.advance(false).expect("an advance"),
            Arrival::Displaced
        );
        assert_eq!(subject.entry().0, b"c");
    }
}
