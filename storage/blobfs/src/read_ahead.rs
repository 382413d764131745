//! Reading ahead of a reader that goes through a file from front to back.
//!
//! Who reads to the last of a file's data rarely reads to the end of the file, and keeps it open for a while. So the
//! volume knows the parts that have come to the end of their file, and gives up their buffers when another file needs
//! them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::file::{File, PendingRead};
use crate::lanes::PIECE_BYTES;
use crate::{Error, ErrorKind, Result};

/// So much is in flight ahead of the reader; more is begun when the reader has gone through a request.
const AHEAD_BYTES: u64 = 2 * PIECE_BYTES as u64;
/// Requests in flight, where a file lies in short runs.
const REQUESTS: usize = 8;
/// A reader that is refused so often, while who has the part reads nothing, gets it.
const REFUSALS: u32 = 64;
/// A reader may leave out so much, of what it has elsewhere, and still be the one that is read for.
const GAP_BYTES: u64 = 64 << 10;

/// A file of which a part is read ahead, while the reader works on what it has.
///
/// One part at a time is read ahead, for one reader; whoever reads elsewhere, or meanwhile, is served as by
/// [`File::read_at`]. What is read ahead is what the file held when that began: this is for files that do not change
/// any more.
///
/// # Cost
/// 512 KiB of buffers for each file with a part that is not gone through yet.
pub struct ReadAhead {
    file: File,
    slot: Arc<Slot>,
}

/// Where a file has its part.
#[derive(Debug, Default)]
struct Slot {
    /// Whether there is a part: changed under the lock, and read without it to save readers the lock. Who misses that
    /// it was set reads from the device: `Relaxed`.
    is_active: AtomicBool,
    part: Mutex<Part>,
}

impl Slot {
    /// Gives up all buffers.
    fn empty(&self, part: &mut Part) {
        *part = Part::default();
        self.is_active.store(false, Ordering::Relaxed);
    }
}

/// The parts of a volume's files that are read ahead to the end of their file. Locked by who has the lock of a part,
/// which therefore only tries to lock others.
#[derive(Debug, Default)]
pub(crate) struct Endings(Mutex<Vec<Weak<Slot>>>);

impl Endings {
    fn add(&self, slot: &Arc<Slot>) {
        let mut slots = self.0.lock().expect("no holder of the lock panics");
        let added = Arc::downgrade(slot);
        slots.retain(|slot| slot.strong_count() > 0 && !slot.ptr_eq(&added));
        slots.push(added);
    }

    /// Gives up the buffers of all of them that nobody reads just now; whether there were any.
    fn give_up(&self) -> bool {
        let slots = std::mem::take(&mut *self.0.lock().expect("no holder of the lock panics"));
        let mut have_any = false;
        let mut busy = Vec::new();
        for slot in slots.iter().filter_map(Weak::upgrade) {
            match slot.part.try_lock() {
                Ok(mut part) if part.is_ending => {
                    slot.empty(&mut part);
                    have_any = true;
                }
                Ok(_) => {}
                Err(_) => busy.push(Arc::downgrade(&slot)),
            }
        }
        self.0
            .lock()
            .expect("no holder of the lock panics")
            .extend(busy);
        have_any
    }
}

/// What is read ahead: from the first request's beginning to `end`.
#[derive(Debug, Default)]
struct Part {
    /// One after the other, without gaps.
    requests: VecDeque<Ahead>,
    /// Where the next request begins.
    next: u64,
    end: u64,
    /// How often another reader was refused since this one was read last: whose it is has probably gone away, if often.
    refusals: u32,
    /// Whether the last request is begun, and reaches to the end of the file.
    is_ending: bool,
}

#[derive(Debug)]
struct Ahead {
    offset: u64,
    end: u64,
    read: PendingRead,
}

impl Part {
    /// Whether all of it was read.
    fn is_over(&self) -> bool {
        self.requests.is_empty() && self.next >= self.end
    }

    /// Where what was not given back begins.
    fn start(&self) -> u64 {
        self.requests
            .front()
            .map_or(self.next, |first| first.offset)
    }

    /// Whether the reader of this part may be the one that wants `offset`.
    fn is_near(&self, offset: u64) -> bool {
        let front = self.requests.front().map_or(self.next, |first| first.end);
        (self.start()..=front + GAP_BYTES).contains(&offset)
    }

