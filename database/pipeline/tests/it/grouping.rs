//! `$group` and the stages built on it.

use bson::{Bson, Document, doc};
use proptest::prelude::*;

use crate::database::{Run, run};

#[test]
fn groups_by_equal_values() {
    let input = || {
        vec![
            doc! {"k": 1, "v": 1},
            doc! {"k": 1.0, "v": 2},
            doc! {"k": null, "v": 4},
            doc! {"v": 8},
            doc! {"k": "1", "v": 16},
        ]
    };
    let sum = doc! {"$sum": "$v"};
    assert_eq!(
        run(&[doc! {"$group": {"_id": "$k", "s": sum.clone()}}], input()),
        [
            doc! {"_id": 1, "s": 3},
            doc! {"_id": null, "s": 12},
            doc! {"_id": "1", "s": 16},
        ]
    );
    assert_eq!(
        run(&[doc! {"$group": {"_id": null, "s": sum.clone()}}], input()),
        [doc! {"_id": null, "s": 31},]
    );
    assert_eq!(
        run(
            &[doc! {"$group": {"_id": {"x": "$k", "y": 0}, "s": sum}}],
            input()
        ),
        [
            doc! {"_id": {"x": 1, "y": 0}, "s": 3},
            doc! {"_id": {"x": null, "y": 0}, "s": 4},
            doc! {"_id": {"y": 0}, "s": 8},
            doc! {"_id": {"x": "1", "y": 0}, "s": 16},
        ]
    );
    assert_eq!(
        run(&[doc! {"$group": {"_id": "$k"}}], vec![]),
        Vec::<Document>::new()
    );
}

#[test]
fn sort_by_count_puts_the_most_frequent_first() {
    let input = ["a", "b", "a"].map(|k| doc! {"k": k}).to_vec();
    assert_eq!(
        run(&[doc! {"$sortByCount": "$k"}], input),
        [doc! {"_id": "a", "count": 2}, doc! {"_id": "b", "count": 1},]
    );
}

#[test]
fn buckets_have_given_boundaries() {
    let input = || [0, 5, 15, 99].map(|a| doc! {"a": a}).to_vec();
    let bucket = doc! {"groupBy": "$a", "boundaries": [0, 10, 20], "default": "other"};
    assert_eq!(
        run(&[doc! {"$bucket": bucket}], input()),
        [
            doc! {"_id": 0, "count": 2},
            doc! {"_id": 10, "count": 1},
            doc! {"_id": "other", "count": 1},
        ]
    );
    let bucket = doc! {
        "groupBy": "$a", "boundaries": [0, 100], "output": {"sum": {"$sum": "$a"}},
    };
    assert_eq!(
        run(&[doc! {"$bucket": bucket}], input()),
        [doc! {"_id": 0, "sum": 119}]
    );
}

#[test]
fn automatic_buckets_have_about_equal_size() {
    let bucket = |buckets: i32| doc! {"$bucketAuto": {"groupBy": "$a", "buckets": buckets}};
    let id =
        |min: i32, max: i32, count: i32| doc! {"_id": {"min": min, "max": max}, "count": count};
    let ten: Vec<Document> = (0..10).map(|a| doc! {"a": a}).collect();
    assert_eq!(run(&[bucket(2)], ten.clone()), [id(0, 5, 5), id(5, 9, 5)]);
    assert_eq!(run(&[bucket(1)], ten.clone()), [id(0, 9, 10)]);
    assert_eq!(
        run(&[bucket(3)], ten),
        [id(0, 3, 3), id(3, 7, 4), id(7, 9, 3)]
    );
    let same = [1, 1, 1, 1, 2].map(|a| doc! {"a": a}).to_vec();
    assert_eq!(run(&[bucket(3)], same), [id(1, 2, 4), id(2, 2, 1)]);
    assert_eq!(run(&[bucket(3)], vec![]), Vec::<Document>::new());
}

