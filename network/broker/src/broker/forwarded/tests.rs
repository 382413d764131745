//! Random events, and what must hold of the actions.

use std::collections::{BTreeMap, BTreeSet};

use millrace_random::Random;
use millrace_stream::Address;
use millrace_stream::control::{Link, Mode};
use millrace_stream::partition::{ConnectionId, ConnectionName, EndName};

use super::*;

const SEEDS: u64 = 400;
const EVENTS: usize = 250;
const SESSIONS: u64 = 3;

fn limits() -> Limits {
    Limits {
        forwarded_max: 12,
        forwarded_per_user_max: 5,
        ..Limits::DEFAULT
    }
}

fn link() -> Link {
    let address = |port| Address::new("192.0.2.1".parse().expect("an address"), port);
    Link {
        mode: Mode::Forwarded,
        ring_lines: 64,
        local: address(1),
        peer: address(2),
    }
}

const fn reply() -> OpenReply {
    OpenReply {
        id: ConnectionId::from_number(1),
        credit: 1,
    }
}

/// The surroundings of the forwarded connections, which check each action.
#[derive(Debug)]
struct Fixture {
    random: Random,
    forwarded: Forwarded,
    last_request: u32,
    /// The answers to each request of a process, by serial; and of another broker, by its token.
    answers: BTreeMap<u32, u32>,
    peer_answers: BTreeMap<Token, u32>,
    /// Tokens that a forwarder knows, and those whose descriptors are kept.
    known: BTreeSet<Token>,
    kept: BTreeSet<Token>,
    established: BTreeSet<Token>,
    asked: BTreeMap<Token, u64>,
    last_token: Token,
}

impl Fixture {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            forwarded: Forwarded::new(limits()),
            last_request: 0,
            answers: BTreeMap::new(),
            peer_answers: BTreeMap::new(),
            known: BTreeSet::new(),
            kept: BTreeSet::new(),
            established: BTreeSet::new(),
            asked: BTreeMap::new(),
            last_token: 0,
        }
    }

    fn handle(&mut self, event: ForwardEvent) {
        let mut todo = Vec::new();
        self.forwarded.handle(event, &mut todo);
        // Actions are performed in order, and their results handled behind them.
        let mut next = 0;
        while let Some(action) = todo.get(next).cloned() {
            next += 1;
            let result = self.perform(action);
            if let Some(event) = result {
                self.forwarded.handle(event, &mut todo);
            }
        }
    }

    fn perform(&mut self, action: ForwardAction) -> Option<ForwardEvent> {
        match action {
            ForwardAction::Open { token, .. } => {
                assert!(token > self.last_token, "a token is never reused");
                self.last_token = token;
                if self.random.chance(1, 8) {
                    return Some(ForwardEvent::OpenFailed { token });
                }
                self.known.insert(token);
                self.kept.insert(token);
            }
            ForwardAction::Establish { token, .. } => {
                assert!(self.known.contains(&token), "{token}");
                assert!(self.established.insert(token), "{token}: twice");
            }
            ForwardAction::Close { token, .. } => {
                assert!(self.known.contains(&token), "{token}");
                self.kept.remove(&token);
            }
            ForwardAction::Send { message, .. } => match message {
                PeerMessage::Connect { token, .. } => {
                    assert!(self.known.contains(&token), "{token}");
                }
                PeerMessage::Accept { token, .. } | PeerMessage::Refuse { token, .. } => {
                    let answers = self.peer_answers.get_mut(&token).expect("it was asked");
                    *answers += 1;
                    assert_eq!(*answers, 1, "one answer for the request {token}");
                }
                other => panic!("{other:?}"),
            },
            ForwardAction::Connected { token, packet, .. } => {
                assert!(self.kept.remove(&token), "{token} has descriptors");
                assert!(self.established.contains(&token), "{token}");
                self.answer(packet.serial);
            }
            ForwardAction::Refuse { serial, .. } => self.answer(serial),
            ForwardAction::Deliver { token, opened, .. } => {
                assert!(self.kept.remove(&token), "{token} has descriptors");
                return Some(ForwardEvent::Delivered {
                    token,
                    opened,
                    is_delivered: self.random.chance(3, 4),
                });
            }
        }
        None
    }

    fn answer(&mut self, serial: u32) {
        let answers = self.answers.get_mut(&serial).expect("it was asked");
        *answers += 1;
        assert_eq!(*answers, 1, "one answer for the request {serial}");
    }

    fn token(&mut self) -> Token {
        self.random.below(self.last_token + 2)
    }

    fn session(&mut self) -> u64 {
        self.random.below(SESSIONS)
    }

    fn connect(&mut self) {
        let user = u32::try_from(self.random.below(4)).expect("few");
        if !self.forwarded.has_room(user) {
            return;
        }
        self.last_request += 1;
        let serial = self.last_request;
        let session = self.session();
        let end = EndName::new(1, "192.0.2.1:1".parse().expect("an address"));
        let name = ConnectionName {
            connecting: end,
            accepting: end,
        };
        self.answers.insert(serial, 0);
        // The next token, if none is taken before.
        self.asked.insert(self.last_token + 1, session);
        self.handle(ForwardEvent::Connect(Box::new(OutgoingConnect {
            session,
            partition: 0,
            forwarder_link: 0,
            client: ClientId(1),
            serial,
            user,
            process: 1,
            link: link(),
            name,
            progress: Progress::Opening { ticks: 0 },
        })));
    }

    fn accept(&mut self) {
        let owner = u32::try_from(self.random.below(4)).expect("few");
        if !self.forwarded.has_room(owner) {
            return;
        }
        self.last_request += 1;
        let theirs = Token::from(self.last_request);
        self.peer_answers.insert(theirs, 0);
        let session = self.session();
        self.handle(ForwardEvent::Accept(Box::new(IncomingConnect {
            session,
            partition: 0,
            forwarder_link: 0,
            theirs,
            listener: ListenerId(1),
            owner,
            user: 1,
            process: 1,
            link: link(),
            peer: reply(),
        })));
    }

    fn event(&mut self) {
        let token = self.token();
        let event = match self.random.below(24) {
            0..4 => return self.connect(),
            4..7 => return self.accept(),
            7..12 => ForwardEvent::Opened {
                token,
                opened: reply(),
            },
            12 => ForwardEvent::Refused { token },
            13 | 14 => ForwardEvent::Ended {
                token,
                bytes: (1, 2),
            },
            15..18 => ForwardEvent::PeerAccepted {
                session: self.asked.get(&token).copied().unwrap_or(0),
                token,
                opened: reply(),
            },
            18 => ForwardEvent::PeerRefused {
                session: self.session(),
                token,
                errno: 111,
            },
            19 => ForwardEvent::SessionClosed {
                session: self.session(),
            },
            20 if self.random.chance(1, 10) => ForwardEvent::ForwardersExited,
            _ => ForwardEvent::Tick,
        };
        self.handle(event);
    }

    /// The connections that are not established yet are as many as the requests without an answer, but for abandoned
    /// ones.
    fn check(&self) {
        let waits = |answers: &u32| *answers == 0;
        let waiting = self.answers.values().filter(|it| waits(it)).count()
            + self.peer_answers.values().filter(|it| waits(it)).count();
        let pending = |flow: &Flow| match flow {
            Flow::Outgoing(outgoing) => outgoing.progress != Progress::Abandoned,
            Flow::Incoming(_) => true,
            Flow::Local | Flow::Remote => false,
        };
        let flows = self.forwarded.table.iter();
        assert_eq!(flows.filter(|it| pending(it.1)).count(), waiting);
        let users = self.forwarded.table.users().map(|(_, count)| count);
        let counts: Vec<usize> = users.collect();
        let limits = limits();
        assert_eq!(
            counts.iter().sum::<usize>(),
            self.forwarded.table.iter().count()
        );
        assert!(counts.iter().sum::<usize>() <= limits.forwarded_max);
        assert!(
            counts
                .iter()
                .all(|count| *count <= limits.forwarded_per_user_max)
        );
        for token in &self.kept {
            assert!(
                self.forwarded.table.get(*token).is_some(),
                "{token} is kept for nobody"
            );
        }
    }
}

