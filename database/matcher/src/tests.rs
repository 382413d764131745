//! Tests of filters: tables of MongoDB's documented behaviour, an oracle, hostile input.

mod errors;
mod hostile;
mod operators;
mod oracle;
mod paths;
mod schema;

use bson::{Bson, Document, RawDocumentBuf, Regex, doc};
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_value::testing::operation;
use millrace_value::{Collation, Result};

use super::{ElementMatcher, MatchDetails, Matcher};

fn regex(pattern: &str, options: &str) -> Bson {
    let text = |text: &str| bson::raw::CString::try_from(text.to_owned()).unwrap();
    Bson::RegularExpression(Regex {
        pattern: text(pattern),
        options: text(options),
    })
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn parse(filter: &Document) -> Result<Matcher> {
    Matcher::parse(&raw(filter), &Scope::new(Collation::SIMPLE))
}

fn try_matches(filter: &Document, document: &Document) -> Result<bool> {
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    parse(filter)?.matches(&raw(document), &context)
}

fn matches(filter: &Document, document: &Document) -> bool {
    try_matches(filter, document).unwrap_or_else(|error| panic!("{filter}: {error:?}"))
}

/// Checks which of `documents` match: a filter and the expected answer for each document.
fn check_table(documents: &[Document], rows: &[(Document, &str)]) {
    for (filter, expected) in rows {
        let found: String = documents
            .iter()
            .map(|d| if matches(filter, d) { 'x' } else { '.' })
            .collect();
        assert_eq!(&found, expected, "{filter}");
    }
}

/// The index recorded for the positional operator.
fn recorded(filter: &Document, document: &Document) -> Option<usize> {
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let mut details = MatchDetails {
        array_index: Some(77),
    };
    let matcher = parse(filter).unwrap();
    assert!(
        matcher
            .matches_recording(&raw(document), &context, &mut details)
            .unwrap(),
        "{filter}"
    );
    details.array_index
}

fn element_matches(matcher: &ElementMatcher, element: &Bson) -> bool {
    let operation = operation();
    let variables = Variables::new(&operation);
    matcher
        .matches(
            element,
            &EvaluationContext::new(&operation, &variables, Collation::SIMPLE),
        )
        .unwrap()
}

#[test]
fn conditions_of_pull_apply_to_elements() {
    let scope = Scope::new(Collation::SIMPLE);
    let parse = |condition: Bson| ElementMatcher::parse(&condition, &scope).unwrap();
    let at_least_5 = parse(Bson::Document(doc! {"$gte": 5}));
    assert!(element_matches(&at_least_5, &Bson::Int32(5)));
    assert!(!element_matches(&at_least_5, &Bson::Int32(4)));
    assert!(!element_matches(&at_least_5, &Bson::String("x".into())));
    let of_documents = parse(Bson::Document(doc! {"a": 1}));
    assert!(element_matches(
        &of_documents,
        &Bson::Document(doc! {"b": 2, "a": 1})
    ));
    assert!(!element_matches(&of_documents, &Bson::Int32(1)));
    for (condition, found) in [
        (doc! {"$or": [{"a": 1}, {"b": 2}]}, [true, true, false]),
        (doc! {"$and": [{"a": 1}, {"c": 3}]}, [true, false, false]),
        (doc! {"$nor": [{"a": 1}, {"b": 2}]}, [false, false, true]),
        (doc! {"$or": [{"a": 9}], "b": 2}, [false, false, false]),
    ] {
        let of_documents = parse(Bson::Document(condition.clone()));
        let elements = [doc! {"a": 1, "c": 3}, doc! {"b": 2}, doc! {"a": 5}];
        let matched =
            elements.map(|element| element_matches(&of_documents, &Bson::Document(element)));
        assert_eq!(matched, found, "{condition}");
        assert!(
            !element_matches(&of_documents, &Bson::Int32(1)),
            "{condition}"
        );
    }
    let equal = parse(Bson::Int32(1));
    assert!(element_matches(&equal, &Bson::Double(1.0)));
    assert!(!element_matches(&equal, &Bson::Array(vec![Bson::Int32(1)])));
    let filter = doc! {"e.a": {"$gt": 1}};
    let named = ElementMatcher::parse_array_filter("e", &filter, &scope).unwrap();
    assert!(element_matches(&named, &Bson::Document(doc! {"a": [0, 2]})));
    assert!(!element_matches(&named, &Bson::Document(doc! {"a": 1})));
}

#[test]
fn the_positional_index_is_that_of_the_outermost_array() {
    assert_eq!(recorded(&doc! {"a": 3}, &doc! {"a": [1, 3]}), Some(1));
    assert_eq!(recorded(&doc! {"a": 3}, &doc! {"a": 3}), None);
    assert_eq!(recorded(&doc! {"a": [1, 3]}, &doc! {"a": [1, 3]}), None);
    let nested = doc! {"a": [{"b": [1]}, {"b": [2, 3]}]};
    assert_eq!(recorded(&doc! {"a.b": 3}, &nested), Some(1));
    assert_eq!(
        recorded(&doc! {"a.1.b": 3}, &nested),
        Some(1),
        "of the array below the index"
    );
    assert_eq!(recorded(&doc! {"a.1": {"b": [2, 3]}}, &nested), None);
    assert_eq!(
        recorded(&doc! {"a": {"$elemMatch": {"b": 2}}}, &nested),
        Some(1)
    );
    assert_eq!(
        recorded(&doc! {"a": {"$elemMatch": {"$gt": 2}}}, &doc! {"a": [1, 3]}),
        Some(1)
    );
    assert_eq!(
        recorded(&doc! {"a.b": {"$elemMatch": {"$eq": 3}}}, &nested),
        Some(1)
    );
    // The last condition that records wins; alternatives and negations record nothing.
    let two = doc! {"a": [1, 2], "b": [5, 6, 7]};
    assert_eq!(recorded(&doc! {"a": 2, "b": 7}, &two), Some(2));
    assert_eq!(recorded(&doc! {"$or": [{"a": 2}, {"b": 9}]}, &two), None);
    assert_eq!(recorded(&doc! {"a": {"$ne": 9}}, &two), None);
}
