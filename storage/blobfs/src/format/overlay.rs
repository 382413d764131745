//! Overlay: journaled bytes of files that are not written back.

use std::collections::BTreeMap;
use std::ops::Range;

use super::ids::InodeId;

/// Bytes of one file: segments that do not overlap, by offset.
type Segments = BTreeMap<u64, Vec<u8>>;

/// Journaled bytes of files that are not written back. Later bytes replace earlier ones.
///
/// # Cost
/// An insertion takes time proportional to its bytes and to the segments that it covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlay {
    files: BTreeMap<InodeId, Segments>,
}

fn end(offset: u64, segment: &[u8]) -> u64 {
    offset.saturating_add(u64::try_from(segment.len()).unwrap_or(u64::MAX))
}

/// Distance of two offsets, both in one segment.
fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to - from).expect("it is within a segment, which is in memory")
}

impl Overlay {
    /// Whether the overlay is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Files with bytes in the overlay.
    pub(crate) fn files(&self) -> impl Iterator<Item = InodeId> {
        self.files.keys().copied()
    }

    /// Segments of a file in ascending order of their offsets. Adjacent segments may touch.
    pub(crate) fn of(&self, id: InodeId) -> impl Iterator<Item = (u64, &[u8])> {
        let segments = self.files.get(&id).into_iter().flatten();
        segments.map(|(offset, bytes)| (*offset, bytes.as_slice()))
    }

    /// Whether all bytes of a range are in the overlay.
    pub(crate) fn covers(&self, id: InodeId, range: Range<u64>) -> bool {
        let mut at = range.start;
        let first = |segments: &Segments, at: u64| {
            let (&start, segment) = segments.range(..=at).next_back()?;
            Some(end(start, segment)).filter(|&end| end > at)
        };
        while at < range.end {
            let Some(next) = self.files.get(&id).and_then(|all| first(all, at)) else {
                return false;
            };
            at = next;
        }
        true
    }

    /// Copies the file's bytes over `buffer`, which holds the device's bytes from `offset` on.
    pub(crate) fn patch(&self, id: InodeId, offset: u64, buffer: &mut [u8]) {
        let Some(segments) = self.files.get(&id) else {
            return;
        };
        let buffer_end = end(offset, buffer);
        let first = segments
            .range(..=offset)
            .next_back()
            .map_or(offset, |(start, _)| *start);
        for (&start, bytes) in segments.range(first..buffer_end) {
            let from = start.max(offset);
            let to = end(start, bytes).min(buffer_end);
            if from < to {
                buffer[distance(offset, from)..distance(offset, to)]
                    .copy_from_slice(&bytes[distance(start, from)..distance(start, to)]);
            }
        }
    }

    /// Replaces bytes of a file. The range must end below 2^64.
    pub(crate) fn insert(&mut self, id: InodeId, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let segments = self.files.entry(id).or_default();
        let (mut offset, mut bytes) = (offset, bytes);
        // A segment that begins before or at the same offset is overwritten, and keeps its rest if it ends later.
        if let Some((&start, segment)) = segments.range_mut(..=offset).next_back() {
            let segment_end = end(start, segment);
            if segment_end >= offset {
                let inside = bytes.len().min(distance(offset, segment_end));
                let at = distance(start, offset);
                segment[at..at + inside].copy_from_slice(&bytes[..inside]);
                offset += u64::try_from(inside).unwrap_or(0);
                bytes = &bytes[inside..];
                if bytes.is_empty() {
                    return;
                }
                let rest = Self::uncover(segments, offset, bytes);
                if let Some(segment) = segments.get_mut(&start) {
                    segment.extend_from_slice(rest);
                }
                return;
            }
        }
        let rest = Self::uncover(segments, offset, bytes).to_vec();
        segments.insert(offset, rest);
    }

    /// Removes the segments within a range and overwrites the front of one that extends beyond it; returns the bytes
    /// before that one.
    fn uncover<'b>(segments: &mut Segments, offset: u64, bytes: &'b [u8]) -> &'b [u8] {
        let range_end = end(offset, bytes);
        while let Some((&start, segment)) = segments.range_mut(offset..range_end).next_back() {
            if end(start, segment) > range_end {
                let (before, over) = bytes.split_at(distance(offset, start));
                segment[..over.len()].copy_from_slice(over);
                // All other segments of the range lie before that one.
                Self::remove_range(segments, offset, start);
                return before;
            }
            segments.remove(&start);
        }
        bytes
    }

    fn remove_range(segments: &mut Segments, from: u64, to: u64) {
        while let Some((&start, _)) = segments.range(from..to).next() {
            segments.remove(&start);
        }
    }

    /// Removes the bytes of a file from `size` on.
    pub(crate) fn truncate(&mut self, id: InodeId, size: u64) {
        let Some(segments) = self.files.get_mut(&id) else {
            return;
        };
        segments.split_off(&size);
        if let Some((&start, segment)) = segments.iter_mut().next_back() {
            if end(start, segment) > size {
                segment.truncate(distance(start, size));
            }
        }
        if segments.is_empty() {
            self.files.remove(&id);
        }
    }

    /// Removes all bytes of a file.
    pub(crate) fn remove(&mut self, id: InodeId) {
        self.files.remove(&id);
    }
}
