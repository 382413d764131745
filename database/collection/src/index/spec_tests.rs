use bson::{bson, doc};

use super::*;

fn parse(document: &Document) -> IndexSpec {
    IndexSpec::parse(document).unwrap()
}

#[test]
fn everything_is_read() {
    let spec = parse(&doc! {
        "key": {"a.b": 1, "c": -1.0, "d": "hashed"}, "sparse": 1, "hidden": true, "name": "n",
    });
    assert_eq!(spec.name, "n");
    let fields: Vec<_> = spec
        .fields
        .iter()
        .map(|f| (f.path.to_string(), f.kind))
        .collect();
    assert_eq!(
        fields,
        [
            ("a.b".to_owned(), FieldKind::Ascending),
            ("c".to_owned(), FieldKind::Descending),
            ("d".to_owned(), FieldKind::Hashed),
        ]
    );
    assert!(spec.sparse && spec.hidden && !spec.unique);
    assert_eq!(
        spec.document,
        doc! {
            "v": 2, "key": {"a.b": 1, "c": -1.0, "d": "hashed"}, "name": "n",
            "sparse": true, "hidden": true,
        }
    );
}

#[test]
fn names_by_default() {
    for (key, name) in [
        (doc! {"a": 1}, "a_1"),
        (doc! {"a": 1, "b": -1, "c": "hashed"}, "a_1_b_-1_c_hashed"),
        (doc! {"a.b": 1.0}, "a.b_1"),
        (doc! {"a": 2.5_f64}, "a_2.5"),
        (doc! {"a": -1_i64}, "a_-1"),
    ] {
        assert_eq!(parse(&doc! {"key": key}).name, name);
    }
}

#[test]
fn what_is_shown_parses_to_the_same() {
    for document in [
        doc! {"key": {"a": 1}, "unique": true, "background": 1, "ns": "db.c", "hidden": false},
        doc! {"key": {"a": 1}, "expireAfterSeconds": 3600.9, "v": 1},
        doc! {"key": {"_id": 1}, "name": "other"},
        doc! {"key": {"a": 1}, "collation": {"locale": "simple"}},
        doc! {"key": {"a": 1}, "partialFilterExpression": {"b": {"$gt": 1}}},
    ] {
        let spec = parse(&document);
        let again = parse(&spec.document);
        assert_eq!(again.document, spec.document);
        assert_eq!(spec.compatibility(&again).unwrap(), Compatibility::Same);
    }
}

#[test]
fn the_index_on_id() {
    let id = IndexSpec::id();
    assert!(id.unique);
    for document in [
        doc! {"key": {"_id": 1}},
        doc! {"key": {"_id": 1.0}, "name": "x", "v": 2},
    ] {
        let spec = parse(&document);
        assert_eq!(spec.document, id.document);
        assert_eq!((spec.name.as_str(), spec.unique), ("_id_", true));
        assert_eq!(id.compatibility(&spec).unwrap(), Compatibility::Same);
    }
    assert_eq!(parse(&doc! {"key": {"_id": "hashed"}}).name, "_id_hashed");
}

#[test]
fn seconds_of_ttl() {
    for (value, seconds) in [
        (bson!(0), 0),
        (bson!(10_i64), 10),
        (bson!(1.9), 1),
        (bson!(f64::NAN), 2_147_483_647),
        (bson!(i32::MAX), 2_147_483_647),
    ] {
        let spec = parse(&doc! {"key": {"a": 1}, "expireAfterSeconds": value});
        assert_eq!(spec.expire_after_seconds, Some(seconds));
    }
}

#[test]
fn key_patterns_that_cannot_be() {
    let cases = [
        (doc! {}, 9, "The 'key' field is a required property"),
        (
            doc! {"key": 1},
            14,
            "The field 'key' must be an object, but got int",
        ),
        (doc! {"key": {}}, 67, "Index keys cannot be empty."),
        (doc! {"key": {"a": 0}}, 67, "cannot be 0"),
        (doc! {"key": {"a": f64::NAN}}, 67, "cannot be NaN"),
        (doc! {"key": {"a": {}}}, 67, "cannot be of type object"),
        (doc! {"key": {"a": true}}, 67, "cannot be of type bool"),
        (doc! {"key": {"a": "b"}}, 67, "Unknown index plugin 'b'"),
        (
            doc! {"key": {"a": "text"}},
            67,
            "indexes of type 'text' are not supported",
        ),
        (
            doc! {"key": {"$**": 1}},
            67,
            "wildcard indexes are not supported",
        ),
        (doc! {"key": {"": 1}}, 67, "cannot be an empty field"),
        (
            doc! {"key": {"a..b": 1}},
            67,
            "cannot contain an empty field",
        ),
        (doc! {"key": {"a.$b": 1}}, 67, "starts with '$'"),
        (doc! {"key": {"$id": 1}}, 67, "starts with '$'"),
        (
            doc! {"key": {"a": "hashed", "b": "hashed"}},
            31303,
            "A maximum of one",
        ),
        (
            doc! {"key": {"a": "hashed"}, "unique": true},
            16764,
            "cannot guarantee uniqueness",
        ),
    ];
    check_refusals(&cases);
    let many: Document = (0..33).map(|n| (format!("f{n}"), bson!(1))).collect();
    assert_eq!(
        IndexSpec::parse(&doc! {"key": many})
            .unwrap_err()
            .code()
            .number(),
        13103
    );
    let long = doc! {"key": {"x".repeat(3000): 1}};
    assert_eq!(
        IndexSpec::parse(&long).unwrap_err().message(),
        "Index key pattern too large."
    );
}

