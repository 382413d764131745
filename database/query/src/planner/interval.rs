//! Sets of values as ordered, disjoint intervals.

use std::cmp::Ordering;

use bson::Bson;
use millrace_value::Collation;

/// The values from `start` to `end` in BSON's total order; each end belongs to it or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) start: Bson,
    pub(crate) start_inclusive: bool,
    pub(crate) end: Bson,
    pub(crate) end_inclusive: bool,
}

impl Interval {
    pub(crate) const fn new(
        start: Bson,
        start_inclusive: bool,
        end: Bson,
        end_inclusive: bool,
    ) -> Self {
        Self {
            start,
            start_inclusive,
            end,
            end_inclusive,
        }
    }

    /// Both ends included.
    pub(crate) const fn closed(start: Bson, end: Bson) -> Self {
        Self::new(start, true, end, true)
    }

    /// Every value.
    pub(crate) const fn all() -> Self {
        Self::closed(Bson::MinKey, Bson::MaxKey)
    }

    /// One value alone.
    pub(crate) fn point(value: Bson) -> Self {
        Self::closed(value.clone(), value)
    }

    /// Whether one value alone lies in it.
    pub(crate) fn is_point(&self, collation: Collation) -> bool {
        self.start_inclusive
            && self.end_inclusive
            && collation.compare_bson(&self.start, &self.end) == Ordering::Equal
    }

    fn is_empty(&self, collation: Collation) -> bool {
        match collation.compare_bson(&self.start, &self.end) {
            Ordering::Less => false,
            Ordering::Equal => !(self.start_inclusive && self.end_inclusive),
            Ordering::Greater => true,
        }
    }

    fn compare_starts(&self, other: &Self, collation: Collation) -> Ordering {
        // At the same value the interval that includes it starts first.
        collation
            .compare_bson(&self.start, &other.start)
            .then_with(|| other.start_inclusive.cmp(&self.start_inclusive))
    }

    fn compare_ends(&self, other: &Self, collation: Collation) -> Ordering {
        collation
            .compare_bson(&self.end, &other.end)
            .then_with(|| self.end_inclusive.cmp(&other.end_inclusive))
    }

    /// Whether no value lies between the end of `self` and the start of `next`, which is not before
    /// the start of `self`.
    fn touches(&self, next: &Self, collation: Collation) -> bool {
        match collation.compare_bson(&self.end, &next.start) {
            Ordering::Greater => true,
            Ordering::Equal => self.end_inclusive || next.start_inclusive,
            Ordering::Less => false,
        }
    }

    fn intersect(&self, other: &Self, collation: Collation) -> Self {
        let start = if self.compare_starts(other, collation).is_ge() {
            self
        } else {
            other
        };
        let end = if self.compare_ends(other, collation).is_le() {
            self
        } else {
            other
        };
        Self::new(
            start.start.clone(),
            start.start_inclusive,
            end.end.clone(),
            end.end_inclusive,
        )
    }

    fn contains(&self, value: &Bson, collation: Collation) -> bool {
        let above = match collation.compare_bson(&self.start, value) {
            Ordering::Less => true,
            Ordering::Equal => self.start_inclusive,
            Ordering::Greater => false,
        };
        above
            && match collation.compare_bson(value, &self.end) {
                Ordering::Less => true,
                Ordering::Equal => self.end_inclusive,
                Ordering::Greater => false,
            }
    }
}

/// A set of values. Invariant: in the order of the collation, the intervals are not empty, ascending, and
/// do not touch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IntervalSet {
    intervals: Vec<Interval>,
    collation: Collation,
}

impl IntervalSet {
    /// Every value.
    pub(crate) fn all(collation: Collation) -> Self {
        Self {
            intervals: vec![Interval::all()],
            collation,
        }
    }

    /// No value.
    pub(crate) const fn none(collation: Collation) -> Self {
        Self {
            intervals: Vec::new(),
            collation,
        }
    }

