//! Each accumulator over one group.

use bson::{Bson, Document, bson, doc};

use crate::database::{failure, run};

/// What `accumulator` makes of a group of documents with these values of `v`; none for missing.
fn accumulate(accumulator: Document, values: Vec<Option<Bson>>) -> Bson {
    let input = values
        .into_iter()
        .map(|value| value.map_or_else(Document::new, |value| doc! {"v": value}))
        .collect();
    let mut output = run(&[doc! {"$group": {"_id": null, "r": accumulator}}], input);
    assert_eq!(output.len(), 1);
    output
        .remove(0)
        .remove("r")
        .expect("the accumulated field is there")
}

fn some(values: Bson) -> Vec<Option<Bson>> {
    match values {
        Bson::Array(values) => values.into_iter().map(Some).collect(),
        other => panic!("not an array: {other}"),
    }
}

#[test]
fn unary_accumulators() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().expect("a decimal"));
    let max = i64::MAX;
    let cases = [
        ("$sum", bson!([1, 2]), bson!(3)),
        ("$sum", bson!([1, 2_i64]), bson!(3_i64)),
        ("$sum", bson!([1, 0.5]), bson!(1.5)),
        ("$sum", bson!([i32::MAX, 1]), bson!(2_147_483_648_i64)),
        ("$sum", bson!([max, 1]), bson!(9_223_372_036_854_775_808.0)),
        ("$sum", bson!([max, 1, -1]), bson!(max)),
        ("$sum", bson!([1e100, 1.0, -1e100]), bson!(1.0)),
        (
            "$sum",
            bson!([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),
            bson!(1.0),
        ),
        ("$sum", bson!(["x", null, [5]]), bson!(0)),
        ("$sum", bson!([decimal("1.10"), 2]), decimal("3.10")),
        ("$avg", bson!([1, 2]), bson!(1.5)),
        ("$avg", bson!(["x"]), Bson::Null),
        ("$avg", bson!([max, max]), bson!(max as f64)),
        ("$avg", bson!([decimal("1"), 2]), decimal("1.5")),
        ("$min", bson!([3, 1.5, null, "a"]), bson!(1.5)),
        ("$min", bson!([null]), Bson::Null),
        ("$max", bson!([3, 1.5, null, "a"]), bson!("a")),
        ("$first", bson!([1, 2]), bson!(1)),
        ("$last", bson!([1, 2]), bson!(2)),
        ("$push", bson!([1, null, [2]]), bson!([1, null, [2]])),
        (
            "$addToSet",
            bson!([1, 1.0, "a", "a", null]),
            bson!([1, "a", null]),
        ),
        (
            "$mergeObjects",
            bson!([{"a": 1, "b": 1}, null, {"b": 2}]),
            bson!({"a": 1, "b": 2}),
        ),
        ("$stdDevPop", bson!([2, 4, 4, 4, 5, 5, 7, 9]), bson!(2.0)),
        ("$stdDevPop", bson!(["x"]), Bson::Null),
        ("$stdDevSamp", bson!([1, 3]), bson!(2_f64.sqrt())),
        ("$stdDevSamp", bson!([1]), Bson::Null),
    ];
    for (name, values, expected) in cases {
        let found = accumulate(doc! {name: "$v"}, some(values.clone()));
        assert_eq!(found, expected, "{name} of {values}");
    }
}

#[test]
fn missing_values() {
    let values = || vec![None, Some(bson!(1)), None];
    let case = |accumulator: Document, expected: Bson| {
        assert_eq!(
            accumulate(accumulator.clone(), values()),
            expected,
            "{accumulator}"
        );
    };
    case(doc! {"$first": "$v"}, Bson::Null);
    case(doc! {"$last": "$v"}, Bson::Null);
    case(doc! {"$push": "$v"}, bson!([1]));
    case(doc! {"$addToSet": "$v"}, bson!([1]));
    case(doc! {"$firstN": {"input": "$v", "n": 2}}, bson!([null, 1]));
    case(doc! {"$lastN": {"input": "$v", "n": 2}}, bson!([1, null]));
    case(doc! {"$minN": {"input": "$v", "n": 5}}, bson!([1]));
    case(
        doc! {"$topN": {"sortBy": {"v": 1}, "output": "$v", "n": 5}},
        bson!([null, null, 1]),
    );
}

