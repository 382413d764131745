//! BSON values: order, numbers, types, paths.
//!
//! # What lives here
//! - [`Collation`]: MongoDB's total order across all types, under a rule for strings;
//! - [`Number`]: the four numeric types, compared by value and combined as the aggregation language
//!   combines them, on top of [`Decimal`], the 128-bit decimal;
//! - [`TypeSet`], [`type_alias`]: types as the `$type` operators name them;
//! - [`Path`]: a dotted path;
//! - [`Elements`]: where the elements of an encoded document are;
//! - [`value_text`], [`DocumentWriter`]: values as messages print them, documents written in place.
//!
//! Everything is a pure function of its arguments, and no input makes one of them panic.

#[cfg(test)]
pub(crate) mod arbitrary;
mod collation;
mod decimal;
mod elements;
mod number;
mod order;
mod path;
mod text;
mod type_set;
mod writer;

pub use collation::Collation;
pub(crate) use decimal::digit_count;
pub use decimal::{Decimal, Rounding};
pub use elements::{Element, Elements};
pub use number::Number;
pub use order::canonical_rank;
pub(crate) use order::{binary_len, db_pointer, db_pointer_parts, scalar_ref};
pub use path::{Path, array_index};
pub use text::{document_text, value_text};
pub use type_set::{TypeSet, element_type_alias, type_alias};
pub use writer::DocumentWriter;

use bson::Bson;

/// How deep documents and arrays may nest; MongoDB's limit for stored documents.
pub const NESTING_MAX: usize = 200;

/// Whether the expression language takes `value` for true: all but false, null, undefined and zero.
/// NaN is true, as it is in MongoDB.
#[must_use]
pub fn is_truthy(value: &Bson) -> bool {
    match value {
        Bson::Boolean(value) => *value,
        Bson::Null | Bson::Undefined => false,
        Bson::Int32(value) => *value != 0,
        Bson::Int64(value) => *value != 0,
        Bson::Double(value) => *value != 0.0,
        Bson::Decimal128(value) => !Decimal::from_bson(*value).is_zero(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_null_and_false_are_not_true() {
        let zero: bson::Decimal128 = "-0.00".parse().unwrap();
        for value in [
            Bson::Boolean(false),
            Bson::Null,
            Bson::Undefined,
            Bson::Int32(0),
            Bson::Int64(0),
            Bson::Double(-0.0),
            Bson::Decimal128(zero),
        ] {
            assert!(!is_truthy(&value), "{value:?}");
        }
        for value in [
            Bson::Double(f64::NAN),
            Bson::String(String::new()),
            Bson::Array(Vec::new()),
            Bson::Int64(-1),
            Bson::Boolean(true),
        ] {
            assert!(is_truthy(&value), "{value:?}");
        }
    }
}
