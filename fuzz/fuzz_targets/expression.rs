//! An expression and a document: `cargo +nightly fuzz run expression`.
//!
//! The input is two BSON documents, `{e: expression}` and the one that the expression is evaluated for.
//! The short deterministic run is `expression/tests/hostile.rs`, which makes expressions by the table of
//! operators instead of bytes.

#![no_main]

use bson::{Document, RawDocument};
use libfuzzer_sys::fuzz_target;
use millrace_expression::{EvaluationContext, Expression, Scope, Variables};
use millrace_value::Collation;
use millrace_value::testing::operation;

/// Splits the first document off.
fn split(data: &[u8]) -> Option<(Document, Document)> {
    let length = u32::from_le_bytes(*data.first_chunk()?);
    let (first, second) = data.split_at_checked(usize::try_from(length).ok()?)?;
    let decoded = |bytes| Document::try_from(RawDocument::from_bytes(bytes).ok()?).ok();
    Some((decoded(first)?, decoded(second)?))
}

fuzz_target!(|data: &[u8]| {
    let Some((arguments, document)) = split(data) else {
        return;
    };
    let Some(operand) = arguments.get("e") else {
        return;
    };
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    if let Ok(expression) = Expression::parse(operand, &Scope::new(Collation::SIMPLE)) {
        let _ = expression.evaluate(&document, &context);
        let _ = expression.field_paths();
    }
});
