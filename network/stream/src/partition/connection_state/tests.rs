use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// A row of the table in the module's documentation: half, from, event, to.
type Row = (String, String, String, String);

/// The errno of a reset that an endpoint asks for.
const ERRNO: u16 = 104;

fn table() -> BTreeSet<Row> {
    let source = include_str!("../connection_state.rs");
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let rows = lines.filter_map(|line| line.trim().strip_prefix("| "));
    let cells = rows.map(|row| row.split('|').map(str::trim).map(str::to_owned));
    let rows =
        cells.filter_map(|mut row| Some((row.next()?, row.next()?, row.next()?, row.next()?)));
    rows.filter(|row| ["sending", "receiving", "both"].contains(&row.0.as_str()))
        .collect()
}

/// The name of a variant without its fields.
fn name(state: impl std::fmt::Debug) -> String {
    let text = format!("{state:?}");
    let end = text.find([' ', '(']).unwrap_or(text.len());
    text[..end].to_owned()
}

/// The row of a transition; `None` if the state is the same as before.
fn row(before: ConnectionState, event: &str, after: ConnectionState) -> Option<Row> {
    let of = |half: &str, from, to| Some((half.to_owned(), from, event.to_owned(), to));
    if before == after {
        return None;
    }
    match (before, after) {
        (
            ConnectionState::Open { sending, receiving },
            ConnectionState::Open {
                sending: sends,
                receiving: receives,
            },
        ) if receiving == receives => of("sending", name(sending), name(sends)),
        (
            ConnectionState::Open { sending, receiving },
            ConnectionState::Open {
                sending: sends,
                receiving: receives,
            },
        ) => {
            assert_eq!(sending, sends, "{event} changes one half");
            of("receiving", name(receiving), name(receives))
        }
        _ => of("both", name(before), name(after)),
    }
}

/// One side that records its transitions.
#[derive(Clone, Debug)]
struct Side {
    state: ConnectionState,
    rows: BTreeSet<Row>,
    sent: Vec<EndFrame>,
    violations: u32,
}

impl Side {
    fn new() -> Self {
        Self {
            state: ConnectionState::NEW,
            rows: BTreeSet::new(),
            sent: Vec::new(),
            violations: 0,
        }
    }

    fn go(&mut self, event: &str, after: ConnectionState) {
        self.rows.extend(row(self.state, event, after));
        self.state = after;
    }

    /// Sends the frame that is due.
    fn send(&mut self) -> Option<Kind> {
        let (frame, after) = self.state.due()?;
        assert!(!self.state.has_closed(), "nothing follows the last frame");
        let (event, kind) = match frame {
            EndFrame::Finish => ("FINISH sent", Kind::Finish),
            EndFrame::Close => ("CLOSE sent", Kind::Close),
            EndFrame::Reset(_) => ("RESET sent", Kind::Reset),
        };
        self.sent.push(frame);
        self.go(event, after);
        Some(kind)
    }

    fn receive(&mut self, kind: Kind) {
        let event = format!("{} received", format!("{kind:?}").to_uppercase());
        match self.state.receive(kind) {
            Ok(after) => self.go(&event, after),
            Err(violation) => {
                assert_eq!(violation, ProtocolViolation::Order);
                assert!(
                    !self.state.is_discarding(),
                    "discarded frames are no violations"
                );
                self.violations += 1;
                self.go("reset", self.state.reset(71));
            }
        }
    }

    /// A call of the endpoint by number.
    fn call(&mut self, call: u8) {
        match call % 4 {
            0 => self.go("ready", self.state.ready()),
            1 => self.go("drained", self.state.drained()),
            2 => self.go("finish", self.state.finish()),
            _ => self.go("reset", self.state.reset(ERRNO + u16::from(call / 4 % 2))),
        }
    }

    fn is_recorded_in(&self, table: &BTreeSet<Row>) {
        let unknown: Vec<&Row> = self.rows.difference(table).collect();
        assert!(unknown.is_empty(), "not in the table: {unknown:?}");
        let finishes = self.sent.iter().filter(|it| **it == EndFrame::Finish);
        assert!(finishes.count() <= 1, "{:?}", self.sent);
        let is_last = |frame: &EndFrame| *frame != EndFrame::Finish;
        let lasts = self.sent.iter().filter(|it| is_last(it)).count();
        assert_eq!(
            lasts,
            usize::from(self.state.has_closed()),
            "{:?}",
            self.sent
        );
        assert!(self.sent.iter().rev().skip(1).all(|it| !is_last(it)));
    }
}

/// The events that any state may meet: calls, received frames, and the frame that is due.
fn step(side: &mut Side, event: u8) {
    const KINDS: [Kind; 6] = [
        Kind::Data,
        Kind::Urgent,
        Kind::Credit,
        Kind::Finish,
        Kind::Close,
        Kind::Reset,
    ];
    match event % 15 {
        call @ 0..8 => side.call(call),
        frame @ 8..14 => side.receive(KINDS[usize::from(frame) - 8]),
        _ => drop(side.send()),
    }
}

/// All states that events lead to have their transitions in the table, no row is missing, and each leads to the end.
#[test]
fn the_table_is_complete() {
    let table = table();
    let mut taken = BTreeSet::new();
    let mut seen = vec![ConnectionState::NEW];
    let mut next = 0;
    while let Some(state) = seen.get(next).copied() {
        next += 1;
        for event in 0..15 {
            let mut side = Side {
                state,
                ..Side::new()
            };
            step(&mut side, event);
            taken.append(&mut side.rows);
            if !seen.contains(&side.state) {
                seen.push(side.state);
            }
        }
    }
    assert_eq!(taken, table);
    for state in seen {
        let mut side = Side {
            state: state.reset(ERRNO),
            ..Side::new()
        };
        side.send();
        side.receive(Kind::Reset);
        assert!(side.state.is_over(), "{state:?}");
    }
}

proptest! {
    /// Any events, in any order, also of a peer that breaks the protocol.
    #[test]
    fn transitions_are_in_the_table(events in proptest::collection::vec(0_u8..15, 0..60)) {
        let table = table();
        let mut side = Side::new();
        for event in events {
            if side.state.is_over() {
                break;
            }
            step(&mut side, event);
        }
        side.is_recorded_in(&table);
    }

    /// Two sides that keep to the protocol see no violation, and both end.
    #[test]
    fn two_sides_end(events in proptest::collection::vec((0_usize..2, 0_u8..12), 0..80)) {
        let table = table();
        let mut sides = [Side::new(), Side::new()];
        let mut frames = [VecDeque::new(), VecDeque::new()];
        let settle = (0..40).flat_map(|_| [(0, 2), (1, 2), (0, 1), (1, 1), (0, 8), (1, 8), (0, 11), (1, 11)]);
        for (which, event) in events.into_iter().chain(settle) {
            let side = &mut sides[which];
            match event {
                // Resets are rare.
                call @ 0..4 if call != 3 || frames[which].len() > 2 => side.call(call),
                0..7 if side.state.has_data() => frames[1 - which].push_back(Kind::Data),
                0..7 => {}
                7..10 => frames[1 - which].extend(side.send()),
                _ => {
                    if let Some(frame) = frames[which].pop_front() {
                        prop_assert!(!side.state.is_over(), "{frame:?} after the end");
                        side.receive(frame);
                    }
                }
            }
        }
        for side in &sides {
            prop_assert_eq!(side.violations, 0);
            prop_assert!(side.state.is_over(), "{:?}", side);
            side.is_recorded_in(&table);
        }
    }
}