    /// The union of `intervals`, which may overlap, be empty, and come in any order.
    pub(crate) fn new(mut intervals: Vec<Interval>, collation: Collation) -> Self {
        intervals.retain(|interval| !interval.is_empty(collation));
        intervals.sort_by(|a, b| a.compare_starts(b, collation));
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if last.touches(&interval, collation) => {
                    if last.compare_ends(&interval, collation).is_lt() {
                        last.end = interval.end;
                        last.end_inclusive = interval.end_inclusive;
                    }
                }
                _ => merged.push(interval),
            }
        }
        Self {
            intervals: merged,
            collation,
        }
    }

    /// One value alone.
    pub(crate) fn point(value: Bson, collation: Collation) -> Self {
        Self {
            intervals: vec![Interval::point(value)],
            collation,
        }
    }

    /// The values of either set; both are of one collation.
    pub(crate) fn union(self, other: Self) -> Self {
        let mut intervals = self.intervals;
        intervals.extend(other.intervals);
        Self::new(intervals, self.collation)
    }

    /// The values of both sets, which are of one collation.
    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let (mut left, mut right) = (0, 0);
        let mut intervals = Vec::new();
        while let (Some(a), Some(b)) = (self.intervals.get(left), other.intervals.get(right)) {
            intervals.push(a.intersect(b, self.collation));
            if a.compare_ends(b, self.collation).is_lt() {
                left += 1;
            } else {
                right += 1;
            }
        }
        Self::new(intervals, self.collation)
    }

    /// Every value that is not in the set.
    pub(crate) fn complement(&self) -> Self {
        let mut intervals = Vec::with_capacity(self.intervals.len() + 1);
        let (mut start, mut start_inclusive) = (Bson::MinKey, true);
        for interval in &self.intervals {
            intervals.push(Interval::new(
                start,
                start_inclusive,
                interval.start.clone(),
                !interval.start_inclusive,
            ));
            start = interval.end.clone();
            start_inclusive = !interval.end_inclusive;
        }
        intervals.push(Interval::new(start, start_inclusive, Bson::MaxKey, true));
        Self::new(intervals, self.collation)
    }

    pub(crate) fn contains(&self, value: &Bson) -> bool {
        let at = self.intervals.partition_point(|interval| {
            self.collation.compare_bson(&interval.end, value) == Ordering::Less
        });
        self.intervals
            .get(at)
            .is_some_and(|interval| interval.contains(value, self.collation))
    }

    pub(crate) fn is_subset_of(&self, other: &Self) -> bool {
        // An intersection takes the ends of its left side when both are equal, so only ends that are
        // equal as values need to be told apart; `==` would find NaN unequal to itself.
        let common = self.intersect(other);
        common.intervals.len() == self.intervals.len()
            && common.intervals.iter().zip(&self.intervals).all(|(a, b)| {
                a.compare_starts(b, self.collation).is_eq()
                    && a.compare_ends(b, self.collation).is_eq()
            })
    }

    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The rule by which strings in the set are compared.
    pub(crate) const fn collation(&self) -> Collation {
        self.collation
    }

    /// Whether every value lies in the set.
    pub(crate) fn is_all(&self) -> bool {
        matches!(
            &self.intervals[..],
            [Interval {
                start: Bson::MinKey,
                start_inclusive: true,
                end: Bson::MaxKey,
                end_inclusive: true
            }]
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Whether exactly one value lies in the set.
    pub(crate) fn is_point(&self) -> bool {
        matches!(&self.intervals[..], [only] if only.is_point(self.collation))
    }

    /// Whether the set is a list of single values.
    pub(crate) fn is_points(&self) -> bool {
        self.intervals
            .iter()
            .all(|interval| interval.is_point(self.collation))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval(start: i32, start_inclusive: bool, end: i32, end_inclusive: bool) -> Interval {
        Interval::new(start.into(), start_inclusive, end.into(), end_inclusive)
    }

    #[test]
    fn touching_intervals_become_one() {
        let set = IntervalSet::new(
            vec![
                interval(5, true, 7, false),
                interval(1, true, 3, true),
                interval(3, false, 5, false),
            ],
            Collation::SIMPLE,
        );
        assert_eq!(set.intervals(), [interval(1, true, 7, false)]);
        let apart = IntervalSet::new(
            vec![interval(1, true, 3, false), interval(3, false, 5, true)],
            Collation::SIMPLE,
        );
        assert_eq!(apart.intervals().len(), 2);
    }

    #[test]
    fn the_complement_of_everything_is_nothing() {
        assert!(IntervalSet::all(Collation::SIMPLE).complement().is_empty());
        assert!(IntervalSet::none(Collation::SIMPLE).complement().is_all());
    }

    fn sets() -> impl Strategy<Value = IntervalSet> {
        let one = (0..12_i32, any::<bool>(), 0..12_i32, any::<bool>());
        proptest::collection::vec(one, 0..5).prop_map(|list| {
            IntervalSet::new(
                list.into_iter()
                    .map(|(a, b, c, d)| interval(a, b, c, d))
                    .collect(),
                Collation::SIMPLE,
            )
        })
    }

    proptest! {
        #[test]
        fn the_algebra_of_sets_holds(a in sets(), b in sets()) {
            let both = a.intersect(&b);
            let either = a.clone().union(b.clone());
            let neither = either.complement();
            // Halves fall between the whole ends of the intervals.
            for half in -1..26_i32 {
                let value = Bson::Double(f64::from(half) / 2.0);
                let (in_a, in_b) = (a.contains(&value), b.contains(&value));
                prop_assert_eq!(both.contains(&value), in_a && in_b);
                prop_assert_eq!(either.contains(&value), in_a || in_b);
                prop_assert_eq!(neither.contains(&value), !(in_a || in_b));
            }
            prop_assert!(both.is_subset_of(&a));
            prop_assert_eq!(a.complement().complement(), a);
        }
    }
}
