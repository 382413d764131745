//! BSON values: their order, their index keys, their numbers and paths; and what an operation brings.
//!
//! # Purpose
//! The lowest crate of the database: what expressions, filters, updates, indexes and commands share.
//! - [`Collation`]: MongoDB's total order across all types, under a rule for strings;
//! - [`key`]: values as bytes that compare as the values do;
//! - [`Number`]: the four numeric types, compared by value and combined as the aggregation language
//!   combines them, on top of [`Decimal`], the 128-bit decimal;
//! - [`TypeSet`], [`type_alias`]: types as the `$type` operators name them;
//! - [`Path`]: a dotted path;
//! - [`Elements`]: where the elements of an encoded document are;
//! - [`value_text`], [`display`], [`DocumentWriter`]: values as messages print them, documents written
//!   in place;
//! - [`Operation`]: the clock, the randomness, the memory limits, the [`ReadView`] and the interruption
//!   of one running command; [`Error`]: its failure, with MongoDB's code.
//!
//! # Invariants
//! The functions on values are pure and panic on no input. The crate spawns no thread and reads no clock
//! and no random source: an [`Environment`] brings them. Of the engine it knows the trait alone.

#![forbid(unsafe_code)]

pub mod display;
pub mod error;
pub mod field_path;
pub mod hashed;
pub mod ident;
pub mod key;
pub mod operation;
pub mod read_view;
pub mod size;
pub mod stage_memory;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

mod collation;
mod decimal;
mod elements;
mod number;
mod order;
mod path;
mod text;
mod type_set;
mod writer;

use bson::Bson;

pub use collation::Collation;
pub(crate) use decimal::digit_count;
pub use decimal::{Decimal, Rounding};
pub use elements::{Element, Elements};
pub use error::{Error, ErrorCode, Result};
pub use number::Number;
pub use operation::{Environment, Interrupt, Operation};
pub use order::canonical_rank;
pub(crate) use order::{binary_len, db_pointer, db_pointer_parts, scalar_ref};
pub use path::{Path, array_index};
pub use read_view::ReadView;
pub use text::{document_text, value_text};
pub use type_set::{TypeSet, element_type_alias, type_alias};
pub use writer::DocumentWriter;

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
