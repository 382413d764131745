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

const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 1,
    ring_lines: 1024,
};

/// A host's plane, which a thread runs.
pub(crate) struct Host {
    pub(crate) data_plane: DataPlane,
    thread: Option<JoinHandle<(PlaneTotals, usize)>>,
    /// Connections that are over.
    pub(crate) ended: Vec<Token>,
    pub(crate) opened: Vec<(Token, Opened)>,
    pub(crate) lost: Vec<Event>,
    pub(crate) joined: usize,
}

impl Host {
    pub(crate) fn new() -> Self {
        let (data_plane, planes) = DataPlane::new(1, PlaneSettings::default()).expect("a plane");
        let plane = planes.into_iter().next().expect("there is one");
        Self {
            data_plane,
            thread: Some(thread::spawn(move || serve(plane))),
            ended: Vec::new(),
            opened: Vec::new(),
            lost: Vec::new(),
            joined: 0,
        }
    }

    pub(crate) fn tell(&self, command: Command) {
        assert!(self.data_plane.plane(0).tell(command), "the plane is there");
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
                other => panic!("{other:?}"),
            }
        }
    }

    /// Its plane dies where it is. What it had done, and how many connections it had.
    pub(crate) fn stop(&mut self) -> (PlaneTotals, usize) {
        self.data_plane.plane(0).tell(Command::Stop);
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("the plane does not panic")
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
    let (first, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let second = Window::attach(&file).expect("the same memory");
    let bells = [event(), event()];
    let rings = bells.each_ref().map(|bell| {
        let bell = bell.try_clone().expect("a descriptor");
        Arc::new(EventDoorbell::new(bell))
    });
    let [first_ring, second_ring] = rings;
    let windows = if has_bells {
        [
            first.with_doorbell(second_ring),
            second.with_doorbell(first_ring),
        ]
    } else {
        [first, second]
    };
    let sides = [Side::Connecting, Side::Accepting];
    for (index, ((window, bell), side)) in windows.into_iter().zip(bells).zip(sides).enumerate() {
        let settings = PartitionSettings {
            incarnation: incarnation + index as u64,
            lost_after_ns,
            ..PartitionSettings::default()
        };
        hosts[index].tell(Command::Join(Box::new(Join {
            link: 7,
            window,
            geometry: GEOMETRY,
            index: 0,
            side,
            settings,
            bell: has_bells.then_some(bell),
        })));
    }
    while hosts.iter().any(|host| host.joined == 0) {
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
            host.tell(Command::Open(Box::new(Open {
                token,
                link: 7,
                endpoint,
                class: Class::DEFAULT,
                rate: None,
                room: 16_384,
            })));
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
            hosts[side].tell(Command::Establish { token, peer });
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