#[test]
fn accumulators_of_several() {
    let case = |accumulator: Document, expected: Bson| {
        let found = accumulate(accumulator.clone(), some(bson!([3, 1, 2, 5, 4])));
        assert_eq!(found, expected, "{accumulator}");
    };
    case(doc! {"$firstN": {"input": "$v", "n": 2}}, bson!([3, 1]));
    case(doc! {"$lastN": {"input": "$v", "n": 2_i64}}, bson!([5, 4]));
    case(doc! {"$minN": {"input": "$v", "n": 2.0}}, bson!([1, 2]));
    case(doc! {"$maxN": {"input": "$v", "n": 2}}, bson!([5, 4]));
    case(
        doc! {"$top": {"sortBy": {"v": -1}, "output": "$v"}},
        bson!(5),
    );
    case(
        doc! {"$bottom": {"sortBy": {"v": -1}, "output": "$v"}},
        bson!(1),
    );
    case(
        doc! {"$topN": {"sortBy": {"v": 1}, "output": "$v", "n": 2}},
        bson!([1, 2]),
    );
    case(
        doc! {"$bottomN": {"sortBy": {"v": 1}, "output": "$v", "n": 2}},
        bson!([4, 5]),
    );
    case(doc! {"$count": {}}, bson!(5));
    case(
        doc! {"$median": {"input": "$v", "method": "approximate"}},
        bson!(3.0),
    );
    case(
        doc! {"$percentile": {"input": "$v", "p": [0.0, 0.5, 0.9, 1], "method": "approximate"}},
        bson!([1.0, 3.0, 5.0, 5.0]),
    );
    case(
        doc! {"$percentile": {"input": "$missing", "p": [0.5], "method": "approximate"}},
        bson!([null]),
    );
}

#[test]
fn n_may_depend_on_the_group() {
    let n = doc! {"$cond": [{"$eq": ["$k", 1]}, 1, 2]};
    let group = doc! {"_id": {"k": "$k"}, "r": {"$firstN": {"input": "$v", "n": n}}};
    let input = vec![
        doc! {"k": 1, "v": 1},
        doc! {"k": 1, "v": 2},
        doc! {"k": 2, "v": 3},
        doc! {"k": 2, "v": 4},
    ];
    assert_eq!(
        run(&[doc! {"$group": group}], input),
        [
            doc! {"_id": {"k": 1}, "r": [1]},
            doc! {"_id": {"k": 2}, "r": [3, 4]},
        ]
    );
}

#[test]
fn malformed_accumulators_have_mongodbs_codes() {
    let cases = [
        (bson!(5), 40234),
        (bson!({}), 40234),
        (bson!({"a": 1}), 40234),
        (bson!({"$sum": 1, "$avg": 1}), 40238),
        (bson!({"$foo": 1}), 15952),
        (bson!({"$sum": [1, 2]}), 40237),
        (bson!({"$count": 1}), 14),
        (bson!({"$firstN": 1}), 5_787_900),
        (bson!({"$firstN": {"input": 1, "n": 1, "x": 1}}), 5_787_901),
        (bson!({"$firstN": {"input": 1, "n": "x"}}), 5_787_902),
        (bson!({"$firstN": {"input": 1, "n": 1.5}}), 5_787_903),
        (bson!({"$firstN": {"input": 1}}), 5_787_906),
        (bson!({"$firstN": {"n": 1}}), 5_787_907),
        (bson!({"$firstN": {"input": 1, "n": 0}}), 5_787_908),
        (bson!({"$top": 1}), 5_788_001),
        (
            bson!({"$top": {"sortBy": {"a": 1}, "output": 1, "n": 1}}),
            5_788_002,
        ),
        (
            bson!({"$topN": {"sortBy": {"a": 1}, "output": 1}}),
            5_788_003,
        ),
        (bson!({"$top": {"sortBy": {"a": 1}}}), 5_788_004),
        (bson!({"$top": {"output": 1}}), 5_788_005),
        (bson!({"$median": {"input": 1}}), 40414),
        (bson!({"$median": {"input": 1, "method": "discrete"}}), 2),
        (
            bson!({"$percentile": {"input": 1, "method": "approximate", "p": [2]}}),
            7_750_303,
        ),
    ];
    for (accumulator, code) in cases {
        let stage = doc! {"$group": {"_id": null, "r": accumulator.clone()}};
        assert_eq!(failure(&[stage], vec![]).0, code, "{accumulator}");
    }
    let merge = doc! {"$group": {"_id": null, "r": {"$mergeObjects": "$v"}}};
    let (code, message) = failure(&[merge], vec![doc! {"v": 5}]);
    assert_eq!(code, 40400);
    assert_eq!(
        message,
        "$mergeObjects requires object inputs, but input 5 is of type int"
    );
}
