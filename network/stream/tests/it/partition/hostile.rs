//! Peers that break the protocol: a violation within one connection ends that connection, any other the partition;
//! nothing panics, and no more is kept than was granted.

use std::ops::ControlFlow;

use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{OpenReply, ProtocolViolation, Reset, SessionError, State};
#[cfg(debug_assertions)]
use millrace_stream::{MutationPoint, mutation};
use millrace_window::{LINE, Mapped, WORD};

use super::fixture::{End, Host, MS, bytes, check, connect, opening, settings};
use super::forger::{
    CLOSE, CREDIT, DATA, FINISH, Forger, INCARNATION, RESET, RETURNED, URGENT, windows,
};

const ROOM: u64 = 1024;

/// An honest side with two connections, both with a forged peer.
struct Scene {
    host: Host<Mapped>,
    forger: Forger,
    ids: [u32; 2],
    now_ns: u64,
}

impl Scene {
    fn new() -> Self {
        let (mut host, forger) = Forger::handshake();
        assert_eq!(host.partition.state(), State::Ready);
        let ids = [0, 1].map(|key| {
            let opened = host.partition.open(&opening(key, ROOM)).expect("free");
            let peer = OpenReply {
                id: opened.id,
                credit: 4,
            };
            assert!(host.partition.establish(opened.id, peer));
            let end = End {
                id: Some(opened.id),
                ..End::default()
            };
            host.ends.ends.insert(key, end);
            opened.id.number()
        });
        Self {
            host,
            forger,
            ids,
            now_ns: 10 * MS,
        }
    }

    fn poll(&mut self) {
        self.now_ns += MS;
        self.host.poll(self.now_ns);
        assert_eq!(self.host.ends.wrong, None);
        // An honest reader, so that the ring does not fill.
        let most = (64..=128).contains(&self.forger.position);
        assert!(!most || self.forger.load_word(RETURNED) <= self.forger.position);
    }

    fn reset(&self, key: u32) -> Option<Reset> {
        self.host.ends.ends[&key].reset
    }

    /// Whether the first connection was reset for this violation, and the second is unchanged.
    fn is_breach(&mut self, violation: ProtocolViolation) -> bool {
        self.poll();
        let is_whole = self.host.partition.state() == State::Ready && self.reset(1).is_none();
        self.forger.send(DATA, self.ids[1], 4, b"go on");
        self.poll();
        let goes_on = self.host.ends.ends[&1].received.ends_with(b"go on");
        is_whole && goes_on && self.reset(0) == Some(Reset::ProtocolViolation(violation))
    }

    fn is_lost(&mut self, loss: SessionError) -> bool {
        self.poll();
        let reset = Some(Reset::Lost(loss));
        self.host.partition.state() == State::Lost(loss)
            && [0, 1].iter().all(|key| self.reset(*key) == reset)
            && self.host.ends.are_closed()
    }
}

fn more_than_granted() -> bool {
    let mut scene = Scene::new();
    scene.forger.send(DATA, scene.ids[0], 4, &[1; 1000]);
    scene.poll();
    scene.forger.send(DATA, scene.ids[0], 4, &[1; 25]);
    scene.is_breach(ProtocolViolation::Room) && scene.host.ends.ends[&0].received.len() == 1000
}

fn ends_early() -> bool {
    let mut scene = Scene::new();
    scene.forger.send(DATA, scene.ids[0], 4, &[1; 10]);
    scene
        .forger
        .send(FINISH, scene.ids[0], 4, &11_u64.to_le_bytes());
    scene.is_breach(ProtocolViolation::Total) && !scene.host.ends.ends[&0].finished
}

