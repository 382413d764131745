//! From what is durable and what is loose to the content of a disk.

use std::ops::Range;

use millrace_block::Image;
use millrace_random::Random;

use crate::cursor::{Cursor, Listed};
use crate::pieces::{pieces, pieces_at_most};
use crate::record::Content;

/// Requests of more pieces fall into a few parts only.
const PIECES_MAX: u64 = 4096;
/// Blocks that may hold anything beyond so many are treated alike, but for some.
const SINGLE_MAX: u64 = 64;

/// What is on the medium of that which is loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Survivors {
    /// None of it.
    Nothing,
    /// All of it, as reads have seen it.
    Everything,
    /// All of it but for one request or one piece of one, as reads have seen it.
    AllButOne,
    /// One request or one piece of one.
    OnlyOne,
    /// Any pieces in any order. All contents that are possible can come.
    Random,
}

impl Survivors {
    /// All choices of survivors, in the order of their declaration.
    pub const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Everything,
        Self::AllButOne,
        Self::OnlyOne,
        Self::Random,
    ];
}

/// A piece of a request that is on the medium.
struct Piece<'a> {
    listed: &'a Listed,
    blocks: Range<u64>,
}

/// How random survivors are drawn.
#[derive(Clone, Copy)]
struct Draw {
    /// Whether a request is there as a whole or not at all.
    whole: bool,
    /// Of eight, how many are there.
    part: u64,
    /// Whether they come in any order, or as reads have seen them.
    reordered: bool,
}

pub(crate) fn image(cursor: &Cursor, survivors: Survivors, seed: u64) -> Image {
    let mut random = Random::new(seed);
    let mut maker = Maker {
        image: cursor.durable.clone(),
        cursor,
    };
    for blocks in cursor.anything.ranges() {
        maker.write_anything(&blocks, &mut random);
    }
    if cursor.listed.is_empty() {
        return maker.image;
    }
    let mut chosen = Vec::new();
    let reordered = match survivors {
        Survivors::Nothing => {
            maker.choose(&mut chosen, &mut random, |_, _| false);
            false
        }
        Survivors::Everything => {
            maker.choose(&mut chosen, &mut random, |_, _| true);
            false
        }
        Survivors::AllButOne | Survivors::OnlyOne => {
            let only = survivors == Survivors::OnlyOne;
            maker.choose_by_one(&mut chosen, &mut random, only);
            false
        }
        Survivors::Random => maker.choose_at_random(&mut chosen, &mut random),
    };
    maker.write_all(chosen, reordered, &mut random);
    maker.image
}

struct Maker<'a> {
    cursor: &'a Cursor,
    image: Image,
}

impl<'a> Maker<'a> {
    /// Takes all pieces of durable requests, and those of loose ones that `is_there` says yes to.
    fn choose(
        &self,
        chosen: &mut Vec<Piece<'a>>,
        random: &mut Random,
        mut is_there: impl FnMut(&Listed, &mut Random) -> bool,
    ) {
        for listed in &self.cursor.listed {
            self.pieces_of(listed, random, |blocks, random| {
                if listed.durable || is_there(listed, random) {
                    chosen.push(Piece { listed, blocks });
                }
            });
        }
    }

    /// Leaves out, or has alone, one request or one piece of one.
    fn choose_by_one(&self, chosen: &mut Vec<Piece<'a>>, random: &mut Random, only: bool) {
        let loose: Vec<&Listed> = self
            .cursor
            .listed
            .iter()
            .filter(|one| !one.durable)
            .collect();
        let Some(last) = loose.len().checked_sub(1) else {
            return self.choose(chosen, random, |_, _| only);
        };
        let one = loose[random.index(last + 1)];
        let (blocks, atomic) = (
            &self.cursor.asked(one).blocks,
            self.cursor.geometry().atomic_blocks,
        );
        let torn = random.chance(1, 2) && pieces_at_most(blocks, atomic) <= PIECES_MAX;
        let count = pieces(blocks.clone(), atomic).count();
        let piece = torn.then(|| random.index(count));
        let mut seen = 0;
        self.choose(chosen, random, |listed, _| {
            let mut is_it = listed.number == one.number;
            if is_it {
                is_it = piece.is_none_or(|piece| piece == seen);
                seen += 1;
            }
            is_it == only
        });
    }

    /// Takes any pieces; whether they are to come in any order.
    fn choose_at_random(&self, chosen: &mut Vec<Piece<'a>>, random: &mut Random) -> bool {
        let draw = Draw {
            whole: random.chance(1, 2),
            part: [1, 4, 4, 7][random.index(4)],
            reordered: random.chance(3, 4),
        };
        let mut last = None;
        self.choose(chosen, random, |listed, random| match last {
            Some((number, there)) if draw.whole && number == listed.number => there,
            _ => {
                let there = random.chance(draw.part, 8);
                last = Some((listed.number, there));
                there
            }
        });
        draw.reordered
    }

