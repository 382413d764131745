//! Which keys of an index a scan visits, in bytes.
//!
//! A scan of a compound index is bounded in every field: `{a: {$in: [1, 3]}, b: {$gt: 5}}` on
//! `{a: 1, b: 1}` visits the keys from (1, 5) to the end of a = 1, then those from (3, 5) to the end of
//! a = 3. [`KeyBounds::check`] looks at the key under a cursor and says whether it is inside or where
//! to seek next, comparing encoded fields: a field's encoding is never a proper prefix of another's,
//! so that the order of the bytes is the order of the values field by field.

use millrace_engine::KeyRange;
use millrace_value::ident::Ident;
use millrace_value::key::TypeBits;
use millrace_value::{Collation, Result, key};

use super::interval::{Interval, IntervalSet};

/// One field's interval in encoded form. In a descending field the ends have changed places.
#[derive(Clone, Debug, PartialEq)]
struct ByteInterval {
    low: Vec<u8>,
    low_inclusive: bool,
    high: Vec<u8>,
    high_inclusive: bool,
}

impl ByteInterval {
    fn encode(interval: &Interval, descending: bool, collation: Collation) -> Result<Self> {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        let mut type_bits = TypeBits::default();
        collation.encode_key_bson(&mut low, &mut type_bits, &interval.start, descending)?;
        collation.encode_key_bson(&mut high, &mut type_bits, &interval.end, descending)?;
        let (mut low_inclusive, mut high_inclusive) =
            (interval.start_inclusive, interval.end_inclusive);
        if descending {
            std::mem::swap(&mut low, &mut high);
            std::mem::swap(&mut low_inclusive, &mut high_inclusive);
        }
        Ok(Self {
            low,
            low_inclusive,
            high,
            high_inclusive,
        })
    }

    fn is_point(&self) -> bool {
        self.low == self.high
    }

    fn starts_after(&self, field: &[u8]) -> bool {
        field < self.low.as_slice() || (field == self.low && !self.low_inclusive)
    }

    fn ends_before(&self, field: &[u8]) -> bool {
        field > self.high.as_slice() || (field == self.high && !self.high_inclusive)
    }
}

/// The intervals of one field, ascending in the order of keys.
#[derive(Clone, Debug, PartialEq)]
struct FieldBounds {
    intervals: Vec<ByteInterval>,
    descending: bool,
    /// Whether every value is inside.
    all: bool,
}

impl FieldBounds {
    fn encode(set: &IntervalSet, descending: bool) -> Result<Self> {
        let mut intervals = set
            .intervals()
            .iter()
            .map(|interval| ByteInterval::encode(interval, descending, set.collation()))
            .collect::<Result<Vec<_>>>()?;
        if descending {
            intervals.reverse();
        }
        Ok(Self {
            intervals,
            descending,
            all: set.is_all(),
        })
    }

    fn point(&self) -> Option<&ByteInterval> {
        match &self.intervals[..] {
            [only] if only.is_point() => Some(only),
            _ => None,
        }
    }
}

/// What [`KeyBounds::check`] says of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The key is inside the bounds.
    Inside,
    /// It is not; the next one that may be is, forward, the first key not less than this one and,
    /// backward, the last key that is less than it.
    Seek(Vec<u8>),
    /// It is not, and neither is any key after it in the direction of the scan.
    Done,
}

/// The bounds of a scan over the keys of one ident.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyBounds {
    range: KeyRange,
    fields: Vec<FieldBounds>,
    /// Whether `range` says it all: points, then at most one interval, then everything.
    contiguous: bool,
}

impl KeyBounds {
    /// The bounds of a scan whose field *i* has the values `fields[i].0`; `fields[i].1` says whether
    /// the index keeps the field in descending order.
    pub(crate) fn new(ident: Ident, fields: &[(&IntervalSet, bool)]) -> Result<Self> {
        let fields = fields
            .iter()
            .map(|(set, descending)| FieldBounds::encode(set, *descending))
            .collect::<Result<Vec<_>>>()?;
        let points = fields
            .iter()
            .take_while(|field| field.point().is_some())
            .count();
        let contiguous = fields
            .iter()
            .skip(points)
            .take(1)
            .all(|field| field.intervals.len() == 1)
            && fields.iter().skip(points + 1).all(|field| field.all);
        let range = outer_range(ident, &fields, points);
        Ok(Self {
            range,
            fields,
            contiguous,
        })
    }

    /// The keys of `ident` from `start` up to but not including `end`, both encoded without the ident.
    pub(crate) fn between(ident: Ident, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let mut range = ident.range();
        if let Some(start) = start {
            range.start = ident.key(start);
        }
        if let Some(end) = end {
            range.end = Some(ident.key(end));
        }
        Self {
            range,
            fields: Vec::new(),
            contiguous: true,
        }
    }

