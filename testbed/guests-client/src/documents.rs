//! The documents that are stored: each follows from the seed and its number alone.

use bson::{RawDocumentBuf, rawdoc};
use millrace_random::Random;

/// The identifiers of one writer are so far from those of the next.
pub(crate) const STRIDE: i64 = 1_000_000;
/// The longest text of a document.
const TEXT_BYTES_MAX: u64 = 3000;
/// The most documents of one insertion.
const BATCH_MAX: u64 = 20;

/// What all writers store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Documents {
    /// Decides every content.
    pub(crate) seed: u64,
}

impl Documents {
    /// The `number`th document of a writer, counted from 0.
    pub(crate) fn document(self, writer: u32, number: u32) -> RawDocumentBuf {
        let id = i64::from(writer) * STRIDE + i64::from(number);
        let mut random = Random::new(self.seed ^ place(writer, number).wrapping_mul(0x9e37_79b9));
        let size = random.below(TEXT_BYTES_MAX);
        let text: String = (0..size).map(|_| letter(&mut random)).collect();
        let size = i32::try_from(size).unwrap_or(i32::MAX);
        rawdoc! { "_id": id, "size": size, "text": text }
    }

    /// How many documents the insertion that begins with document `number` has.
    pub(crate) fn batch(self, writer: u32, number: u32) -> u32 {
        let mut random = Random::new(!self.seed ^ place(writer, number).wrapping_mul(0x2545_f491));
        u32::try_from(1 + random.below(BATCH_MAX)).unwrap_or(1)
    }
}

fn place(writer: u32, number: u32) -> u64 {
    (u64::from(writer) << 32) | u64::from(number)
}

fn letter(random: &mut Random) -> char {
    let letter = u8::try_from(random.below(26)).unwrap_or(0);
    char::from(b'a' + letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_document_follows_from_its_number(seed: u64, writer in 0..9_u32, number in 0..9999_u32) {
            let documents = Documents { seed };
            let document = documents.document(writer, number);
            let again = documents.document(writer, number);
            prop_assert_eq!(document.as_bytes(), again.as_bytes());
            let id = i64::from(writer) * STRIDE + i64::from(number);
            prop_assert_eq!(document.get_i64("_id").ok(), Some(id));
            let text = document.get_str("text").map_or(0, str::len);
            prop_assert_eq!(document.get_i32("size").ok(), i32::try_from(text).ok());
            let batch = documents.batch(writer, number);
            prop_assert!((1..=20).contains(&batch));
        }

        #[test]
        fn two_documents_differ(seed: u64, number in 0..9999_u32) {
            let documents = Documents { seed };
            let (here, there) = (documents.document(0, number), documents.document(1, number));
            prop_assert_ne!(here.as_bytes(), there.as_bytes());
        }
    }
}
