//! The counters of processes, read from their slabs.
//!
//! A slab belongs to an untrusted process, which may claim that it is full, and many processes may do so. Slabs are
//! therefore read in pieces, at most [`BYTES_A_TURN`] in each turn of the broker. A *round* reads the slabs of all
//! processes; the report requests that precede it are answered at its end.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use millrace_stream::slab::header::COUNTERS_END;
use millrace_stream::slab::{HEADER_SIZE, RECORD_SIZE, Totals, endings, ends, used};
use rustix::io::pread;

use super::view::View;
use crate::registry::{ClientId, Credentials};
use millrace_stream::sockets::packets::retry;

/// Bytes of slabs that are read in a turn.
const BYTES_A_TURN: usize = 256 << 10;
/// Bytes of one user's records that a round reads: a hundred thousand connections. Beyond that only ended connections
/// are counted.
const RECORDS_A_USER: usize = 64 << 20;
/// Slabs of exited processes that wait to be read. Beyond that only ended connections are counted.
const EXITED_MAX: usize = 256;
/// Bytes of records of one read.
const PIECE: usize = 64 << 10;
/// Repeated reads of a slab in which connections ended meanwhile, as their bytes may have been missed or counted twice.
const RETRIES_MAX: u32 = 3;

/// The reader of slabs. It adds up the final counters of exited processes, so that sums never decrease.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    live: HashMap<ClientId, LiveProcess>,
    /// The sums of exited processes by user.
    retired: HashMap<u32, Totals>,
    exited: VecDeque<ExitedProcess>,
    round: Option<Round>,
    pending: Vec<ReportRequest>,
    buffer: Vec<u8>,
}

/// A connected process with its share of the limits.
#[derive(Debug)]
struct LiveProcess {
    slab: OwnedFd,
    credentials: Credentials,
    /// The result of the last round.
    counted: Counted,
}

/// The counters of a process in a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) totals: Totals,
    /// The name of its program.
    pub(super) program: Option<String>,
}

/// An exited process whose slab is read a last time.
#[derive(Debug)]
struct ExitedProcess {
    slab: OwnedFd,
    user: u32,
    /// The counters of the last round before its exit.
    before: Totals,
    reading: Reading,
}

/// One pass through the slabs of all processes.
#[derive(Debug)]
struct Round {
    /// The processes still to be read; the next is last.
    left: Vec<ClientId>,
    reading: Reading,
    /// Bytes of records read so far, by user.
    spent: HashMap<u32, usize>,
    /// The count of report requests that this round answers.
    answered: usize,
}

/// A request for a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportRequest {
    pub(super) client: ClientId,
    pub(super) serial: u32,
    pub(super) view: View,
    pub(super) user: u32,
}

/// The progress through one slab.
#[derive(Debug, Default)]
struct Reading {
    /// The byte range still to be read; `None` before the header.
    rest: Option<std::ops::Range<usize>>,
    totals: Totals,
    /// The count of ended connections before this read.
    ended: u64,
    /// The count of repeated reads.
    retries: u32,
    is_over: bool,
}

impl Slabs {
    /// Adds the slab of a new process.
    pub(super) fn insert(&mut self, client: ClientId, credentials: Credentials, slab: OwnedFd) {
        let counted = Counted::default();
        let live = LiveProcess {
            slab,
            credentials,
            counted,
        };
        self.live.insert(client, live);
    }

    /// Moves a disconnected process to the exited ones. Its counters are kept.
    pub(super) fn retire(&mut self, client: ClientId) {
        if let Some(at) = self.pending.iter().position(|it| it.client == client) {
            self.pending.remove(at);
            if let Some(round) = self.round.as_mut().filter(|round| at < round.answered) {
                round.answered -= 1;
            }
        }
        let Some(live) = self.live.remove(&client) else {
            return;
        };
        let mut exited = ExitedProcess {
            slab: live.slab,
            user: live.credentials.user,
            before: live.counted.totals,
            reading: Reading::default(),
        };
        if self.exited.len() < EXITED_MAX {
            self.exited.push_back(exited);
        } else {
            exited.reading.step(&exited.slab, &mut self.buffer, 0);
            self.add_retired(exited.user, exited.reading.totals);
        }
    }

    /// Queues a report request. False if the process has one pending.
    pub(super) fn ask(&mut self, pending: ReportRequest) -> bool {
        let is_new = self.pending.iter().all(|it| it.client != pending.client);
        if is_new {
            self.pending.push(pending);
        }
        is_new
    }

