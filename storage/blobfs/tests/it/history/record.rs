//! What was done, and what may be left of it.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use millrace_blobfs::{CheckOptions, Error, ErrorKind, Volume, check, dump};
use millrace_block::Device;

use super::{Names, collect};
use crate::support::options;
use crate::{CREATE, OPEN};

const UNIT_BYTES: u64 = 4096;

/// Versions of a file of which each is a prefix of the last.
struct Epoch {
    bytes: Vec<u8>,
    /// Bytes of the first version.
    began_with: usize,
    /// The operation that made it.
    began: usize,
    /// Whether it is the one before with other bytes in between: then any block may be of either.
    is_overwritten: bool,
}

/// All versions of a file.
#[derive(Default)]
pub(crate) struct History {
    epochs: Vec<Epoch>,
    /// When it was synced, in operations, with the epoch and size it then had.
    synced: Vec<(usize, usize, usize)>,
}

impl History {
    /// A file that is made by an operation.
    pub(crate) fn new(number: usize) -> Self {
        let mut history = Self::default();
        history.begin(number, Vec::new(), false);
        history
    }

    /// What the file holds now.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.epochs[self.epochs.len() - 1].bytes
    }

    /// Whether the file ever held these bytes, of which some may have been written over.
    pub(crate) fn was(&self, bytes: &[u8]) -> bool {
        let all: Vec<_> = self.epochs.iter().collect();
        Self::is_mixture(&all, bytes, &[], 0)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let last = self.epochs.len() - 1;
        self.epochs[last].bytes.extend_from_slice(bytes);
    }

    pub(crate) fn cut(&mut self, number: usize, size: usize) {
        let kept = self.bytes()[..size].to_vec();
        self.begin(number, kept, false);
    }

    pub(crate) fn overwrite(&mut self, number: usize, at: usize, bytes: &[u8]) {
        let mut new = self.bytes().to_vec();
        new[at..at + bytes.len()].copy_from_slice(bytes);
        self.begin(number, new, true);
    }

    pub(crate) fn sync(&mut self, number: usize) {
        let synced = (number, self.epochs.len() - 1, self.bytes().len());
        self.synced.push(synced);
    }

    fn begin(&mut self, number: usize, bytes: Vec<u8>, is_overwritten: bool) {
        self.epochs.push(Epoch {
            began_with: bytes.len(),
            bytes,
            began: number,
            is_overwritten,
        });
    }

    /// What is wrong with these bytes after `done` operations, of which one more was begun if `issued` says so. A
    /// range of them may hold anything.
    fn fault(
        &self,
        bytes: &[u8],
        spoiled: &[Range<usize>],
        done: usize,
        issued: usize,
    ) -> Option<String> {
        let synced = self
            .synced
            .iter()
            .rev()
            .find(|(number, ..)| *number <= done);
        let (epoch, size) = synced.map_or((0, 0), |&(_, epoch, size)| (epoch, size));
        let possible: Vec<_> = self.epochs[epoch..]
            .iter()
            .take_while(|epoch| epoch.began <= issued)
            .collect();
        let least = |index: usize| {
            if index == 0 {
                size
            } else {
                possible[index].began_with
            }
        };
        let is_version = |(index, epoch): (usize, &&Epoch)| {
            bytes.len() >= least(index) && is_prefix(bytes, &epoch.bytes, spoiled)
        };
        let has_mixtures = possible.iter().skip(1).any(|epoch| epoch.is_overwritten);
        if possible.iter().enumerate().any(is_version)
            || (has_mixtures && Self::is_mixture(&possible, bytes, spoiled, size))
        {
            return None;
        }
        let all = &self.epochs[epoch].bytes;
        let same = all.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        Some(format!(
            "the first {same} bytes are right, {size} were synced in epoch {epoch} of {}",
            self.epochs.len()
        ))
    }

    fn is_mixture(
        possible: &[&Epoch],
        bytes: &[u8],
        spoiled: &[Range<usize>],
        size: usize,
    ) -> bool {
        let cut = possible.iter().skip(1).map(|epoch| epoch.began_with);
        let least = cut.min().unwrap_or(0).min(size);
        let is_of_one = |(at, byte): (usize, &u8)| {
            spoiled.iter().any(|range| range.contains(&at))
                || possible
                    .iter()
                    .any(|epoch| epoch.bytes.get(at) == Some(byte))
        };
        bytes.len() >= least && bytes.iter().enumerate().all(is_of_one)
    }
}

