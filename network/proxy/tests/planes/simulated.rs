//! Two hosts in one thread: programs, planes and bells take turns by a seed, and a host or programs die at any of them.

use millrace_proxy::plane::{Command, DataPlane, Event, Open, Plane, PlaneSettings, Token};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{Class, Loss, Opened};

use crate::application::{Application, Outcome, pair};
use crate::bed::{Joint, LINK, check, source};

const FLOWS: u64 = 12;
const US: u64 = 1_000;
/// Far more turns than any run needs.
const TURNS_MAX: u32 = 400_000;
const LOST_AFTER_NS: u64 = 50_000_000;

struct Machine {
    data_plane: DataPlane,
    /// None when it is dead.
    plane: Option<Plane>,
    opened: Vec<(Token, Opened)>,
    ended: usize,
    is_joined: bool,
    is_lost: bool,
}

impl Machine {
    fn new() -> Self {
        // The clock is the world's, which goes slowly.
        let settings = PlaneSettings {
            spin_ns: 0,
            hot_ns: 5 * US,
            nap_ns: 0,
        };
        let (data_plane, mut planes) = DataPlane::new(1, settings).expect("a plane");
        Self {
            data_plane,
            plane: planes.pop(),
            opened: Vec::new(),
            ended: 0,
            is_joined: false,
            is_lost: false,
        }
    }

    fn tell(&self, command: Command) {
        assert!(self.data_plane.plane(0).tell(command), "it lives");
    }

    fn poll(&mut self, now_ns: u64) {
        if let Some(plane) = &mut self.plane {
            plane.poll(now_ns);
        }
        for event in self.data_plane.events().collect::<Vec<_>>() {
            match event {
                Event::Joined { .. } => self.is_joined = true,
                Event::Lost { loss, .. } => {
                    assert_eq!(loss, Loss::Silence);
                    self.is_lost = true;
                }
                Event::Opened { token, opened } => self.opened.push((token, opened)),
                Event::Ended { .. } => self.ended += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    fn connections(&self) -> usize {
        self.plane.as_ref().map_or(0, Plane::connections)
    }
}

struct World {
    joint: Joint,
    machines: [Machine; 2],
    /// Those of a connection are behind each other. None when it was killed.
    programs: Vec<Option<Application>>,
    /// What the killed had sent.
    killed: Vec<Option<Application>>,
    random: Random,
    now_ns: u64,
    /// How fast the clock goes.
    turn_ns: u64,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            joint: Joint::new(1, true),
            machines: [Machine::new(), Machine::new()],
            programs: Vec::new(),
            killed: Vec::new(),
            random: Random::new(seed),
            now_ns: 1_000 * US,
            turn_ns: 2 * US,
            seed,
        };
        world.meet(1);
        world.connect();
        world
    }

    fn meet(&mut self, incarnation: u64) {
        for (own, machine) in self.machines.iter().enumerate() {
            let join = self.joint.join(own, 0, incarnation, LOST_AFTER_NS);
            machine.tell(Command::Join(Box::new(join)));
        }
        self.until("they meet", |world| {
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

    /// One thing happens.
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

    /// The program, though it may have been killed.
    fn program(&self, index: usize) -> &Application {
        let program = self.programs[index].as_ref();
        program
            .or(self.killed[index].as_ref())
            .expect("it lives or was killed")
    }

    /// All of these connections are over, and nothing is kept.
    fn are_given_back(&mut self) {
        let whole = usize::try_from(FLOWS).expect("few");
        self.until("they end", |world| {
            world
                .machines
                .iter()
                .all(|it| it.plane.is_none() || it.ended == whole)
        });
        for machine in &mut self.machines {
            assert_eq!(machine.connections(), 0, "seed {}", self.seed);
            machine.ended = 0;
        }
    }

    /// Everything arrives.
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

/// A host dies at any turn: the others' connections with it are reset or had ended, and when it is there again all goes
/// on as at first.
#[test]
fn a_host_dies_and_comes_again() {
    let (mut resets, mut ends) = (0, 0);
    for seed in 0..30 {
        let mut world = World::new(1000 + seed);
        for _ in 0..world.random.below(3000) {
            world.turn();
        }
        let dying = world.random.index(2);
        world.machines[dying].plane = None;
        world.turn_ns = 200 * US;
        world.until("it is noticed", |world| world.machines[1 - dying].is_lost);
        world.turn_ns = 2 * US;
        world.until("they are told", World::are_done);
        for index in 0..world.programs.len() {
            let (own, peer) = (world.program(index), world.program(index ^ 1));
            let what = format!("seed {seed}: {index}");
            check(own, peer, &what);
            let is_whole = own.got.len() == peer.source.len() && peer.has_finished;
            let lives = index % 2 != dying;
            match own.end {
                Some(Outcome::Finished) => {
                    assert!(is_whole, "{what} ended early");
                    ends += 1;
                }
                Some(Outcome::Reset(104)) if lives => resets += 1,
                Some(Outcome::HungUp) if !lives => {}
                other => panic!("{what}: {other:?}"),
            }
        }
        world.are_given_back();
        world.machines[dying] = Machine::new();
        world.machines[1 - dying].is_joined = false;
        world.meet(10);
        world.connect();
        world.are_whole();
    }
    assert!(resets > 50 && ends > 50, "{resets} resets, {ends} ends");
}

/// Programs die at any turn: what they had sent arrives, and the end behind it, or a reset if bytes were lost.
#[test]
fn programs_die() {
    let mut resets = 0;
    for seed in 0..60 {
        let mut world = World::new(2000 + seed);
        for _ in 0..world.random.below(12) {
            for _ in 0..world.random.below(1000) {
                world.turn();
            }
            let index = world.random.index(world.programs.len());
            // One of a pair at most.
            if world.killed[index ^ 1].is_none() {
                if let Some(program) = world.programs[index].take() {
                    world.killed[index] = Some(program.die());
                }
            }
        }
        world.until("they are told", World::are_done);
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