    /// Gives back what lies before `offset`.
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
    /// Of a file of which nothing is read ahead yet.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self {
            file,
            slot: Arc::default(),
        }
    }

    /// The file itself.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Begins to read `len` bytes from `offset` on, and goes on as they are read; a part that continues the one that
    /// is read ahead already prolongs it. Whether it was begun: not while there is another part that somebody reads,
    /// nor without buffers, nor for what is not on the device yet.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn begin(&self, offset: u64, len: u64) -> Result<bool> {
        let end = offset.saturating_add(len).min(self.file.size());
        let Ok(mut part) = self.slot.part.try_lock() else {
            return Ok(false);
        };
        let is_continued = (part.start()..=part.end.saturating_add(GAP_BYTES)).contains(&offset);
        if !part.is_over() && is_continued {
            part.end = part.end.max(end);
        } else if part.is_over() || part.refusals >= REFUSALS {
            *part = Part {
                next: offset,
                end,
                ..Part::default()
            };
        } else {
            part.refusals += 1;
            return Ok(false);
        }
        let mut filled = self.fill(&mut part);
        if part.requests.is_empty() && self.file.shared().endings.give_up() {
            filled = self.fill(&mut part);
        }
        if filled.is_err() || part.requests.is_empty() {
            self.slot.empty(&mut part);
        } else {
            self.slot.is_active.store(true, Ordering::Relaxed);
        }
        filled.map(|()| !part.requests.is_empty())
    }

    /// Reads from `offset` on; returns how many bytes, fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the device cannot read them.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if self.slot.is_active.load(Ordering::Relaxed) {
            if let Ok(mut part) = self.slot.part.try_lock() {
                if let Some(read) = self.take(&mut part, offset, out) {
                    return Ok(read);
                }
            }
        }
        self.file.read_at(offset, out)
    }

    /// Reads what was read ahead; nothing if it was not, or could not be.
    fn take(&self, part: &mut Part, offset: u64, out: &mut [u8]) -> Option<usize> {
        let left = self.file.size().saturating_sub(offset);
        let wanted = left.min(out.len() as u64);
        if !part.is_near(offset) || offset + wanted > part.end {
            return None;
        }
        let wanted = usize::try_from(wanted).ok()?;
        let copied = self.copy(part, offset, &mut out[..wanted]);
        part.refusals = 0;
        // Whoever reads from the device learns what is wrong.
        if copied.is_err() || part.is_over() {
            self.slot.empty(part);
        }
        copied.ok().map(|()| wanted)
    }

    /// Copies bytes of the part, and begins requests in the place of those that the reader has gone through.
    fn copy(&self, part: &mut Part, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut at = offset;
        let mut left = out;
        part.pass(at);
        while !left.is_empty() {
            self.fill(part)?;
            let len = (part.end - at).min(PIECE_BYTES as u64);
            let first = match part.requests.front_mut() {
                Some(first) => first,
                // There is no buffer to read ahead into: a long read is better than many short ones.
                None => {
                    let read = self
                        .file
                        .start_read(at, usize::try_from(len).unwrap_or(0))?;
                    part.next = at + len;
                    part.requests.push_back(Ahead {
                        offset: at,
                        end: part.next,
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
            part.pass(at);
        }
        self.fill(part)
    }

    /// Begins as many requests as there may be.
    fn fill(&self, part: &mut Part) -> Result<()> {
        let may_have_more =
            |part: &Part| part.requests.len() < REQUESTS && part.next - part.start() < AHEAD_BYTES;
        while part.next < part.end && may_have_more(part) {
            let Some((read, len)) = self.file.try_start(part.next, part.end - part.next)? else {
                break;
            };
            let offset = part.next;
            part.next += len;
            let end = part.next;
            part.requests.push_back(Ahead { offset, end, read });
        }
        let is_ending = part.next >= part.end && part.end == self.file.size();
        if is_ending && !part.is_ending {
            self.file.shared().endings.add(&self.slot);
        }
        part.is_ending = is_ending;
        Ok(())
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // Requests keep the file open. Whoever gives up buffers may have the slot for a moment longer.
        if let Ok(mut part) = self.slot.part.lock() {
            self.slot.empty(&mut part);
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