/// Whether `all` begins with `bytes`, but for what was spoiled.
fn is_prefix(bytes: &[u8], all: &[u8], spoiled: &[Range<usize>]) -> bool {
    let Some(all) = all.get(..bytes.len()) else {
        return false;
    };
    let mut from = 0;
    for range in spoiled {
        let to = range.start.min(bytes.len());
        if bytes[from..to] != all[from..to] {
            return false;
        }
        from = range.end.clamp(to, bytes.len());
    }
    bytes[from..] == all[from..]
}

/// What a history did, and when.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) files: BTreeMap<u64, History>,
    /// The names after each operation; the first is before any.
    pub(crate) names: Vec<Names>,
    /// The number of events after each operation.
    pub(crate) events: Vec<usize>,
    /// Operations after which all names were durable.
    pub(crate) durable: Vec<usize>,
    /// Blocks whose write has failed: they may hold anything, whatever they held before.
    pub(crate) spoiled: Option<Range<u64>>,
}

/// What cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The volume was not mounted, for want of a superblock.
    NoSuperblock,
    /// The volume was not mounted: metadata is lost or makes no sense.
    NoMetadata,
    /// The volume was not mounted for another reason.
    NoMount,
    /// A check found damage.
    Check,
    /// Names that never were, or should be.
    Names,
    /// A file holds what it never did, or lacks what was synced.
    Contents,
    /// The volume cannot be used.
    NoUse,
}

/// What is wrong with a volume.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    pub(crate) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.cause, self.text)
    }
}

fn fault(cause: Cause, text: String) -> Fault {
    Fault { cause, text }
}

fn no_mount(error: &Error) -> Fault {
    let source = error.source().map(ToString::to_string);
    let text = format!("{error} {}", source.unwrap_or_default());
    let cause = match error.kind() {
        ErrorKind::NotAVolume => Cause::NoSuperblock,
        ErrorKind::Corruption | ErrorKind::Io if text.contains("superblock") => Cause::NoSuperblock,
        ErrorKind::Corruption => Cause::NoMetadata,
        _ => Cause::NoMount,
    };
    fault(cause, text)
}

impl Record {
    /// What is wrong with a disk that is left after so many events; nothing if it is right.
    pub(crate) fn fault(&self, disk: &Arc<dyn Device>, point: usize) -> Option<Fault> {
        let volume = match Volume::mount(Arc::clone(disk), options()) {
            Ok(volume) => volume,
            Err(error) => return Some(no_mount(&error)),
        };
        // Operations that were done, and perhaps the one after them.
        let done = self
            .events
            .partition_point(|&events| events <= point)
            .saturating_sub(1);
        let issued = (done + 1).min(self.names.len() - 1);
        self.fault_of(&volume, disk, done, issued)
    }

    /// The same of a volume that is mounted, after so many operations.
    pub(crate) fn fault_of(
        &self,
        volume: &Volume,
        disk: &Arc<dyn Device>,
        done: usize,
        issued: usize,
    ) -> Option<Fault> {
        let spoiled = self.spoiled.as_ref();
        let spoiled = spoiled.map_or_else(BTreeMap::new, |blocks| {
            spoiled_bytes(disk, payload_bytes(volume), blocks)
        });
        let durable = self.durable.iter().rev().find(|&&number| number <= done);
        let durable = durable.copied().unwrap_or(0);
        let names = collect(volume);
        if !self.names[durable..=issued].contains(&names) {
            let known = self.names.iter().rposition(|known| *known == names);
            let wanted = &self.names[durable];
            let text = format!(
                "{names:?} are those after operation {known:?}, none of {durable}..={issued} ({wanted:?})"
            );
            return Some(fault(Cause::Names, text));
        }
        for (path, id) in names.iter().filter(|(_, id)| self.files.contains_key(id)) {
            let spoiled = spoiled.get(id).map_or(&[][..], Vec::as_slice);
            let bytes = match read_around(volume, path, spoiled) {
                Ok(bytes) => bytes,
                Err(error) => return Some(fault(Cause::Contents, format!("{path}: {error}"))),
            };
            if let Some(wrong) = self.files[id].fault(&bytes, spoiled, done, issued) {
                let text = format!("{path} (#{id}) of {} bytes: {wrong}", bytes.len());
                return Some(fault(Cause::Contents, text));
            }
        }
        // It can be used.
        let file = volume
            .open("after", &CREATE)
            .and_then(|file| file.append(b"x").and_then(|()| file.sync()));
        file.err()
            .map(|error| fault(Cause::NoUse, error.to_string()))
    }
}

