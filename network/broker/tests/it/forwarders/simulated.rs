//! Two hosts in one thread: programs, forwarders and notifications take turns by a seed, and a host or programs are
//! killed at any of them.

use millrace_broker::forwarder::{
    Command, Event, Forwarder, ForwarderPool, ForwarderSettings, Open, Token,
};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{Class, OpenReply, SessionError};

use super::application::{Application, Outcome, pair};
use super::fixture::{LINK, PeerLink, check, source};

const FLOWS: u64 = 12;
const US: u64 = 1_000;
/// Far more turns than any run needs.
const TURNS_MAX: u32 = 400_000;
const LOST_AFTER_NS: u64 = 50_000_000;

struct Machine {
    pool: ForwarderPool,
    /// `None` after the host was killed.
    forwarder: Option<Forwarder>,
    opened: Vec<(Token, OpenReply)>,
    ended: usize,
    is_joined: bool,
    is_lost: bool,
}

impl Machine {
    fn new() -> Self {
        // The clock is the simulation's, which is slow.
        let settings = ForwarderSettings {
            spin_ns: 0,
            hot_ns: 5 * US,
            nap_ns: 0,
        };
        let (pool, mut forwarders) = ForwarderPool::new(1, settings).expect("a forwarder");
        Self {
            pool,
            forwarder: forwarders.pop(),
            opened: Vec::new(),
            ended: 0,
            is_joined: false,
            is_lost: false,
        }
    }

    fn tell(&self, command: Command) {
        assert!(self.pool.forwarder(0).send(command), "it survives");
    }