    /// Whether slabs are to be read.
    pub(super) fn is_busy(&self) -> bool {
        !self.exited.is_empty() || !self.pending.is_empty()
    }

    /// Reads one turn's share. Returns the requests to answer now.
    pub(super) fn step(&mut self) -> Vec<ReportRequest> {
        let mut left = BYTES_A_TURN;
        while left > 0 {
            let Some(mut exited) = self.exited.pop_front() else {
                break;
            };
            left = left.saturating_sub(exited.reading.step(
                &exited.slab,
                &mut self.buffer,
                usize::MAX,
            ));
            if exited.reading.is_over() {
                self.add_retired(exited.user, exited.reading.totals);
            } else {
                self.exited.push_front(exited);
            }
        }
        if self.pending.is_empty() {
            self.round = None;
            return Vec::new();
        }
        let answered = self.pending.len();
        let live = &self.live;
        let mut round = self.round.take().unwrap_or_else(|| Round {
            left: live.keys().copied().collect(),
            reading: Reading::default(),
            spent: HashMap::new(),
            answered,
        });
        while left > 0 && !round.left.is_empty() {
            left = left.saturating_sub(self.read_piece(&mut round));
        }
        if round.left.is_empty() {
            return self.pending.drain(..round.answered).collect();
        }
        self.round = Some(round);
        Vec::new()
    }

    /// Reads a piece of the current slab. Returns its bytes.
    fn read_piece(&mut self, round: &mut Round) -> usize {
        let Some(live) = round.left.last().and_then(|id| self.live.get_mut(id)) else {
            // The process has exited.
            round.left.pop();
            round.reading = Reading::default();
            return 1;
        };
        let spent = round.spent.entry(live.credentials.user).or_default();
        let may = RECORDS_A_USER.saturating_sub(*spent);
        let is_header = round.reading.rest.is_none();
        let bytes = round.reading.step(&live.slab, &mut self.buffer, may);
        *spent += if is_header { 0 } else { bytes };
        if round.reading.is_over() {
            let reading = std::mem::take(&mut round.reading);
            live.counted = Counted {
                totals: reading.totals,
                program: program(live.credentials.process),
            };
            round.left.pop();
        }
        bytes
    }

    /// The counters of a process from the last round.
    pub(super) fn counted(&self, client: ClientId) -> Counted {
        let live = self.live.get(&client);
        live.map_or_else(Counted::default, |live| live.counted.clone())
    }

    /// The program names by process id.
    pub(super) fn programs(&self) -> HashMap<u32, &str> {
        let live = self.live.values();
        let named = live.filter_map(|live| {
            let program = live.counted.program.as_deref()?;
            Some((live.credentials.process, program))
        });
        named.collect()
    }

    /// The sums of exited processes of the users that `sees` selects.
    pub(super) fn exited_totals(&self, sees: impl Fn(u32) -> bool) -> Totals {
        let mut sum = Totals::default();
        let settled = self.retired.iter().map(|(user, totals)| (*user, totals));
        let waiting = self
            .exited
            .iter()
            .map(|exited| (exited.user, &exited.before));
        for (_, totals) in settled.chain(waiting).filter(|(user, _)| sees(*user)) {
            add(&mut sum, totals);
        }
        sum.live = 0;
        sum
    }

    fn add_retired(&mut self, user: u32, last: Totals) {
        add(self.retired.entry(user).or_default(), &last);
    }
}

impl Reading {
    /// Whether the slab was read to its end.
    const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the header first, then pieces of at most `records` bytes of records, and at last the count of ended
    /// connections. Returns the bytes read.
    fn step(&mut self, slab: &OwnedFd, buffer: &mut Vec<u8>, records: usize) -> usize {
        let Some(rest) = &mut self.rest else {
            // Read before the sums: a connection that ends from here on may be missing in them.
            (_, self.ended) = counted_endings(slab, buffer).unwrap_or_default();
            buffer.resize(HEADER_SIZE, 0);
            let is_there = fill(slab, 0, buffer);
            let size = used(buffer).filter(|_| is_there).unwrap_or(HEADER_SIZE);
            self.totals = Totals::read(buffer)
                .filter(|_| is_there)
                .unwrap_or_default();
            let count = (size - HEADER_SIZE).min(records / RECORD_SIZE * RECORD_SIZE);
            self.rest = Some(HEADER_SIZE..HEADER_SIZE + count);
            return HEADER_SIZE;
        };
        if std::ops::Range::is_empty(rest) {
            let endings = counted_endings(slab, buffer);
            let (began, _) = endings.unwrap_or((self.ended, 0));
            if began == self.ended || self.retries == RETRIES_MAX {
                self.is_over = true;
            } else {
                *self = Self {
                    retries: self.retries + 1,
                    ..Self::default()
                };
            }
            return COUNTERS_END;
        }
        let count = rest.len().min(PIECE);
        // Records lie behind a header.
        buffer.resize(HEADER_SIZE + count, 0);
        if !fill(slab, rest.start, &mut buffer[HEADER_SIZE..]) {
            *rest = 0..0;
            return count;
        }
        for end in ends(buffer) {
            self.totals.sent = self.totals.sent.wrapping_add(end.sent);
            self.totals.received = self.totals.received.wrapping_add(end.received);
            self.totals.live += u64::from(end.holders > 0);
        }
        rest.start += count;
        count
    }
}

