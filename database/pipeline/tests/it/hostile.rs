//! Damaged pipelines from a fixed seed: a short run of the fuzz target.

use bson::{Bson, Document, bson, doc};

use crate::exercise;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than a usize")
    }

    fn one<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Stages that are well formed, from which damaged ones are made.
fn stages() -> Vec<Document> {
    vec![
        doc! {"$match": {"a": {"$gt": 1}, "$expr": {"$lt": ["$b", 5]}}},
        doc! {"$project": {"a": 1, "c": {"$add": ["$a", 1]}}},
        doc! {"$addFields": {"b.c": "$a"}},
        doc! {"$unset": ["b", "c.d"]},
        doc! {"$group": {"_id": "$a", "s": {"$sum": "$b"}, "p": {"$push": "$$ROOT"}}},
        doc! {"$group": {"_id": null, "t": {"$topN": {"sortBy": {"a": 1}, "output": "$b", "n": 2}},
        "q": {"$percentile": {"input": "$a", "p": [0.5], "method": "approximate"}}}},
        doc! {"$group": {"_id": {"x": "$a"}, "f": {"$firstN": {"input": "$b", "n": 2}},
        "m": {"$maxN": {"input": "$a", "n": 2}}, "o": {"$mergeObjects": "$b"}}},
        doc! {"$sort": {"a": 1, "b.c": -1}},
        doc! {"$limit": 5},
        doc! {"$skip": 1},
        doc! {"$unwind": {"path": "$a", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true}},
        doc! {"$lookup": {"from": "c", "localField": "a", "foreignField": "b", "as": "r"}},
        doc! {"$lookup": {"from": "c", "let": {"v": "$a"}, "pipeline": [
            {"$match": {"$expr": {"$eq": ["$b", "$$v"]}}}, {"$limit": 2},
        ], "as": "r.s"}},
        doc! {"$graphLookup": {"from": "c", "startWith": "$a", "connectFromField": "a",
        "connectToField": "b", "as": "r", "maxDepth": 2, "depthField": "d"}},
        doc! {"$count": "n"},
        doc! {"$sortByCount": "$a"},
        doc! {"$facet": {"x": [{"$limit": 1}], "y": [{"$group": {"_id": "$a"}}]}},
        doc! {"$bucket": {"groupBy": "$a", "boundaries": [0, 5, 10], "default": "z"}},
        doc! {"$bucketAuto": {"groupBy": "$a", "buckets": 3, "granularity": "R5"}},
        doc! {"$bucketAuto": {"groupBy": "$a", "buckets": 2, "output": {"p": {"$push": "$b"}}}},
        doc! {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$b", {"a": "$a"}]}}},
        doc! {"$replaceWith": {"a": "$$ROOT"}},
        doc! {"$sample": {"size": 3}},
        doc! {"$unionWith": {"coll": "c", "pipeline": [{"$match": {"a": 1}}]}},
        doc! {"$redact": {"$cond": [{"$gt": ["$a", 1]}, "$$DESCEND", "$$PRUNE"]}},
        doc! {"$documents": [{"a": 1}, {"b": [2]}]},
        doc! {"$merge": {"into": "c", "on": "a", "whenMatched": [{"$set": {"x": "$$new.a"}}]}},
        doc! {"$out": "c"},
        doc! {"$collStats": {"count": {}}},
        doc! {"$currentOp": {"allUsers": true}},
    ]
}

fn values() -> Vec<Bson> {
    vec![
        Bson::Null,
        bson!(-1),
        bson!(0),
        bson!(1),
        bson!(i64::MIN),
        bson!(i64::MAX),
        bson!(0.5),
        bson!(f64::NAN),
        bson!(f64::INFINITY),
        bson!(true),
        bson!(""),
        bson!("a"),
        bson!("$a"),
        bson!("$a.b.c"),
        bson!("$$ROOT"),
        bson!("$$none"),
        bson!("$"),
        bson!("a..b"),
        bson!("a\0b"),
        bson!([]),
        bson!([1, [2, "$b"]]),
        bson!({}),
        bson!({"a": {"b": [1, {"c": 2}]}}),
        bson!({"$literal": 1}),
        bson!({"$sum": "$a"}),
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Undefined,
        Bson::ObjectId(bson::oid::ObjectId::from_bytes([1; 12])),
        Bson::DateTime(bson::DateTime::from_millis(i64::MAX)),
    ]
}

/// Changes one place somewhere in `document`.
fn damage_document(document: &mut Document, random: &mut Random, values: &[Bson]) {
    let names: Vec<String> = document.keys().cloned().collect();
    if names.is_empty() || random.below(8) == 0 {
        let names = ["a", "n", "from", "$match", "a.b", "", "$$x", "output"];
        let value = random.one(values).clone();
        document.insert(*random.one(&names), value);
        return;
    }
    let name = random.one(&names);
    if random.below(12) == 0 {
        document.remove(name);
    } else if let Some(value) = document.get_mut(name) {
        damage(value, random, values);
    }
}

fn damage(value: &mut Bson, random: &mut Random, values: &[Bson]) {
    let descend = random.below(4) > 0;
    match value {
        Bson::Document(document) if descend => damage_document(document, random, values),
        Bson::Array(elements) if descend && !elements.is_empty() => {
            let index = random.below(elements.len());
            damage(&mut elements[index], random, values);
        }
        value => *value = random.one(values).clone(),
    }
}

fn input(random: &mut Random, values: &[Bson]) -> Vec<Document> {
    (0..random.below(8))
        .map(|id| {
            let id = i32::try_from(id).expect("less than eight");
            let mut document = doc! {"_id": id, "a": random.one(values).clone()};
            document.insert("b", random.one(values).clone());
            document
        })
        .collect()
}

#[test]
fn damaged_pipelines_return() {
    let (stages, values) = (stages(), values());
    let mut random = Random(2);
    let mut finished = 0;
    for _ in 0..4000 {
        let mut pipeline: Vec<Document> = (0..=random.below(4))
            .map(|_| random.one(&stages).clone())
            .collect();
        for _ in 0..random.below(3) {
            let index = random.below(pipeline.len());
            damage_document(&mut pipeline[index], &mut random, &values);
        }
        let input = input(&mut random, &values);
        finished += usize::from(exercise::run_stages(&pipeline, input).is_ok());
    }
    // Were nearly all refused, little would have been run.
    assert!(finished > 800, "{finished} pipelines finished");
}

#[test]
fn damaged_bytes_return() {
    let mut random = Random(3);
    let values = values();
    for stage in stages() {
        let encoded = doc! {"pipeline": [stage], "documents": input(&mut random, &values)}
            .to_vec()
            .expect("the document encodes");
        for _ in 0..20 {
            let mut bytes = encoded.clone();
            let index = random.below(bytes.len());
            bytes[index] = u8::try_from(random.below(256)).expect("a byte");
            exercise::run(&bytes);
        }
        exercise::run(&encoded);
    }
}
