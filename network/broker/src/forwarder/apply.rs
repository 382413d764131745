//! The execution of the broker's commands.

use millrace_stream::partition::{OpenParams, OpenReply, PartitionSettings, SessionError};
use rustix::event::epoll;

use super::command::{Command, Event, Join, JoinAt, Open, Token};
use super::end::{CONNECTION_RESET, End, Endpoint};
use super::flows::Route;
use super::forwarder::{Forwarder, LINKS, unwatch, watch};
use super::links::Link;
use super::pipe::Pipe;
use super::remote::Remote;
use super::window::open_window;
use crate::{Error, ErrorKind, Result};

impl Forwarder {
    /// Executes the queued commands. True if there was one.
    pub(super) fn run_commands(&mut self) -> bool {
        let mut is_busy = false;
        while let Ok(command) = self.commands.try_recv() {
            is_busy = true;
            match command {
                Command::Join(join) => self.join(*join),
                Command::JoinAt(join) => self.join_at(&join),
                Command::Leave { link } => self.leave(link),
                Command::Open(open) => {
                    let token = open.token;
                    let opened = self.open(*open);
                    self.report_open(token, opened.map(Some).ok());
                }
                Command::Loop { token, ends } => {
                    let opened = self.open_pipe(token, *ends);
                    self.report_open(token, opened.map(|()| None).ok());
                }
                Command::Establish { token, peer } => self.establish(token, peer),
                Command::Close { token, errno } => self.close(token, errno),
                Command::Report => {
                    let _ = self.events.send(Event::Report(self.totals()));
                }
                Command::Stop => self.is_stopped = true,
            }
        }
        is_busy
    }

    fn report_open(&mut self, token: Token, opened: Option<Option<Event>>) {
        match opened {
            Some(event) => {
                self.totals.opened += 1;
                self.publish_load();
                if let Some(event) = event {
                    let _ = self.events.send(event);
                }
            }
            None => {
                let _ = self.events.send(Event::Refused { token });
            }
        }
    }

    fn join(&mut self, join: Join) {
        let number = join.link;
        let is_free = self.links.iter().all(|link| link.number != number);
        let link = if is_free {
            Link::new(join)
        } else {
            Err(Error::new(
                ErrorKind::Refused,
                "the partition number is in use",
            ))
        };
        let lost = Event::Lost {
            link: number,
            loss: SessionError::Window,
        };
        let Ok(link) = link else {
            let _ = self.events.send(lost);
            return;
        };
        if let Some(wakeup) = &link.wakeup {
            let data = epoll::EventData::new_u64(LINKS + u64::from(number));
            if epoll::add(&self.epoll, wakeup, data, epoll::EventFlags::IN).is_err() {
                let _ = self.events.send(lost);
                return;
            }
        }
        self.links.push(link);
    }

    fn join_at(&mut self, at: &JoinAt) {
        let Ok(window) = open_window(&at.path) else {
            let _ = self.events.send(Event::Lost {
                link: at.link,
                loss: SessionError::Window,
            });
            return;
        };
        let settings = PartitionSettings {
            incarnation: at.incarnation,
            lost_after_ns: at.lost_after_ns,
            ..PartitionSettings::default()
        };
        self.join(Join {
            link: at.link,
            window,
            geometry: at.geometry,
            index: at.index,
            side: at.side,
            settings,
            wakeup: None,
        });
    }

    fn leave(&mut self, number: u32) {
        if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
            // The next poll reports the loss.
            link.partition.close(&mut self.flows);
        }
    }

    fn open(&mut self, open: Open) -> Result<Event> {
        let Open {
            token,
            link,
            endpoint,
            class,
            rate,
            room,
        } = open;
        self.check(token)?;
        let found = self.links.iter_mut().find(|other| other.number == link);
        let found =
            found.ok_or_else(|| Error::new(ErrorKind::Refused, "unknown partition number"))?;
        let end = End::new(endpoint)?;
        let key = self.flows.next_key();
        let opening = OpenParams {
            key,
            class,
            rate,
            room,
        };
        let opened = found.partition.open(&opening);
        let opened = opened.ok_or_else(|| {
            Error::new(
                ErrorKind::Refused,
                "no connection number is free in the partition",
            )
        })?;
        if let Err(error) = watch(&self.epoll, &end, key, 0) {
            found.partition.cancel(opened.id);
            return Err(error);
        }
        let remote = Remote::new(end, link, opened.id, &opening);
        self.flows.insert(token, Route::Remote(Box::new(remote)));
        self.apply_service(key, 0);
        Ok(Event::Opened { token, opened })
    }

    fn open_pipe(&mut self, token: Token, ends: [Endpoint; 2]) -> Result<()> {
        self.check(token)?;
        let [first, second] = ends;
        let ends = [End::new(first)?, End::new(second)?];
        let key = self.flows.next_key();
        watch(&self.epoll, &ends[0], key, 0)?;
        if let Err(error) = watch(&self.epoll, &ends[1], key, 1) {
            unwatch(&self.epoll, &ends[0]);
            return Err(error);
        }
        self.flows
            .insert(token, Route::Pipe(Box::new(Pipe::new(ends))));
        (0..2).for_each(|side| self.apply_service(key, side));
        Ok(())
    }

    fn establish(&mut self, token: Token, peer: OpenReply) {
        let Some(key) = self.flows.find(token) else {
            return;
        };
        self.flows.mark_hot(key);
        let Some(Route::Remote(remote)) = self.flows.get(key).map(|flow| &mut flow.route) else {
            return;
        };
        let link = self
            .links
            .iter_mut()
            .find(|link| link.number == remote.link);
        if let (Some(link), Some(id)) = (link, remote.id) {
            if !link.partition.establish(id, peer) {
                // The two brokers disagree: the connection cannot work.
                remote.break_off(&mut link.partition, CONNECTION_RESET);
            }
        }
    }

    fn close(&mut self, token: Token, errno: u16) {
        let Some(key) = self.flows.find(token) else {
            return;
        };
        self.flows.mark_hot(key);
        match self.flows.get(key).map(|flow| &mut flow.route) {
            Some(Route::Pipe(pipe)) => pipe.reset(errno),
            Some(Route::Remote(remote)) => {
                let number = remote.link;
                if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
                    remote.break_off(&mut link.partition, errno);
                }
            }
            None => {}
        }
    }

    fn check(&self, token: Token) -> Result<()> {
        match self.flows.find(token) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Refused, "the token is in use")),
        }
    }
}