#[test]
fn options_that_cannot_be() {
    let cases = [
        (
            doc! {"key": {"a": 1}, "name": 1},
            14,
            "The field 'name' must be a string, but got int",
        ),
        (doc! {"key": {"a": 1}, "name": ""}, 67, "cannot be empty"),
        (doc! {"key": {"a": 1}, "name": "*"}, 2, "'*' is not valid"),
        (
            doc! {"key": {"a": 1}, "unique": "x"},
            14,
            "not convertible to bool",
        ),
        (
            doc! {"key": {"a": 1}, "v": 3},
            67,
            "cannot create an index with v=3",
        ),
        (
            doc! {"key": {"a": 1}, "v": "2"},
            14,
            "The field 'v' must be a number",
        ),
        (
            doc! {"key": {"a": 1}, "what": 1},
            197,
            "The field 'what' is not valid for an index",
        ),
        (
            doc! {"key": {"_id": 1}, "sparse": true},
            197,
            "is not valid for an _id index",
        ),
        (
            doc! {"key": {"_id": 1}, "hidden": true},
            2,
            "can't hide _id index",
        ),
        (doc! {"key": {"_id": -1}}, 2, "must be {_id: 1}"),
        (
            doc! {"key": {"a": 1}, "collation": {"locale": "de"}},
            67,
            "collation",
        ),
        (
            doc! {"key": {"a": 1}, "collation": 1},
            14,
            "must be an object",
        ),
        (
            doc! {"key": {"a": 1}, "partialFilterExpression": 1},
            14,
            "must be an object",
        ),
        (
            doc! {"key": {"a": 1}, "sparse": true, "partialFilterExpression": {"a": 1}},
            67,
            "cannot mix",
        ),
    ];
    check_refusals(&cases);
}

#[test]
fn seconds_that_cannot_be() {
    let cases = [
        (
            doc! {"key": {"a": 1}, "expireAfterSeconds": "x"},
            67,
            "must be numeric",
        ),
        (
            doc! {"key": {"a": 1}, "expireAfterSeconds": -1},
            67,
            "cannot be less than 0",
        ),
        (
            doc! {"key": {"a": 1}, "expireAfterSeconds": 1e10},
            67,
            "acceptable range",
        ),
        (
            doc! {"key": {"a": 1, "b": 1}, "expireAfterSeconds": 1},
            67,
            "single-field indexes",
        ),
    ];
    check_refusals(&cases);
}

fn check_refusals(cases: &[(Document, i32, &str)]) {
    for (document, code, message) in cases {
        let error = IndexSpec::parse(document).unwrap_err();
        assert_eq!(error.code().number(), *code, "{document}: {error}");
        assert!(error.message().contains(message), "{document}: {error}");
    }
}

#[test]
fn conflicts() {
    let a = parse(&doc! {"key": {"a": 1}});
    let cases = [
        (doc! {"key": {"a": 1.0}}, Ok(Compatibility::Same)),
        (
            doc! {"key": {"a": 1}, "hidden": true},
            Ok(Compatibility::Same),
        ),
        (
            doc! {"key": {"a": 1}, "background": true},
            Ok(Compatibility::Same),
        ),
        (doc! {"key": {"a": -1}}, Ok(Compatibility::Different)),
        (
            doc! {"key": {"a": 1}, "name": "u", "unique": true},
            Ok(Compatibility::Different),
        ),
        (
            doc! {"key": {"a": 1}, "name": "s", "sparse": true},
            Ok(Compatibility::Different),
        ),
        (doc! {"key": {"a": 1}, "unique": true}, Err(86)),
        (doc! {"key": {"b": 1}, "name": "a_1"}, Err(86)),
        (doc! {"key": {"a": 1}, "name": "b"}, Err(85)),
        (doc! {"key": {"a": 1}, "expireAfterSeconds": 1}, Err(85)),
        (
            doc! {"key": {"a": 1}, "name": "b", "expireAfterSeconds": 1},
            Err(85),
        ),
    ];
    for (document, expected) in cases {
        let result = a
            .compatibility(&parse(&document))
            .map_err(|error| error.code().number());
        assert_eq!(result, expected, "{document}");
    }
}
