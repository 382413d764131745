//! Two sides of a partition, and their expected behaviour.

use std::collections::{BTreeMap, BTreeSet};

use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{
    Class, ConnectionId, Endpoints, Fetched, OpenParams, Partition, PartitionGeometry,
    PartitionSettings, Progress, Reset,
};
use millrace_window::{Attributes, Cacheability, Direction, Medium, Window};

pub(crate) const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 1,
    ring_lines: 64,
};

pub(crate) const MS: u64 = 1_000_000;

const fn of(cacheability: Cacheability, coherent: bool) -> Attributes {
    Attributes {
        cacheability,
        coherent,
        direction: Direction::Both,
    }
}

/// All kinds of memory.
pub(crate) const KINDS: [(&str, Attributes); 4] = [
    ("write-back, coherent", Attributes::SHARED_MEMORY),
    (
        "write-back, not coherent",
        of(Cacheability::WriteBack, false),
    ),
    ("write-combining", of(Cacheability::WriteCombining, true)),
    ("uncached", of(Cacheability::Uncached, true)),
];

/// One end of a connection.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) id: Option<ConnectionId>,
    /// The bytes to send, and the progress.
    pub(crate) source: Vec<u8>,
    pub(crate) fetched: usize,
    pub(crate) received: Vec<u8>,
    /// The indexes of urgent bytes: sent, and received.
    pub(crate) urgent: BTreeSet<usize>,
    pub(crate) urgent_received: BTreeSet<usize>,
    pub(crate) consumed: usize,
    pub(crate) finished: bool,
    pub(crate) reset: Option<Reset>,
    pub(crate) closed: bool,
}

/// All ends of one side.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) ends: BTreeMap<u32, End>,
    /// The fetches in order: the key and the count of bytes.
    pub(crate) fetches: Vec<(u32, usize)>,
    /// The first mistake of the partition.
    pub(crate) wrong: Option<String>,
}

impl Ends {
    fn end(&mut self, key: u32, what: &str) -> &mut End {
        let end = self.ends.entry(key).or_default();
        if end.closed || end.reset.is_some() && what != "closed" {
            self.wrong = Some(format!("{what} of {key} after its end"));
        }
        end
    }

    /// Whether all are over.
    pub(crate) fn are_closed(&self) -> bool {
        self.ends.values().all(|end| end.closed)
    }
}

impl Endpoints for Ends {
    fn fetch(&mut self, key: u32, into: &mut [u8]) -> Fetched {
        let end = self.end(key, "fetch");
        // A piece ends before an urgent byte.
        let mark = end.urgent.range(end.fetched + 1..).next();
        let last = *mark.unwrap_or(&end.source.len());
        let bytes = into.len().min(last - end.fetched);
        let is_urgent = end.urgent.contains(&end.fetched);
        into[..bytes].copy_from_slice(&end.source[end.fetched..end.fetched + bytes]);
        end.fetched += bytes;
        let has_more = end.fetched < end.source.len();
        self.fetches.push((key, bytes));
        Fetched {
            bytes,
            has_more,
            is_urgent,
        }
    }

    fn deliver(&mut self, key: u32, bytes: &[u8]) {
        let end = self.end(key, "deliver");
        let late = end.finished;
        end.received.extend_from_slice(bytes);
        if late {
            self.wrong = Some(format!("bytes of {key} behind the end"));
        }
    }

    fn deliver_urgent(&mut self, key: u32, bytes: &[u8]) {
        let end = self.end(key, "deliver");
        end.urgent_received.insert(end.received.len());
        self.deliver(key, bytes);
    }

    fn finished(&mut self, key: u32) {
        self.end(key, "finished").finished = true;
    }

    fn reset(&mut self, key: u32, reason: Reset) {
        self.end(key, "reset").reset = Some(reason);
    }

    fn closed(&mut self, key: u32) {
        self.end(key, "closed").closed = true;
    }
}

/// One side of the partition.
#[derive(Debug)]
pub(crate) struct Host<M: Medium> {
    pub(crate) partition: Partition<M>,
    pub(crate) ends: Ends,
}

pub(crate) fn settings(incarnation: u64) -> PartitionSettings {
    PartitionSettings {
        incarnation,
        connections_max: 64,
        mtu: 1024,
        beat_every_ns: MS,
        lost_after_ns: 1000 * MS,
        ..PartitionSettings::default()
    }
}

pub(crate) fn opening(key: u32, room: u64) -> OpenParams {
    OpenParams {
        key,
        class: Class::DEFAULT,
        rate: None,
        room,
    }
}

impl<M: Medium> Host<M> {
    pub(crate) fn new(window: &Window<M>, side: Side, settings: PartitionSettings) -> Self {
        Self::of(window, GEOMETRY, side, settings)
    }

    pub(crate) fn of(
        window: &Window<M>,
        geometry: PartitionGeometry,
        side: Side,
        settings: PartitionSettings,
    ) -> Self {
        let partition = Partition::new(window, geometry, 0, side, settings);
        Self {
            partition: partition.expect("the window is large enough"),
            ends: Ends::default(),
        }
    }

    pub(crate) fn poll(&mut self, now_ns: u64) -> Progress {
        self.partition.poll(now_ns, &mut self.ends)
    }

    /// The program consumes up to `bytes_max` delivered bytes.
    pub(crate) fn consume(&mut self, key: u32, bytes_max: usize) {
        let end = self.ends.ends.get_mut(&key).expect("a connection");
        let bytes = bytes_max.min(end.received.len() - end.consumed);
        end.consumed += bytes;
        if let Some(id) = end.id {
            self.partition.consumed(id, bytes as u64);
        }
    }

    /// The program has all its bytes ready, and none behind them.
    pub(crate) fn send_all(&mut self, key: u32) {
        let id = self.ends.ends[&key].id.expect("it is open");
        self.partition.ready(id);
        self.partition.finish(id);
    }
}

/// Opens a connection between both sides, with bytes to send in each direction.
pub(crate) fn connect<M: Medium>(
    hosts: &mut [Host<M>; 2],
    openings: [&OpenParams; 2],
    sources: [Vec<u8>; 2],
) {
    let opened = [0, 1].map(|side| {
        let host: &mut Host<M> = &mut hosts[side];
        host.partition.open(openings[side]).expect("a free number")
    });
    for (side, source) in sources.into_iter().enumerate() {
        let end = End {
            id: Some(opened[side].id),
            source,
            ..End::default()
        };
        hosts[side].ends.ends.insert(openings[side].key, end);
        assert!(
            hosts[side]
                .partition
                .establish(opened[side].id, opened[1 - side])
        );
    }
}

pub(crate) fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

/// The invariant of both sides: received bytes are a prefix of the sent ones, and the end comes behind all of them.
pub(crate) fn check<M: Medium>(hosts: &[Host<M>; 2]) -> Result<(), String> {
    for (side, host) in hosts.iter().enumerate() {
        if let Some(wrong) = &host.ends.wrong {
            return Err(format!("side {side}: {wrong}"));
        }
        for (key, end) in &host.ends.ends {
            let Some(peer) = hosts[1 - side].ends.ends.get(key) else {
                continue;
            };
            if !peer.source.starts_with(&end.received) {
                return Err(format!("side {side}: {key} is no prefix"));
            }
            if end.finished && end.received.len() != peer.source.len() {
                return Err(format!("side {side}: {key} ended early"));
            }
            if !end
                .urgent_received
                .iter()
                .eq(peer.urgent.range(..end.received.len()))
            {
                return Err(format!("side {side}: other bytes of {key} are urgent"));
            }
        }
    }
    Ok(())
}
