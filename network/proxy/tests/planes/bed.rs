//! Hosts in threads.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use millrace_memory::{Pages, RegionOptions};
use millrace_proxy::plane::{
    Command, DataPlane, Event, Join, Open, Plane, PlaneSettings, PlaneTotals, Token,
};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{Class, Opened, PartitionGeometry, PartitionSettings};
use millrace_window::{EventDoorbell, Window};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::application::{Application, pair};

const fn geometry(partitions: u16) -> PartitionGeometry {
    PartitionGeometry {
        partitions,
        ring_lines: 1024,
    }
}

/// A host's planes, which threads run.
pub(crate) struct Host {
    pub(crate) data_plane: DataPlane,
    threads: Vec<JoinHandle<(PlaneTotals, usize)>>,
    /// Connections that are over.
    pub(crate) ended: Vec<Token>,
    pub(crate) opened: Vec<(Token, Opened)>,
    pub(crate) lost: Vec<Event>,
    pub(crate) joined: usize,
    pub(crate) report: Option<PlaneTotals>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with_planes(1)
    }

    pub(crate) fn with_planes(count: u16) -> Self {
        let (data_plane, planes) = DataPlane::new(count, PlaneSettings::default()).expect("planes");
        let run = |plane| thread::spawn(move || serve(plane));
        Self {
            data_plane,
            threads: planes.into_iter().map(run).collect(),
            ended: Vec::new(),
            opened: Vec::new(),
            lost: Vec::new(),
            joined: 0,
            report: None,
        }
    }

    fn planes(&self) -> u16 {
        u16::try_from(self.data_plane.planes().len()).expect("few")
    }

    /// Tells the plane of a connection something.
    pub(crate) fn tell(&self, token: Token, command: Command) {
        let plane = self.data_plane.plane(self.partition(token));
        assert!(plane.tell(command), "the plane is there");
    }

    /// There is a partition a plane here.
    fn partition(&self, token: Token) -> u16 {
        u16::try_from(token % u64::from(self.planes())).expect("few")
    }

    /// Hears what there is to hear.
    pub(crate) fn hear(&mut self) {
        let events: Vec<Event> = self.data_plane.events().collect();
        for event in events {
            match event {
                Event::Joined { .. } => self.joined += 1,
                Event::Lost { .. } => self.lost.push(event),
                Event::Opened { token, opened } => self.opened.push((token, opened)),
                Event::Ended { token, .. } => self.ended.push(token),
                Event::Report(totals) => self.report = Some(totals),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Its planes die where they are. What they had done, and how many connections they had.
    pub(crate) fn stop(&mut self) -> (PlaneTotals, usize) {
        for plane in self.data_plane.planes() {
            plane.tell(Command::Stop);
        }
        let (mut all, mut connections) = (PlaneTotals::default(), 0);
        for thread in self.threads.drain(..) {
            let (totals, count) = thread.join().expect("the plane does not panic");
            all.opened += totals.opened;
            all.ended += totals.ended;
            all.resets += totals.resets;
            connections += count;
        }
        (all, connections)
    }
}

fn serve(mut plane: Plane) -> (PlaneTotals, usize) {
    let start = Instant::now();
    let clock = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
    plane.run(clock).expect("the plane works");
    (plane.totals(), plane.connections())
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Joins two hosts by a window with bells.
pub(crate) fn join(hosts: &mut [Host; 2], incarnation: u64, lost_after_ns: u64) {
    join_by(hosts, incarnation, lost_after_ns, true);
}

/// The same where no side can be rung.
pub(crate) fn join_without_bells(hosts: &mut [Host; 2], incarnation: u64, lost_after_ns: u64) {
    join_by(hosts, incarnation, lost_after_ns, false);
}

fn join_by(hosts: &mut [Host; 2], incarnation: u64, lost_after_ns: u64, has_bells: bool) {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let partitions = hosts[0].planes();
    let geometry = geometry(partitions);
    let (_window, file) = Window::create(geometry.size(), &options).expect("memory");
    for index in 0..partitions {
        let bells = [event(), event()];
        for (own, side) in [Side::Connecting, Side::Accepting].into_iter().enumerate() {
            let bell = |index: usize| bells[index].try_clone().expect("a descriptor");
            let window = Window::attach(&file).expect("the same memory");
            let ring = Arc::new(EventDoorbell::new(bell(1 - own)));
            let settings = PartitionSettings {
                incarnation: incarnation + own as u64,
                lost_after_ns,
                ..PartitionSettings::default()
            };
            let join = Join {
                link: u32::from(index) + 7,
                window: if has_bells {
                    window.with_doorbell(ring)
                } else {
                    window
                },
                geometry,
                index,
                side,
                settings,
                bell: has_bells.then(|| bell(own)),
            };
            hosts[own].tell(index.into(), Command::Join(Box::new(join)));
        }
    }
    while hosts
        .iter()
        .any(|host| host.joined < usize::from(partitions))
    {
        hosts.iter_mut().for_each(Host::hear);
        thread::yield_now();
    }
}

/// Connections between both hosts that are not established. The programs of one are behind each other.
pub(crate) fn open(hosts: &mut [Host; 2], count: u64, random: &mut Random) -> Vec<Application> {
    let mut applications = Vec::new();
    for token in 0..count {
        for (side, host) in [Side::Connecting, Side::Accepting].into_iter().zip(&*hosts) {
            let (application, endpoint) = pair(side, source(random));
            applications.push(application);
            let open = Open {
                token,
                link: u32::from(host.partition(token)) + 7,
                endpoint,
                class: Class::DEFAULT,
                rate: None,
                room: 16_384,
            };
            host.tell(token, Command::Open(Box::new(open)));
        }
    }
    let whole = usize::try_from(count).expect("few");
    while hosts.iter().any(|host| host.opened.len() < whole) {
        hosts.iter_mut().for_each(Host::hear);
        thread::yield_now();
    }
    applications
}

/// Connections between both hosts.
pub(crate) fn connect(hosts: &mut [Host; 2], count: u64, random: &mut Random) -> Vec<Application> {
    let applications = open(hosts, count, random);
    for side in 0..2 {
        for (token, peer) in hosts[1 - side].opened.clone() {
            hosts[side].tell(token, Command::Establish { token, peer });
        }
    }
    applications
}

pub(crate) fn source(random: &mut Random) -> Vec<u8> {
    let scale = random.below(6);
    let mut bytes = vec![0; random.index(200_000) >> scale];
    random.fill(&mut bytes);
    bytes
}

/// Lets programs go on until `is_done`. When there is nothing to do for any, they sleep on their bells.
pub(crate) fn drive(
    applications: &mut [Option<Application>],
    random: &mut Random,
    mut is_done: impl FnMut(&mut [Option<Application>]) -> bool,
) {
    while !is_done(applications) {
        let mut is_busy = false;
        for application in applications.iter_mut().flatten() {
            is_busy |= application.step(random);
        }
        if !is_busy {
            sleep(applications);
        }
    }
}

fn sleep(applications: &mut [Option<Application>]) {
    let mut is_due = false;
    for application in applications.iter_mut().flatten() {
        is_due |= !application.is_done() && application.arm();
    }
    if is_due {
        return;
    }
    let watched = applications.iter().flatten();
    let watched = watched.filter(|application| !application.is_done());
    let mut watched: Vec<PollFd<'_>> = watched
        .map(|application| PollFd::new(application, PollFlags::IN))
        .collect();
    // Events of the planes are looked at now and then, too.
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    poll(&mut watched, Some(&wait)).expect("a poll");
}

/// What came is a beginning of what was sent.
pub(crate) fn check(own: &Application, peer: &Application, what: &str) {
    assert!(peer.source.starts_with(&own.got), "{what}: no prefix");
}