/// The [`endings`] of a slab now.
fn counted_endings(slab: &OwnedFd, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
    buffer.resize(COUNTERS_END, 0);
    fill(slab, 0, buffer).then(|| endings(buffer)).flatten()
}

/// Fills `bytes` from an offset. False if the file is shorter.
fn fill(file: impl AsFd, offset: usize, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        let at = (offset + done) as u64;
        match retry(|| pread(&file, &mut bytes[done..], at)) {
            Ok(0) | Err(_) => return false,
            Ok(count) => done += count,
        }
    }
    true
}

/// Adds counters, which untrusted processes write: the sums wrap.
pub(super) fn add(sum: &mut Totals, more: &Totals) {
    let Totals {
        sent,
        received,
        connects,
        accepts,
        kernel_connects,
        kernel_accepts,
        notifications,
        sleeps,
        resets,
        live,
    } = more;
    for (sum, more) in [
        (&mut sum.sent, sent),
        (&mut sum.received, received),
        (&mut sum.connects, connects),
        (&mut sum.accepts, accepts),
        (&mut sum.kernel_connects, kernel_connects),
        (&mut sum.kernel_accepts, kernel_accepts),
        (&mut sum.notifications, notifications),
        (&mut sum.sleeps, sleeps),
        (&mut sum.resets, resets),
        (&mut sum.live, live),
    ] {
        *sum = sum.wrapping_add(*more);
    }
}