#[test]
fn automatic_buckets_round_to_preferred_numbers() {
    let input: Vec<Document> = (0..10).map(|a| doc! {"a": a}).collect();
    let options = doc! {"groupBy": "$a", "buckets": 2, "granularity": "POWERSOF2"};
    assert_eq!(
        run(&[doc! {"$bucketAuto": options}], input),
        [
            doc! {"_id": {"min": 0.0, "max": 8.0}, "count": 8},
            doc! {"_id": {"min": 8.0, "max": 16.0}, "count": 2},
        ]
    );
}

/// Every accumulator that keeps something, with arguments over fields `v` and `w`.
fn accumulate_everything() -> Document {
    doc! {"$group": {
        "_id": "$k",
        "sum": {"$sum": "$v"},
        "avg": {"$avg": "$v"},
        "min": {"$min": "$v"},
        "max": {"$max": "$v"},
        "first": {"$first": "$w"},
        "last": {"$last": "$w"},
        "push": {"$push": "$v"},
        "set": {"$addToSet": "$v"},
        "count": {"$count": {}},
        "merged": {"$mergeObjects": "$o"},
        "pop": {"$stdDevPop": "$n"},
        "top": {"$top": {"sortBy": {"v": 1}, "output": "$w"}},
        "bottom": {"$bottom": {"sortBy": {"v": 1}, "output": "$w"}},
        "topN": {"$topN": {"sortBy": {"v": -1}, "output": ["$v", "$w"], "n": 2}},
        "bottomN": {"$bottomN": {"sortBy": {"v": 1, "w": 1}, "output": "$w", "n": 2}},
        "firstN": {"$firstN": {"input": "$v", "n": 2}},
        "lastN": {"$lastN": {"input": "$v", "n": 2}},
        "minN": {"$minN": {"input": "$v", "n": 2}},
        "maxN": {"$maxN": {"input": "$v", "n": 2}},
        "median": {"$median": {"input": "$v", "method": "approximate"}},
    }}
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        Just(Bson::Null),
        (-5..6_i32).prop_map(Bson::Int32),
        (-5..6_i64).prop_map(Bson::Int64),
        (-9..9_i32).prop_map(|quarter| Bson::Double(f64::from(quarter) / 4.0)),
        "[ab]{0,2}".prop_map(Bson::String),
    ]
}

proptest! {
    // Ten groups of up to six documents take up to some 60 kB, and each of them less than 10 kB, so that
    // every group can be merged in memory and most cases spill.
    #[test]
    fn grouping_with_spilling_equals_grouping_in_memory(
        values in prop::collection::vec(prop::option::of(value()), 0..60),
        memory in 10_000..40_000_usize,
    ) {
        let input: Vec<Document> = (0..)
            .zip(values)
            .map(|(w, v)| {
                // Deviations are merged with rounding; that of equal numbers is exact.
                let mut document =
                    doc! {"k": w % 10, "w": w, "o": {format!("f{}", w % 3): w}, "n": 4};
                if let Some(v) = v {
                    document.insert("v", v);
                }
                document
            })
            .collect();
        let stages = [accumulate_everything(), doc! {"$sort": {"_id": 1}}];
        let expected = run(&stages, input.clone());
        let spilling = Run { memory, ..Run::default() };
        let found = spilling.run(&stages, input).expect("every group fits in memory");
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn without_disk_the_limit_is_an_error() {
    let input: Vec<Document> = (0..100).map(|k| doc! {"k": k}).collect();
    let run = Run {
        memory: 2000,
        allow_disk_use: false,
        ..Run::default()
    };
    let error = run
        .run(&[doc! {"$group": {"_id": "$k"}}], input)
        .expect_err("100 groups do not fit");
    assert_eq!(error.code().number(), 292);
    assert_eq!(
        error.message(),
        "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to \
         opt in."
    );
}

#[test]
fn one_group_must_fit_in_memory() {
    let input: Vec<Document> = (0..100).map(|v| doc! {"v": v}).collect();
    let run = Run {
        memory: 2000,
        ..Run::default()
    };
    let error = run
        .run(
            &[doc! {"$group": {"_id": null, "all": {"$push": "$v"}}}],
            input,
        )
        .expect_err("100 values do not fit");
    assert_eq!(error.code().number(), 146);
    assert!(
        error.message().starts_with("$push used too much memory"),
        "{error}"
    );
}
