//! Connections over a partition, one of whose hosts dies in the end.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{
    Class, ConnectionId, Endpoints, Fetched, OpenParams, Partition, PartitionGeometry,
    PartitionSettings, Reset, SessionError, State,
};
use millrace_window::Window;

use crate::Settings;
use crate::devices::{self, Kind};
use crate::error::{Error, Result, refused};
use crate::messages::Messages;
use crate::patience::{self, Patience};

/// The first partition is for what ends in order, the second for what death cuts off.
const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 2,
    ring_lines: 4096,
};
const CONNECTIONS: u32 = 32;
/// A connection that ends sends no more.
const BYTES_MAX: u64 = 400_000;
/// What a connection that came may keep.
const ROOM: u64 = 64 << 10;
/// A host that shows no beat for so long is dead, where one may die.
const DEAD: Duration = Duration::from_secs(6);

/// One end of a connection.
#[derive(Debug)]
struct End {
    id: ConnectionId,
    outgoing: Messages,
    left: u64,
    incoming: Messages,
    received: u64,
    expected: u64,
    /// Delivered, and not told to the partition yet.
    taken: u64,
    is_finished: bool,
    reset: Option<Reset>,
    is_closed: bool,
}

/// All ends of this side; the key is the index.
#[derive(Debug, Default)]
struct Ends {
    ends: Vec<End>,
    /// What should not have been.
    wrong: Option<String>,
}

impl Ends {
    fn end(&mut self, key: u32) -> &mut End {
        let index = usize::try_from(key).expect("a key is an index");
        self.ends.get_mut(index).expect("a key of ours")
    }

    fn received(&self) -> u64 {
        self.ends.iter().map(|end| end.received).sum()
    }
}

impl Endpoints for Ends {
    fn fetch(&mut self, key: u32, into: &mut [u8]) -> Fetched {
        let end = self.end(key);
        let mut bytes = 0;
        while bytes < into.len() && end.left > 0 {
            let rest = end.outgoing.rest();
            let left = usize::try_from(end.left).unwrap_or(usize::MAX);
            let count = rest.len().min(into.len() - bytes).min(left);
            into[bytes..bytes + count].copy_from_slice(&rest[..count]);
            end.outgoing.take(count);
            (bytes, end.left) = (bytes + count, end.left - count as u64);
        }
        Fetched {
            is_urgent: false,
            bytes,
            has_more: end.left > 0,
        }
    }

    fn deliver(&mut self, key: u32, bytes: &[u8]) {
        let end = self.end(key);
        let late = end.is_finished || end.reset.is_some();
        end.received += bytes.len() as u64;
        end.taken += bytes.len() as u64;
        let same = end.incoming.check(bytes);
        if late || !same {
            self.wrong = Some(format!("connection {key}: other bytes than were sent"));
        }
    }

    fn finished(&mut self, key: u32) {
        let end = self.end(key);
        end.is_finished = true;
        if end.received != end.expected {
            self.wrong = Some(format!("connection {key} ended early"));
        }
    }

    fn reset(&mut self, key: u32, reason: Reset) {
        self.end(key).reset = Some(reason);
    }

    fn closed(&mut self, key: u32) {
        self.end(key).is_closed = true;
    }
}

/// One host.
#[derive(Debug)]
struct Host {
    partition: Partition,
    ends: Ends,
    start: Instant,
    patience: Patience,
}

impl Host {
    /// All connections are opened before the peer is greeted, by both sides in the same order; so each knows the
    /// peer's numbers and first credits.
    fn new(window: &Window, index: u16, side: Side, seed: u64, is_endless: bool) -> Result<Self> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = clock.map_or(1, |time| time.subsec_nanos());
        let lost_after = if is_endless && side == Side::Connecting {
            DEAD
        } else {
            patience::LIMIT
        };
        let settings = PartitionSettings {
            incarnation: u64::from(clock) << 1 | 1,
            connections_max: CONNECTIONS,
            lost_after_ns: nanoseconds(lost_after),
            ..PartitionSettings::default()
        };
        let mut partition = Partition::new(window, GEOMETRY, index, side, settings)
            .map_err(refused("a partition"))?;
        let mut ends = Ends::default();
        for key in 0..CONNECTIONS {
            let params = OpenParams {
                key,
                class: Class::DEFAULT,
                rate: None,
                room: ROOM,
            };
            let opened = partition.open(&params).expect("there are enough numbers");
            let is_established = partition.establish(opened.id, opened);
            let seed_of = |side| {
                Random::new(seed ^ u64::from(key) << 1 ^ u64::from(side == Side::Accepting))
                    .number()
            };
            let size_of = |seed| match is_endless {
                true => u64::MAX,
                false => 1 + Random::new(seed).below(BYTES_MAX),
            };
            let (own, peer) = (seed_of(side), seed_of(side.peer()));
            ends.ends.push(End {
                id: opened.id,
                outgoing: Messages::new(own),
                left: size_of(own),
                incoming: Messages::new(peer),
                received: 0,
                expected: size_of(peer),
                taken: 0,
                is_finished: false,
                reset: None,
                is_closed: !is_established,
            });
            partition.ready(opened.id);
            if !is_endless {
                partition.finish(opened.id);
            }
        }
        Ok(Self {
            partition,
            ends,
            start: Instant::now(),
            patience: Patience::new(),
        })
    }

    fn poll(&mut self) -> Result<State> {
        let now = nanoseconds(self.start.elapsed());
        let progress = self.partition.poll(now, &mut self.ends);
        for end in &mut self.ends.ends {
            if end.taken > 0 {
                self.partition.consumed(end.id, end.taken);
                end.taken = 0;
            }
        }
        if let Some(wrong) = self.ends.wrong.take() {
            return Err(Error::Wrong(wrong));
        }
        if progress.received + progress.sent > 0 {
            self.patience.renew();
        } else {
            self.patience.wait_for("a partition stood still")?;
        }
        Ok(progress.state)
    }
}

