//! Arbitrary filters and arbitrary bytes end in a result or an error, never in a panic.

use bson::{Bson, Document, RawDocument, doc};
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_value::Collation;
use millrace_value::testing::arbitrary::any_bson;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{operation, raw};
use crate::Matcher;

/// Names that mean something in a filter or a schema, and some that do not.
fn name() -> impl Strategy<Value = String> {
    let names = [
        "a",
        "b",
        "a.b",
        "a.0",
        "",
        ".",
        "$",
        "$a",
        "$and",
        "$or",
        "$nor",
        "$not",
        "$expr",
        "$jsonSchema",
        "$comment",
        "$sampleRate",
        "$alwaysTrue",
        "$alwaysFalse",
        "$where",
        "$text",
        "$eq",
        "$ne",
        "$lt",
        "$lte",
        "$gt",
        "$gte",
        "$in",
        "$nin",
        "$all",
        "$elemMatch",
        "$exists",
        "$type",
        "$size",
        "$mod",
        "$regex",
        "$options",
        "$bitsAllSet",
        "$bitsAnyClear",
        "$near",
        "$ref",
        "$id",
        "$db",
        "properties",
        "items",
        "required",
        "enum",
        "minimum",
        "bsonType",
        "dependencies",
        "allOf",
        "not",
        "patternProperties",
        "additionalProperties",
        "uniqueItems",
        "multipleOf",
        "minLength",
    ];
    select(names.map(String::from).to_vec())
}

fn any_filter() -> impl Strategy<Value = Document> {
    let leaf = prop_oneof![any_bson(), "[a-z(\\[*+?{}^$|)]{0,6}".prop_map(Bson::String)];
    let value = leaf.prop_recursive(5, 32, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Bson::Array),
            vec((name(), inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    });
    vec((name(), value), 0..4).prop_map(|fields| fields.into_iter().collect())
}

/// Parses and matches whatever these bytes are.
fn exercise(filter: &[u8], document: &[u8]) {
    let (Ok(filter), Ok(document)) = (
        RawDocument::from_bytes(filter),
        RawDocument::from_bytes(document),
    ) else {
        return;
    };
    let Ok(matcher) = Matcher::parse(filter, &Scope::new(Collation::SIMPLE)) else {
        return;
    };
    let operation = operation();
    let variables = Variables::new(&operation);
    // Either answer is right, and so is an error.
    drop(matcher.matches(
        document,
        &EvaluationContext::new(&operation, &variables, Collation::SIMPLE),
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn arbitrary_filters_do_not_panic(filter in any_filter(), value in any_bson()) {
        if let Ok(filter) = bson::RawDocumentBuf::try_from(&filter) {
            let document = raw(&doc! {"a": value.clone(), "b": [value.clone(), {"b": value}]});
            exercise(filter.as_bytes(), document.as_bytes());
        }
    }

    #[test]
    fn damaged_bytes_do_not_panic(
        filter in any_filter(),
        value in any_bson(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        if let Ok(filter) = bson::RawDocumentBuf::try_from(&filter) {
            let document = raw(&doc! {"a": value.clone(), "b": [value]});
            let (mut filter, mut document) = (filter.into_bytes(), document.into_bytes());
            for (place, byte) in damage {
                // The length in front and the zero at the end are checked before anything else.
                for bytes in [&mut filter, &mut document] {
                    if bytes.len() > 5 {
                        let place = 4 + place.index(bytes.len() - 5);
                        bytes[place] = byte;
                    }
                }
            }
            exercise(&filter, &document);
        }
    }
}