/// The program name of a process; `None` if it has exited. The kernel may have reused the id: for display only.
fn program(process: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

#[cfg(test)]
mod tests {
    use millrace_stream::slab::{RECORDS, SIZE, header, record};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pwrite;

    use super::*;

    const USER: u32 = 7;

    fn credentials(user: u32) -> Credentials {
        let process = std::process::id();
        Credentials { user, process }
    }

    /// A slab with `records` records, the last of which has sent one byte.
    fn slab(records: usize) -> OwnedFd {
        let file = memfd_create(c"slab", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, SIZE as u64).expect("it is sparse");
        let mut bytes = Totals::default().header(1);
        let count = u32::try_from(records).expect("they are few");
        bytes[header::RECORDS..header::RECORDS + 4].copy_from_slice(&count.to_le_bytes());
        assert_eq!(pwrite(&file, &bytes, 0), Ok(bytes.len()));
        if records > 0 {
            let mut last = [0; RECORD_SIZE];
            last[record::STATE] = 1;
            last[record::HOLDERS] = 1;
            last[record::SENT] = 1;
            let at = HEADER_SIZE + (records - 1) * RECORD_SIZE;
            assert_eq!(pwrite(&file, &last, at as u64), Ok(RECORD_SIZE));
        }
        file
    }

    fn request(client: u64) -> ReportRequest {
        ReportRequest {
            client: ClientId(client),
            serial: 1,
            view: View::Totals,
            user: 0,
        }
    }

    /// Steps until `answers` requests are answered. Returns the count of steps.
    fn turns(slabs: &mut Slabs, answers: usize) -> usize {
        let mut turns = 0;
        let mut answered = 0;
        while answered < answers {
            answered += slabs.step().len();
            turns += 1;
        }
        turns
    }

    #[test]
    fn full_slabs_are_read_turn_by_turn() {
        let mut slabs = Slabs::default();
        slabs.insert(ClientId(1), credentials(USER), slab(RECORDS));
        assert!(!slabs.is_busy());
        assert!(slabs.ask(request(8)) && !slabs.ask(request(8)) && slabs.ask(request(9)));
        let expected = SIZE / BYTES_A_TURN;
        assert!(turns(&mut slabs, 2).abs_diff(expected) <= 1);
        assert!(!slabs.is_busy());
        let counted = slabs.counted(ClientId(1));
        assert_eq!((counted.totals.sent, counted.totals.live), (1, 1));
        assert!(counted.program.is_some());
    }

    /// Bytes of a connection that ends while its slab is read are neither missed nor counted twice.
    #[test]
    fn what_ends_meanwhile_is_counted_once() {
        let (sent, began, ended) = (
            header::counter::SENT,
            header::counter::ENDING,
            header::counter::ENDED,
        );
        let set = |file: &OwnedFd, counter: usize, value: u64| {
            let at = header::COUNTERS + 8 * counter;
            let bytes = value.to_le_bytes();
            assert_eq!(pwrite(file, &bytes, at as u64), Ok(bytes.len()));
        };
        let clear = |file: &OwnedFd| {
            let nothing = [0; RECORD_SIZE];
            assert_eq!(pwrite(file, &nothing, HEADER_SIZE as u64), Ok(RECORD_SIZE));
        };
        type Step<'a> = Box<dyn Fn(&OwnedFd) + 'a>;
        let steps: [Step<'_>; 4] = [
            Box::new(|file| set(file, began, 1)),
            Box::new(|file| set(file, sent, 1)),
            Box::new(clear),
            Box::new(|file| set(file, ended, 1)),
        ];
        // All splits of the steps around the three reads of the first pass.
        for first in 0..=steps.len() {
            for second in first..=steps.len() {
                let file = slab(1);
                let (mut reading, mut buffer) = (Reading::default(), Vec::new());
                let mut pieces = 0;
                let ranges = [0..first, first..second, second..steps.len()];
                while !reading.is_over() {
                    if let Some(range) = ranges.get(pieces) {
                        steps[range.clone()].iter().for_each(|step| step(&file));
                    }
                    reading.step(&file, &mut buffer, usize::MAX);
                    pieces += 1;
                }
                assert!(pieces <= 6, "{first} {second}: {pieces}");
                assert_eq!(reading.totals.sent, 1, "{first} {second}");
            }
        }
        // A process that exits between both counters does not stop the reader.
        let file = slab(1);
        set(&file, began, 1);
        let (mut reading, mut buffer) = (Reading::default(), Vec::new());
        while !reading.is_over() {
            reading.step(&file, &mut buffer, usize::MAX);
        }
        assert_eq!(reading.totals.sent, 1);
    }

    #[test]
    fn an_exited_process_is_read_turn_by_turn() {
        let mut slabs = Slabs::default();
        for id in 0..4 {
            slabs.insert(ClientId(id), credentials(USER), slab(RECORDS));
        }
        for id in 0..4 {
            slabs.retire(ClientId(id));
        }
        let mut count = 0;
        while slabs.is_busy() {
            assert!(slabs.step().is_empty());
            count += 1;
        }
        assert!(count >= 4 * SIZE / BYTES_A_TURN - 4, "{count}");
        assert_eq!(slabs.exited_totals(|user| user == USER).sent, 4);
        assert_eq!(slabs.exited_totals(|user| user != USER).sent, 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut slabs = Slabs::default();
        for id in 0..2 * EXITED_MAX as u64 {
            slabs.insert(ClientId(id), credentials(USER), slab(1));
            slabs.retire(ClientId(id));
        }
        assert_eq!(slabs.exited.len(), EXITED_MAX);
        // A round reads a bounded part of one user's records.
        for id in 0..2 * (RECORDS_A_USER / SIZE) as u64 {
            slabs.insert(ClientId(id), credentials(USER), slab(RECORDS));
        }
        assert!(slabs.ask(request(1000)));
        let most = (RECORDS_A_USER + EXITED_MAX * 2 * HEADER_SIZE) / BYTES_A_TURN;
        assert!(turns(&mut slabs, 1) <= most + 4);
    }

    #[test]
    fn a_late_request_is_answered_by_the_next_round() {
        let mut slabs = Slabs::default();
        slabs.insert(ClientId(1), credentials(USER), slab(RECORDS));
        assert!(slabs.ask(request(8)) && slabs.ask(request(9)));
        assert!(slabs.step().is_empty());
        assert!(slabs.ask(request(10)));
        slabs.retire(ClientId(8));
        let first = turns(&mut slabs, 1);
        assert!(slabs.is_busy());
        assert!(turns(&mut slabs, 1) + 2 >= first);
        assert!(!slabs.is_busy());
    }
}
