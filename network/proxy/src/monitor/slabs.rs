//! What processes have counted.
//!
//! A slab belongs to a stranger, who may say that it is full, and many may say so. So slabs are read piece by piece, so
//! much in each turn of the monitor ([`BYTES_A_TURN`]). A *round* reads those of all processes; whoever has asked before it
//! began is answered at its end, all by the same one.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use millrace_stream::slab::header::COUNTERS_END;
use millrace_stream::slab::{HEADER_SIZE, RECORD_SIZE, Totals, endings, ends, used};
use rustix::io::pread;

use super::report::View;
use crate::registry::{ClientId, Credentials};
use millrace_stream::sockets::packets::retry;

/// Bytes of slabs that are read in a turn.
const BYTES_A_TURN: usize = 256 << 10;
/// Bytes of records of one user that a round reads: a hundred thousand connections. Of what lies beyond, only what
/// has ended is counted.
const RECORDS_A_USER: usize = 64 << 20;
/// Slabs of processes that are gone that wait to be read. Of one more, only what has ended is counted.
const GRAVES_MAX: usize = 256;
/// Bytes of records that are read at once.
const PIECE: usize = 64 << 10;
/// So often a slab is read again in whose process connections ended meanwhile: their bytes may have been missed, or
/// counted twice.
const AGAIN_MAX: u32 = 3;

/// Reads slabs, and adds up what those of processes that are gone said last, so that sums never go back.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    living: HashMap<ClientId, Living>,
    /// By users: nobody changes another's sums.
    dead: HashMap<u32, Totals>,
    graves: VecDeque<Grave>,
    round: Option<Round>,
    asked: Vec<Asked>,
    buffer: Vec<u8>,
}

/// A process that is there.
#[derive(Debug)]
struct Living {
    slab: OwnedFd,
    credentials: Credentials,
    /// As the last round has found it.
    counted: Counted,
}

/// What a round has found of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) totals: Totals,
    /// The name of what it runs.
    pub(super) program: Option<String>,
}

/// A process that is gone, and whose slab is to be read once more.
#[derive(Debug)]
struct Grave {
    slab: OwnedFd,
    user: u32,
    /// What was known of it before.
    before: Totals,
    reading: Reading,
}

/// Through the slabs of all processes.
#[derive(Debug)]
struct Round {
    /// Those that are still to be read, the next one last.
    left: Vec<ClientId>,
    reading: Reading,
    /// Bytes of records by users.
    spent: HashMap<u32, usize>,
    /// Who is answered at its end: so many of those who ask.
    askers: usize,
}

/// Whoever wants to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) client: ClientId,
    pub(super) serial: u32,
    pub(super) view: View,
    pub(super) user: u32,
}

/// How far a slab has been read.
#[derive(Debug, Default)]
struct Reading {
    /// The bytes that are still to be read; none: not even the header has been.
    rest: Option<std::ops::Range<usize>>,
    totals: Totals,
    /// How many connections had ended by then.
    ended: u64,
    /// How often it was begun again, as some have ended since.
    again: u32,
    is_over: bool,
}

impl Slabs {
    /// A process has shown its slab.
    pub(super) fn insert(&mut self, client: ClientId, credentials: Credentials, slab: OwnedFd) {
        let counted = Counted::default();
        let living = Living {
            slab,
            credentials,
            counted,
        };
        self.living.insert(client, living);
    }

    /// A process is gone. What it has counted is kept.
    pub(super) fn bury(&mut self, client: ClientId) {
        if let Some(at) = self.asked.iter().position(|it| it.client == client) {
            self.asked.remove(at);
            if let Some(round) = self.round.as_mut().filter(|round| at < round.askers) {
                round.askers -= 1;
            }
        }
        let Some(living) = self.living.remove(&client) else {
            return;
        };
        let mut grave = Grave {
            slab: living.slab,
            user: living.credentials.user,
            before: living.counted.totals,
            reading: Reading::default(),
        };
        if self.graves.len() < GRAVES_MAX {
            self.graves.push_back(grave);
        } else {
            grave.reading.go_on(&grave.slab, &mut self.buffer, 0);
            self.settle(grave.user, grave.reading.totals);
        }
    }

    /// Somebody asks. False if the same has asked before and has no answer yet.
    pub(super) fn ask(&mut self, asked: Asked) -> bool {
        let is_new = self.asked.iter().all(|it| it.client != asked.client);
        if is_new {
            self.asked.push(asked);
        }
        is_new
    }

