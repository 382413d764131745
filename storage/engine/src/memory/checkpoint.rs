//! The file that a checkpoint of the in-memory engine is.
//!
//! # Format
//! ```text
//! "millrace memory\n"   16 bytes
//! commit sequence number                8 bytes, little-endian
//! number of counters    8 bytes, then for each: string (key), 16 bytes (counter)
//! number of keys        8 bytes, then for each: string (key), string (value)
//! string                8 bytes length, then the bytes
//! ```
//! # Recovery, durability
//! None: the file is written once, and a file that is not exactly of this form is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{Counters, Map, State};
use crate::{CommitSeq, Counter, Error, ErrorKind, Result};

const FILE_NAME: &str = "memory";
const MAGIC: &[u8; 16] = b"millrace memory\n";

/// Writes `state` into the new folder `target`.
pub(super) fn write(state: &State, target: &Path) -> Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&state.last.get().to_le_bytes());
    bytes.extend_from_slice(&(state.counters.len() as u64).to_le_bytes());
    for (key, counter) in state.counters.iter() {
        push_string(&mut bytes, key);
        bytes.extend_from_slice(&counter.to_bytes());
    }
    bytes.extend_from_slice(&(state.map.len() as u64).to_le_bytes());
    for (key, value) in state.map.iter() {
        push_string(&mut bytes, key);
        push_string(&mut bytes, value);
    }
    if target.exists() {
        let context = format!(
            "the checkpoint's folder {} exists already",
            target.display()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, context));
    }
    fs::create_dir(target)
        .and_then(|()| fs::write(target.join(FILE_NAME), bytes))
        .map_err(|error| {
            let context = format!("cannot write the checkpoint {}", target.display());
            Error::new(ErrorKind::Io, context).with_source(error)
        })
}

/// Reads the state that [`write()`] put into `folder`.
pub(super) fn read(folder: &Path) -> Result<State> {
    let path = folder.join(FILE_NAME);
    let bytes = fs::read(&path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {}", path.display())).with_source(error)
    })?;
    decode(&bytes).ok_or_else(|| {
        Error::new(
            ErrorKind::Corruption,
            format!("{} is no checkpoint", path.display()),
        )
    })
}

fn push_string(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.extend_from_slice(&(string.len() as u64).to_le_bytes());
    bytes.extend_from_slice(string);
}

fn decode(bytes: &[u8]) -> Option<State> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let last = CommitSeq::new(take_number(&mut rest)?);
    let mut state = State {
        last,
        durable: last,
        ..State::default()
    };
    let mut counters = Counters::new();
    for _ in 0..take_number(&mut rest)? {
        let key = take_string(&mut rest)?.to_vec();
        let (counter, tail) = rest.split_at_checked(16)?;
        rest = tail;
        let counter = Counter::from_bytes(counter).ok()?;
        counters.insert(key, counter);
    }
    state.counters = Arc::new(counters);
    let mut map = Map::new();
    for _ in 0..take_number(&mut rest)? {
        let key = take_string(&mut rest)?;
        map.insert(key.into(), take_string(&mut rest)?.into());
    }
    state.map = Arc::new(map);
    rest.is_empty().then_some(state)
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (number, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_le_bytes(*number))
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    let (string, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(string)
}
