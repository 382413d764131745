//! Sequential read-ahead of a file.
//!
//! A reader of a file's data rarely reads to the end of the file, and keeps it open for a while. The volume therefore
//! lists finished windows ([`FinishedReadaheads`](crate::finished_readaheads::FinishedReadaheads)) and releases their
//! buffers when another file needs them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::file::{File, PendingRead};
use crate::finished_readaheads::{Release, ReleaseBuffers};
use crate::io_context::PIECE_BYTES;
use crate::{Error, ErrorKind, Result};

/// Bytes in flight ahead of the reader; the next request starts when the reader has consumed one.
const AHEAD_BYTES: u64 = 2 * PIECE_BYTES as u64;
/// Most requests in flight, where a file consists of short runs.
const REQUESTS: usize = 8;
/// Refusals after which another reader takes the window, if its reader has not read meanwhile.
const REFUSALS: u32 = 64;
/// Bytes that a reader may skip and still continue its window.
const GAP_BYTES: u64 = 64 << 10;

/// A file with a read-ahead window.
///
/// There is one window at a time, for one reader; a read elsewhere, or a concurrent one, is served by
/// [`File::read_at`]. The window holds the file's bytes as of its start: use it for files that do not change any more.
///
/// # Cost
/// 512 KiB of buffers for each file whose window is not consumed yet.
pub struct ReadAhead {
    file: File,
    slot: Arc<Slot>,
}

/// Window of a file.
#[derive(Debug, Default)]
struct Slot {
    /// Whether there is a window: changed under the lock, and read without it so that other reads do not lock. A reader
    /// that misses a change reads from the device: `Relaxed`.
    is_active: AtomicBool,
    window: Mutex<ReadWindow>,
}

impl Slot {
    /// Releases all buffers.
    fn empty(&self, window: &mut ReadWindow) {
        *window = ReadWindow::default();
        self.is_active.store(false, Ordering::Relaxed);
    }
}

impl ReleaseBuffers for Slot {
    fn try_release(&self) -> Release {
        match self.window.try_lock() {
            Ok(mut window) if window.is_finished => {
                self.empty(&mut window);
                Release::Released
            }
            Ok(_) => Release::NotFinished,
            Err(_) => Release::Busy,
        }
    }
}

/// Read-ahead window: from the start of the first request to `end`.
#[derive(Debug, Default)]
struct ReadWindow {
    /// Contiguous requests, in file order.
    requests: VecDeque<RequestInFlight>,
    /// Offset at which the next request begins.
    next: u64,
    end: u64,
    /// Refusals of other readers since the window's own reader read last; many of them mean that this reader has
    /// stopped.
    refusals: u32,
    /// Whether the last request was started and reaches the end of the file.
    is_finished: bool,
}

#[derive(Debug)]
struct RequestInFlight {
    offset: u64,
    end: u64,
    read: PendingRead,
}

impl ReadWindow {
    /// Whether the window was consumed.
    fn is_over(&self) -> bool {
        self.requests.is_empty() && self.next >= self.end
    }

    /// Offset of the first byte not consumed.
    fn start(&self) -> u64 {
        self.requests
            .front()
            .map_or(self.next, |first| first.offset)
    }

    /// Whether a read at `offset` continues this window.
    fn is_near(&self, offset: u64) -> bool {
        let front = self.requests.front().map_or(self.next, |first| first.end);
        (self.start()..=front + GAP_BYTES).contains(&offset)
    }

    /// Drops the requests before `offset`.
    fn pass(&mut self, offset: u64) {
        while self
            .requests
            .front()
            .is_some_and(|first| first.end <= offset)
        {
            self.requests.pop_front();
        }
        if self.requests.is_empty() {
            self.next = self.next.max(offset);
        }
    }
}

impl ReadAhead {
    /// Reader of `file` that reads nothing ahead until [`begin`](Self::begin).
    #[must_use]
    pub fn new(file: File) -> Self {
        Self {
            file,
            slot: Arc::default(),
        }
    }

