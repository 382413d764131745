//! Tables of expressions: what they answer for a document, or how they fail.

mod arithmetic;
mod collections;
mod conversion;
mod date;
mod hostile;
mod language;

use bson::{Bson, Document};
use millrace_value::operation::Limits;
use millrace_value::testing::StillEnvironment;
use millrace_value::{Collation, Operation, Result};

use super::{EvaluationContext, Expression, Scope, Variables};

/// 2024-05-06T07:08:09.010Z, the time of every test.
const NOW_MS: i64 = 1_714_979_289_010;

fn operation() -> Operation {
    StillEnvironment::new(NOW_MS)
        .with_random(1 << 63)
        .operation(Limits::default())
}

/// What a row of a table expects.
enum Expected {
    Value(Bson),
    Missing,
    /// A code and a part of the message.
    Error(i32, &'static str),
}

/// What may stand on the right of a row.
trait IntoExpected {
    fn into_expected(self) -> Expected;
}

impl IntoExpected for Expected {
    fn into_expected(self) -> Expected {
        self
    }
}

impl<T: Into<Bson>> IntoExpected for T {
    fn into_expected(self) -> Expected {
        Expected::Value(self.into())
    }
}

/// The value is missing.
fn missing() -> Expected {
    Expected::Missing
}

/// Parsing or evaluation fails with this code and a message that contains these words.
fn fails(code: i32, words: &'static str) -> Expected {
    Expected::Error(code, words)
}

fn evaluate(expression: &Bson, document: &Document) -> Result<Option<Bson>> {
    let operation = operation();
    let variables = Variables::new(&operation);
    Expression::parse(expression, &Scope::new(Collation::SIMPLE))?.evaluate(
        document,
        &EvaluationContext::new(&operation, &variables, Collation::SIMPLE),
    )
}

/// Checks one row. Values are compared with their types (1 is not 1.0), by their debug form so that NaN
/// equals itself.
#[track_caller]
fn check(expression: &Bson, document: &Document, expected: Expected) {
    let actual = evaluate(expression, document);
    let what = format!("{expression} of {document}");
    match (actual, expected) {
        (Ok(Some(actual)), Expected::Value(expected)) => {
            assert_eq!(format!("{actual:?}"), format!("{expected:?}"), "{what}");
        }
        (Ok(None), Expected::Missing) => {}
        (Err(error), Expected::Error(code, words)) => {
            assert_eq!(error.code().number(), code, "{what}: {error}");
            assert!(error.message().contains(words), "{what}: {error}");
        }
        (actual, Expected::Value(expected)) => panic!("{what}: {actual:?}, not {expected:?}"),
        (actual, Expected::Missing) => panic!("{what}: {actual:?}, not missing"),
        (actual, Expected::Error(code, _)) => panic!("{what}: {actual:?}, not error {code}"),
    }
}

/// A table of rows `expression => expected;`, or `expression, document => expected;`.
macro_rules! table {
    ($($expression:tt $(, $document:tt)? => $expected:expr;)*) => {
        $($crate::tests::check(
            &bson::bson!($expression),
            &table!(@document $($document)?),
            $crate::tests::IntoExpected::into_expected($expected),
        );)*
    };
    (@document) => { bson::Document::new() };
    (@document $document:tt) => { bson::doc! $document };
}
use table;
