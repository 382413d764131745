//! Whatever the plan, a query finds what its definition says.

use bson::{Bson, Document, doc};
use millrace_collection::RecordKind;
use millrace_matcher::Matcher;
use millrace_value::{Collation, ErrorCode, Result};
use proptest::prelude::*;
use proptest::sample::select;

use super::fixture::{Fixture, naive, operation, operation_with_memory, projection, query};
use crate::planner::{Hint, Query};

fn indexes() -> Vec<Document> {
    vec![
        doc! { "v": 2, "key": { "a": 1 }, "name": "a_1" },
        doc! { "v": 2, "key": { "a": 1, "b": 1 }, "name": "a_1_b_1" },
        doc! { "v": 2, "key": { "b": -1, "a": 1 }, "name": "b_-1_a_1" },
        doc! { "v": 2, "key": { "c": -1 }, "name": "c_-1" },
        doc! { "v": 2, "key": { "a": 1, "b": 1, "c": 1 }, "name": "a_1_b_1_c_1" },
        doc! { "v": 2, "key": { "d.x": 1 }, "name": "d.x_1" },
        doc! { "v": 2, "key": { "d.x": 1, "d.y": -1 }, "name": "d.x_1_d.y_-1" },
        doc! { "v": 2, "key": { "d": 1 }, "name": "d_1" },
        doc! { "v": 2, "key": { "d.e.x": 1, "d.e.y": 1 }, "name": "d.e.x_1_d.e.y_1" },
        doc! { "v": 2, "key": { "a": "hashed" }, "name": "a_hashed" },
        doc! { "v": 2, "key": { "b": 1, "c": 1 }, "name": "b_1_c_1", "sparse": true },
        doc! {
            "v": 2, "key": { "a": 1, "c": 1 }, "name": "partial",
            "partialFilterExpression": { "b": { "$gt": 1 } },
        },
        doc! {
            "v": 2, "key": { "c": 1 }, "name": "existing",
            "partialFilterExpression": { "a": { "$exists": true } },
        },
    ]
}

fn scalar() -> impl Strategy<Value = Bson> {
    prop_oneof![
        8 => (0..5_i32).prop_map(Bson::Int32),
        2 => select(vec![
            Bson::Int64(2),
            Bson::Double(2.5),
            Bson::Double(3.0),
            Bson::Double(f64::NAN),
            Bson::Boolean(true),
            Bson::Document(doc! {}),
            Bson::Document(doc! { "x": 1 }),
            Bson::MinKey,
            Bson::MaxKey,
            Bson::DateTime(bson::DateTime::from_millis(5)),
        ]),
        2 => select(vec!["a", "ab", "abc", "b", ""]).prop_map(Bson::from),
        1 => Just(Bson::Null),
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        6 => scalar(),
        1 => proptest::collection::vec(scalar(), 0..4).prop_map(Bson::Array),
        1 => proptest::collection::vec(
            proptest::collection::vec(scalar(), 0..3).prop_map(Bson::Array), 1..3
        ).prop_map(Bson::Array),
    ]
}

fn object() -> impl Strategy<Value = Document> {
    let inner = prop_oneof![
        3 => proptest::collection::hash_map(select(vec!["x", "y"]), scalar(), 0..3)
            .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Document>())
            .prop_map(Bson::Document),
        1 => scalar(),
    ];
    let element = prop_oneof![
        2 => inner.clone(),
        1 => proptest::collection::vec(inner, 0..3).prop_map(Bson::Array),
    ];
    (
        proptest::option::of(value()),
        proptest::option::of(scalar()),
        proptest::option::weighted(0.3, element),
    )
        .prop_map(|(x, y, e)| {
            [("x", x), ("y", y), ("e", e)]
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect()
        })
}