/// Connections that end in order; then some whose other host dies, which is for the connecting side to see; then some
/// with a host that has taken its place.
pub(crate) fn run(side: Side, settings: Settings) -> Result<String> {
    let window = open(side)?;
    let received = in_order(&mut Host::new(&window, 0, side, settings.seed, false)?)?;
    println!("client: {CONNECTIONS} connections ended");
    let mut host = Host::new(&window, 1, side, !settings.seed, true)?;
    let half = match side {
        Side::Connecting => received,
        // It is the one that dies.
        Side::Accepting => u64::MAX,
    };
    let until_death = to_death(&mut host, half, || println!("client: half way"))?;
    drop(host);
    println!("client: the peer is dead");
    let afterwards = again(&window, side, settings)?;
    let [received, until_death, afterwards] =
        [received, until_death, afterwards].map(|bytes| bytes >> 10);
    Ok(format!(
        "{CONNECTIONS} connections at once, {received} KiB received, all ended; {CONNECTIONS} were reset when the peer \
         died, {until_death} KiB received until then; {CONNECTIONS} with its successor, {afterwards} KiB received, all \
         ended; all as sent"
    ))
}

/// The host that takes the place of one that died.
pub(crate) fn succeed(settings: Settings) -> Result<String> {
    let received = again(&open(Side::Accepting)?, Side::Accepting, settings)?;
    Ok(format!("the successor received {} KiB", received >> 10))
}

fn again(window: &Window, side: Side, settings: Settings) -> Result<u64> {
    in_order(&mut Host::new(window, 1, side, settings.seed_of(1), false)?)
}

fn open(side: Side) -> Result<Window> {
    let found = devices::ivshmem(None)?;
    let kind = match side {
        Side::Connecting => Kind::WriteCombining,
        Side::Accepting => Kind::Uncached,
    };
    devices::open(devices::nth(&found, 0)?, kind)
}

fn in_order(host: &mut Host) -> Result<u64> {
    while !host.ends.ends.iter().all(|end| end.is_closed) {
        let state = host.poll()?;
        if let State::Lost(loss) = state {
            return Err(Error::Wrong(format!("the partition is lost: {loss:?}")));
        }
    }
    let is_whole = |end: &End| end.is_finished && end.reset.is_none() && end.left == 0;
    if host.ends.ends.iter().all(is_whole) {
        return Ok(host.ends.received());
    }
    Err(Error::Wrong("a connection closed before its end".into()))
}

fn to_death(host: &mut Host, half: u64, half_way: impl Fn()) -> Result<u64> {
    let mut is_half_way = false;
    loop {
        match host.poll()? {
            State::Lost(SessionError::HeartbeatTimeout) if is_half_way => break,
            State::Lost(loss) => {
                return Err(Error::Wrong(format!("the partition is lost: {loss:?}")));
            }
            _ => {}
        }
        if !is_half_way && host.ends.received() > half {
            is_half_way = true;
            half_way();
        }
    }
    let is_reset = |end: &End| {
        end.reset == Some(Reset::Lost(SessionError::HeartbeatTimeout))
            && end.is_closed
            && !end.is_finished
    };
    if host.ends.ends.iter().all(is_reset) {
        return Ok(host.ends.received());
    }
    Err(Error::Wrong("a connection outlived its host".into()))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use millrace_memory::{Pages, RegionOptions};

    use super::*;

    #[test]
    fn connections_in_shared_memory_of_one_host_end() {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (ours, file) = Window::create(GEOMETRY.size(), &options).expect("memory is there");
        let theirs = Window::attach(file).expect("made for it");
        let run = |window: &Window, side| {
            in_order(&mut Host::new(window, 0, side, 1, false).expect("it fits"))
        };
        thread::scope(|scope| {
            let peer = scope.spawn(|| run(&theirs, Side::Accepting));
            run(&ours, Side::Connecting).expect("all as sent");
            peer.join().expect("no panic").expect("all as sent");
        });
    }
}
