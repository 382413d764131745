//! The chains of capabilities behind VFIO's structures.
//!
//! ```text
//!   +-----------------+---------------------------+-----+---------------------------+
//!   | fixed structure | id version next | payload | ... | id version next | payload |
//!   +-----------------+---------------------------+-----+---------------------------+
//!        cap_offset ----^  2     2      4 bytes   ^ next, from the start of it all; 0 ends the chain
//! ```
//! The kernel makes chains that go forward; a server of vfio-user may send anything. Nothing is believed.

use std::fmt;

use crate::argument::Argument;
use crate::{Error, ErrorKind, Result};

/// Bytes of a capability's head.
const HEAD: usize = 8;

/// A capability in a list that VFIO returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) id: u16,
    /// Where its payload begins in the argument.
    pub(crate) payload: usize,
}

/// Walks the chain that begins at `first`, behind `fixed` bytes of structure.
pub(crate) fn chain(argument: &Argument, fixed: usize, first: u32) -> Result<Vec<Capability>> {
    let mut found = Vec::new();
    let mut offset = first as usize;
    // More capabilities than heads have room: some are walked twice.
    let mut left = argument.bytes().len() / HEAD;
    while offset != 0 {
        if offset < fixed {
            return Err(broken(format!(
                "a capability at {offset}, inside the structure"
            )));
        }
        if left == 0 {
            return Err(broken("a chain of capabilities that does not end"));
        }
        left -= 1;
        let (Some(head), Some(next)) = (argument.word(offset), argument.word(offset + 4)) else {
            let size = argument.bytes().len();
            return Err(broken(format_args!(
                "a capability at {offset} of {size} bytes"
            )));
        };
        found.push(Capability {
            // The id comes first; the machine's byte order decides which half of the word that is.
            id: u16::from_ne_bytes(first_half(head)),
            payload: offset + HEAD,
        });
        offset = next as usize;
    }
    Ok(found)
}

fn first_half(word: u32) -> [u8; 2] {
    let [a, b, _, _] = word.to_ne_bytes();
    [a, b]
}

/// Reads `count` pairs of long words from `offset` on.
pub(crate) fn pairs(argument: &Argument, offset: usize, count: u32) -> Result<Vec<(u64, u64)>> {
    (0..count as usize)
        .map(|index| {
            let place = offset + index * 16;
            match (argument.long(place), argument.long(place + 8)) {
                (Some(a), Some(b)) => Ok((a, b)),
                _ => Err(broken(format!(
                    "a list of {count} that does not fit in its capability"
                ))),
            }
        })
        .collect()
}

pub(crate) fn broken(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("described was {what}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn argument(bytes: &[u8]) -> Argument {
        let mut argument = Argument::new(bytes.len());
        argument.put(0, bytes);
        argument
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_chain_or_an_error(
            bytes in proptest::collection::vec(0_u8..64, 4..200),
            first in 0_u32..256,
            count: u32,
        ) {
            let argument = argument(&bytes);
            if let Ok(found) = chain(&argument, 24, first) {
                prop_assert!(found.len() <= bytes.len() / HEAD);
                for capability in found {
                    prop_assert!(capability.payload <= bytes.len());
                    if let Ok(pairs) = pairs(&argument, capability.payload, count) {
                        prop_assert_eq!(pairs.len(), count as usize);
                    }
                }
            }
        }
    }

    #[test]
    fn a_chain_that_bites_its_tail_is_refused() {
        let mut bytes = [0; 32];
        bytes[12] = 8;
        let error = chain(&argument(&bytes), 8, 8).expect_err("it never ends");
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