/// All bytes of a file, with zeros in blocks that fail their checksums.
fn read_around(volume: &Volume, path: &str, spoiled: &[Range<usize>]) -> Result<Vec<u8>, Error> {
    let file = volume.open(path, &OPEN)?;
    let mut bytes = vec![0; usize::try_from(file.size()).expect("a small file")];
    let error = match file.read_at(0, &mut bytes) {
        Ok(_) => return Ok(bytes),
        Err(error) => error,
    };
    if error.kind() != ErrorKind::Corruption || spoiled.is_empty() {
        return Err(error);
    }
    let payload = payload_bytes(volume);
    for (index, part) in bytes.chunks_mut(payload).enumerate() {
        let place = index * payload..index * payload + part.len();
        let is_spoiled = |range: &Range<usize>| range.start < place.end && place.start < range.end;
        match file.read_at(place.start as u64, part) {
            Err(error)
                if error.kind() == ErrorKind::Corruption && spoiled.iter().any(is_spoiled) =>
            {
                part.fill(0);
            }
            read => _ = read?,
        }
    }
    Ok(bytes)
}

/// Bytes of a file in a block.
fn payload_bytes(volume: &Volume) -> usize {
    let trailer = if volume.data_checksums() { 8 } else { 0 };
    volume.block_bytes() as usize - trailer
}

/// Which bytes of which files lie in these blocks.
fn spoiled_bytes(
    disk: &Arc<dyn Device>,
    payload: usize,
    blocks: &Range<u64>,
) -> BTreeMap<u64, Vec<Range<usize>>> {
    let mut text = Vec::new();
    dump(disk, &mut text).expect("it was just mounted");
    let text = String::from_utf8(text).expect("it is text");
    let block_bytes = u64::from(disk.geometry().block_bytes);
    let spoiled = blocks.start * block_bytes..blocks.end * block_bytes;
    let mut files = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains(" file, ")) {
        let (id, rest) = line.trim().split_once(' ').expect("a number first");
        let id: u64 = id.trim_start_matches('#').parse().expect("a number");
        let (_, units) = rest.rsplit_once("units ").unwrap_or_default();
        let mut at = 0;
        let mut ranges = Vec::new();
        for extent in units.split(' ').filter(|extent| !extent.is_empty()) {
            let (start, end) = extent.split_once("..").expect("a range");
            let unit = |text: &str| text.parse::<u64>().expect("a number") * UNIT_BYTES;
            let (start, end) = (unit(start), unit(end));
            let hit = start.max(spoiled.start)..end.min(spoiled.end);
            if !hit.is_empty() {
                let place = |byte: u64| {
                    let block = usize::try_from((at + byte - start) / block_bytes);
                    block.expect("a small file") * payload
                };
                ranges.push(place(hit.start)..place(hit.end));
            }
            at += end - start;
        }
        files.insert(id, ranges);
    }
    files
}

/// What a check says of a disk, if it is not sound.
pub(crate) fn unsound(disk: &Arc<dyn Device>) -> Option<Fault> {
    let options = CheckOptions {
        repair: false,
        read_data: true,
    };
    match check(disk, options, &mut |_| {}) {
        Ok(report) if report.is_sound() => None,
        Ok(report) => {
            let findings = report.findings.iter().map(ToString::to_string);
            let text = findings.collect::<Vec<_>>().join("; ");
            Some(fault(Cause::Check, text))
        }
        Err(error) => Some(no_mount(&error)),
    }
}
