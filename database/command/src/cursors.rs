//! The cursors that clients hold open.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bson::RawDocumentBuf;
use millrace_collection::Namespace;
use millrace_pipeline::DocumentStream;
use millrace_query::executor::Executor;
use millrace_value::stage_memory::FREE_BYTES;
use millrace_value::{DocumentWriter, Environment, Error, ErrorCode, Interrupt, Operation, Result};
use parking_lot::Mutex;

use super::DatabaseHooks;
use super::aggregation::OpenQueries;
use super::document_list::DocumentList;

/// How long an idle cursor lives, unless it was opened with `noCursorTimeout`.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);

/// The most bytes of documents in one batch. A batch holds at least one document.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Where a cursor's documents come from.
pub(crate) enum Source {
    /// A planned query.
    Query(Box<Executor>),
    /// A pipeline, and the queries it reads from.
    Stream(Box<dyn DocumentStream>, Arc<OpenQueries>),
    /// A list made in advance (`listCollections`).
    List(DocumentList),
}

/// A cursor and what its client asked of it.
pub(crate) struct OpenCursor {
    pub(crate) namespace: Namespace,
    pub(crate) source: Source,
    /// A document that did not fit into the last batch.
    pub(crate) pending: Option<RawDocumentBuf>,
    /// How many more documents the client wants.
    pub(crate) remaining: Option<u64>,
    pub(crate) tailable: bool,
    pub(crate) await_data: bool,
    pub(crate) no_timeout: bool,
    pub(crate) session: Option<Box<[u8]>>,
    /// The time limit for the whole life of the cursor, not counting what the client does in between.
    pub(crate) time_limit: Option<Duration>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchEnd {
    /// The batch is full; there may be more.
    Full,
    /// There is no more now.
    Exhausted,
}

impl OpenCursor {
    pub(crate) fn new(namespace: Namespace, source: Source, session: Option<&[u8]>) -> Self {
        Self {
            namespace,
            source,
            pending: None,
            remaining: None,
            tailable: false,
            await_data: false,
            no_timeout: false,
            session: session.map(Into::into),
            time_limit: None,
        }
    }

    /// Appends documents to the open array of `writer`, at most `count_max`, and returns how many.
    pub(crate) fn fill(
        &mut self,
        operation: &Operation,
        writer: &mut DocumentWriter<'_>,
        count_max: u64,
    ) -> Result<(u64, BatchEnd)> {
        let start = writer.bytes();
        let mut count = 0;
        let mut name = itoa::Buffer::new();
        while count < count_max {
            if self.remaining == Some(0) {
                return Ok((count, BatchEnd::Exhausted));
            }
            let before = writer.bytes();
            let found = match self.pending.take() {
                Some(document) => {
                    writer.document(name.format(count), &document);
                    true
                }
                None => {
                    let out = writer.embed(name.format(count));
                    self.source.next_into(operation, out)?
                }
            };
            if !found {
                writer.truncate(before);
                return Ok((count, BatchEnd::Exhausted));
            }
            if count > 0 && writer.bytes() - start > BATCH_BYTES_MAX {
                self.pending = Some(writer.take_last_document(before, name.format(count))?);
                return Ok((count, BatchEnd::Full));
            }
            count += 1;
            if let Some(remaining) = &mut self.remaining {
                *remaining -= 1;
            }
        }
        let end = if self.remaining == Some(0) {
            BatchEnd::Exhausted
        } else {
            BatchEnd::Full
        };
        Ok((count, end))
    }

    /// What the cursor holds between batches. What its stages hold beyond what they need not ask for is
    /// charged to the sorts.
    fn held_bytes(&self) -> usize {
        let pending = self
            .pending
            .as_ref()
            .map_or(0, |document| document.as_bytes().len());
        let source = match &self.source {
            Source::Query(executor) => executor.memory_bytes().min(FREE_BYTES),
            Source::Stream(stream, _) => stream.memory_bytes().min(FREE_BYTES),
            Source::List(list) => list.bytes(),
        };
        CURSOR_BYTES + pending + source
    }

    /// Lets go of the engine's resources until the next batch.
    fn save(&mut self) {
        match &mut self.source {
            Source::Query(executor) => executor.save(),
            Source::Stream(_, queries) => queries.save(),
            Source::List(_) => {}
        }
    }
}

impl Source {
    /// Appends the next document to `out`, or nothing when there is none.
    fn next_into(&mut self, operation: &Operation, out: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Query(executor) => executor.next_into(operation, out),
            Self::Stream(stream, _) => match stream.next(operation)? {
                Some(document) => {
                    document.to_writer(out)?;
                    Ok(true)
                }
                None => Ok(false),
            },
            Self::List(list) => match list.pop() {
                Some(document) => {
                    out.extend_from_slice(document.as_bytes());
                    Ok(true)
                }
                None => Ok(false),
            },
        }
    }
}

