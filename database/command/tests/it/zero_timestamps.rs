//! Zero timestamps, and the flag that has them stored as they are.

use bson::{Bson, Document, Timestamp, doc};

use crate::support::Fixture;

const ZERO: Bson = Bson::Timestamp(Timestamp {
    time: 0,
    increment: 0,
});

/// `command` with the flag.
fn flagged(mut command: Document, value: impl Into<Bson>) -> Document {
    command.insert("bypassEmptyTsReplacement", value);
    command
}

fn field(bed: &Fixture, id: i32) -> Bson {
    let found = bed.all(doc! {"find": "c", "filter": {"_id": id}});
    found[0].get("t").expect("the field is there").clone()
}

/// Every way to write a zero timestamp as a part of a whole document.
fn replacements(id: i32) -> [Document; 3] {
    [
        doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"t": ZERO}, "upsert": true}]},
        doc! {"findAndModify": "c", "query": {"_id": id}, "update": {"t": ZERO}, "upsert": true},
        doc! {
            "bulkWrite": 1,
            "ops": [{"update": 0, "filter": {"_id": id}, "updateMods": {"t": ZERO}, "upsert": true}],
            "nsInfo": [{"ns": "test.c"}],
        },
    ]
}

#[test]
fn a_replacement_fills_in_zero_timestamps_unless_it_is_told_not_to() {
    let bed = Fixture::new();
    for (id, command) in (0..).zip(replacements(0)) {
        let by_id =
            |turn: i32| replacements(10 * id + turn)[usize::try_from(id).expect("few")].clone();
        assert_eq!(command.keys().next(), by_id(1).keys().next());
        // Twice each: an upsert, then a replacement.
        for _ in 0..2 {
            bed.run(by_id(1));
            assert_ne!(field(&bed, 10 * id + 1), ZERO, "{command}");
            bed.run(flagged(by_id(2), false));
            assert_ne!(field(&bed, 10 * id + 2), ZERO, "{command}");
            bed.run(flagged(by_id(3), true));
            assert_eq!(field(&bed, 10 * id + 3), ZERO, "{command}");
        }
    }
}

#[test]
fn an_insertion_fills_in_zero_timestamps_unless_it_is_told_not_to() {
    let bed = Fixture::new();
    let inside = doc! {"t": ZERO};
    let document = |id: i32| doc! {"_id": id, "t": ZERO, "in": &inside, "u": 1};
    let insert = |id: i32| doc! {"insert": "c", "documents": [document(id)]};
    let bulk = |id: i32| doc! {"bulkWrite": 1, "ops": [{"insert": 0, "document": document(id)}], "nsInfo": [{"ns": "test.c"}]};
    let way: [&dyn Fn(i32) -> Document; 2] = [&insert, &bulk];
    for (turn, command) in (0..).zip(way) {
        bed.run(command(10 * turn + 1));
        bed.run(flagged(command(10 * turn + 2), false));
        bed.run(flagged(command(10 * turn + 3), true));
        for (id, fills) in [(1, true), (2, true), (3, false)] {
            let id = 10 * turn + id;
            let found = bed.all(doc! {"find": "c", "filter": {"_id": id}}).remove(0);
            assert_eq!(found.keys().collect::<Vec<_>>(), ["_id", "t", "in", "u"]);
            assert_eq!(found.get("t") != Some(&ZERO), fills, "{found}");
            assert_eq!(
                found.get_document("in").ok(),
                Some(&inside),
                "below the top it stays"
            );
        }
    }
    // Also what a pipeline writes; a zero `_id` stays.
    let stages = [doc! {"$merge": "merged"}, doc! {"$out": "out"}];
    for stage in stages {
        let target = stage
            .values()
            .next()
            .and_then(Bson::as_str)
            .expect("a name")
            .to_owned();
        bed.run(doc! {"aggregate": 1, "pipeline": [{"$documents": [{"_id": ZERO, "t": ZERO}]}, stage], "cursor": {}});
        let found = bed.all(doc! {"find": target}).remove(0);
        assert_eq!(found.get("_id"), Some(&ZERO), "{found}");
        assert_ne!(found.get("t"), Some(&ZERO), "{found}");
    }
}

#[test]
fn insertions_and_modifiers_take_the_flag() {
    let bed = Fixture::new();
    bed.run(flagged(
        doc! {"insert": "c", "documents": [{"_id": 1, "t": ZERO}]},
        true,
    ));
    assert_eq!(field(&bed, 1), ZERO);
    bed.run(flagged(
        doc! {
            "bulkWrite": 1,
            "ops": [{"insert": 0, "document": {"_id": 2, "t": ZERO}}],
            "nsInfo": [{"ns": "test.c"}],
        },
        true,
    ));
    assert_eq!(field(&bed, 2), ZERO);
    let update = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"t": 1}}}]};
    bed.run(flagged(update, true));
    assert_eq!(field(&bed, 1), Bson::Int32(1));
    let update = doc! {"update": "c", "updates": [{"q": {}, "u": {"t": ZERO}}]};
    bed.run(doc! {"explain": flagged(update, true)});
}

#[test]
fn the_flag_is_a_bool() {
    let bed = Fixture::new();
    let insert = doc! {"insert": "c", "documents": [{"_id": 1}]};
    assert_eq!(bed.code(flagged(insert, "yes")), 14);
    for command in replacements(1) {
        assert_eq!(bed.code(flagged(command, "yes")), 14);
    }
    assert_eq!(bed.run(doc! {"count": "c"}).get_i32("n").ok(), Some(0));
}