fn document() -> impl Strategy<Value = Document> {
    let d = prop_oneof![
        2 => object().prop_map(Bson::Document),
        2 => proptest::collection::vec(
            prop_oneof![4 => object().prop_map(Bson::Document), 1 => scalar()], 0..3
        ).prop_map(Bson::Array),
        1 => scalar(),
    ];
    (
        proptest::option::weighted(0.9, value()),
        proptest::option::weighted(0.9, value()),
        proptest::option::weighted(0.7, scalar()),
        proptest::option::weighted(0.7, d),
    )
        .prop_map(|(a, b, c, d)| {
            [("a", a), ("b", b), ("c", c), ("d", d)]
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect()
        })
}

fn operator() -> impl Strategy<Value = Document> {
    let comparison = select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]);
    let plain = (comparison.clone(), value()).prop_map(|(name, value)| doc! { name: value });
    prop_oneof![
        8 => plain,
        2 => (scalar(), scalar()).prop_map(|(low, high)| doc! { "$gte": low, "$lt": high }),
        2 => (select(vec!["$in", "$nin"]), proptest::collection::vec(value(), 0..4))
            .prop_map(|(name, values)| doc! { name: values }),
        1 => any::<bool>().prop_map(|exists| doc! { "$exists": exists }),
        1 => select(vec!["^a", "^ab", "b", "^a.*c$"]).prop_map(|regex| doc! { "$regex": regex }),
        1 => select(vec!["number", "string", "null", "object", "array"])
            .prop_map(|name| doc! { "$type": name }),
        1 => (0..3_i32).prop_map(|size| doc! { "$size": size }),
        1 => (comparison, scalar()).prop_map(|(name, value)| doc! { "$not": { name: value } }),
        1 => proptest::collection::vec(scalar(), 1..3).prop_map(|all| doc! { "$all": all }),
        2 => (scalar(), scalar())
            .prop_map(|(low, high)| doc! { "$elemMatch": { "$gte": low, "$lte": high } }),
        1 => scalar().prop_map(|value| doc! { "$elemMatch": { "$elemMatch": { "$gte": value } } }),
        1 => (0..3_i32).prop_map(|rest| doc! { "$mod": [3, rest] }),
    ]
}

fn condition() -> impl Strategy<Value = Document> {
    let path = select(vec![
        "a", "a", "a", "b", "b", "c", "d", "d.x", "d.y", "d.e.x", "_id", "d.0.x",
    ]);
    prop_oneof![
        8 => (path, operator()).prop_map(|(path, operator)| doc! { path: operator }),
        1 => (select(vec!["a", "b", "_id"]), 0..5_i32).prop_map(|(path, value)| doc! { path: value }),
        1 => (operator(), operator())
            .prop_map(|(x, y)| doc! { "d": { "$elemMatch": { "x": x, "y": y } } }),
        1 => (operator(), operator())
            .prop_map(|(x, y)| doc! { "d": { "$elemMatch": { "e.x": x, "e.y": y } } }),
        1 => (operator(), operator())
            .prop_map(|(x, y)| doc! { "d": { "$elemMatch": { "e": { "$elemMatch": { "x": x, "y": y } } } } }),
    ]
}

fn filter() -> impl Strategy<Value = Document> {
    let conjunction = || {
        proptest::collection::vec(condition(), 0..4).prop_map(|mut list| match list.len() {
            0 => Document::new(),
            1 => list.remove(0),
            _ => doc! { "$and": list },
        })
    };
    prop_oneof![
        4 => conjunction(),
        1 => proptest::collection::vec(conjunction(), 1..4).prop_map(|list| doc! { "$or": list }),
        1 => (condition(), proptest::collection::vec(conjunction(), 1..3))
            .prop_map(|(both, list)| doc! { "$and": [both, { "$or": list }] }),
        1 => proptest::collection::vec(conjunction(), 1..3).prop_map(|list| doc! { "$nor": list }),
    ]
}

