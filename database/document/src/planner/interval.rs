//! Sets of values as ordered, disjoint intervals.

use std::cmp::Ordering;

use bson::Bson;

use crate::value::compare_bson;

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
    pub(crate) fn is_point(&self) -> bool {
        self.start_inclusive
            && self.end_inclusive
            && compare_bson(&self.start, &self.end) == Ordering::Equal
    }

    fn is_empty(&self) -> bool {
        match compare_bson(&self.start, &self.end) {
            Ordering::Less => false,
            Ordering::Equal => !(self.start_inclusive && self.end_inclusive),
            Ordering::Greater => true,
        }
    }

    fn compare_starts(&self, other: &Self) -> Ordering {
        // At the same value the interval that includes it starts first.
        compare_bson(&self.start, &other.start)
            .then_with(|| other.start_inclusive.cmp(&self.start_inclusive))
    }

    fn compare_ends(&self, other: &Self) -> Ordering {
        compare_bson(&self.end, &other.end)
            .then_with(|| self.end_inclusive.cmp(&other.end_inclusive))
    }

    /// Whether no value lies between the end of `self` and the start of `next`, which is not before
    /// the start of `self`.
    fn touches(&self, next: &Self) -> bool {
        match compare_bson(&self.end, &next.start) {
            Ordering::Greater => true,
            Ordering::Equal => self.end_inclusive || next.start_inclusive,
            Ordering::Less => false,
        }
    }

    fn intersect(&self, other: &Self) -> Self {
        let start = if self.compare_starts(other).is_ge() {
            self
        } else {
            other
        };
        let end = if self.compare_ends(other).is_le() {
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

    fn contains(&self, value: &Bson) -> bool {
        let above = match compare_bson(&self.start, value) {
            Ordering::Less => true,
            Ordering::Equal => self.start_inclusive,
            Ordering::Greater => false,
        };
        above
            && match compare_bson(value, &self.end) {
                Ordering::Less => true,
                Ordering::Equal => self.end_inclusive,
                Ordering::Greater => false,
            }
    }
}

/// A set of values. Invariant: the intervals are not empty, ascending, and do not touch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IntervalSet(Vec<Interval>);

impl IntervalSet {
    /// Every value.
    pub(crate) fn all() -> Self {
        Self(vec![Interval::all()])
    }

    /// No value.
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// The union of `intervals`, which may overlap, be empty, and come in any order.
    pub(crate) fn new(mut intervals: Vec<Interval>) -> Self {
        intervals.retain(|interval| !interval.is_empty());
        intervals.sort_by(Interval::compare_starts);
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if last.touches(&interval) => {
                    if last.compare_ends(&interval).is_lt() {
                        last.end = interval.end;
                        last.end_inclusive = interval.end_inclusive;
                    }
                }
                _ => merged.push(interval),
            }
        }
        Self(merged)
    }

    /// One value alone.
    pub(crate) fn point(value: Bson) -> Self {
        Self(vec![Interval::point(value)])
    }

    pub(crate) fn union(self, other: Self) -> Self {
        let mut intervals = self.0;
        intervals.extend(other.0);
        Self::new(intervals)
    }

    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let (mut left, mut right) = (0, 0);
        let mut intervals = Vec::new();
        while let (Some(a), Some(b)) = (self.0.get(left), other.0.get(right)) {
            intervals.push(a.intersect(b));
            if a.compare_ends(b).is_lt() {
                left += 1;
            } else {
                right += 1;
            }
        }
        Self::new(intervals)
    }

    /// Every value that is not in the set.
    pub(crate) fn complement(&self) -> Self {
        let mut intervals = Vec::with_capacity(self.0.len() + 1);
        let (mut start, mut start_inclusive) = (Bson::MinKey, true);
        for interval in &self.0 {
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
        Self::new(intervals)
    }

    pub(crate) fn contains(&self, value: &Bson) -> bool {
        let at = self
            .0
            .partition_point(|interval| compare_bson(&interval.end, value) == Ordering::Less);
        self.0
            .get(at)
            .is_some_and(|interval| interval.contains(value))
    }

    pub(crate) fn is_subset_of(&self, other: &Self) -> bool {
        // An intersection takes the ends of its left side when both are equal, so only ends that are
        // equal as values need to be told apart; `==` would find NaN unequal to itself.
        let common = self.intersect(other);
        common.0.len() == self.0.len()
            && common
                .0
                .iter()
                .zip(&self.0)
                .all(|(a, b)| a.compare_starts(b).is_eq() && a.compare_ends(b).is_eq())
    }

    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.0
    }

    /// Whether every value lies in the set.
    pub(crate) fn is_all(&self) -> bool {
        matches!(
            &self.0[..],
            [Interval {
                start: Bson::MinKey,
                start_inclusive: true,
                end: Bson::MaxKey,
                end_inclusive: true
            }]
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether exactly one value lies in the set.
    pub(crate) fn is_point(&self) -> bool {
        matches!(&self.0[..], [only] if only.is_point())
    }

    /// Whether the set is a list of single values.
    pub(crate) fn is_points(&self) -> bool {
        self.0.iter().all(Interval::is_point)
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
        let set = IntervalSet::new(vec![
            interval(5, true, 7, false),
            interval(1, true, 3, true),
            interval(3, false, 5, false),
        ]);
        assert_eq!(set.intervals(), [interval(1, true, 7, false)]);
        let apart = IntervalSet::new(vec![
            interval(1, true, 3, false),
            interval(3, false, 5, true),
        ]);
        assert_eq!(apart.intervals().len(), 2);
    }

    #[test]
    fn the_complement_of_everything_is_nothing() {
        assert!(IntervalSet::all().complement().is_empty());
        assert!(IntervalSet::none().complement().is_all());
    }

    fn sets() -> impl Strategy<Value = IntervalSet> {
        let one = (0..12_i32, any::<bool>(), 0..12_i32, any::<bool>());
        proptest::collection::vec(one, 0..5).prop_map(|list| {
            IntervalSet::new(
                list.into_iter()
                    .map(|(a, b, c, d)| interval(a, b, c, d))
                    .collect(),
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