#[test]
fn each_request_has_one_answer() {
    let mut connected = 0;
    for seed in 0..SEEDS {
        let mut fixture = Fixture::new(seed);
        for _ in 0..EVENTS {
            fixture.event();
            fixture.check();
        }
        connected += fixture.established.len();
        for session in 0..SESSIONS {
            fixture.handle(ForwardEvent::SessionClosed { session });
            fixture.check();
        }
        for token in 0..=fixture.last_token {
            let bytes = (0, 0);
            fixture.handle(ForwardEvent::Ended { token, bytes });
        }
        fixture.check();
        assert!(
            fixture.answers.values().all(|count| *count == 1),
            "seed {seed}"
        );
        assert!(
            fixture.peer_answers.values().all(|count| *count == 1),
            "seed {seed}"
        );
        assert_eq!(fixture.forwarded.table.iter().count(), 0, "seed {seed}");
        assert!(fixture.kept.is_empty(), "seed {seed}");
    }
    assert!(connected > 1000, "{connected} were established");
}

/// A process is answered after ten seconds; its token stays in use until the other broker has answered.
#[test]
fn a_late_answer_finds_its_token() {
    let mut fixture = Fixture::new(0);
    while fixture.known.is_empty() {
        fixture.connect();
    }
    let token = fixture.last_token;
    let session = fixture.asked[&token];
    let opened = reply();
    fixture.handle(ForwardEvent::Opened { token, opened });
    let serial = fixture.last_request;
    for _ in 0..ANSWER_TICKS_MAX {
        fixture.handle(ForwardEvent::Tick);
    }
    assert_eq!(fixture.answers[&serial], 0);
    fixture.handle(ForwardEvent::Tick);
    assert_eq!(fixture.answers[&serial], 1);
    assert!(fixture.forwarded.table.get(token).is_some() && fixture.kept.contains(&token));
    fixture.handle(ForwardEvent::PeerAccepted {
        session,
        token,
        opened,
    });
    assert!(fixture.kept.is_empty(), "it was closed");
    let bytes = (3, 4);
    fixture.handle(ForwardEvent::Ended { token, bytes });
    assert!(fixture.forwarded.table.get(token).is_none());
    assert_eq!(
        fixture.forwarded.totals(),
        ForwardTotals { ended: 1, bytes }
    );
}
