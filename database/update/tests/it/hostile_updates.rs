//! Mutated updates: each gives an error or a document, never a panic, and reports what it changed.
//!
//! `fuzz/fuzz_targets/update.rs` does the same for as long as one likes.

use bson::{Document, doc};

use crate::exercise;

/// How often each seed is mutated.
const MUTATIONS: u32 = 1500;

/// Documents and updates that together reach every operator.
fn seeds() -> Vec<(Document, Document)> {
    let before = doc! {
        "_id": 1, "a": [1, 2, {"b": 3}], "b": {"c": [3, 1], "d": "x"}, "n": 5_i64, "f": 1.5, "z": null,
    };
    let on = |arguments: Document| (before.clone(), arguments);
    vec![
        on(
            doc! {"u": {"$set": {"b.d": 1, "x.y": [1]}, "$unset": {"z": 1}, "$inc": {"n": 1, "f": 2}}},
        ),
        on(
            doc! {"u": {"$push": {"a": {"$each": [4, 5], "$position": 1, "$sort": -1, "$slice": 3}}}},
        ),
        on(doc! {"u": {"$pull": {"a": {"$gt": 1}}, "$pullAll": {"b.c": [1]}, "$pop": {"q": 1}}}),
        on(
            doc! {"u": {"$addToSet": {"a": {"$each": [1, 7, 8, 9, 7, 2]}}, "$bit": {"n": {"xor": 6}}}},
        ),
        on(
            doc! {"u": {"$min": {"f": 1}, "$max": {"n": "s"}, "$mul": {"m": 2}, "$rename": {"z": "b.e"}}},
        ),
        on(doc! {"u": {"$currentDate": {"b.t": {"$type": "timestamp"}}, "$setOnInsert": {"o": 1}}}),
        on(doc! {"u": {"$set": {"a.$": 7, "a.10": 8}}, "i": 1}),
        on(doc! {"u": {"$set": {"a.$[i].b": 7, "b.c.$[]": 0}}, "f": [{"i.b": {"$exists": true}}]}),
        on(doc! {"u": {"x": 1, "y": [1, {"z": 2}]}}),
        on(doc! {"u": [{"$set": {"s": {"$add": ["$n", 1]}}}, {"$unset": "f"}]}),
        on(doc! {"u": {"$setOnInsert": {"o": 1}}, "q": {"a": 1, "b.c": {"$in": [2]}}}),
    ]
}

/// A small generator of numbers, the same on every run (Knuth's 64-bit linear congruence).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let high = usize::try_from(self.0 >> 33).expect("31 bits fit");
        high % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("it is below 256")
    }
}

/// Changes a few bytes of the documents, mostly into bytes that mean something.
fn mutate(bytes: &mut [u8], numbers: &mut Numbers) {
    const TELLING: &[u8] = b"\x00\x01\x02\x03\x04\x07\x08\x0a\x10\x12\x13\xff$.[]0129abcf_i";
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(bytes.len());
        bytes[at] = match numbers.below(3) {
            0 => numbers.byte(),
            _ => TELLING[numbers.below(TELLING.len())],
        };
    }
}

#[test]
fn mutated_updates_never_panic() {
    let mut numbers = Numbers(2025);
    let mut applied = 0_u32;
    for (before, arguments) in seeds() {
        let mut bytes = before.to_vec().expect("the seed can be encoded");
        bytes.extend(arguments.to_vec().expect("the seed can be encoded"));
        assert!(exercise::apply(&bytes), "{arguments} is no seed");
        for _ in 0..MUTATIONS {
            let mut mutated = bytes.clone();
            mutate(&mut mutated, &mut numbers);
            applied += u32::from(exercise::apply(&mutated));
        }
    }
    // Most mutations break the encoding; enough must not, or nothing was tested.
    assert!(
        applied > MUTATIONS,
        "only {applied} mutated updates could be applied"
    );
}
