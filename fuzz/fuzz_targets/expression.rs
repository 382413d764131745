//! An expression and a document: `cargo +nightly fuzz run expression`.
//!
//! The input is two BSON documents, `{e: expression}` and the one that the expression is evaluated for.
//! The short deterministic run is `expression/tests/hostile.rs`, which makes expressions by the table of
//! operators instead of bytes.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, RawDocument};
use libfuzzer_sys::fuzz_target;
use millrace_document::expression::{EvaluationContext, Expression, Scope, Variables};
use millrace_document::operation::Limits;
use millrace_document::value::Collation;
use millrace_document::{Environment, Interrupt, Operation};

#[derive(Debug)]
struct Still;

impl Environment for Still {
    fn wall_clock_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        0
    }
}

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
    let operation = Operation::new(
        Arc::new(Still),
        Arc::new(Interrupt::default()),
        Limits::default(),
    );
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    if let Ok(expression) = Expression::parse(operand, &Scope::new(Collation::SIMPLE)) {
        let _ = expression.evaluate(&document, &context);
        let _ = expression.field_paths();
    }
});