    /// The smallest range that holds every key inside the bounds.
    pub(crate) const fn range(&self) -> &KeyRange {
        &self.range
    }

    /// Whether the bounds let no key through.
    pub(crate) fn is_empty(&self) -> bool {
        self.range.is_empty() || self.fields.iter().any(|field| field.intervals.is_empty())
    }

    /// Places `key`, an engine key of the ident, relative to the bounds.
    pub(crate) fn check(&self, key: &[u8], backward: bool) -> Result<Verdict> {
        if self.contiguous {
            return Ok(Verdict::Inside);
        }
        let mut start = Ident::LEN;
        for (position, field) in self.fields.iter().enumerate() {
            let mut rest = &key[start..];
            key::skip(&mut rest, field.descending)?;
            let end = key.len() - rest.len();
            if !field.all {
                let verdict = self.check_field(&key[..start], &key[start..end], position, backward);
                if verdict != Verdict::Inside {
                    return Ok(verdict);
                }
            }
            start = end;
        }
        Ok(Verdict::Inside)
    }

    /// Places the field at `position`, whose bytes are `field` and follow `prefix` in the key.
    fn check_field(&self, prefix: &[u8], field: &[u8], position: usize, backward: bool) -> Verdict {
        let intervals = &self.fields[position].intervals;
        // The first interval that does not end before the field is the only one that may hold it.
        let at = intervals.partition_point(|interval| interval.ends_before(field));
        match intervals.get(at) {
            Some(interval) if !interval.starts_after(field) => Verdict::Inside,
            _ if backward => match at.checked_sub(1) {
                Some(before) => Self::seek_back_into(prefix, &intervals[before]),
                None if position == 0 => Verdict::Done,
                // Nothing below with these fields before: the last key that is less than all of them.
                None => Verdict::Seek(prefix.to_vec()),
            },
            Some(interval) => self.seek_into(prefix, interval, position),
            None if position == 0 => Verdict::Done,
            None => past(prefix),
        }
    }

    /// The first key that may lie in `interval` of the field at `position` after `prefix`.
    fn seek_into(&self, prefix: &[u8], interval: &ByteInterval, position: usize) -> Verdict {
        let mut target = [prefix, &interval.low].concat();
        if !interval.low_inclusive {
            return past(&target);
        }
        // If the field has the interval's least value, the fields after it have at least theirs.
        for field in &self.fields[position + 1..] {
            match field.intervals.first() {
                Some(first) if first.low_inclusive => target.extend_from_slice(&first.low),
                Some(first) => {
                    target.extend_from_slice(&first.low);
                    return past(&target);
                }
                None => return Verdict::Done,
            }
        }
        Verdict::Seek(target)
    }

    /// The key after the last one that may lie in `interval` of a field after `prefix`.
    fn seek_back_into(prefix: &[u8], interval: &ByteInterval) -> Verdict {
        let target = [prefix, &interval.high].concat();
        if interval.high_inclusive {
            past(&target)
        } else {
            Verdict::Seek(target)
        }
    }
}

/// Where to go to leave all keys that begin with `prefix` behind: forward this is the first key after
/// them; backward it is the key below which the last of them lies.
fn past(prefix: &[u8]) -> Verdict {
    KeyRange::prefix(prefix)
        .end
        .map_or(Verdict::Done, Verdict::Seek)
}

/// The range from the first to the last key that may be inside: `points` fields of one value each, then
/// the ends of the first field that has more.
fn outer_range(ident: Ident, fields: &[FieldBounds], points: usize) -> KeyRange {
    let mut prefix = ident.prefix().to_vec();
    for field in &fields[..points] {
        if let Some(point) = field.point() {
            prefix.extend_from_slice(&point.low);
        }
    }
    let mut range = KeyRange::prefix(&prefix);
    let Some(field) = fields.get(points) else {
        return range;
    };
    if let Some(first) = field.intervals.first() {
        let low = [&prefix[..], &first.low].concat();
        range.start = if first.low_inclusive {
            low
        } else {
            KeyRange::prefix(&low).end.unwrap_or(low)
        };
    }
    if let Some(last) = field.intervals.last() {
        let high = [&prefix[..], &last.high].concat();
        range.end = if last.high_inclusive {
            KeyRange::prefix(&high).end
        } else {
            Some(high)
        };
    }
    range
}

#[cfg(test)]
mod tests {
    use bson::Bson;
    use millrace_engine::{Batch, Cursor, Durability, Engine, MemoryEngine, ReadSet};
    use proptest::prelude::*;

    use super::*;

    const IDENT: Ident = Ident::new(7);

    /// The fields of a key and whether they are descending.
    const DESCENDING: [bool; 3] = [false, true, false];