    /// Whether there is something to read.
    pub(super) fn is_busy(&self) -> bool {
        !self.graves.is_empty() || !self.asked.is_empty()
    }

    /// Reads as much as a turn may. Who is to be answered now.
    pub(super) fn go_on(&mut self) -> Vec<Asked> {
        let mut left = BYTES_A_TURN;
        while left > 0 {
            let Some(mut grave) = self.graves.pop_front() else {
                break;
            };
            left = left.saturating_sub(grave.reading.go_on(
                &grave.slab,
                &mut self.buffer,
                usize::MAX,
            ));
            if grave.reading.is_over() {
                self.settle(grave.user, grave.reading.totals);
            } else {
                self.graves.push_front(grave);
            }
        }
        if self.asked.is_empty() {
            self.round = None;
            return Vec::new();
        }
        let askers = self.asked.len();
        let living = &self.living;
        let mut round = self.round.take().unwrap_or_else(|| Round {
            left: living.keys().copied().collect(),
            reading: Reading::default(),
            spent: HashMap::new(),
            askers,
        });
        while left > 0 && !round.left.is_empty() {
            left = left.saturating_sub(self.step(&mut round));
        }
        if round.left.is_empty() {
            return self.asked.drain(..round.askers).collect();
        }
        self.round = Some(round);
        Vec::new()
    }

    /// Reads a piece of the slab whose turn it is. How much that was.
    fn step(&mut self, round: &mut Round) -> usize {
        let Some(living) = round.left.last().and_then(|id| self.living.get_mut(id)) else {
            // It is gone.
            round.left.pop();
            round.reading = Reading::default();
            return 1;
        };
        let spent = round.spent.entry(living.credentials.user).or_default();
        let may = RECORDS_A_USER.saturating_sub(*spent);
        let is_header = round.reading.rest.is_none();
        let bytes = round.reading.go_on(&living.slab, &mut self.buffer, may);
        *spent += if is_header { 0 } else { bytes };
        if round.reading.is_over() {
            let reading = std::mem::take(&mut round.reading);
            living.counted = Counted {
                totals: reading.totals,
                program: program(living.credentials.process),
            };
            round.left.pop();
        }
        bytes
    }

    /// What is known of a process.
    pub(super) fn counted(&self, client: ClientId) -> Counted {
        let living = self.living.get(&client);
        living.map_or_else(Counted::default, |living| living.counted.clone())
    }

    /// The names of what processes run, by their numbers.
    pub(super) fn programs(&self) -> HashMap<u32, &str> {
        let living = self.living.values();
        let named = living.filter_map(|living| {
            let program = living.counted.program.as_deref()?;
            Some((living.credentials.process, program))
        });
        named.collect()
    }

    /// What processes that are gone have counted, of the users that somebody sees.
    pub(super) fn dead(&self, sees: impl Fn(u32) -> bool) -> Totals {
        let mut sum = Totals::default();
        let settled = self.dead.iter().map(|(user, totals)| (*user, totals));
        let waiting = self.graves.iter().map(|grave| (grave.user, &grave.before));
        for (_, totals) in settled.chain(waiting).filter(|(user, _)| sees(*user)) {
            add(&mut sum, totals);
        }
        sum.live = 0;
        sum
    }

    fn settle(&mut self, user: u32, last: Totals) {
        add(self.dead.entry(user).or_default(), &last);
    }
}

