//! What the fuzz target and the test on mutated updates do with bytes.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::{MatchDetails, Matcher};
use millrace_update::{Change, Outcome, Update};
use millrace_value::operation::Limits;
use millrace_value::{Collation, Environment, Interrupt, Operation, Result};

/// The deepest nesting of documents in messages, in levels; the wire protocol's decoder checks it.
const NESTING_MAX: usize = 200;

#[derive(Debug)]
struct Frozen;

impl Environment for Frozen {
    fn wall_clock_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        0
    }
}

/// Takes `bytes` for two BSON documents, the second being `{ u: update, f: [array filters], i: index of
/// the matched element, q: query of an upsert }`, and applies the update to the first. Returns whether
/// it could be applied.
///
/// # Panics
/// If the change that the update reports does not lead from the document before to the one after, or
/// leads elsewhere when it is made again.
pub(crate) fn apply(bytes: &[u8]) -> bool {
    let Some((before, rest)) = split_document(bytes) else {
        return false;
    };
    let Some((arguments, _)) = split_document(rest) else {
        return false;
    };
    let operation = Operation::new(
        Arc::new(Frozen),
        Arc::new(Interrupt::default()),
        Limits::default(),
    );
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let Ok(outcome) = run(&before, &arguments, &context) else {
        return false;
    };
    let Some(outcome) = outcome else { return true };
    check_change(&before, &outcome);
    true
}

fn run(
    before: &Document,
    arguments: &Document,
    context: &EvaluationContext<'_>,
) -> Result<Option<Outcome>> {
    let scope = Scope::new(Collation::SIMPLE);
    let filters: Vec<Document> = match arguments.get("f") {
        Some(Bson::Array(filters)) => filters
            .iter()
            .filter_map(Bson::as_document)
            .cloned()
            .collect(),
        _ => Vec::new(),
    };
    let update = Update::parse(arguments.get("u").unwrap_or(&Bson::Null), &filters, &scope)?;
    if let Some(Bson::Document(query)) = arguments.get("q") {
        let query = Matcher::parse(&RawDocumentBuf::try_from(query)?, &scope)?;
        let base = update.upsert_base(query.root())?;
        update.apply(&base, None, true, context)?;
        return Ok(None);
    }
    let index = arguments
        .get_i32("i")
        .ok()
        .and_then(|index| usize::try_from(index).ok());
    let details = MatchDetails { array_index: index };
    update
        .apply_owned(before.clone(), Some(&details), false, context)
        .map(Some)
}

fn check_change(before: &Document, outcome: &Outcome) {
    let after = encoded(&outcome.document);
    let change = Change::parse(&outcome.change.to_document()).expect("a change can be read again");
    let once = change.apply(before);
    assert!(
        encoded(&once) == after,
        "{change:?} gives {once} instead of {}",
        outcome.document
    );
    let twice = change.apply(&once);
    assert!(
        encoded(&twice) == after,
        "{change:?} gives {twice} the second time"
    );
    assert_eq!(
        outcome.modified,
        encoded(before) != after,
        "{before} {}",
        outcome.document
    );
}

fn encoded(document: &Document) -> Vec<u8> {
    document
        .to_vec()
        .expect("a decoded document can be encoded")
}

/// The document at the beginning of `bytes`, if it is one and does not nest too deep, and the rest.
fn split_document(bytes: &[u8]) -> Option<(Document, &[u8])> {
    let length = i32::from_le_bytes(*bytes.first_chunk()?);
    let (document, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    let document = RawDocument::from_bytes(document).ok()?;
    if !nests_at_most(document, NESTING_MAX) {
        return None;
    }
    Some((Document::try_from(document).ok()?, rest))
}

fn nests_at_most(document: &RawDocument, levels: usize) -> bool {
    levels > 0
        && document.iter().all(|element| match element {
            Ok((_, RawBsonRef::Document(inner))) => nests_at_most(inner, levels - 1),
            Ok((_, RawBsonRef::Array(inner))) => RawDocument::from_bytes(inner.as_bytes())
                .is_ok_and(|inner| nests_at_most(inner, levels - 1)),
            Ok((_, RawBsonRef::JavaScriptCodeWithScope(code))) => {
                nests_at_most(code.scope, levels - 1)
            }
            Ok(_) => true,
            Err(_) => false,
        })
}