/// What a cursor holds at least: its plan, its position, its entry in the registry.
const CURSOR_BYTES: usize = 4 * 1024;

/// A cursor in the registry.
struct Entry {
    /// None while a getMore uses it.
    cursor: Option<Box<OpenCursor>>,
    /// Stops the getMore that uses it.
    interrupt: Option<Arc<Interrupt>>,
    namespace: Namespace,
    session: Option<Box<[u8]>>,
    no_timeout: bool,
    last_used: Duration,
    /// What it holds between batches; none while it is used.
    bytes: usize,
}

/// The cursors that are open between commands.
pub struct Cursors {
    entries: Mutex<Entries>,
    counters: Mutex<CursorStatistics>,
    hooks: Arc<dyn DatabaseHooks>,
}

/// The registry. Its `bytes` are the sum over the entries; they change only within [`Cursors::change`].
#[derive(Default)]
struct Entries {
    by_id: HashMap<i64, Entry>,
    bytes: usize,
}

impl Entries {
    fn remove(&mut self, id: i64) -> Option<Entry> {
        let entry = self.by_id.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Takes the cursor out of its entry, for `operation` to use.
    fn take(
        &mut self,
        id: i64,
        namespace: &Namespace,
        session: Option<&[u8]>,
        operation: &Operation,
    ) -> Result<Box<OpenCursor>> {
        let entry = self.by_id.get_mut(&id).ok_or_else(|| not_found(id))?;
        if entry.namespace != *namespace {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                    entry.namespace
                ),
            ));
        }
        check_session(id, entry.session.as_deref(), session)?;
        let cursor = entry.cursor.take().ok_or_else(|| {
            Error::new(
                ErrorCode::CursorInUse,
                format!("cursor id {id} is already in use"),
            )
        })?;
        self.bytes -= std::mem::take(&mut entry.bytes);
        entry.interrupt = Some(Arc::clone(operation.interrupt()));
        Ok(cursor)
    }

    /// Removes the entries that `keep` refuses; returns how many.
    fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) -> u64 {
        let before = self.by_id.len();
        let bytes = &mut self.bytes;
        self.by_id.retain(|_, entry| {
            let kept = keep(entry);
            if !kept {
                *bytes -= entry.bytes;
            }
            kept
        });
        (before - self.by_id.len()) as u64
    }

    /// When the longest unused eighth of the cursors between batches was last used; none if there is no
    /// such cursor.
    fn oldest(&self) -> Option<Duration> {
        let idle = self.by_id.values().filter(|entry| entry.cursor.is_some());
        let mut times: Vec<Duration> = idle.map(|entry| entry.last_used).collect();
        let place = times.len().checked_sub(1)? / 8;
        Some(*times.select_nth_unstable(place).1)
    }
}