impl Reading {
    /// Whether there is nothing more to read.
    const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the header, then a piece of the records, of which there are to be so many bytes at most, and at last
    /// whether some have ended meanwhile. How much that was.
    fn go_on(&mut self, slab: &OwnedFd, buffer: &mut Vec<u8>, records: usize) -> usize {
        let Some(rest) = &mut self.rest else {
            // Before the sums: of what ends from here on it is known that they may lack it.
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
            if began == self.ended || self.again == AGAIN_MAX {
                self.is_over = true;
            } else {
                *self = Self {
                    again: self.again + 1,
                    ..Self::default()
                };
            }
            return COUNTERS_END;
        }
        let count = rest.len().min(PIECE);
        // Behind a header, as records are found there.
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

/// What [`endings`] says of a slab now.
fn counted_endings(slab: &OwnedFd, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
    buffer.resize(COUNTERS_END, 0);
    fill(slab, 0, buffer).then(|| endings(buffer)).flatten()
}

/// Whether all the bytes from an offset on were there.
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

/// Adds up. Counters come from strangers: they wrap.
pub(super) fn add(sum: &mut Totals, more: &Totals) {
    let Totals {
        sent,
        received,
        connects,
        accepts,
        kernel_connects,
        kernel_accepts,
        bells,
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
        (&mut sum.bells, bells),
        (&mut sum.sleeps, sleeps),
        (&mut sum.resets, resets),
        (&mut sum.live, live),
    ] {
        *sum = sum.wrapping_add(*more);
    }
}

/// The name of what a process runs; none if it is gone. For people: the number may have been given to another.
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

    /// A slab that has so many records, the last of which has sent a byte.
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

    fn asked(client: u64) -> Asked {
        Asked {
            client: ClientId(client),
            serial: 1,
            view: View::Totals,
            user: 0,
        }
    }

    /// Turns until so many are answered.
    fn turns(slabs: &mut Slabs, answers: usize) -> usize {
        let mut turns = 0;
        let mut answered = 0;
        while answered < answers {
            answered += slabs.go_on().len();
            turns += 1;
        }
        turns
    }

    #[test]
    fn full_slabs_are_read_turn_by_turn() {
        let mut slabs = Slabs::default();
        slabs.insert(ClientId(1), credentials(USER), slab(RECORDS));
        assert!(!slabs.is_busy());
        assert!(slabs.ask(asked(8)) && !slabs.ask(asked(8)) && slabs.ask(asked(9)));
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
        // All that is done before and after each of the three reads of the first time.
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
                    reading.go_on(&file, &mut buffer, usize::MAX);
                    pieces += 1;
                }
                assert!(pieces <= 6, "{first} {second}: {pieces}");
                assert_eq!(reading.totals.sent, 1, "{first} {second}");
            }
        }
        // One who died over it is not waited for.
        let file = slab(1);
        set(&file, began, 1);
        let (mut reading, mut buffer) = (Reading::default(), Vec::new());
        while !reading.is_over() {
            reading.go_on(&file, &mut buffer, usize::MAX);
        }
        assert_eq!(reading.totals.sent, 1);
    }

    #[test]
    fn a_process_that_dies_is_read_turn_by_turn_as_well() {
        let mut slabs = Slabs::default();
        for id in 0..4 {
            slabs.insert(ClientId(id), credentials(USER), slab(RECORDS));
        }
        for id in 0..4 {
            slabs.bury(ClientId(id));
        }
        let mut count = 0;
        while slabs.is_busy() {
            assert!(slabs.go_on().is_empty());
            count += 1;
        }
        assert!(count >= 4 * SIZE / BYTES_A_TURN - 4, "{count}");
        assert_eq!(slabs.dead(|user| user == USER).sent, 4);
        assert_eq!(slabs.dead(|user| user != USER).sent, 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut slabs = Slabs::default();
        for id in 0..2 * GRAVES_MAX as u64 {
            slabs.insert(ClientId(id), credentials(USER), slab(1));
            slabs.bury(ClientId(id));
        }
        assert_eq!(slabs.graves.len(), GRAVES_MAX);
        // One user's records are read so far and no farther in a round.
        for id in 0..2 * (RECORDS_A_USER / SIZE) as u64 {
            slabs.insert(ClientId(id), credentials(USER), slab(RECORDS));
        }
        assert!(slabs.ask(asked(1000)));
        let most = (RECORDS_A_USER + GRAVES_MAX * 2 * HEADER_SIZE) / BYTES_A_TURN;
        assert!(turns(&mut slabs, 1) <= most + 4);
    }

    #[test]
    fn whoever_asks_late_is_answered_by_the_next_round() {
        let mut slabs = Slabs::default();
        slabs.insert(ClientId(1), credentials(USER), slab(RECORDS));
        assert!(slabs.ask(asked(8)) && slabs.ask(asked(9)));
        assert!(slabs.go_on().is_empty());
        assert!(slabs.ask(asked(10)));
        slabs.bury(ClientId(8));
        let first = turns(&mut slabs, 1);
        assert!(slabs.is_busy());
        assert!(turns(&mut slabs, 1) + 2 >= first);
        assert!(!slabs.is_busy());
    }
}
