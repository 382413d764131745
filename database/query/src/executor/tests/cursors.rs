//! Executors that live longer than one batch.

use bson::{Document, doc};
use millrace_collection::RecordKind;
use millrace_value::ErrorCode;

use super::fixture::{Fixture, ids, operation, query};
use crate::planner::{Hint, Query};

fn next_id(executor: &mut crate::executor::Executor) -> Option<i32> {
    let record = executor
        .next(&operation())
        .expect("a document or the end")?;
    Some(record.document.get_i32("_id").expect("an _id"))
}

#[test]
fn a_tailable_cursor_goes_on_behind_its_end() {
    let mut bed = Fixture::new(RecordKind::Sequenced, &[]);
    let query = Query {
        tailable: true,
        ..query(&doc! { "a": 1 })
    };
    let mut executor = bed.executor(&query).expect("a plan");
    assert_eq!(next_id(&mut executor), None);
    for id in 0..6 {
        bed.insert(&doc! { "_id": id, "a": id % 2 })
            .expect("an insert");
        assert_eq!(next_id(&mut executor), Some(id).filter(|id| id % 2 == 1));
        executor.save();
    }
}

#[test]
fn a_reader_overtaken_by_a_capped_collection_is_told() {
    let mut bed = Fixture::new(RecordKind::Sequenced, &[]);
    for id in 0..4 {
        bed.insert(&doc! { "_id": id }).expect("an insert");
    }
    let mut executor = bed.executor(&query(&doc! {})).expect("a plan");
    assert_eq!(next_id(&mut executor), Some(0));
    executor.save();
    bed.remove_record(1);
    let error = executor.next(&operation()).expect_err("the place is gone");
    assert_eq!(error.code(), ErrorCode::CappedPositionLost);
}

#[test]
fn a_dropped_collection_ends_its_cursors() {
    let mut bed = Fixture::new(RecordKind::Clustered, &[]);
    for id in 0..3 {
        bed.insert(&doc! { "_id": id }).expect("an insert");
    }
    let mut executor = bed.executor(&query(&doc! {})).expect("a plan");
    assert_eq!(next_id(&mut executor), Some(0));
    executor.save();
    bed.collection.mark_dropped();
    let error = executor
        .next(&operation())
        .expect_err("there is nothing to read");
    assert_eq!(error.code(), ErrorCode::QueryPlanKilled);
    assert_eq!(error.message(), "collection dropped. ns: test.c");
}

#[test]
fn an_index_that_becomes_multikey_is_planned_anew() {
    let index = doc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
    let mut bed = Fixture::new(RecordKind::Clustered, &[index]);
    bed.insert(&doc! { "_id": 1, "a": 3 }).expect("an insert");
    // The intervals are intersected for a field without arrays; no key of [1, 9] lies in the result.
    let query = query(&doc! { "a": { "$gt": 2, "$lt": 8 } });
    let mut executor = bed.executor(&query).expect("a plan");
    bed.insert(&doc! { "_id": 2, "a": [1, 9] })
        .expect("an insert");
    let mut found = vec![next_id(&mut executor), next_id(&mut executor)];
    found.sort_unstable();
    assert_eq!(found, [Some(1), Some(2)]);
    assert_eq!(next_id(&mut executor), None);
}

#[test]
fn min_and_max_are_index_keys() {
    let index = doc! { "v": 2, "key": { "a": 1, "b": -1 }, "name": "ab" };
    let mut bed = Fixture::new(RecordKind::Clustered, &[index]);
    for id in 0..9 {
        bed.insert(&doc! { "_id": id, "a": id / 3, "b": id % 3 })
            .expect("an insert");
    }
    let hint = Some(Hint::Keys(doc! { "a": 1.0, "b": -1 }));
    let query = Query {
        hint: hint.clone(),
        min: Some(doc! { "a": 1, "b": 1 }),
        max: Some(doc! { "a": 2, "b": 1 }),
        ..query(&doc! {})
    };
    assert_eq!(
        ids(&bed.run(&query).expect("a result")),
        [4, 3, 8].map(bson::Bson::Int32)
    );
    let code = |query: &Query| bed.run(query).expect_err("it is refused").code().number();
    assert_eq!(
        code(&Query {
            hint: None,
            ..query.clone()
        }),
        51173
    );
    assert_eq!(
        code(&Query {
            min: Some(doc! { "a": 1 }),
            max: None,
            ..query.clone()
        }),
        51174
    );
    assert_eq!(
        code(&Query {
            min: Some(doc! { "a": 9, "b": 1 }),
            ..query.clone()
        }),
        51175
    );
    assert_eq!(
        code(&Query {
            min: Some(doc! { "b": 1, "a": 1 }),
            ..query.clone()
        }),
        51176
    );
    let unknown = Hint::Name("nothing".to_owned());
    assert_eq!(
        code(&Query {
            hint: Some(unknown),
            min: None,
            max: None,
            ..query
        }),
        2
    );
}

#[test]
fn keys_and_record_ids_are_shown_on_request() {
    let index = doc! { "v": 2, "key": { "d.a": -1 }, "name": "da" };
    let mut bed = Fixture::new(RecordKind::Sequenced, &[index]);
    bed.insert(&doc! { "_id": "x", "d": { "a": 2.5 } })
        .expect("an insert");
    let base = query(&doc! { "d.a": { "$gt": 1 } });
    let run = |query: &Query| -> Document { bed.run(query).expect("a result").remove(0) };
    assert_eq!(
        run(&Query {
            return_key: true,
            ..base.clone()
        }),
        doc! { "d.a": 2.5 }
    );
    assert_eq!(
        run(&Query {
            return_key: true,
            show_record_id: true,
            sort: Some(doc! { "x": 1 }),
            ..base.clone()
        }),
        doc! { "d.a": 2.5 }
    );
    assert_eq!(
        run(&Query {
            show_record_id: true,
            ..base
        }),
        doc! { "_id": "x", "d": { "a": 2.5 }, "$recordId": 1_i64 }
    );
}

#[test]
fn a_sort_without_disk_has_a_limit() {
    let mut bed = Fixture::new(RecordKind::Clustered, &[]);
    for id in 0..100 {
        bed.insert(&doc! { "_id": id, "a": -id, "pad": "x".repeat(100) })
            .expect("an insert");
    }
    let base = Query {
        sort: Some(doc! { "a": 1 }),
        allow_disk_use: false,
        ..query(&doc! {})
    };
    let tight = super::fixture::operation_with_memory(5_000);
    let error = bed
        .executor(&base)
        .expect("a plan")
        .next(&tight)
        .expect_err("too much");
    assert_eq!(
        error.code(),
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed
    );
    let limited = Query {
        limit: Some(3),
        ..base
    };
    let first = bed
        .executor(&limited)
        .expect("a plan")
        .next(&tight)
        .expect("three fit")
        .expect("one");
    assert_eq!(first.document.get_i32("_id").expect("an _id"), 99);
}
