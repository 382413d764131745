//! Filters that are refused, with MongoDB's code and message.

use bson::{Bson, Document, doc};
use millrace_value::ErrorCode;

use super::{parse, regex};

fn check(filter: &Document, code: i32, message: &str) {
    let error = parse(filter)
        .err()
        .unwrap_or_else(|| panic!("{filter} was accepted"));
    assert_eq!(
        (error.code().number(), error.message()),
        (code, message),
        "{filter}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn malformed_filters() {
    let regex = || regex("x", "i");
    let unknown = "unknown top level operator: $foo. If you have a field name that starts with a \
                   '$' symbol, consider using $getField or $setField.";
    for (filter, message) in [
        (doc! {"a": {"$foo": 1}}, "unknown operator: $foo"),
        (doc! {"a": {"$gt": 1, "b": 2}}, "unknown operator: b"),
        (doc! {"$foo": 1}, unknown),
        (doc! {"$or": 1}, "$or must be an array"),
        (doc! {"$and": []}, "$and/$or/$nor must be a nonempty array"),
        (
            doc! {"$nor": [1]},
            "$or/$and/$nor entries need to be full objects",
        ),
        (doc! {"a": {"$in": 1}}, "$in needs an array"),
        (doc! {"a": {"$nin": {}}}, "$nin needs an array"),
        (doc! {"a": {"$in": [{"$gt": 1}]}}, "cannot nest $ under $in"),
        (
            doc! {"a": {"$in": [Bson::Undefined]}},
            "InMatchExpression equality cannot be undefined",
        ),
        (doc! {"a": Bson::Undefined}, "cannot compare to undefined"),
        (
            doc! {"a": {"$gt": Bson::Undefined}},
            "cannot compare to undefined",
        ),
        (
            doc! {"a": {"$ne": regex()}},
            "Can't have regex as arg to $ne.",
        ),
        (
            doc! {"a": {"$gt": regex()}},
            "Can't have RegEx as arg to predicate over field 'a'.",
        ),
        (doc! {"a": {"$not": 1}}, "$not needs a regex or a document"),
        (doc! {"a": {"$not": {}}}, "$not cannot be empty"),
        (doc! {"a": {"$not": {"b": 1}}}, "unknown operator: b"),
        (doc! {"a": {"$all": 1}}, "$all needs an array"),
        (
            doc! {"a": {"$all": [{"$gt": 1}]}},
            "no $ expressions in $all",
        ),
        (
            doc! {"a": {"$all": [{"$elemMatch": {}}, 1]}},
            "$all/$elemMatch has to be consistent",
        ),
        (doc! {"a": {"$elemMatch": 1}}, "$elemMatch needs an Object"),
        (
            doc! {"a": {"$elemMatch": {"$expr": 1}}},
            "$expr can only be applied to the top-level document",
        ),
        (doc! {"a": {"$regex": 1}}, "$regex has to be a string"),
        (
            doc! {"a": {"$regex": "x", "$options": 1}},
            "$options has to be a string",
        ),
        (doc! {"a": {"$options": "i"}}, "$options needs a $regex"),
        (
            doc! {"a": {"$mod": 1}},
            "malformed mod, needs to be an array",
        ),
        (
            doc! {"a": {"$mod": [1]}},
            "malformed mod, not enough elements",
        ),
        (
            doc! {"a": {"$mod": [1, 2, 3]}},
            "malformed mod, too many elements",
        ),
        (
            doc! {"a": {"$mod": ["x", 2]}},
            "malformed mod, divisor not a number",
        ),
        (
            doc! {"a": {"$mod": [1, "x"]}},
            "malformed mod, remainder not a number",
        ),
        (doc! {"a": {"$mod": [0, 1]}}, "divisor cannot be 0"),
        (
            doc! {"a": {"$size": -1}},
            "Failed to parse $size. Expected a non-negative number in: $size: -1",
        ),
        (
            doc! {"a": {"$size": 1.5}},
            "Failed to parse $size. Expected an integer: $size: 1.5",
        ),
        (
            doc! {"a": {"$bitsAllSet": [-1]}},
            "bit positions must be >= 0 but got: 0: -1",
        ),
        (
            doc! {"$where": "1"},
            "$where is not supported: there is no JavaScript engine",
        ),
        (
            doc! {"a": {"$where": "1"}},
            "$where cannot be applied to a field",
        ),
        (
            doc! {"$text": {"$search": "x"}},
            "$text is not supported: there are no text indexes",
        ),
        (
            doc! {"a": {"$near": [0, 0]}},
            "$near is not supported: there are no geospatial operators",
        ),
        (
            doc! {"$sampleRate": 2},
            "numeric argument to $sampleRate must be in [0, 1]",
        ),
    ] {
        check(&filter, 2, message);
    }
}

#[test]
fn other_codes() {
    let regex = || regex("x", "i");
    let both = "options set in both $regex and $options";
    check(
        &doc! {"a": {"$regex": regex(), "$options": "m"}},
        51075,
        both,
    );
    check(
        &doc! {"a": {"$options": "m", "$regex": regex()}},
        51074,
        both,
    );
    check(
        &doc! {"a": {"$regex": "x", "$options": "q"}},
        51108,
        "invalid flag in regex options: q",
    );
    let missing = "Regular expression is invalid: missing closing parenthesis";
    check(&doc! {"a": {"$regex": "(x"}}, 51091, missing);
    check(
        &doc! {"$alwaysTrue": 2},
        9,
        "$alwaysTrue must be an integer value of 1",
    );
    check(
        &doc! {"$jsonSchema": 1},
        14,
        "$jsonSchema must be an object",
    );
    let type_error = parse(&doc! {"a": {"$type": "x"}}).unwrap_err();
    assert_eq!(type_error.code(), ErrorCode::BadValue);
    let bits = parse(&doc! {"a": {"$bitsAllSet": 1.5}}).unwrap_err();
    assert_eq!(bits.code(), ErrorCode::FailedToParse);
}

#[test]
fn nesting_is_limited() {
    let nested = |levels: usize| {
        let mut filter = doc! {"a": 1};
        for _ in 0..levels {
            filter = doc! {"$and": [filter]};
        }
        parse(&filter)
    };
    assert!(nested(90).is_ok());
    assert_eq!(nested(110).unwrap_err().code(), ErrorCode::BadValue);
    let mut condition = doc! {"$eq": 1};
    for _ in 0..300 {
        condition = doc! {"$not": condition};
    }
    assert_eq!(
        parse(&doc! {"a": condition}).unwrap_err().code(),
        ErrorCode::BadValue
    );
}
