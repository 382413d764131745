//! Running updates in tests.

use bson::{Bson, Document, RawDocumentBuf};
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::{MatchDetails, Matcher};
use millrace_value::operation::Limits;
use millrace_value::testing::StillEnvironment;
use millrace_value::{Collation, Error, ErrorCode, Result};

use crate::identical::identical_documents;
use crate::{Outcome, Update};

/// The wall clock of all tests.
pub(crate) const NOW_MS: i64 = 1_700_000_000_123;

/// [`NOW_MS`] as `$currentDate` stores it.
pub(crate) fn now_timestamp() -> Bson {
    Bson::Timestamp(bson::Timestamp {
        time: 1_700_000_000,
        increment: 124,
    })
}

fn run<T>(body: impl FnOnce(&EvaluationContext<'_>) -> T) -> T {
    let operation = StillEnvironment::new(NOW_MS).operation(Limits::default());
    let variables = Variables::new(&operation);
    body(&EvaluationContext::new(
        &operation,
        &variables,
        Collation::SIMPLE,
    ))
}

/// A document, an update and what comes out.
#[derive(Debug)]
pub(crate) struct Case {
    before: Document,
    update: Document,
    after: Document,
    filters: Vec<Document>,
    details: Option<MatchDetails>,
}

impl Case {
    pub(crate) fn new(before: Document, update: Document, after: Document) -> Self {
        Self {
            before,
            update,
            after,
            filters: Vec::new(),
            details: None,
        }
    }

    pub(crate) fn filtered(mut self, filters: &[Document]) -> Self {
        self.filters = filters.to_vec();
        self
    }

    pub(crate) fn run(&self) -> Result<Outcome> {
        let update = Bson::Document(self.update.clone());
        let update = Update::parse(&update, &self.filters, &Scope::new(Collation::SIMPLE))?;
        run(|evaluation| update.apply(&self.before, self.details.as_ref(), false, evaluation))
    }
}

/// A case in which the query matched the element at `index`.
pub(crate) fn matched(index: usize, before: Document, update: Document, after: Document) -> Case {
    let details = Some(MatchDetails {
        array_index: Some(index),
    });
    Case {
        details,
        ..Case::new(before, update, after)
    }
}

/// Checks results, and that the changes lead to them, once or twice.
#[track_caller]
pub(crate) fn check_results(cases: &[Case]) {
    for case in cases {
        let Case {
            before,
            update,
            after,
            ..
        } = case;
        let outcome = case
            .run()
            .unwrap_or_else(|error| panic!("{before} {update}: {error}"));
        let document = &outcome.document;
        assert!(
            identical_documents(document, after),
            "{before} {update}: {document}"
        );
        let once = outcome.change.apply(before);
        assert!(
            identical_documents(&once, after),
            "{before} {update}: change to {once}"
        );
        let twice = outcome.change.apply(&once);
        assert!(
            identical_documents(&twice, after),
            "{before} {update}: change to {twice}"
        );
        assert_eq!(
            outcome.modified,
            !identical_documents(before, after),
            "{before} {update}"
        );
    }
}

#[track_caller]
pub(crate) fn check_errors(cases: &[(Document, Document, ErrorCode, &str)]) {
    for (before, update, code, message) in cases {
        let Err(error) = apply(before, &Bson::Document(update.clone())) else {
            panic!("{before} {update} succeeded");
        };
        assert_eq!(
            (error.code(), error.message()),
            (*code, *message),
            "{before} {update}"
        );
    }
}

pub(crate) fn apply(before: &Document, update: &Bson) -> Result<Outcome> {
    let update = Update::parse(update, &[], &Scope::new(Collation::SIMPLE))?;
    run(|evaluation| update.apply(before, None, false, evaluation))
}

pub(crate) fn apply_matched(
    before: &Document,
    update: &Bson,
    filters: &[Document],
    index: Option<usize>,
) -> Result<Outcome> {
    let update = Update::parse(update, filters, &Scope::new(Collation::SIMPLE))?;
    let details = MatchDetails { array_index: index };
    run(|evaluation| update.apply(before, Some(&details), false, evaluation))
}

pub(crate) fn upsert(query: &Document, update: &Bson) -> Result<Outcome> {
    let update = Update::parse(update, &[], &Scope::new(Collation::SIMPLE))?;
    let query = Matcher::parse(
        &RawDocumentBuf::try_from(query)?,
        &Scope::new(Collation::SIMPLE),
    )?;
    let base = update.upsert_base(query.root())?;
    run(|evaluation| update.apply(&base, None, true, evaluation))
}

#[track_caller]
pub(crate) fn parse_error(update: &Bson, filters: &[Document]) -> Error {
    Update::parse(update, filters, &Scope::new(Collation::SIMPLE))
        .expect_err("the update is malformed")
}
