//! All contents that are possible after a power cut, by trying all: the rules of the crate's page written
//! down once more, for devices of a few blocks.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Kind;
use crate::record::{Asked, Content, Record, Step};

/// Of each block of a unit the first byte.
pub(crate) type Bytes = Vec<u8>;

/// A request, and when what happened to it, in events.
struct Happened<'a> {
    asked: &'a Asked,
    submitted: usize,
    completed: Option<usize>,
}

impl Happened<'_> {
    fn is_before(&self, that: &Self) -> bool {
        self.completed
            .is_some_and(|completed| completed < that.submitted)
    }
}

/// Of a request what lies in one unit and is there as a whole or not at all.
struct Piece<'a> {
    of: &'a Happened<'a>,
    blocks: Range<u64>,
    durable: bool,
}

impl Piece<'_> {
    fn must_precede(&self, that: &Self) -> bool {
        let meets = self.blocks.start < that.blocks.end && that.blocks.start < self.blocks.end;
        meets
            && match (self.durable, that.durable) {
                (false, false) => false,
                (true, true) => self.of.asked.applied < that.of.asked.applied,
                _ => self.of.is_before(that.of),
            }
    }
}

/// What each unit of `atomic_blocks` blocks may hold if the power goes after so many events.
pub(crate) fn units(record: &Record, point: usize) -> Vec<BTreeSet<Bytes>> {
    let mut happened: Vec<Happened<'_>> = Vec::new();
    for (at, step) in record.steps[..point].iter().enumerate() {
        match step {
            Step::Submitted(number) => happened.push(Happened {
                asked: &record.asked[*number],
                submitted: at,
                completed: None,
            }),
            Step::Completed(number) => happened[*number].completed = Some(at),
        }
    }
    let atomic = u64::from(record.geometry.atomic_blocks);
    let units = (0..record.geometry.blocks).step_by(usize::try_from(atomic).expect("few"));
    units
        .map(|first| {
            let unit = first..(first + atomic).min(record.geometry.blocks);
            let pieces: Vec<_> = happened
                .iter()
                .filter(|one| one.asked.kind.changes())
                .flat_map(|one| pieces_within(one, &unit, is_durable(record, &happened, one)))
                .collect();
            let start = unit
                .clone()
                .map(|block| first_byte(record, block))
                .collect();
            reach(&unit, &pieces, start)
        })
        .collect()
}

fn first_byte(record: &Record, block: u64) -> u8 {
    let mut byte = [0];
    record
        .start
        .read(block << record.geometry.block_shift(), &mut byte);
    byte[0]
}

fn is_durable(record: &Record, all: &[Happened<'_>], one: &Happened<'_>) -> bool {
    let Some(completed) = one.completed.filter(|_| !one.asked.failed) else {
        return false;
    };
    if one.asked.kind == Kind::WriteThrough || !record.geometry.volatile_cache {
        return true;
    }
    let flushes = || all.iter().filter(|other| other.asked.kind == Kind::Flush);
    let lost_at = flushes()
        .filter(|flush| flush.asked.failed)
        .filter_map(|flush| flush.completed)
        .filter(|at| completed < *at)
        .min();
    flushes().any(|flush| {
        let in_time = |at: usize| lost_at.is_none_or(|lost| at < lost);
        !flush.asked.failed && completed < flush.submitted && flush.completed.is_some_and(in_time)
    })
}

fn pieces_within<'a>(of: &'a Happened<'a>, unit: &Range<u64>, durable: bool) -> Vec<Piece<'a>> {
    let blocks = of.asked.blocks.clone();
    let piece = |blocks| Piece {
        of,
        blocks,
        durable,
    };
    if blocks.start <= unit.start && unit.end <= blocks.end {
        return vec![piece(unit.clone())];
    }
    let common = blocks.start.max(unit.start)..blocks.end.min(unit.end);
    common.map(|block| piece(block..block + 1)).collect()
}

/// All that comes of writing the durable pieces and any of the others in any order that is allowed.
fn reach(unit: &Range<u64>, pieces: &[Piece<'_>], start: Bytes) -> BTreeSet<Bytes> {
    let mut seen = BTreeSet::from([(0_u32, start.clone())]);
    let mut todo = vec![(0_u32, start)];
    let mut reached = BTreeSet::new();
    while let Some((written, content)) = todo.pop() {
        let is_written = |at: usize| written & (1 << at) != 0;
        if (0..pieces.len()).all(|at| is_written(at) || !pieces[at].durable) {
            reached.insert(content.clone());
        }
        for (at, piece) in pieces.iter().enumerate().filter(|(at, _)| !is_written(*at)) {
            let too_late = |(other_at, other): (usize, &Piece<'_>)| {
                is_written(other_at) && piece.must_precede(other)
            };
            let too_soon = |(other_at, other): (usize, &Piece<'_>)| {
                !is_written(other_at) && other.durable && other.must_precede(piece)
            };
            let others = || pieces.iter().enumerate().filter(|(other, _)| *other != at);
            if others().any(too_late) || others().any(too_soon) {
                continue;
            }
            let mut content = content.clone();
            for block in piece.blocks.clone() {
                let index = usize::try_from(block - unit.start).expect("few");
                content[index] = value(piece.of.asked, block);
            }
            let next = (written | 1 << at, content);
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    reached
}

fn value(asked: &Asked, block: u64) -> u8 {
    match &asked.content {
        Content::Bytes(bytes) => {
            let blocks = asked.blocks.end - asked.blocks.start;
            let block_bytes = bytes.len() / usize::try_from(blocks).expect("few");
            bytes[usize::try_from(block - asked.blocks.start).expect("few") * block_bytes]
        }
        Content::Zeros | Content::Anything => 0,
    }
}