fn sort() -> impl Strategy<Value = Option<Document>> {
    proptest::option::of(select(vec![
        doc! { "a": 1 },
        doc! { "a": -1 },
        doc! { "a": 1, "b": 1 },
        doc! { "a": -1, "b": -1 },
        doc! { "a": 1, "b": -1 },
        doc! { "b": 1 },
        doc! { "b": -1, "a": 1 },
        doc! { "b": 1, "c": 1 },
        doc! { "c": 1 },
        doc! { "d.x": 1 },
        doc! { "d.x": -1, "d.y": 1 },
        doc! { "d.x": 1, "d.y": 1 },
        doc! { "d.e.x": 1, "d.e.y": 1 },
        doc! { "_id": -1 },
        doc! { "a": 1, "_id": 1 },
        doc! { "c": -1, "d.x": 1 },
    ]))
}

#[derive(Clone, Debug)]
struct Case {
    kind: RecordKind,
    documents: Vec<Document>,
    indexes: Vec<Document>,
    filter: Document,
    sort: Option<Document>,
    skip: u64,
    limit: Option<u64>,
    projection: Option<Document>,
    /// Whether the executor is saved after every document.
    saving: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let projections = vec![
        doc! { "_id": 0, "a": 1 },
        doc! { "_id": 0, "a": 1, "b": 1 },
        doc! { "_id": 0, "d.x": 1 },
        doc! { "_id": 1 },
    ];
    (
        select(vec![RecordKind::Clustered, RecordKind::Sequenced]),
        proptest::collection::vec(document(), 0..30),
        proptest::sample::subsequence(indexes(), 0..5),
        filter(),
        sort(),
        prop_oneof![3 => Just(0_u64), 1 => 1..5_u64],
        proptest::option::weighted(0.3, 0..8_u64),
        proptest::option::weighted(0.4, select(projections)),
        any::<bool>(),
    )
        .prop_map(
            |(kind, documents, indexes, filter, sort, skip, limit, projection, saving)| Case {
                kind,
                documents,
                indexes,
                filter,
                sort,
                skip,
                limit,
                projection,
                saving,
            },
        )
}

/// Documents full of arrays, and conditions on several fields that run through the same ones: where
/// bounds must not be combined.
fn entangled_case() -> impl Strategy<Value = Case> {
    let few = || 0..4_i32;
    let element = (few(), few()).prop_map(|(x, y)| Bson::Document(doc! { "x": x, "y": y }));
    let number_or_array = || {
        prop_oneof![
            1 => few().prop_map(Bson::Int32),
            1 => proptest::collection::vec(few().prop_map(Bson::Int32), 1..3).prop_map(Bson::Array),
        ]
    };
    let document = (
        number_or_array(),
        few(),
        proptest::collection::vec(element, 1..4),
    )
        .prop_map(|(a, b, d)| doc! { "a": a, "b": b, "d": d });
    let operator = || {
        prop_oneof![
            3 => few().prop_map(|value| doc! { "$eq": value }),
            1 => few().prop_map(|value| doc! { "$gte": value, "$lt": value + 2 }),
            1 => (few(), few()).prop_map(|(a, b)| doc! { "$in": [a, b] }),
            1 => few().prop_map(|value| doc! { "$ne": value }),
        ]
    };
    let condition = prop_oneof![
        3 => (select(vec!["a", "b", "d.x", "d.y"]), operator())
            .prop_map(|(path, operator)| doc! { path: operator }),
        1 => (operator(), operator())
            .prop_map(|(x, y)| doc! { "d": { "$elemMatch": { "x": x, "y": y } } }),
    ];
    let filter = proptest::collection::vec(condition, 1..4).prop_map(|list| doc! { "$and": list });
    let sorts = vec![
        doc! { "a": 1 },
        doc! { "a": -1 },
        doc! { "b": -1 },
        doc! { "b": 1, "a": -1 },
        doc! { "b": -1, "a": -1 },
        doc! { "d.x": 1 },
        doc! { "d.y": -1 },
        doc! { "d.x": -1, "d.y": 1 },
    ];
    let indexes = vec![
        doc! { "v": 2, "key": { "a": 1 }, "name": "a_1" },
        doc! { "v": 2, "key": { "a": 1, "b": 1 }, "name": "a_1_b_1" },
        doc! { "v": 2, "key": { "b": 1, "a": 1 }, "name": "b_1_a_1" },
        doc! { "v": 2, "key": { "d.x": 1, "d.y": -1 }, "name": "d.x_1_d.y_-1" },
        doc! { "v": 2, "key": { "d.y": 1, "d.x": 1 }, "name": "d.y_1_d.x_1" },
    ];
    (
        proptest::collection::vec(document, 0..20),
        proptest::sample::subsequence(indexes, 1..4),
        filter,
        proptest::option::of(select(sorts)),
        any::<bool>(),
    )
        .prop_map(|(documents, indexes, filter, sort, saving)| Case {
            kind: RecordKind::Clustered,
            documents,
            indexes,
            filter,
            sort,
            skip: 0,
            limit: None,
            projection: None,
            saving,
        })
}

