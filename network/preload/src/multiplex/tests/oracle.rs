//! Long random walks, against a model that states the events that epoll must report.

use std::collections::HashMap;
use std::time::Duration;

use millrace_random::Random;

use super::fake::{Fake, Fixture};
use crate::readiness::{ALWAYS, EDGE, ERR, HUP, IN, ONCE, OUT, RDHUP};

const SOURCES: usize = 6;
const STEPS: usize = 4000;

/// State of a source and an interest in the model.
#[derive(Debug, Default, Clone)]
struct Model {
    pending: u64,
    is_full: bool,
    is_finished: bool,
    is_broken: bool,
    interest: Option<Asked>,
}

#[derive(Debug, Clone)]
struct Asked {
    events: u32,
    data: u64,
    is_enabled: bool,
    /// Whether bytes arrived, or room was freed, since the last report.
    has_arrival: bool,
    has_room: bool,
}

impl Model {
    fn ready(&self) -> u32 {
        let mut ready = 0;
        if self.pending > 0 || self.is_broken {
            ready |= IN;
        }
        if !self.is_full || self.is_broken {
            ready |= OUT;
        }
        if self.is_finished || self.is_broken {
            ready |= RDHUP;
        }
        if self.is_broken {
            ready |= HUP | ERR;
        }
        ready
    }

    /// Events that must be reported now, if there is room.
    fn due(&self) -> Option<(u32, u64)> {
        let asked = self.interest.as_ref().filter(|asked| asked.is_enabled)?;
        let ready = self.ready() & (asked.events | ALWAYS);
        // Also if the bytes were read since.
        let arrived = asked.has_arrival && asked.events & IN != 0;
        let ended = asked.has_arrival && ready & (IN | RDHUP | HUP | ERR) != 0;
        let freed = asked.has_room && ready & OUT != 0;
        let is_news = asked.events & EDGE == 0 || arrived || ended || freed;
        (ready != 0 && is_news).then_some((ready, asked.data))
    }

    fn arrived(&mut self) {
        if let Some(asked) = &mut self.interest {
            asked.has_arrival = true;
        }
    }

    fn reported(&mut self) {
        if let Some(asked) = &mut self.interest {
            (asked.has_arrival, asked.has_room) = (false, false);
            asked.is_enabled = asked.events & ONCE == 0;
        }
    }
}

struct Walk {
    random: Random,
    fixture: Fixture,
    fakes: Vec<&'static Fake>,
    models: Vec<Model>,
    next_data: u64,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            fixture: Fixture::new(),
            fakes: (0..SOURCES).map(|_| Fake::new()).collect(),
            models: vec![Model::default(); SOURCES],
            next_data: 0,
        }
    }

    fn draw(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.below(u64::try_from(limit).expect("small"))).expect("small")
    }

    fn step(&mut self) {
        let index = self.draw(SOURCES);
        let fake = self.fakes[index];
        match self.draw(12) {
            0 | 1 => {
                fake.arrive();
                self.models[index].pending += 1;
                self.models[index].arrived();
            }
            2 | 3 => {
                if fake.take() {
                    let model = &mut self.models[index];
                    model.pending -= 1;
                }
            }
            4 if !self.models[index].is_full => {
                fake.stall();
                self.models[index].is_full = true;
                if self.models[index].is_broken
                    && let Some(asked) = &mut self.models[index].interest
                {
                    asked.has_room = true;
                }
            }
            5 if self.models[index].is_full => {
                fake.make_room();
                let model = &mut self.models[index];
                model.is_full = false;
                if let Some(asked) = &mut model.interest {
                    asked.has_room = true;
                }
            }
            6 => self.control(index),
            7 if self.draw(40) == 0 => {
                fake.finish();
                let model = &mut self.models[index];
                model.pending += 1;
                model.is_finished = true;
                model.arrived();
            }
            8 => self.wait(Some(Duration::from_micros(1))),
            _ => self.wait(Some(Duration::ZERO)),
        }
    }

    fn control(&mut self, index: usize) {
        let fd = self.fakes[index].fd();
        let mut events = [IN, OUT, IN | OUT, IN | RDHUP, 0][self.draw(5)];
        events |= [0, EDGE, ONCE, EDGE | ONCE][self.draw(4)];
        self.next_data += 1;
        let asked = Asked {
            events,
            data: self.next_data,
            is_enabled: true,
            has_arrival: true,
            has_room: true,
        };
        if self.models[index].interest.is_none() {
            self.fixture.add(fd, events, self.next_data);
        } else if self.draw(4) == 0 {
            self.fixture.delete(fd);
            self.models[index].interest = None;
            return;
        } else {
            self.fixture.modify(fd, events, self.next_data);
        }
        self.models[index].interest = Some(asked);
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        let room = 1 + self.draw(SOURCES + 2);
        let reported = self.fixture.try_wait(room, timeout).expect("nothing fails");
        let due: HashMap<u64, (usize, u32)> = self
            .models
            .iter()
            .enumerate()
            .filter_map(|(index, model)| model.due().map(|(ready, data)| (data, (index, ready))))
            .collect();
        // Armed members are found by a look at the kernel, which need not come before hot ones are reported.
        let enough = usize::from(!due.is_empty());
        assert!(
            reported.len() >= enough && reported.len() <= room,
            "{reported:?} of {due:?}, room for {room}"
        );
        let mut seen = Vec::new();
        for (ready, data) in reported {
            assert!(!seen.contains(&data), "{data} was reported twice");
            seen.push(data);
            let Some((index, expected)) = due.get(&data) else {
                panic!("{data} was reported with {ready:#x}, due is {due:?}");
            };
            assert_eq!(ready, *expected, "{data}, {:?}", self.models[*index]);
            self.models[*index].reported();
        }
    }

    /// All due events are reported within the number of waits that includes a look at the kernel.
    fn end(&mut self) {
        let mut due: Vec<u64> = self
            .models
            .iter()
            .filter_map(|model| Some(model.due()?.1))
            .collect();
        for _ in 0..64 {
            let reported = self.fixture.look(2);
            for (_, data) in reported {
                due.retain(|other| *other != data);
            }
        }
        assert!(due.is_empty(), "never reported: {due:?}");
    }
}

#[test]
fn reports_what_epoll_would() {
    for seed in 0..50 {
        println!("seed {seed}");
        let mut walk = Walk::new(seed);
        for _ in 0..STEPS {
            walk.step();
        }
        walk.end();
    }
}
