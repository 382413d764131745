//! The state of the engine that a command reads.

use std::sync::Arc;

use millrace_engine::{CommitSeq, Counter, Cursor, Engine, KeyRange, ReadSet, Scratch, Snapshot};

use crate::Result;

/// The state of the engine that all reads of a command see: the latest one, or that of a snapshot.
///
/// At the latest view each read sees the commits that are visible when it is made, so two reads can see
/// different states. At a fixed view every read sees one state, whatever is committed meanwhile; the
/// engine keeps that state as long as a clone of the view lives.
///
/// A clone is of the same kind and, if fixed, of the same state. It costs two reference counts.
#[derive(Clone, Debug)]
pub struct ReadView {
    engine: Arc<dyn Engine>,
    snapshot: Option<Arc<dyn Snapshot>>,
}

impl ReadView {
    /// The view of whatever `engine` holds at the moment of each read.
    #[must_use]
    pub const fn latest(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            snapshot: None,
        }
    }

    /// The view of the state that `snapshot`, taken of `engine`, holds.
    #[must_use]
    pub const fn at(engine: Arc<dyn Engine>, snapshot: Arc<dyn Snapshot>) -> Self {
        Self {
            engine,
            snapshot: Some(snapshot),
        }
    }

    /// This view if it is fixed; otherwise a view of the engine's present state.
    ///
    /// # Errors
    /// When the engine fails to take a snapshot.
    pub fn fixed(&self) -> Result<Self> {
        if self.is_fixed() {
            return Ok(self.clone());
        }
        let snapshot = Arc::from(self.engine.snapshot()?);
        Ok(Self::at(Arc::clone(&self.engine), snapshot))
    }

    /// Whether all reads see one state.
    #[must_use]
    pub const fn is_fixed(&self) -> bool {
        self.snapshot.is_some()
    }

    /// The last commit that a fixed view sees; none for the latest view.
    #[must_use]
    pub fn commit_seq(&self) -> Option<CommitSeq> {
        self.snapshot.as_ref().map(|snapshot| snapshot.commit_seq())
    }

    /// ReadSet for a write that reads at this view: its commit is refused when a key that it read was
    /// committed after the view's state, or after this call at the latest view.
    #[must_use]
    pub fn read_set(&self) -> ReadSet {
        match &self.snapshot {
            Some(snapshot) => ReadSet::starting_at(snapshot.commit_seq()),
            None => self.engine.read_set(),
        }
    }

    /// Calls `visit` with the value of `key`, borrowed from the engine; false if there is none. `visit`
    /// must not call the engine.
    ///
    /// # Errors
    /// When the engine fails.
    #[inline]
    pub fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(match &self.snapshot {
            Some(snapshot) => snapshot.get_with(key, visit)?,
            None => self.engine.get_with(key, visit)?,
        })
    }

    /// As [`get_with`](Self::get_with), with a `visit` that can fail.
    ///
    /// # Errors
    /// Those of `visit` and of the engine.
    pub fn get_checked(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        let mut outcome = Ok(());
        let found = self.get_with(key, &mut |bytes| outcome = visit(bytes))?;
        outcome?;
        Ok(found)
    }

    /// The value of `key`, copied.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(match &self.snapshot {
            Some(snapshot) => snapshot.get(key)?,
            None => self.engine.get(key)?,
        })
    }

    /// A cursor over `range`. It keeps to the state that the view has when it is opened.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        Ok(match &self.snapshot {
            Some(snapshot) => snapshot.cursor(range)?,
            None => self.engine.cursor(range)?,
        })
    }

    /// The sum of the counter `key`; zero if it was never added to.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn counter(&self, key: &[u8]) -> Result<Counter> {
        Ok(match &self.snapshot {
            Some(snapshot) => snapshot.counter(key)?,
            None => self.engine.counter(key)?,
        })
    }

    /// Scratch space of the view's engine, for what a reader cannot hold in memory.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn scratch(&self) -> Result<Box<dyn Scratch>> {
        Ok(self.engine.scratch()?)
    }
}

#[cfg(test)]
mod tests {
    use millrace_engine::{Batch, Durability, MemoryEngine};

    use super::*;

    fn commit(engine: &dyn Engine, value: &[u8]) -> CommitSeq {
        let mut batch = Batch::new();
        batch.put(b"k", value);
        batch.add(b"c", Counter { count: 1, bytes: 2 });
        engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("a commit")
    }

    /// What a view reads in each of its ways.
    fn seen(view: &ReadView) -> ([Option<Vec<u8>>; 3], i64) {
        let mut visited = None;
        let found = view
            .get_with(b"k", &mut |bytes| visited = Some(bytes.to_vec()))
            .expect("a read");
        assert_eq!(found, visited.is_some());
        let mut cursor = view.cursor(KeyRange::all()).expect("a cursor");
        let walked = cursor.seek_first().expect("a move");
        let values = [
            view.get(b"k").expect("a read"),
            visited,
            walked.then(|| cursor.value().to_vec()),
        ];
        (values, view.counter(b"c").expect("a counter").count)
    }

    #[test]
    fn the_latest_view_follows_commits_and_a_fixed_one_does_not() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let latest = ReadView::latest(Arc::clone(&engine));
        let empty = latest.fixed().expect("a snapshot");
        let first = commit(&*engine, b"1");
        let fixed = latest.fixed().expect("a snapshot");
        commit(&*engine, b"2");
        let all = |value: &[u8], count| ([(); 3].map(|()| Some(value.to_vec())), count);
        assert_eq!(seen(&empty), ([const { None }; 3], 0));
        assert_eq!(seen(&fixed), all(b"1", 1));
        assert_eq!(seen(&fixed.fixed().expect("the same")), all(b"1", 1));
        assert_eq!(seen(&latest), all(b"2", 2));
        assert_eq!(
            (fixed.commit_seq(), latest.commit_seq()),
            (Some(first), None)
        );
        assert_eq!(fixed.read_set().start(), first);
        assert_eq!(latest.read_set().start(), first.next());
    }
}