    /// The file that is read ahead.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Starts a window of `len` bytes at `offset`; one that continues the current window extends it. False if another
    /// window is in use, if no buffer is free, or if the bytes are not on the device yet.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn begin(&self, offset: u64, len: u64) -> Result<bool> {
        let end = offset.saturating_add(len).min(self.file.size());
        let Ok(mut window) = self.slot.window.try_lock() else {
            return Ok(false);
        };
        let is_continued =
            (window.start()..=window.end.saturating_add(GAP_BYTES)).contains(&offset);
        if !window.is_over() && is_continued {
            window.end = window.end.max(end);
        } else if window.is_over() || window.refusals >= REFUSALS {
            *window = ReadWindow {
                next: offset,
                end,
                ..ReadWindow::default()
            };
        } else {
            window.refusals += 1;
            return Ok(false);
        }
        let mut filled = self.fill(&mut window);
        if window.requests.is_empty() && self.file.shared().finished_readaheads.release() {
            filled = self.fill(&mut window);
        }
        if filled.is_err() || window.requests.is_empty() {
            self.slot.empty(&mut window);
        } else {
            self.slot.is_active.store(true, Ordering::Relaxed);
        }
        filled.map(|()| !window.requests.is_empty())
    }

    /// Reads at `offset`; returns the number of bytes, less than `out.len()` only at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the device cannot read them.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if self.slot.is_active.load(Ordering::Relaxed) {
            if let Ok(mut window) = self.slot.window.try_lock() {
                if let Some(read) = self.take(&mut window, offset, out) {
                    return Ok(read);
                }
            }
        }
        self.file.read_at(offset, out)
    }

    /// Reads from the window; none if the bytes are not in it, or their read failed.
    fn take(&self, window: &mut ReadWindow, offset: u64, out: &mut [u8]) -> Option<usize> {
        let left = self.file.size().saturating_sub(offset);
        let wanted = left.min(out.len() as u64);
        if !window.is_near(offset) || offset + wanted > window.end {
            return None;
        }
        let wanted = usize::try_from(wanted).ok()?;
        let copied = self.copy(window, offset, &mut out[..wanted]);
        window.refusals = 0;
        // The read from the device that follows reports the error.
        if copied.is_err() || window.is_over() {
            self.slot.empty(window);
        }
        copied.ok().map(|()| wanted)
    }

    /// Copies bytes from the window, and starts a request for each one consumed.
    fn copy(&self, window: &mut ReadWindow, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut at = offset;
        let mut left = out;
        window.pass(at);
        while !left.is_empty() {
            self.fill(window)?;
            let len = (window.end - at).min(PIECE_BYTES as u64);
            let first = match window.requests.front_mut() {
                Some(first) => first,
                // No buffer is free for reading ahead: one long read is better than many short ones.
                None => {
                    let read = self
                        .file
                        .start_read(at, usize::try_from(len).unwrap_or(0))?;
                    window.next = at + len;
                    window.requests.push_back(RequestInFlight {
                        offset: at,
                        end: window.next,
                        read,
                    });
                    continue;
                }
            };
            let skip = usize::try_from(at - first.offset).unwrap_or(usize::MAX);
            let bytes = first.read.wait()?.get(skip..).unwrap_or_default();
            let len = bytes.len().min(left.len());
            if len == 0 {
                return Err(Error::new(
                    ErrorKind::Io,
                    "the file was cut while it was read ahead",
                ));
            }
            let (now, later) = left.split_at_mut(len);
            now.copy_from_slice(&bytes[..len]);
            at += len as u64;
            left = later;
            window.pass(at);
        }
        self.fill(window)
    }

    /// Starts requests up to the limit.
    fn fill(&self, window: &mut ReadWindow) -> Result<()> {
        let may_have_more = |window: &ReadWindow| {
            window.requests.len() < REQUESTS && window.next - window.start() < AHEAD_BYTES
        };
        while window.next < window.end && may_have_more(window) {
            let Some((read, len)) = self.file.try_start(window.next, window.end - window.next)?
            else {
                break;
            };
            let offset = window.next;
            window.next += len;
            let end = window.next;
            window
                .requests
                .push_back(RequestInFlight { offset, end, read });
        }
        let is_finished = window.next >= window.end && window.end == self.file.size();
        if is_finished && !window.is_finished {
            self.file
                .shared()
                .finished_readaheads
                .add(Arc::downgrade(&self.slot) as Weak<dyn ReleaseBuffers>);
        }
        window.is_finished = is_finished;
        Ok(())
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The requests keep the file open. A thread that releases buffers may hold the slot for a moment longer.
        if let Ok(mut window) = self.slot.window.lock() {
            self.slot.empty(&mut window);
        }
    }
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("file", &self.file)
            .field("is_active", &self.slot.is_active)
            .finish_non_exhaustive()
    }
}
