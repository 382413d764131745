//! The rings and lists of a queue pair, in memory that the controller sees.

use std::sync::Arc;

use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};

use crate::admin_commands::{QueuePlace, take_memory};
use crate::rings::{CompletionRing, SubmissionRing};
use crate::transfer::Lists;
use crate::{Controller, Result};

/// The most commands in flight of one queue pair: ids keep at least 4 bits for their sequence.
const DEPTH_MAX: u32 = 4095;
/// Least number of entries of a completion ring, unless the controller allows fewer. A polling pair updates the head
/// doorbell when they are nearly used up: for a ring of one or two commands that would be at nearly every completion.
const COMPLETIONS_MIN: u32 = 64;

/// The rings and lists, in memory that is the queue pair's own.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) submission: SubmissionRing,
    pub(super) completion: CompletionRing,
    pub(super) lists: Lists,
}

impl Rings {
    /// The memory of queue `id` for `depth` commands, fewer if the controller's limit is lower.
    pub(super) fn new(controller: &Controller, id: u16, depth: u16) -> Result<(Self, u16, Arena)> {
        let entries_max = controller.capabilities().queue_entries_max();
        let depth = u32::from(depth).min(DEPTH_MAX).min(entries_max - 1);
        let to_u16 = |entries: u32| u16::try_from(entries).expect("no more than 8,192");
        let submission = to_u16(depth + 1);
        let completion = (2 * (depth + 1)).max(COMPLETIONS_MIN);
        let completion = to_u16(completion.min(entries_max));
        let depth = to_u16(depth);

        let page = controller.page_size();
        let page_bytes = usize::try_from(page).expect("no more than 64 KiB");
        let whole = |size: usize| size.next_power_of_two().max(page_bytes);
        let submission_size = whole(SubmissionRing::size(submission));
        let completion_size = whole(CompletionRing::size(completion));
        let list_size = Lists::place_size(controller.transfer_max(), page);
        let lists_size = whole(list_size * usize::from(depth));
        let arena = Arena::new(
            Arc::clone(controller.domain()),
            &ArenaOptions {
                classes: classes(&[submission_size, completion_size, lists_size]),
                pages: Pages::Base,
                node: None,
                locked: true,
            },
        )?;
        let (submission_bell, completion_bell) = controller.doorbells(id)?;
        let rings = Self {
            submission: SubmissionRing::new(
                take_memory(&arena, submission_size, page)?,
                submission,
                submission_bell,
            ),
            completion: CompletionRing::new(
                take_memory(&arena, completion_size, page)?,
                completion,
                completion_bell,
            ),
            lists: Lists::new(take_memory(&arena, lists_size, page)?, list_size),
        };
        Ok((rings, depth, arena))
    }

    pub(super) fn place(&self, id: u16, vector: Option<u16>) -> QueuePlace {
        QueuePlace {
            id,
            submission: (self.submission.memory().iova(), self.submission.entries()),
            completion: (self.completion.memory().iova(), self.completion.entries()),
            vector,
        }
    }
}

/// One block of each size.
fn classes(sizes: &[usize]) -> Vec<SizeClass> {
    let mut classes: Vec<SizeClass> = Vec::new();
    for size in sizes {
        match classes.iter_mut().find(|class| class.size == *size) {
            Some(class) => class.count += 1,
            None => classes.push(SizeClass {
                size: *size,
                count: 1,
            }),
        }
    }
    classes
}
