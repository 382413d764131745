//! The overlay against an array of bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::format::Overlay;
use crate::format::ids::InodeId;

const ID: InodeId = InodeId(9);
const BYTES: usize = 64;

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Vec<u8>),
    Truncate(usize),
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..BYTES, vec(any::<u8>(), 0..24)).prop_map(|(at, bytes)| Step::Insert(at, bytes)),
        2 => (0..BYTES).prop_map(Step::Truncate),
        1 => Just(Step::Remove),
    ]
}

fn number(value: usize) -> u64 {
    u64::try_from(value).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn holds_what_was_written_last(steps in vec(step(), 1..40)) {
        let mut model = [None; BYTES + 24];
        let mut overlay = Overlay::default();
        for step in &steps {
            match step {
                Step::Insert(at, bytes) => {
                    overlay.insert(ID, number(*at), bytes);
                    for (cell, byte) in model[*at..].iter_mut().zip(bytes) {
                        *cell = Some(*byte);
                    }
                }
                Step::Truncate(size) => {
                    overlay.truncate(ID, number(*size));
                    model[*size..].fill(None);
                }
                Step::Remove => {
                    overlay.remove(ID);
                    model.fill(None);
                }
            }
            let mut found = [None; BYTES + 24];
            let mut end = 0;
            for (offset, bytes) in overlay.of(ID) {
                prop_assert!(offset >= end && !bytes.is_empty());
                end = offset + number(bytes.len());
                let offset = usize::try_from(offset).unwrap();
                for (cell, byte) in found[offset..].iter_mut().zip(bytes) {
                    *cell = Some(*byte);
                }
            }
            prop_assert_eq!(found, model);
            prop_assert_eq!(overlay.is_empty(), model.iter().all(Option::is_none));
            prop_assert_eq!(overlay.files().count(), usize::from(!overlay.is_empty()));
        }
        for from in 0..BYTES {
            for len in [0, 1, 7, 24] {
                let mut buffer = vec![0x55; len];
                overlay.patch(ID, number(from), &mut buffer);
                let expected: Vec<u8> = model[from..from + len]
                    .iter()
                    .map(|cell| cell.unwrap_or(0x55))
                    .collect();
                prop_assert_eq!(buffer, expected);
                let is_covered = model[from..from + len].iter().all(Option::is_some);
                prop_assert_eq!(overlay.covers(ID, number(from)..number(from + len)), is_covered);
            }
        }
    }
}

#[test]
fn files_are_apart() {
    let mut overlay = Overlay::default();
    overlay.insert(ID, 5, b"five");
    overlay.insert(InodeId(10), 5, b"other");
    overlay.insert(InodeId(11), 5, b"");
    overlay.insert(ID, 9, b"more");
    assert_eq!(overlay.of(ID).collect::<Vec<_>>(), [(5, &b"fivemore"[..])]);
    assert_eq!(overlay.files().collect::<Vec<_>>(), [ID, InodeId(10)]);
    overlay.remove(ID);
    assert_eq!(overlay.of(ID).count(), 0);
    let mut buffer = *b"............";
    overlay.patch(InodeId(10), 0, &mut buffer);
    assert_eq!(&buffer, b".....other..");
}
