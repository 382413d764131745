//! Equality of values bit by bit: same type, same bits, same order of fields.

use bson::{Bson, Document};

/// Whether both values have the same BSON bytes.
///
/// This is stricter than [`compare_bson`](millrace_value::Collation::compare_bson), for which 1 equals 1.0, and
/// than `Bson`'s `PartialEq`, which ignores the order of fields and takes NaN for different from
/// itself. An update that leaves every value identical is no change.
pub(super) fn identical(a: &Bson, b: &Bson) -> bool {
    match (a, b) {
        (Bson::Double(a), Bson::Double(b)) => a.to_bits() == b.to_bits(),
        (Bson::Document(a), Bson::Document(b)) => identical_documents(a, b),
        (Bson::Array(a), Bson::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(a, b))
        }
        (Bson::JavaScriptCodeWithScope(a), Bson::JavaScriptCodeWithScope(b)) => {
            a.code == b.code && identical_documents(&a.scope, &b.scope)
        }
        (a, b) => a == b,
    }
}

/// Whether both documents have the same BSON bytes.
pub(super) fn identical_documents(a: &Document, b: &Document) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|((a_name, a), (b_name, b))| a_name == b_name && identical(a, b))
}

#[cfg(test)]
mod tests {
    use bson::{bson, doc};

    use super::*;

    #[test]
    fn type_order_and_sign_count() {
        assert!(!identical(&bson!(1), &bson!(1.0)));
        assert!(!identical(&bson!(1), &bson!(1_i64)));
        assert!(!identical(&bson!(0.0), &bson!(-0.0)));
        assert!(identical(&bson!(f64::NAN), &bson!(f64::NAN)));
        assert!(!identical_documents(
            &doc! {"a": 1, "b": 2},
            &doc! {"b": 2, "a": 1}
        ));
        assert!(identical_documents(
            &doc! {"a": [{"b": 2}]},
            &doc! {"a": [{"b": 2}]}
        ));
        assert!(!identical_documents(
            &doc! {"a": [{"b": 2}]},
            &doc! {"a": [{"b": 2}, 3]}
        ));
    }
}