    /// The pieces of a request; of one with very many, a few parts of several pieces each.
    fn pieces_of(
        &self,
        listed: &Listed,
        random: &mut Random,
        mut each: impl FnMut(Range<u64>, &mut Random),
    ) {
        let atomic = self.cursor.geometry().atomic_blocks;
        let blocks = self.cursor.asked(listed).blocks.clone();
        if pieces_at_most(&blocks, atomic) <= PIECES_MAX {
            pieces(blocks, atomic).for_each(|piece| each(piece, random));
            return;
        }
        let mut borders = vec![blocks.start, blocks.end];
        for _ in 0..random.below(9) {
            let cut = blocks.start + random.below(blocks.end - blocks.start);
            borders.push((cut - cut % u64::from(atomic)).max(blocks.start));
        }
        borders.sort_unstable();
        borders.dedup();
        for pair in borders.windows(2) {
            each(pair[0]..pair[1], random);
        }
    }

    /// Writes the pieces in an order that may be.
    fn write_all(&mut self, mut chosen: Vec<Piece<'a>>, reordered: bool, random: &mut Random) {
        if !reordered {
            let cursor = self.cursor;
            chosen.sort_by_key(|piece| {
                let asked = cursor.asked(piece.listed);
                (asked.applied, asked.submitted)
            });
            for piece in &chosen {
                self.write(piece, random);
            }
            return;
        }
        chosen.sort_by_key(|piece| piece.blocks.start);
        let mut rest = chosen.as_mut_slice();
        while !rest.is_empty() {
            let group;
            (group, rest) = rest.split_at_mut(group_len(rest));
            self.write_group(group, random);
        }
    }

    /// Writes pieces that may have blocks in common.
    fn write_group(&mut self, group: &mut [Piece<'a>], random: &mut Random) {
        random.shuffle(group);
        if !group.iter().any(|piece| piece.listed.durable) {
            for piece in &*group {
                self.write(piece, random);
            }
            return;
        }
        let mut left: Vec<&Piece<'a>> = group.iter().collect();
        while !left.is_empty() {
            let must_wait = |piece: &Piece<'_>| {
                left.iter().any(|other| {
                    let meets = other.blocks.start < piece.blocks.end
                        && piece.blocks.start < other.blocks.end;
                    meets && self.cursor.is_before(other.listed, piece.listed)
                })
            };
            let ready: Vec<usize> = (0..left.len()).filter(|at| !must_wait(left[*at])).collect();
            // A piece that comes before another was also applied before it: no cycle, so one of them is ready.
            let next = left.swap_remove(ready[random.index(ready.len())]);
            self.write(next, random);
        }
    }

    fn write(&mut self, piece: &Piece<'_>, random: &mut Random) {
        let geometry = self.cursor.geometry();
        let asked = self.cursor.asked(piece.listed);
        let shift = geometry.block_shift();
        let bytes = |blocks: u64| blocks << shift;
        let offset = bytes(piece.blocks.start);
        let len = bytes(piece.blocks.end - piece.blocks.start);
        if piece.listed.spoiled && random.chance(1, 4) {
            return self.write_anything(&piece.blocks, random);
        }
        match &asked.content {
            Content::Bytes(all) => {
                let to_index = |blocks| usize::try_from(bytes(blocks)).expect("within the data");
                let first = to_index(piece.blocks.start - asked.blocks.start);
                let end = to_index(piece.blocks.end - asked.blocks.start);
                self.image.write(offset, &all[first..end]);
            }
            Content::Zeros => self.image.zero(offset, len),
            Content::Anything => self.write_anything(&piece.blocks, random),
        }
    }

    /// Leaves blocks as they are, makes them zeros, or anything.
    fn write_anything(&mut self, blocks: &Range<u64>, random: &mut Random) {
        let geometry = self.cursor.geometry();
        write_anything(&mut self.image, geometry.block_shift(), blocks, random);
    }
}

/// Leaves blocks as they are, makes them zeros, or anything.
pub(crate) fn write_anything(
    image: &mut Image,
    block_shift: u32,
    blocks: &Range<u64>,
    random: &mut Random,
) {
    let count = blocks.end - blocks.start;
    if count > SINGLE_MAX && random.chance(1, 2) {
        image.zero(blocks.start << block_shift, count << block_shift);
    }
    let mut garbage = vec![0; 1 << block_shift];
    for index in 0..count.min(SINGLE_MAX) {
        let index = if count > SINGLE_MAX {
            random.below(count)
        } else {
            index
        };
        let offset = (blocks.start + index) << block_shift;
        match random.below(3) {
            0 => image.zero(offset, 1 << block_shift),
            1 => {
                random.fill(&mut garbage);
                image.write(offset, &garbage);
            }
            _ => {}
        }
    }
}

/// How many of the pieces, which are sorted by their first block, may have a block in common with the first
/// or with one that has; no later one has.
fn group_len(pieces: &[Piece<'_>]) -> usize {
    let mut end = 0;
    let together = pieces.iter().enumerate().take_while(|(index, piece)| {
        let meets = *index == 0 || piece.blocks.start < end;
        end = end.max(piece.blocks.end);
        meets
    });
    together.count()
}
