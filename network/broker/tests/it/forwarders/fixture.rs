//! Hosts on threads.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use millrace_broker::forwarder::{
    Command, Event, Forwarder, ForwarderPool, ForwarderSettings, ForwarderTotals, Join, Open, Token,
};
use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{Class, OpenReply, PartitionGeometry, PartitionSettings};
use millrace_window::{EventDoorbell, Window};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::application::{Application, pair};

const fn geometry(partitions: u16) -> PartitionGeometry {
    PartitionGeometry {
        partitions,
        ring_lines: 1024,
    }
}

/// A host's forwarders, each on a thread.
pub(crate) struct Host {
    pub(crate) pool: ForwarderPool,
    threads: Vec<JoinHandle<(ForwarderTotals, usize)>>,
    /// Connections that are over.
    pub(crate) ended: Vec<Token>,
    pub(crate) opened: Vec<(Token, OpenReply)>,
    pub(crate) lost: Vec<Event>,
    pub(crate) joined: usize,
    pub(crate) report: Option<ForwarderTotals>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with_forwarders(1)
    }

    pub(crate) fn with_forwarders(count: u16) -> Self {
        let (pool, forwarders) =
            ForwarderPool::new(count, ForwarderSettings::default()).expect("forwarders");
        let run = |forwarder| thread::spawn(move || serve(forwarder));
        Self {
            pool,
            threads: forwarders.into_iter().map(run).collect(),
            ended: Vec::new(),
            opened: Vec::new(),
            lost: Vec::new(),
            joined: 0,
            report: None,
        }
    }

    fn forwarders(&self) -> u16 {
        u16::try_from(self.pool.forwarders().len()).expect("few")
    }

    /// Sends a command to the forwarder of a connection.
    pub(crate) fn tell(&self, token: Token, command: Command) {
        let forwarder = self.pool.forwarder(self.partition(token));
        assert!(forwarder.send(command), "the forwarder is there");
    }

    /// Each forwarder has one partition.
    fn partition(&self, token: Token) -> u16 {
        u16::try_from(token % u64::from(self.forwarders())).expect("few")
    }

    /// Forgets the events so far.
    pub(crate) fn forget(&mut self) {
        self.ended.clear();
        self.opened.clear();
        self.lost.clear();
    }

    /// Takes the pending events.
    pub(crate) fn take_events(&mut self) {
        let events: Vec<Event> = self.pool.events().collect();
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

    /// Stops the forwarders where they are. Returns their totals, and the count of their connections.
    pub(crate) fn stop(&mut self) -> (ForwarderTotals, usize) {
        for forwarder in self.pool.forwarders() {
            forwarder.send(Command::Stop);
        }
        let (mut all, mut connections) = (ForwarderTotals::default(), 0);
        for thread in self.threads.drain(..) {
            let (totals, count) = thread.join().expect("the forwarder does not panic");
            all.opened += totals.opened;
            all.ended += totals.ended;
            all.resets += totals.resets;
            connections += count;
        }
        (all, connections)
    }
}

fn serve(mut forwarder: Forwarder) -> (ForwarderTotals, usize) {
    let start = Instant::now();
    let clock = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
    forwarder.run(clock).expect("the forwarder works");
    (forwarder.totals(), forwarder.connections())
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// A window between two hosts, and the wake-up fds of its partitions.
pub(crate) struct PeerLink {
    file: OwnedFd,
    geometry: PartitionGeometry,
    /// By partition and side; `None` if no side can be notified.
    wakeups: Option<Vec<[OwnedFd; 2]>>,
}

/// The number of the first partition at a forwarder.
pub(crate) const LINK: u32 = 7;
/// The timeout of all waits in a test, in seconds; a passing test does not reach it.
const HANG_S: u64 = 120;

impl PeerLink {
    pub(crate) fn new(partitions: u16, has_bells: bool) -> Self {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let geometry = geometry(partitions);
        let (_window, file) = Window::create(geometry.size(), &options).expect("memory");
        let wakeups = |_| [event(), event()];
        Self {
            file,
            geometry,
            wakeups: has_bells.then(|| (0..partitions).map(wakeups).collect()),
        }
    }

    /// Joins one side's forwarder to a partition.
    pub(crate) fn join(
        &self,
        own: usize,
        index: u16,
        incarnation: u64,
        lost_after_ns: u64,
    ) -> Join {
        let wakeup = |side: usize| {
            let wakeups = self.wakeups.as_ref()?;
            let wakeup = &wakeups[usize::from(index)][side];
            Some(wakeup.try_clone().expect("a descriptor"))
        };
        let window = Window::attach(&self.file).expect("the same memory");
        Join {
            link: u32::from(index) + LINK,
            window: match wakeup(1 - own) {
                Some(wakeup) => window.with_doorbell(Arc::new(EventDoorbell::new(wakeup))),
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
            wakeup: wakeup(own),
        }
    }

    /// Joins both hosts to all partitions, one for each forwarder.
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

/// Joins two hosts by a window with wake-up fds.
pub(crate) fn join(hosts: &mut [Host; 2], incarnation: u64, lost_after_ns: u64) -> PeerLink {
    let peer_link = PeerLink::new(hosts[0].forwarders(), true);
    peer_link.join_all(hosts, incarnation, lost_after_ns);
    peer_link
}

/// Takes events of the hosts until the condition holds for each.
pub(crate) fn until(hosts: &mut [Host], what: &str, mut is_so: impl FnMut(&Host) -> bool) {
    let start = Instant::now();
    loop {
        hosts.iter_mut().for_each(Host::take_events);
        if hosts.iter().all(&mut is_so) {
            return;
        }
        let state: Vec<_> = hosts
            .iter()
            .map(|host| {
                let lost = format!("{:?}", host.lost);
                (host.joined, lost, host.opened.len(), host.ended.len())
            })
            .collect();
        assert!(
            start.elapsed().as_secs() < HANG_S,
            "{what}: timeout; joined, lost, opened, ended: {state:?}"
        );
        let wakeups: Vec<_> = hosts.iter().map(|host| host.pool.wakeup_fd()).collect();
        let mut wakeups: Vec<_> = wakeups
            .iter()
            .map(|wakeup| PollFd::new(wakeup, PollFlags::IN))
            .collect();
        let wait = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut wakeups, Some(&wait)).expect("a poll");
    }
}

/// Connections between both hosts that are not established. The programs of a connection are adjacent.
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

/// Established connections between both hosts.
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

/// Steps the programs until `is_done`. They sleep on their wake-up fds when none of them can move.
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
    // The forwarders' events are taken now and then, too.
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    poll(&mut watched, Some(&wait)).expect("a poll");
}

/// The received bytes are a prefix of the sent ones.
pub(crate) fn check(own: &Application, peer: &Application, what: &str) {
    assert!(peer.source.starts_with(&own.got), "{what}: no prefix");
    assert!(
        own.urgent_got.is_subset(&peer.urgent),
        "{what}: bytes are urgent that are not"
    );
    // Of several that wait the last is urgent, possibly that one alone.
    let last = peer.urgent.last();
    if own.got.len() == peer.source.len() && last.is_some() {
        assert_eq!(own.urgent_got.last(), last, "{what}: the urgent byte");
    }
}