#[test]
fn what_one_connection_did_ends_that_one() {
    assert!(more_than_granted());
    assert!(ends_early());
    let total = |bytes: u64| bytes.to_le_bytes();
    for credit in [3, 4 + (1 << 19), u32::MAX] {
        let mut scene = Scene::new();
        scene.forger.send(CREDIT, scene.ids[0], credit, &[]);
        assert!(scene.is_breach(ProtocolViolation::Credit), "{credit}");
    }
    let behind: [(u8, &[u8]); 3] = [(DATA, &[1]), (URGENT, &[1]), (FINISH, &total(0))];
    for (kind, payload) in behind {
        let mut scene = Scene::new();
        scene.forger.send(FINISH, scene.ids[0], 4, &total(0));
        scene.forger.send(kind, scene.ids[0], 4, payload);
        assert!(scene.is_breach(ProtocolViolation::Order), "{kind}");
    }
    let mut scene = Scene::new();
    scene.forger.send(URGENT, scene.ids[0], 4, &[1; 1000]);
    scene.poll();
    scene.forger.send(URGENT, scene.ids[0], 4, &[1; 25]);
    assert!(scene.is_breach(ProtocolViolation::Room));
    let mut scene = Scene::new();
    scene.forger.send(CLOSE, scene.ids[0], 4, &[]);
    assert!(scene.is_breach(ProtocolViolation::Order));
    let mut scene = Scene::new();
    scene.forger.send(RESET, scene.ids[0], 4, &[7; 16]);
    assert!(scene.is_breach(ProtocolViolation::Total));
}

#[test]
fn an_error_outside_of_connections_ends_the_partition() {
    let number = |scene: &Scene, change: u32| scene.ids[0] ^ change;
    // A free index, an invalid one, and an older generation.
    for change in [5, 1 << 19, 1 << 20] {
        let mut scene = Scene::new();
        scene.forger.send(DATA, number(&scene, change), 4, b"x");
        assert!(scene.is_lost(SessionError::UnknownConnection), "{change}");
    }
    let words: [fn(&Forger) -> u64; 10] = [
        |forger| forger.word(DATA, 0, 9) ^ 1,
        |forger| forger.word(0, 0, 9),
        |forger| forger.word(8, 0, 9),
        |forger| forger.word(URGENT, 0, 8),
        |forger| forger.word(URGENT, 0, 8 + 8193),
        |forger| forger.word(DATA, 2, 9),
        |forger| forger.word(DATA, 0, 8),
        |forger| forger.word(DATA, 0, 8 + 8193),
        |forger| forger.word(CREDIT, 0, 9),
        |forger| forger.word(1, 0, 8),
    ];
    for (index, word) in words.into_iter().enumerate() {
        let mut scene = Scene::new();
        let word = word(&scene.forger);
        scene.forger.store(word, scene.ids[0], 4, b"x");
        assert!(scene.is_lost(SessionError::InvalidSlot), "{index}");
    }
    // A slot that would exceed the ring's end.
    let mut scene = Scene::new();
    let word = scene.forger.word(DATA, 0, 8 + 4096);
    scene.forger.store(word, scene.ids[0], 4, b"x");
    assert!(scene.is_lost(SessionError::InvalidSlot));
    for returned in [1, u64::MAX] {
        let mut scene = Scene::new();
        scene.forger.store_word(RETURNED, returned);
        assert!(scene.is_lost(SessionError::InvalidCredit));
    }
    for incarnation in [0, 78] {
        let mut scene = Scene::new();
        scene.forger.store_word(INCARNATION, incarnation);
        assert!(scene.is_lost(SessionError::PeerRestarted));
    }
}

#[cfg(debug_assertions)]
#[test]
#[ignore = "mutation check: `make soak` runs it"]
fn the_checks_are_needed() {
    for (step, holds) in [
        (
            MutationPoint::CreditChecked,
            more_than_granted as fn() -> bool,
        ),
        (MutationPoint::TotalChecked, ends_early),
    ] {
        mutation::disable(Some(step));
        let has_held = holds();
        mutation::disable(None);
        assert!(!has_held, "{step:?}");
    }
}

