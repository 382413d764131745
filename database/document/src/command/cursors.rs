//! The cursors that clients hold open.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bson::RawDocumentBuf;
use parking_lot::Mutex;

use super::host::OpenQueries;
use crate::catalog::Namespace;
use crate::executor::Executor;
use crate::pipeline::DocumentStream;
use crate::value::DocumentWriter;
use crate::{Environment, Error, ErrorCode, Interrupt, Operation, Result};

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
    List(VecDeque<RawDocumentBuf>),
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
            Self::List(list) => match list.pop_front() {
                Some(document) => {
                    out.extend_from_slice(document.as_bytes());
                    Ok(true)
                }
                None => Ok(false),
            },
        }
    }
}

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
}

/// The cursors that are open between commands.
#[derive(Default)]
pub struct Cursors {
    entries: Mutex<HashMap<i64, Entry>>,
    counters: Mutex<CursorStatistics>,
}

/// Numbers of cursors, for `serverStatus` and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorStatistics {
    /// Open now.
    pub open: u64,
    /// Open now, of them without timeout.
    pub open_no_timeout: u64,
    /// Ever opened.
    pub opened_total: u64,
    /// Closed because nobody used them.
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
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Registers a cursor and returns its id.
    pub(crate) fn register(&self, mut cursor: OpenCursor, environment: &dyn Environment) -> i64 {
        cursor.save();
        let mut entries = self.entries.lock();
        let id = loop {
            let id = i64::from_le_bytes(environment.random().to_le_bytes()) & i64::MAX;
            if id != 0 && !entries.contains_key(&id) {
                break id;
            }
        };
        entries.insert(
            id,
            Entry {
                namespace: cursor.namespace.clone(),
                session: cursor.session.clone(),
                no_timeout: cursor.no_timeout,
                cursor: Some(Box::new(cursor)),
                interrupt: None,
                last_used: environment.monotonic(),
            },
        );
        self.counters.lock().opened_total += 1;
        id
    }

    /// Takes a cursor out for use; [`Cursors::give_back`] or [`Cursors::close`] must follow.
    pub(crate) fn take(
        &self,
        id: i64,
        namespace: &Namespace,
        session: Option<&[u8]>,
        operation: &Operation,
    ) -> Result<Box<OpenCursor>> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&id).ok_or_else(|| not_found(id))?;
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
        entry.interrupt = Some(Arc::clone(operation.interrupt()));
        Ok(cursor)
    }

    /// Puts a cursor back. If it was killed meanwhile it is closed.
    pub(crate) fn give_back(&self, id: i64, mut cursor: Box<OpenCursor>, now: Duration) {
        cursor.save();
        if let Some(entry) = self.entries.lock().get_mut(&id) {
            entry.cursor = Some(cursor);
            entry.interrupt = None;
            entry.last_used = now;
        }
    }

    /// Forgets a cursor.
    pub(crate) fn close(&self, id: i64) {
        self.entries.lock().remove(&id);
    }

    /// Closes a cursor at its client's wish; false when there is none of this id on the namespace.
    pub(crate) fn kill(&self, id: i64, namespace: &Namespace) -> bool {
        let mut entries = self.entries.lock();
        if entries
            .get(&id)
            .is_none_or(|entry| entry.namespace != *namespace)
        {
            return false;
        }
        if let Some(entry) = entries.remove(&id) {
            stop(&entry);
        }
        true
    }

    /// Closes the cursors of a session that ended.
    pub fn kill_session(&self, session: &[u8]) {
        self.entries.lock().retain(|_, entry| {
            let of_session = entry.session.as_deref() == Some(session);
            if of_session {
                stop(entry);
            }
            !of_session
        });
    }

    /// Closes the cursors that nobody has used for long; `now` is monotonic.
    pub(crate) fn close_idle(&self, now: Duration) {
        let mut closed = 0;
        self.entries.lock().retain(|_, entry| {
            let idle = now.saturating_sub(entry.last_used) > IDLE_MAX;
            let keep = entry.no_timeout || entry.cursor.is_none() || !idle;
            closed += u64::from(!keep);
            keep
        });
        self.counters.lock().timed_out_total += closed;
    }

    /// Numbers of cursors.
    #[must_use]
    pub fn statistics(&self) -> CursorStatistics {
        let entries = self.entries.lock();
        CursorStatistics {
            open: entries.len() as u64,
            open_no_timeout: entries.values().filter(|entry| entry.no_timeout).count() as u64,
            ..*self.counters.lock()
        }
    }
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