/// Fields in the order of their names: a covered plan knows only that of the index.
fn ordered(document: &Document) -> Document {
    let mut fields: Vec<_> = document
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields.into_iter().collect()
}

fn same(a: &Document, b: &Document) -> bool {
    Collation::SIMPLE
        .compare_bson(&Bson::Document(ordered(a)), &Bson::Document(ordered(b)))
        .is_eq()
}

/// Whether every document of `part` occurs in `whole` at least as often.
fn is_part(part: &[Document], whole: &[Document]) -> bool {
    let mut left: Vec<&Document> = whole.iter().collect();
    part.iter().all(|document| {
        let position = left.iter().position(|other| same(document, other));
        position
            .map(|position| left.swap_remove(position))
            .is_some()
    })
}

struct Checked {
    bed: Fixture,
    documents: Vec<Document>,
}

impl Checked {
    fn new(case: &Case) -> Self {
        let mut bed = Fixture::new(case.kind, &case.indexes);
        let mut documents = Vec::new();
        for (id, document) in (0_i32..).zip(&case.documents) {
            let mut whole = doc! { "_id": id % 7 * 100 + id };
            whole.extend(document.clone());
            // What has two arrays beside each other cannot be in some of the indexes.
            if bed.insert(&whole).is_ok() {
                documents.push(whole);
            }
        }
        Self { bed, documents }
    }

    fn run(&self, query: &Query, saving: bool) -> Result<Vec<Document>> {
        let mut executor = self.bed.executor(query)?;
        let operation = operation();
        let mut found = Vec::new();
        let mut bytes = Vec::new();
        while executor.next_into(&operation, &mut bytes)? {
            found.push(Document::try_from(bson::RawDocument::from_bytes(&bytes)?)?);
            bytes.clear();
            if saving {
                executor.save();
            }
        }
        Ok(found)
    }