/// Frames of every kind, with numbers and credits near the valid ones.
#[test]
fn forged_frames() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut scene = Scene::new();
        let mut credits = [4_u32; 2];
        for _ in 0..random.below(200) {
            let which = random.index(2);
            let mut connection = scene.ids[which];
            if random.chance(1, 60) {
                connection ^= 1 << random.below(32);
            }
            let received = scene.host.ends.ends[&u32::from(which == 1)].received.len() as u64;
            let (kind, payload) = match random.below(12) {
                0 => (CREDIT, Vec::new()),
                1 => (
                    FINISH,
                    (received + random.below(8) / 7).to_le_bytes().to_vec(),
                ),
                2 if random.chance(1, 4) => (CLOSE, Vec::new()),
                3 if random.chance(1, 4) => (RESET, bytes(&mut random, 16)),
                kind => {
                    let length = 1 + random.index(200);
                    let kind = if kind == 4 { URGENT } else { DATA };
                    (kind, bytes(&mut random, length))
                }
            };
            credits[which] =
                credits[which].wrapping_add(u32::try_from(random.below(3)).expect("few"));
            if random.chance(1, 40) {
                credits[which] = u32::try_from(random.number() >> 40).expect("24 bits");
            }
            // An honest peer pads; this one has the next frame at the start.
            if scene.forger.position % 64 > 58 {
                let word = scene.forger.word(1, 0, 0);
                let left = 64 - scene.forger.position % 64;
                scene.forger.store(word, 0, 0, &[]);
                scene.forger.position += left - 1;
            }
            scene
                .forger
                .send(kind, connection, credits[which], &payload);
            scene.poll();
            let key = u32::from(random.index(2) == 1);
            if scene.host.ends.ends[&key].reset.is_none() {
                scene.host.consume(key, random.index(100));
            }
            for end in scene.host.ends.ends.values() {
                let kept = (end.received.len() - end.consumed) as u64;
                assert!(kept <= ROOM, "seed {seed}: {kept} bytes kept");
            }
        }
    }
}

#[test]
fn garbage() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut scene = Scene::new();
        for _ in 0..100 {
            let mut line = [0; LINE];
            random.fill(&mut line);
            if random.chance(1, 2) {
                // A valid word of an invalid slot.
                let length = random.index(1 << 14);
                let kind = random.below(8).to_le_bytes()[0];
                let word = scene.forger.word(kind, 0, length);
                line[..WORD].copy_from_slice(&word.to_le_bytes());
            }
            let lines = Forger::lines();
            let near = random.chance(1, 2);
            let place = if near { 64 } else { random.index(lines.end) };
            scene.forger.smear(place, &line);
            scene.poll();
        }
        for end in scene.host.ends.ends.values() {
            assert!(end.received.len() as u64 <= ROOM, "seed {seed}");
        }
    }
}

/// Two honest sides, with bits flipped between them. With checksums no wrong byte is ever delivered.
#[test]
fn flipped_bits() {
    let mut losses = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let [first, second, third] = windows();
        let checked = |incarnation| millrace_stream::partition::PartitionSettings {
            has_checks: true,
            ..settings(incarnation)
        };
        let mut hosts = [
            Host::new(&first, Side::Connecting, checked(1)),
            Host::new(&second, Side::Accepting, checked(2)),
        ];
        let sources = [bytes(&mut random, 3000), bytes(&mut random, 3000)];
        connect(&mut hosts, [&opening(0, ROOM), &opening(0, ROOM)], sources);
        hosts.iter_mut().for_each(|host| host.send_all(0));
        let run = (1..200).try_for_each(|turn: u64| {
            for host in &mut hosts {
                host.poll(turn * MS);
                host.consume(0, random.index(400));
            }
            if random.chance(1, 2) {
                flip(&third, &mut random);
            }
            assert_eq!(check(&hosts), Ok(()), "seed {seed}");
            if matches!(hosts[0].partition.state(), State::Lost(_)) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        losses += u32::from(run.is_break());
    }
    assert!(losses > 50, "bits matter: {losses}");
}

fn flip(window: &millrace_window::Window<Mapped>, random: &mut Random) {
    let range = super::fixture::GEOMETRY.range(Side::Accepting, 0);
    let place = 4096 + random.index(64) * LINE;
    let mut line = [0; LINE];
    {
        let area = window.incoming(range.clone()).expect("an area");
        let slot = area.poll(place).expect("a line");
        line[..WORD].copy_from_slice(&slot.word().to_le_bytes());
        slot.load(WORD, &mut line[WORD..]).expect("within");
    }
    line[random.index(LINE)] ^= 1 << random.below(8);
    let mut area = window.outgoing(range).expect("an area");
    let mut slot = area.slot(place, LINE).expect("a line");
    slot.store(WORD, &line[WORD..]).expect("within");
    let mut word = [0; WORD];
    word.copy_from_slice(&line[..WORD]);
    slot.publish(u64::from_le_bytes(word));
}
