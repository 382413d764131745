//! A worker without sockets, threads or a clock of its own, for simulations: it serves, parks and waits as
//! [`Worker`](super::worker) does, with the same parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use millrace_wire::OpCode;

use super::connection::Current;
use super::parked::{ParkedReplies, Verdict};
use super::requests::{self, Place};
use super::{ConnectionId, ConnectionInfo, Notifier, Outcome, Resumed, Service, Ticket};
use crate::acknowledgement::Reached;
use crate::journal::Journal;

/// A ticket that was notified, and the connection whose request waits for it.
type Notified = (u64, Ticket);

/// What the request of a connection waits for.
#[derive(Debug)]
enum State {
    Idle,
    Parked {
        start: usize,
    },
    Waiting {
        until: Duration,
        ticket: Option<Ticket>,
    },
}

#[derive(Debug)]
struct Line<S> {
    session: S,
    request: Vec<u8>,
    current: Current,
    output: Vec<u8>,
    state: State,
}

/// The connections of a service that tests talk to.
#[derive(Debug)]
pub(crate) struct Loopback<S: Service> {
    service: Arc<S>,
    notifier: Arc<Notifier>,
    lines: BTreeMap<u64, Line<S::Session>>,
    parked: ParkedReplies<u64>,
    /// Replies that were parked since the last request to the journal.
    parked_new: u64,
    /// Finished replies: the connection, and one whole message.
    replies: Vec<(u64, Vec<u8>)>,
    /// Where tickets report that they were notified, and where that is read.
    notify: Sender<Notified>,
    notified: Receiver<Notified>,
}

impl<S: Service> Loopback<S> {
    pub(crate) fn new(service: Arc<S>, notifier: Arc<Notifier>) -> Self {
        let (notify, notified) = channel();
        Self {
            service,
            notifier,
            lines: BTreeMap::new(),
            parked: ParkedReplies::new(),
            parked_new: 0,
            replies: Vec::new(),
            notify,
            notified,
        }
    }

    pub(crate) fn open(&mut self, number: u64) {
        let session = self.service.open(&ConnectionInfo {
            id: ConnectionId(number),
            peer: "simulated".to_owned(),
        });
        let line = Line {
            session,
            request: Vec::new(),
            current: current(0, Duration::ZERO),
            output: Vec::new(),
            state: State::Idle,
        };
        self.lines.insert(number, line);
    }

    /// Serves one request, a whole message, that was received at the monotonic time `now`.
    pub(crate) fn send(&mut self, number: u64, request: Vec<u8>, now: Duration) {
        let line = self.lines.get_mut(&number).expect("it is open");
        assert!(matches!(line.state, State::Idle), "one request at a time");
        line.current = current(request.len(), now);
        line.request = request;
        self.serve(number, None);
    }

    fn serve(&mut self, number: u64, resumed: Option<Resumed>) {
        let line = self.lines.get_mut(&number).expect("it is open");
        line.state = State::Idle;
        let mut serve = |resumed, place| {
            let (session, out) = (&mut line.session, &mut line.output);
            let (service, request) = (&*self.service, &line.request);
            requests::serve(
                service,
                session,
                &line.current,
                request,
                resumed,
                place,
                out,
            )
        };
        let mut served = serve(resumed, Place::Worker);
        if let Outcome::Offload = served.outcome {
            served = serve(None, Place::Executor);
        }
        match served.outcome {
            Outcome::Done => self
                .replies
                .push((number, std::mem::take(&mut line.output))),
            Outcome::Acknowledge(wanted) => {
                line.state = State::Parked {
                    start: served.start,
                };
                self.parked.park(number, &wanted);
                self.parked_new += 1;
            }
            Outcome::Wait { until, ticket } => {
                line.state = State::Waiting { until, ticket };
                if let Some(ticket) = ticket {
                    let sender = self.notify.clone();
                    // A simulation that has ended listens no more.
                    let wake = move || {
                        let _ = sender.send((number, ticket));
                    };
                    self.notifier.wait(ticket, Box::new(wake));
                }
            }
            other => panic!("no client here asks for that: {other:?}"),
        }
    }

    /// Asks for one sync for everything that was parked since the last time.
    pub(crate) fn request_sync(&mut self, journal: &Journal) {
        let replies = std::mem::take(&mut self.parked_new);
        if let (Some(commit_seq), true) = (self.parked.last_commit_seq(), replies > 0) {
            journal.request(commit_seq, replies);
        }
    }

    /// Goes on with what was notified, has come far enough, or is late at the monotonic time `now`.
    pub(crate) fn poll(&mut self, reached: &Reached, now: Duration) {
        while let Ok((number, notified)) = self.notified.try_recv() {
            let state = self.lines.get(&number).map(|line| &line.state);
            if matches!(state, Some(State::Waiting { ticket: Some(ticket), .. }) if *ticket == notified)
            {
                self.serve(number, Some(Resumed::Notified));
            }
        }
        let is_late =
            |line: &Line<_>| matches!(line.state, State::Waiting { until, .. } if until <= now);
        let late = self.lines.iter().filter(|(_, line)| is_late(line));
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.serve(number, Some(Resumed::TimedOut));
        }
        while let Some((number, verdict)) = self.parked.pop(reached, now) {
            self.release(number, verdict);
        }
    }

    fn release(&mut self, number: u64, verdict: Verdict) {
        let line = self.lines.get_mut(&number).expect("what is parked is open");
        let State::Parked { start } = line.state else {
            panic!("only what is parked is released");
        };
        line.state = State::Idle;
        let (service, current, out) = (&*self.service, &line.current, &mut line.output);
        match verdict {
            Verdict::Reached => {}
            Verdict::Failed => drop(requests::fail(service, current, start, out).outcome),
            Verdict::TimedOut => {
                let session = &mut line.session;
                drop(requests::time_out(service, session, current, start, out).outcome);
            }
        }
        self.replies.push((number, std::mem::take(out)));
    }

    /// The replies since the last time.
    pub(crate) fn take_replies(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.replies)
    }

    /// Monotonic time at which [`Loopback::poll`] has something to do unless something else comes first.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let waiting = self.lines.values().filter_map(|line| match line.state {
            State::Waiting { until, .. } => Some(until),
            _ => None,
        });
        waiting.chain(self.parked.next_deadline()).min()
    }
}

fn current(len: usize, began: Duration) -> Current {
    Current {
        len,
        form: OpCode::Msg,
        response_to: 1,
        reply_id: 1,
        compressor: None,
        inflated: None,
        began,
        round: 0,
    }
}
