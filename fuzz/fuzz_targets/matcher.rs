//! Filters and documents as a client may send them: any bytes end in an answer or an error.
//!
//! The input is two BSON documents, a filter and a document that it is matched against. The filter's
//! bytes are parsed as a projection too.

#![no_main]

use bson::{Document, RawDocument};
use libfuzzer_sys::fuzz_target;
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::{MatchDetails, Matcher};
use millrace_update::projection::{Mode, Projection};
use millrace_value::Collation;
use millrace_value::testing::operation;

/// Splits the first document off.
fn split(data: &[u8]) -> Option<(&RawDocument, &RawDocument)> {
    let length = u32::from_le_bytes(data.get(..4)?.try_into().ok()?);
    let (first, second) = data.split_at_checked(usize::try_from(length).ok()?)?;
    Some((
        RawDocument::from_bytes(first).ok()?,
        RawDocument::from_bytes(second).ok()?,
    ))
}

fuzz_target!(|data: &[u8]| {
    let Some((filter, document)) = split(data) else {
        return;
    };
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let mut details = MatchDetails::default();
    if let Ok(matcher) = Matcher::parse(filter, &Scope::new(Collation::SIMPLE)) {
        let _ = matcher.matches_recording(document, &context, &mut details);
    }
    let Ok(specification) = Document::try_from(filter) else {
        return;
    };
    for mode in [Mode::Find, Mode::Aggregate] {
        if let Ok(projection) =
            Projection::parse(&specification, mode, &Scope::new(Collation::SIMPLE))
        {
            let _ = projection.apply_raw(document, Some(&details), &context);
        }
    }
});
