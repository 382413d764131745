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

    /// What it was told so far is of no interest any more.
    pub(crate) fn forget(&mut self) {
        self.ended.clear();
        self.opened.clear();
        self.lost.clear();
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

/// A window between two hosts, and the bells of its partitions.
pub(crate) struct Joint {
    file: OwnedFd,
    geometry: PartitionGeometry,
    /// By partition and side; none where no side can be rung.
    bells: Option<Vec<[OwnedFd; 2]>>,
}

/// How partitions are called here, from this number on.
pub(crate) const LINK: u32 = 7;
/// The longest wait for something that comes, in all that a test waits for. It is not reached unless it hangs.
const HANG_S: u64 = 120;

impl Joint {
    pub(crate) fn new(partitions: u16, has_bells: bool) -> Self {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let geometry = geometry(partitions);
        let (_window, file) = Window::create(geometry.size(), &options).expect("memory");
        let bells = |_| [event(), event()];
        Self {
            file,
            geometry,
            bells: has_bells.then(|| (0..partitions).map(bells).collect()),
        }
    }

    /// What has a plane of one side join a partition.
    pub(crate) fn join(
        &self,
        own: usize,
        index: u16,
        incarnation: u64,
        lost_after_ns: u64,
    ) -> Join {
        let bell = |side: usize| {
            let bells = self.bells.as_ref()?;
            let bell = &bells[usize::from(index)][side];
            Some(bell.try_clone().expect("a descriptor"))
        };
        let window = Window::attach(&self.file).expect("the same memory");
        Join {
            link: u32::from(index) + LINK,
            window: match bell(1 - own) {
                Some(bell) => window.with_doorbell(Arc::new(EventDoorbell::new(bell))),
                None => window,
            },
            geometry: self.geometry,
            index,
            side: [Side::Connecting, Side::Accepting][own],
            settings: PartitionSettings {
                incarnation: incarnation + own as u64,
                lost_after_ns,
                ..PartitionSettings::default()
            },
            bell: bell(own),
        }
    }

    /// Has both hosts join all partitions, of which each plane has one.
    pub(crate) fn join_all(&self, hosts: &mut [Host; 2], incarnation: u64, lost_after_ns: u64) {
        hosts.iter_mut().for_each(|host| host.joined = 0);
        for index in 0..self.geometry.partitions {
            for (own, host) in hosts.iter().enumerate() {
                let join = self.join(own, index, incarnation, lost_after_ns);
                host.tell(index.into(), Command::Join(Box::new(join)));
            }
        }
        let partitions = usize::from(self.geometry.partitions);
        until(hosts, "they join", |host| host.joined == partitions);
    }
}

/// Joins two hosts by a window with bells.
pub(crate) fn join(hosts: &mut [Host; 2], incarnation: u64, lost_after_ns: u64) -> Joint {
    let joint = Joint::new(hosts[0].planes(), true);
    joint.join_all(hosts, incarnation, lost_after_ns);
    joint
}

/// Hears what hosts have to say until it is so for each.
pub(crate) fn until(hosts: &mut [Host], what: &str, mut is_so: impl FnMut(&Host) -> bool) {
    let start = Instant::now();
    loop {
        hosts.iter_mut().for_each(Host::hear);
        if hosts.iter().all(&mut is_so) {
            return;
        }
        let told: Vec<_> = hosts
            .iter()
            .map(|host| {
                let lost = format!("{:?}", host.lost);
                (host.joined, lost, host.opened.len(), host.ended.len())
            })
            .collect();
        assert!(
            start.elapsed().as_secs() < HANG_S,
            "{what}: it hangs; joined, lost, opened, ended: {told:?}"
        );
        let bells: Vec<_> = hosts.iter().map(|host| host.data_plane.bell()).collect();
        let mut bells: Vec<_> = bells
            .iter()
            .map(|bell| PollFd::new(bell, PollFlags::IN))
            .collect();
        let wait = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut bells, Some(&wait)).expect("a poll");
    }
}

/// Connections between both hosts that are not established. The programs of one are behind each other.
pub(crate) fn open(hosts: &mut [Host; 2], count: u64, random: &mut Random) -> Vec<Application> {
    let mut applications = Vec::new();
    for token in 0..count {
        for (side, host) in [Side::Connecting, Side::Accepting].into_iter().zip(&*hosts) {
            let (mut application, endpoint) = pair(side, source(random));
            application.mark(random);
            applications.push(application);
            let open = Open {
                token,
                link: u32::from(host.partition(token)) + LINK,
                endpoint,
                class: Class::DEFAULT,
                rate: None,
                room: 16_384,
            };
            host.tell(token, Command::Open(Box::new(open)));
        }
    }
    let whole = usize::try_from(count).expect("few");
    until(hosts, "they open", |host| host.opened.len() == whole);
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
    let mut busy = Instant::now();
    while !is_done(applications) {
        let mut is_busy = false;
        for application in applications.iter_mut().flatten() {
            is_busy |= application.step(random);
        }
        if is_busy {
            busy = Instant::now();
            continue;
        }
        let waiting: Vec<_> = (0..)
            .zip(&*applications)
            .filter_map(|(index, application)| Some((index, application.as_ref()?)))
            .filter(|(_, application)| !application.is_done())
            .map(|(index, application)| (index, application.state()))
            .collect();
        let is_patient = busy.elapsed().as_secs() < HANG_S;
        assert!(is_patient, "the programs hang: {waiting:?}");
        sleep(applications);
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
    assert!(
        own.urgent_got.is_subset(&peer.urgent),
        "{what}: bytes are urgent that are not"
    );
    // Of several that wait the last is urgent: it may be that one alone.
    let last = peer.urgent.last();
    if own.got.len() == peer.source.len() && last.is_some() {
        assert_eq!(own.urgent_got.last(), last, "{what}: the urgent byte");
    }
}
