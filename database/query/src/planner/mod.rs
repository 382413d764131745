//! From a query to a plan.
//!
//! # How a plan is made
//! ```text
//!   matcher tree --term--> conditions on single paths --bounds--> intervals of values
//!        |                                                            |
//!        |            each index: assignment, implication, ordering, covering
//!        v                                                            v
//!   disjunctions: one scan an alternative                     candidates
//!                                                                     | executor's trial
//!                                                                     v
//!                                                           the winning plan
//! ```
//! Bounds hold a key of every document that can match. Where they hold no others, the condition is not
//! checked again (it is "exact"); the conditions that are left are the plan's residual filter.
//!
//! # Choice
//! A query without a usable index scans the collection. Among several candidates the ones that are worse
//! whatever the data are set aside; the others run in turn for a moment
//! ([`choose_plan`](crate::executor::choose_plan)), and the one that produced most for its work wins. The
//! choice is made anew for each query: nothing is cached.
//!
//! # Clustered collections
//! The documents themselves are the leaves of the index on `_id`. A scan of that index reads documents
//! without a second look-up; `explain` shows it as a scan of `_id_`.

mod assignment;
mod bounds;
mod candidates;
mod covering;
mod implication;
mod interval;
mod key_bounds;
mod min_max;
mod ordering;
mod plan;
mod query;
mod term;

use bson::{RawBsonRef, RawDocument};
use millrace_value::Elements;

pub(crate) use candidates::enumerate;
pub use candidates::{key_pattern, same_keys};
pub(crate) use interval::{Interval, IntervalSet};
pub(crate) use key_bounds::Verdict;
pub(crate) use plan::{Access, CollectionScan, IndexScan, Union};
pub use plan::{Plan, PlannedQuery};
pub use query::{Hint, Query};

/// The value of a filter that is exactly `{_id: value}` or `{_id: {$eq: value}}`, if it is found under
/// its own key: no regular expression, no array, no operator, not null.
#[must_use]
pub fn id_equality(filter: &RawDocument) -> Option<RawBsonRef<'_>> {
    let value = only_value(filter, "_id")?;
    let value = match value {
        RawBsonRef::Document(inner) => match Elements::new(inner).next() {
            Some(Ok(first)) if first.name.starts_with(b"$") => only_value(inner, "$eq")?,
            Some(Err(_)) => return None,
            _ => value,
        },
        _ => value,
    };
    match value {
        RawBsonRef::RegularExpression(_)
        | RawBsonRef::Array(_)
        | RawBsonRef::Null
        | RawBsonRef::Undefined => None,
        value => Some(value),
    }
}

/// The value of the field `name` of a document that has no other.
fn only_value<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    let mut elements = document.iter_elements();
    let element = elements.next()?.ok()?;
    if element.key().as_str() != name || elements.next().is_some() {
        return None;
    }
    element.value().ok()
}

#[cfg(test)]
mod tests {
    use bson::{Bson, rawdoc};

    use super::*;

    #[test]
    fn only_plain_equality_of_the_id_is_a_look_up() {
        let id = |filter: &RawDocument| id_equality(filter).and_then(|id| Bson::try_from(id).ok());
        assert_eq!(id(&rawdoc! {"_id": 5}), Some(Bson::Int32(5)));
        assert_eq!(
            id(&rawdoc! {"_id": {"$eq": "x"}}),
            Some(Bson::String("x".to_owned()))
        );
        assert!(id(&rawdoc! {"_id": {"a": 1}}).is_some());
        for other in [
            rawdoc! {},
            rawdoc! {"a": 5},
            rawdoc! {"_id": 5, "a": 1},
            rawdoc! {"_id": {"$gt": 5}},
            rawdoc! {"_id": {"$eq": 5, "$gt": 1}},
            rawdoc! {"_id": [1]},
            rawdoc! {"_id": bson::RawBson::Null},
        ] {
            assert_eq!(id(&other), None, "{other:?}");
        }
    }
}
