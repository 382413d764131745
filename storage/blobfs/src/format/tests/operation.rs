//! Operations and their bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::ErrorKind;
use crate::format::extent::Extents;
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::operation::Operations;
use crate::format::{Extent, Operation};

/// An operation that owns what it is made of.
#[derive(Clone, Debug)]
struct Parts {
    which: u8,
    numbers: [u64; 4],
    names: [String; 2],
    extents: Vec<Extent>,
    bytes: Vec<u8>,
}

impl Parts {
    fn operation(&self) -> Operation<'_> {
        let [a, b, c, d] = self.numbers;
        let [name, other] = [self.names[0].as_str(), self.names[1].as_str()];
        let extents = Extents::Listed(&self.extents);
        let (id, parent, modified) = (InodeId(a), InodeId(b), Timestamp(c));
        let kinds = [Kind::File, Kind::Directory];
        let kind = kinds[usize::from(d % 2 == 1)];
        match self.which {
            0 => Operation::Create {
                id,
                kind,
                parent,
                name,
                modified,
            },
            1 => Operation::Link { id, parent, name },
            2 => Operation::Unlink { parent, name },
            3 => Operation::Rename {
                from: (id, name),
                to: (parent, other),
            },
            4 => Operation::Extend {
                id,
                size: d,
                extents,
                modified,
            },
            5 => Operation::Data {
                id,
                offset: d,
                bytes: &self.bytes,
                extents,
                modified,
            },
            6 => Operation::Truncate {
                id,
                size: d,
                modified,
            },
            _ => Operation::SetModified { id, modified },
        }
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let name = || "[a-zé/.]{0,40}";
    let extent = (any::<u32>(), any::<u32>()).prop_map(|(start, units)| Extent {
        start: start.into(),
        units,
    });
    (
        0_u8..8,
        any::<[u64; 4]>(),
        [name(), name()],
        vec(extent, 0..20),
        vec(any::<u8>(), 0..200),
    )
        .prop_map(|(which, numbers, names, extents, bytes)| Parts {
            which,
            numbers,
            names,
            extents,
            bytes,
        })
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(all in vec(parts(), 0..10)) {
        let mut payload = Vec::new();
        for parts in &all {
            parts.operation().encode(&mut payload);
        }
        let decoded: Result<Vec<_>, _> = Operations::new(&payload).collect();
        let expected: Vec<_> = all.iter().map(Parts::operation).collect();
        prop_assert_eq!(decoded.unwrap(), expected);
    }

    #[test]
    fn a_payload_that_is_cut_is_an_error(parts in parts(), cut in any::<prop::sample::Index>()) {
        let mut payload = Vec::new();
        parts.operation().encode(&mut payload);
        let cut = 1 + cut.index(payload.len() - 1);
        let results: Vec<_> = Operations::new(&payload[..cut]).collect();
        if cut == payload.len() {
            prop_assert!(results[0].is_ok());
        } else {
            prop_assert_eq!(results.len(), 1);
            prop_assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn any_bytes_end_in_operations_or_an_error(payload in vec(0_u8..12, 0..300)) {
        let mut again = Vec::new();
        for operation in Operations::new(&payload).map_while(Result::ok) {
            operation.encode(&mut again);
        }
        prop_assert_eq!(&payload[..again.len()], again);
    }
}

#[test]
fn counts_that_lie_take_no_memory() {
    let mut payload = vec![5];
    payload.extend([0; 24]);
    payload.extend(u32::MAX.to_le_bytes());
    assert!(Operations::new(&payload).next().unwrap().is_err());
    payload[0] = 6;
    assert!(Operations::new(&payload).next().unwrap().is_err());
}