/// Numbers of cursors, for `serverStatus` and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorStatistics {
    /// The cursors that are open now.
    pub open: u64,
    /// The cursors that are open now and never time out (`noCursorTimeout`).
    pub open_no_timeout: u64,
    /// The cursors that were opened since the start, those closed included.
    pub opened_total: u64,
    /// The cursors closed because they were unused for long, or unused while memory was scarce.
    pub timed_out_total: u64,
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursors")
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl Cursors {
    pub(crate) fn new(hooks: Arc<dyn DatabaseHooks>) -> Self {
        Self {
            entries: Mutex::default(),
            counters: Mutex::default(),
            hooks,
        }
    }

    /// Registers a cursor and returns its id.
    pub(crate) fn register(&self, mut cursor: OpenCursor, environment: &dyn Environment) -> i64 {
        cursor.save();
        self.change(|entries| {
            let id = loop {
                let id = i64::from_le_bytes(environment.random().to_le_bytes()) & i64::MAX;
                if id != 0 && !entries.by_id.contains_key(&id) {
                    break id;
                }
            };
            let bytes = cursor.held_bytes();
            entries.bytes += bytes;
            entries.by_id.insert(
                id,
                Entry {
                    namespace: cursor.namespace.clone(),
                    session: cursor.session.clone(),
                    no_timeout: cursor.no_timeout,
                    cursor: Some(Box::new(cursor)),
                    interrupt: None,
                    last_used: environment.monotonic(),
                    bytes,
                },
            );
            self.counters.lock().opened_total += 1;
            id
        })
    }

    /// Changes the registry. A change of the bytes that its cursors hold is reported to the hooks;
    /// when they refuse it, the longest unused cursors are closed.
    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        let mut entries = self.entries.lock();
        let before = entries.bytes;
        let result = change(&mut entries);
        if entries.bytes != before {
            let closed = self.make_room(&mut entries);
            self.counters.lock().timed_out_total += closed;
        }
        result
    }

    /// Closes the longest unused cursors until the others may hold what they do; returns how many.
    fn make_room(&self, entries: &mut Entries) -> u64 {
        let mut closed = 0;
        while !self.hooks.cursors_may_hold(entries.bytes) {
            let Some(oldest) = entries.oldest() else {
                break;
            };
            closed += entries.retain(|entry| entry.cursor.is_none() || entry.last_used > oldest);
        }
        closed
    }

    /// Takes a cursor out for use; [`Cursors::give_back`] or [`Cursors::close`] must follow.
    pub(crate) fn take(
        &self,
        id: i64,
        namespace: &Namespace,
        session: Option<&[u8]>,
        operation: &Operation,
    ) -> Result<Box<OpenCursor>> {
        self.change(|entries| entries.take(id, namespace, session, operation))
    }

    /// Puts a cursor back. If it was killed meanwhile it is closed.
    pub(crate) fn give_back(&self, id: i64, mut cursor: Box<OpenCursor>, now: Duration) {
        cursor.save();
        self.change(|entries| {
            let Some(entry) = entries.by_id.get_mut(&id) else {
                return;
            };
            entry.bytes = cursor.held_bytes();
            entries.bytes += entry.bytes;
            entry.cursor = Some(cursor);
            entry.interrupt = None;
            entry.last_used = now;
        });
    }

    /// Forgets a cursor.
    pub(crate) fn close(&self, id: i64) {
        self.change(|entries| entries.remove(id));
    }

    /// Closes a cursor at its client's wish; false when there is none of this id on the namespace.
    pub(crate) fn kill(&self, id: i64, namespace: &Namespace) -> bool {
        self.change(|entries| {
            if entries
                .by_id
                .get(&id)
                .is_none_or(|entry| entry.namespace != *namespace)
            {
                return false;
            }
            if let Some(entry) = entries.remove(id) {
                stop(&entry);
            }
            true
        })
    }

    /// Closes the cursors of a session that ended.
    pub fn kill_session(&self, session: &[u8]) {
        self.change(|entries| {
            entries.retain(|entry| {
                let of_session = entry.session.as_deref() == Some(session);
                if of_session {
                    stop(entry);
                }
                !of_session
            })
        });
    }

    /// Closes the cursors that were not used for long; `now` is monotonic.
    pub(crate) fn close_idle(&self, now: Duration) {
        let closed = self.change(|entries| {
            entries.retain(|entry| {
                let idle = now.saturating_sub(entry.last_used) > IDLE_MAX;
                entry.no_timeout || entry.cursor.is_none() || !idle
            })
        });
        self.counters.lock().timed_out_total += closed;
    }

    /// The numbers of open, opened and timed-out cursors at this moment.
    #[must_use]
    pub fn statistics(&self) -> CursorStatistics {
        let entries = self.entries.lock();
        CursorStatistics {
            open: entries.by_id.len() as u64,
            open_no_timeout: entries
                .by_id
                .values()
                .filter(|entry| entry.no_timeout)
                .count() as u64,
            ..*self.counters.lock()
        }
    }
}

/// How much of the operation's time limit is left for later batches.
pub(crate) fn time_left(operation: &Operation) -> Option<Duration> {
    let now = operation.environment().monotonic();
    operation
        .interrupt()
        .deadline()
        .map(|deadline| deadline.saturating_sub(now))
}

/// Checks that a cursor is used in the session it was opened in, or in none if it was in none.
fn check_session(id: i64, opened_in: Option<&[u8]>, used_in: Option<&[u8]>) -> Result<()> {
    let (code, how) = match (opened_in, used_in) {
        (None, Some(_)) => (50736, "was not created in a session, in a session"),
        (Some(_), None) => (50737, "was created in a session, without an lsid"),
        (Some(own), Some(other)) if own != other => {
            (50738, "was created in a session, in another session")
        }
        _ => return Ok(()),
    };
    Err(Error::location(
        code,
        format!("Cannot run getMore on cursor {id}, which {how}"),
    ))
}

fn stop(entry: &Entry) {
    if let Some(interrupt) = &entry.interrupt {
        interrupt.kill(ErrorCode::CursorKilled);
    }
}

fn not_found(id: i64) -> Error {
    Error::new(
        ErrorCode::CursorNotFound,
        format!("cursor id {id} not found"),
    )
}
