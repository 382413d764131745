//! `$out` and `$merge`.

use std::sync::Arc;

use bson::{Bson, Document, bson, doc};

use crate::database::{Database, Run};

#[test]
fn out_replaces_the_content() {
    let run = Run::with(&[("target", vec![doc! {"old": 1}])]);
    let output = run.run(
        &[doc! {"$match": {"a": 1}}, doc! {"$out": "target"}],
        vec![doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}],
    );
    assert_eq!(output.expect("it writes"), Vec::<Document>::new());
    assert_eq!(run.database.content("target"), [doc! {"_id": 1, "a": 1}]);
}

#[test]
fn a_failing_pipeline_leaves_the_content() {
    let run = Run::with(&[("target", vec![doc! {"old": 1}])]);
    let stages = [
        doc! {"$replaceRoot": {"newRoot": "$a"}},
        doc! {"$out": "target"},
    ];
    let error = run
        .run(&stages, vec![doc! {"a": 5}])
        .expect_err("5 is no document");
    assert_eq!(error.code().number(), 40228);
    assert_eq!(run.database.content("target"), [doc! {"old": 1}]);
}

/// What merging `{_id: 1, b: 2}` and `{_id: 9, b: 3}` into `{_id: 1, a: 1}` gives, or the error's code.
fn merge(options: Document) -> Result<Vec<Document>, i32> {
    let mut merge = doc! {"into": "target"};
    merge.extend(options);
    let run = Run::with(&[("target", vec![doc! {"_id": 1, "a": 1}])]);
    let input = vec![doc! {"_id": 1, "b": 2}, doc! {"_id": 9, "b": 3}];
    match run.run(&[doc! {"$merge": merge}], input) {
        Ok(output) => {
            assert!(output.is_empty());
            Ok(run.database.content("target"))
        }
        Err(error) => Err(error.code().number()),
    }
}

#[test]
fn merge_modes() {
    let (old, new, other) = (
        doc! {"_id": 1, "a": 1},
        doc! {"_id": 1, "b": 2},
        doc! {"_id": 9, "b": 3},
    );
    let both = doc! {"_id": 1, "a": 1, "b": 2};
    let cases = [
        (doc! {}, Ok(vec![both.clone(), other.clone()])),
        (
            doc! {"whenMatched": "merge", "whenNotMatched": "discard"},
            Ok(vec![both]),
        ),
        (
            doc! {"whenMatched": "replace"},
            Ok(vec![new.clone(), other.clone()]),
        ),
        (
            doc! {"whenMatched": "replace", "whenNotMatched": "discard"},
            Ok(vec![new]),
        ),
        (
            doc! {"whenMatched": "keepExisting"},
            Ok(vec![old.clone(), other.clone()]),
        ),
        (doc! {"whenMatched": "fail"}, Err(11000)),
        (
            doc! {"whenMatched": "replace", "whenNotMatched": "fail"},
            Err(13113),
        ),
        (
            doc! {"whenMatched": "fail", "whenNotMatched": "discard"},
            Err(51181),
        ),
        (
            doc! {"whenMatched": "keepExisting", "whenNotMatched": "fail"},
            Err(51181),
        ),
        (
            doc! {"whenMatched": [{"$set": {"sum": {"$add": ["$a", "$$new.b"]}}}]},
            Ok(vec![doc! {"_id": 1, "a": 1, "sum": 3}, other.clone()]),
        ),
        (
            doc! {"whenMatched": [{"$replaceWith": {"x": "$$v"}}], "let": {"v": {"$add": ["$b", 40]}}},
            Ok(vec![doc! {"_id": 1, "x": 42}, other]),
        ),
        (doc! {"whenMatched": [{"$match": {}}]}, Err(72)),
        (doc! {"whenMatched": "merge", "let": {"v": 1}}, Err(51199)),
        (doc! {"whenMatched": "no"}, Err(2)),
        (doc! {"whenNotMatched": "no"}, Err(2)),
        (doc! {"on": "b"}, Err(51183)),
        (doc! {"on": []}, Err(51187)),
        (doc! {"on": ["a", "a"]}, Err(31465)),
        (doc! {"on": 5}, Err(51186)),
        (doc! {"x": 1}, Err(40415)),
    ];
    for (options, expected) in cases {
        assert_eq!(merge(options.clone()), expected, "{options}");
    }
}

#[test]
fn merge_by_other_fields_needs_a_unique_index() {
    let content = vec![doc! {"_id": 1, "k": "x", "n": 1}];
    let database = Database::new(&[("target", content)]).with_unique_index(&["k"]);
    let run = Run {
        database: Arc::new(database),
        ..Run::default()
    };
    let stage = doc! {"$merge": {"into": {"db": "db", "coll": "target"}, "on": "k"}};
    run.run(
        std::slice::from_ref(&stage),
        vec![doc! {"k": "x", "n": 2}, doc! {"k": "y", "n": 3}],
    )
    .expect("it merges");
    assert_eq!(
        run.database.content("target"),
        [doc! {"_id": 1, "k": "x", "n": 2}, doc! {"k": "y", "n": 3},]
    );
    for value in [Bson::Null, bson!([1])] {
        let error = run
            .run(std::slice::from_ref(&stage), vec![doc! {"k": value}])
            .expect_err("no such key");
        assert_eq!(error.code().number(), 51132);
    }
}

#[test]
fn merge_gives_documents_without_id_one() {
    let run = Run::default();
    run.run(
        &[doc! {"$merge": "target"}],
        vec![doc! {"a": 1}, doc! {"a": 2}],
    )
    .expect("it merges");
    let content = run.database.content("target");
    assert_eq!(content.len(), 2);
    let ids: Vec<_> = content
        .iter()
        .map(|document| document.get_object_id("_id"))
        .collect();
    assert!(ids.iter().all(Result::is_ok));
    assert_ne!(content[0].get("_id"), content[1].get("_id"));
}