    fn key_of(values: [i32; 3]) -> Vec<u8> {
        let mut key = IDENT.prefix().to_vec();
        for (value, descending) in values.into_iter().zip(DESCENDING) {
            let value = Bson::Int32(value);
            Collation::SIMPLE
                .encode_key_bson(&mut key, &mut TypeBits::default(), &value, descending)
                .expect("a number has a key");
        }
        key
    }

    fn sets() -> impl Strategy<Value = IntervalSet> {
        let one = (0..4_i32, any::<bool>(), 0..4_i32, any::<bool>())
            .prop_map(|(a, b, c, d)| Interval::new(Bson::Int32(a), b, Bson::Int32(c), d));
        prop_oneof![
            1 => Just(IntervalSet::all(Collation::SIMPLE)),
            1 => (0..4_i32).prop_map(|value| IntervalSet::point(Bson::Int32(value), Collation::SIMPLE)),
            3 => proptest::collection::vec(one, 0..4).prop_map(|list| IntervalSet::new(list, Collation::SIMPLE)),
        ]
    }

    /// All keys of three numbers from 0 to 3, beside keys of other idents.
    fn engine() -> MemoryEngine {
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        batch.put(&Ident::new(6).key(b"x"), b"");
        batch.put(&Ident::new(8).key(b"x"), b"");
        for number in 0..64 {
            batch.put(&key_of([number / 16, number / 4 % 4, number % 4]), b"");
        }
        engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("the engine in memory commits");
        engine
    }

    /// The keys that a scan visits, by seeking where the verdicts say.
    fn visited(bounds: &KeyBounds, cursor: &mut dyn Cursor, backward: bool) -> Vec<Vec<u8>> {
        let mut found = if backward {
            cursor.seek_last()
        } else {
            cursor.seek_first()
        };
        let mut keys = Vec::new();
        // Every key is looked at once at most: a scan that goes back or stands still never ends.
        for _ in 0..=64 {
            if !found.expect("a move") {
                return keys;
            }
            let key = cursor.key().to_vec();
            found = match bounds.check(&key, backward).expect("a key of the index") {
                Verdict::Inside => {
                    keys.push(key);
                    if backward {
                        cursor.previous()
                    } else {
                        cursor.next()
                    }
                }
                Verdict::Seek(target) if backward => cursor.seek_back(&target).and_then(|found| {
                    if found && cursor.key() == target {
                        cursor.previous()
                    } else {
                        Ok(found)
                    }
                }),
                Verdict::Seek(target) => cursor.seek(&target),
                Verdict::Done => return keys,
            };
        }
        panic!("the scan does not end");
    }

    proptest! {
        #[test]
        fn a_scan_visits_the_keys_inside_and_no_others(a in sets(), b in sets(), c in sets()) {
            let fields = [(&a, DESCENDING[0]), (&b, DESCENDING[1]), (&c, DESCENDING[2])];
            let bounds = KeyBounds::new(IDENT, &fields).expect("bounds have keys");
            let mut expected: Vec<Vec<u8>> = (0..64)
                .map(|number| [number / 16, number / 4 % 4, number % 4])
                .filter(|values| {
                    let inside = |set: &IntervalSet, value: i32| set.contains(&Bson::Int32(value));
                    inside(&a, values[0]) && inside(&b, values[1]) && inside(&c, values[2])
                })
                .map(key_of)
                .collect();
            expected.sort();
            prop_assert!(expected.is_empty() || !bounds.is_empty());
            if bounds.is_empty() {
                return Ok(());
            }
            let engine = engine();
            for backward in [false, true] {
                let mut cursor = engine.cursor(bounds.range().clone()).expect("a cursor");
                prop_assert_eq!(visited(&bounds, cursor.as_mut(), backward), expected.clone());
                expected.reverse();
            }
        }
    }

    #[test]
    fn one_interval_behind_points_needs_no_checks() {
        let point = IntervalSet::point(Bson::Int32(2), Collation::SIMPLE);
        let range = IntervalSet::new(
            vec![Interval::closed(Bson::Int32(1), Bson::Int32(3))],
            Collation::SIMPLE,
        );
        let all = IntervalSet::all(Collation::SIMPLE);
        let contiguous = |fields: [&IntervalSet; 3]| {
            let fields: Vec<_> = fields.into_iter().map(|set| (set, false)).collect();
            KeyBounds::new(IDENT, &fields)
                .expect("bounds have keys")
                .contiguous
        };
        assert!(contiguous([&point, &range, &all]));
        assert!(contiguous([&all, &all, &all]));
        assert!(contiguous([&point, &point, &point]));
        assert!(!contiguous([&range, &point, &all]));
        assert!(!contiguous([&all, &range, &all]));
    }
}