    /// Runs the query without projection and compares it with its definition.
    fn check(&self, query: &Query, saving: bool) -> std::result::Result<(), TestCaseError> {
        // What cannot be sorted in memory need not fail in an index.
        let Ok(expected) = naive(&self.documents, query) else {
            return Ok(());
        };
        let all = Query {
            limit: None,
            skip: 0,
            ..query.clone()
        };
        let all: Vec<Document> = naive(&self.documents, &all)
            .expect("it worked with a limit")
            .into_iter()
            .map(|(_, document)| document)
            .collect();
        let found = match self.run(query, saving) {
            Ok(found) => found,
            Err(error) if error.code() == ErrorCode::NoQueryExecutionPlans => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
        };
        let plan = || format!("{:#?}", self.bed.plan(query).map(|planned| planned.winning));
        prop_assert!(
            is_part(&found, &all),
            "found {:?} of {:?}\n{}",
            found,
            all,
            plan()
        );
        let sparse = match &query.hint {
            Some(Hint::Name(name) | Hint::Internal(name)) => self
                .bed
                .collection
                .index(name)
                .is_some_and(|i| i.spec.sparse),
            _ => false,
        };
        if sparse {
            return Ok(());
        }
        prop_assert_eq!(
            found.len(),
            expected.len(),
            "{:?} of {:?}\n{}",
            found,
            all,
            plan()
        );
        let pattern = millrace_expression::sort::SortPattern::parse(
            &query.sort.clone().unwrap_or_default(),
            Collation::SIMPLE,
        )
        .expect("a valid sort");
        for (document, (sort_key, _)) in found.iter().zip(&expected) {
            let key = pattern.key(document).expect("it has a key");
            prop_assert_eq!(&key, sort_key, "{:?}\n{}", found, plan());
        }
        Ok(())
    }

    /// Compares projected documents, whose order is not looked at.
    fn check_projection(
        &self,
        query: &Query,
        spec: &Document,
    ) -> std::result::Result<(), TestCaseError> {
        let whole = Query {
            limit: None,
            skip: 0,
            ..query.clone()
        };
        let Ok(expected) = naive(&self.documents, &whole) else {
            return Ok(());
        };
        let chosen = projection(spec);
        let operation = operation();
        let variables = millrace_expression::Variables::new(&operation);
        let context =
            millrace_expression::EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
        let expected: Vec<Document> = expected
            .into_iter()
            .map(|(_, document)| {
                chosen
                    .apply(document, None, &context)
                    .expect("a projection")
            })
            .collect();
        let projected = Query {
            projection: Some(chosen),
            ..whole
        };
        let found = self
            .run(&projected, false)
            .map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
        prop_assert_eq!(found.len(), expected.len());
        prop_assert!(
            is_part(&found, &expected),
            "found {:?} of {:?}\n{:#?}",
            found,
            expected,
            self.bed.plan(&projected).map(|p| p.winning)
        );
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plans_find_what_the_query_defines(case in prop_oneof![case(), entangled_case()]) {
        let raw = bson::RawDocumentBuf::try_from(&case.filter).expect("a valid filter");
        prop_assume!(Matcher::parse(&raw, &millrace_expression::Scope::new(Collation::SIMPLE)).is_ok());
        let checked = Checked::new(&case);
        let base = Query {
            sort: case.sort.clone(),
            skip: case.skip,
            limit: case.limit,
            ..query(&case.filter)
        };
        checked.check(&base, case.saving)?;
        for index in &checked.bed.collection.indexes {
            let hinted =
                Query { hint: Some(Hint::Name(index.spec.name.clone())), ..base.clone() };
            checked.check(&hinted, case.saving)?;
        }
        if let Some(spec) = &case.projection {
            checked.check_projection(&base, spec)?;
        }
    }

    #[test]
    fn a_tight_memory_changes_nothing(case in case()) {
        let raw = bson::RawDocumentBuf::try_from(&case.filter).expect("a valid filter");
        prop_assume!(Matcher::parse(&raw, &millrace_expression::Scope::new(Collation::SIMPLE)).is_ok());
        let checked = Checked::new(&case);
        let base = Query { sort: case.sort.clone(), limit: case.limit, ..query(&case.filter) };
        let Ok(expected) = naive(&checked.documents, &base) else { return Ok(()) };
        let mut executor = checked.bed.executor(&base).expect("a plan");
        let operation = operation_with_memory(200);
        let mut count = 0;
        while executor.next(&operation).expect("what fits in scratch space").is_some() {
            count += 1;
        }
        prop_assert_eq!(count, expected.len());
        let counted = checked.bed.executor(&base).expect("a plan").count(&operation).expect("a count");
        prop_assert_eq!(counted, u64::try_from(expected.len()).expect("few"));
    }
}