    fn poll(&mut self, now_ns: u64) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.poll(now_ns);
        }
        for event in self.pool.events().collect::<Vec<_>>() {
            match event {
                Event::Joined { .. } => self.is_joined = true,
                Event::Lost { loss, .. } => {
                    assert_eq!(loss, SessionError::HeartbeatTimeout);
                    self.is_lost = true;
                }
                Event::Opened { token, opened } => self.opened.push((token, opened)),
                Event::Ended { .. } => self.ended += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    fn connections(&self) -> usize {
        self.forwarder.as_ref().map_or(0, Forwarder::connections)
    }
}

struct World {
    peer_link: PeerLink,
    machines: [Machine; 2],
    /// The programs of a connection are adjacent. `None` after a kill.
    programs: Vec<Option<Application>>,
    /// The killed programs.
    killed: Vec<Option<Application>>,
    random: Random,
    now_ns: u64,
    /// Nanoseconds of a turn.
    turn_ns: u64,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            peer_link: PeerLink::new(1, true),
            machines: [Machine::new(), Machine::new()],
            programs: Vec::new(),
            killed: Vec::new(),
            random: Random::new(seed),
            now_ns: 1_000 * US,
            turn_ns: 2 * US,
            seed,
        };
        world.join_all(1);
        world.connect();
        world
    }

    fn join_all(&mut self, incarnation: u64) {
        for (own, machine) in self.machines.iter().enumerate() {
            let join = self.peer_link.join(own, 0, incarnation, LOST_AFTER_NS);
            machine.tell(Command::Join(Box::new(join)));
        }
        self.until("both hosts connect", |world| {
            world.machines.iter().all(|machine| machine.is_joined)
        });
    }

    fn connect(&mut self) {
        let mut programs = Vec::new();
        for token in 0..FLOWS {
            for (side, machine) in [Side::Connecting, Side::Accepting]
                .into_iter()
                .zip(&self.machines)
            {
                let (mut program, endpoint) = pair(side, source(&mut self.random));
                program.source.truncate(40_000);
                program.mark(&mut self.random);
                let class = u8::try_from(self.random.below(8)).expect("small");
                machine.tell(Command::Open(Box::new(Open {
                    token,
                    link: LINK,
                    endpoint,
                    class: Class::new(class).expect("below eight"),
                    rate: None,
                    room: 4096 << self.random.below(4),
                })));
                programs.push(Some(program));
            }
        }
        let whole = usize::try_from(FLOWS).expect("few");
        self.until("they open", |world| {
            world
                .machines
                .iter()
                .all(|machine| machine.opened.len() == whole)
        });
        for side in 0..2 {
            for (token, peer) in std::mem::take(&mut self.machines[1 - side].opened) {
                self.machines[side].tell(Command::Establish { token, peer });
            }
        }
        self.killed = programs.iter().map(|_| None).collect();
        self.programs = programs;
    }

    /// Runs one random turn.
    fn turn(&mut self) {
        self.now_ns += self.random.below(self.turn_ns);
        let index = self.random.index(4 + self.programs.len() / 4);
        if index < 4 {
            self.machines[index / 2].poll(self.now_ns);
        } else {
            let index = self.random.index(self.programs.len());
            if let Some(program) = &mut self.programs[index] {
                program.step(&mut self.random);
            }
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for turn in 0..TURNS_MAX {
            if turn % 16 == 0 && is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("seed {}: {what}: it hangs", self.seed);
    }

    fn are_done(&self) -> bool {
        self.programs.iter().flatten().all(Application::is_done)
    }

    /// The program, also after a kill.
    fn program(&self, index: usize) -> &Application {
        let program = self.programs[index].as_ref();
        program
            .or(self.killed[index].as_ref())
            .expect("it survives or was killed")
    }

    /// All of these connections are over, and nothing of them is kept.
    fn are_given_back(&mut self) {
        let whole = usize::try_from(FLOWS).expect("few");
        self.until("they end", |world| {
            world
                .machines
                .iter()
                .all(|it| it.forwarder.is_none() || it.ended == whole)
        });
        for machine in &mut self.machines {
            assert_eq!(machine.connections(), 0, "seed {}", self.seed);
            machine.ended = 0;
        }
    }

    /// All bytes arrive.
    fn are_whole(&mut self) {
        self.until("all arrives", Self::are_done);
        for index in 0..self.programs.len() {
            let (own, peer) = (self.program(index), self.program(index ^ 1));
            check(own, peer, "whole");
            assert_eq!(
                own.end,
                Some(Outcome::Finished),
                "seed {}: {index}",
                self.seed
            );
            assert_eq!(
                own.got.len(),
                peer.source.len(),
                "seed {}: {index}",
                self.seed
            );
        }
        self.are_given_back();
    }
}

#[test]
fn all_arrives() {
    for seed in 0..20 {
        World::new(seed).are_whole();
    }
}

/// A host is killed at any turn: the others' connections with it are reset or had ended; after its restart all works
/// again.
#[test]
fn a_host_restarts() {
    let (mut resets, mut ends) = (0, 0);
    for seed in 0..30 {
        let mut world = World::new(1000 + seed);
        for _ in 0..world.random.below(3000) {
            world.turn();
        }
        let stopped = world.random.index(2);
        world.machines[stopped].forwarder = None;
        world.turn_ns = 200 * US;
        world.until("it is noticed", |world| world.machines[1 - stopped].is_lost);
        world.turn_ns = 2 * US;
        world.until("the events arrive", World::are_done);
        for index in 0..world.programs.len() {
            let (own, peer) = (world.program(index), world.program(index ^ 1));
            let what = format!("seed {seed}: {index}");
            check(own, peer, &what);
            let is_whole = own.got.len() == peer.source.len() && peer.has_finished;
            let survives = index % 2 != stopped;
            match own.end {
                Some(Outcome::Finished) => {
                    assert!(is_whole, "{what} ended early");
                    ends += 1;
                }
                Some(Outcome::Reset(104)) if survives => resets += 1,
                Some(Outcome::HungUp) if !survives => {}
                other => panic!("{what}: {other:?}"),
            }
        }
        world.are_given_back();
        world.machines[stopped] = Machine::new();
        world.machines[1 - stopped].is_joined = false;
        world.join_all(10);
        world.connect();
        world.are_whole();
    }
    assert!(resets > 50 && ends > 50, "{resets} resets, {ends} ends");
}

/// Programs are killed at any turn: their bytes arrive, and the end behind them, or a reset if bytes were lost.
#[test]
fn programs_are_killed() {
    let mut resets = 0;
    for seed in 0..60 {
        let mut world = World::new(2000 + seed);
        for _ in 0..world.random.below(12) {
            for _ in 0..world.random.below(1000) {
                world.turn();
            }
            let index = world.random.index(world.programs.len());
            // At most one of a pair.
            if world.killed[index ^ 1].is_none() {
                if let Some(program) = world.programs[index].take() {
                    world.killed[index] = Some(program.into_killed());
                }
            }
        }
        world.until("the events arrive", World::are_done);
        for index in 0..world.programs.len() {
            if world.programs[index].is_none() {
                continue;
            }
            let (own, peer) = (world.program(index), world.program(index ^ 1));
            let what = format!("seed {seed}: {index}");
            check(own, peer, &what);
            match own.end {
                Some(Outcome::Finished) => assert_eq!(own.got.len(), peer.total_sent(), "{what}"),
                Some(Outcome::Reset(104)) => {
                    assert!(world.killed[index ^ 1].is_some(), "{what}");
                    resets += 1;
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        world.are_given_back();
    }
    assert!(resets > 0, "{resets} resets");
}
