//! Which values of a field can satisfy a predicate.
//!
//! The intervals are those of index keys: an array in a document has one key for each element, an
//! empty array the key `undefined`, a missing field the key `null`. They hold at least one key of every
//! document that satisfies the predicate; when they are [`Tightness::Exact`], no document without one.

use bson::oid::ObjectId;
use bson::spec::{BinarySubtype, ElementType};
use bson::{Binary, Bson, DateTime, Document, RawBson, Timestamp};
use millrace_expression::regex::Regex;
use millrace_matcher::Predicate;
use millrace_value::{Collation, Result, TypeSet};

use super::interval::{Interval, IntervalSet};

/// Whether the documents with a key in the intervals all satisfy the predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tightness {
    /// They do: the predicate need not be checked again.
    Exact,
    /// Some may not.
    Inexact,
}

impl Tightness {
    fn and(self, other: Self) -> Self {
        if self == Self::Exact {
            other
        } else {
            Self::Inexact
        }
    }
}

/// Intervals and how well they describe the predicate.
pub(crate) type Bounds = (IntervalSet, Tightness);

/// The bounds of `predicate`, parsed for `collation`; none if an index does not narrow the search.
pub(crate) fn of_predicate(predicate: &Predicate, collation: Collation) -> Result<Option<Bounds>> {
    Ok(Some(match predicate {
        Predicate::Equal(operand) => equal(&owned(operand)?, collation),
        Predicate::Less(operand) => below(owned(operand)?, false, collation),
        Predicate::LessOrEqual(operand) => below(owned(operand)?, true, collation),
        Predicate::Greater(operand) => above(owned(operand)?, false, collation),
        Predicate::GreaterOrEqual(operand) => above(owned(operand)?, true, collation),
        Predicate::In { values, regexes } => {
            let (mut intervals, mut tightness) = (Vec::new(), Tightness::Exact);
            for value in values {
                let (set, tight) = equal(&owned(value)?, collation);
                intervals.extend_from_slice(set.intervals());
                tightness = tightness.and(tight);
            }
            for regex in regexes {
                let (set, tight) = of_regex(regex, collation);
                intervals.extend_from_slice(set.intervals());
                tightness = tightness.and(tight);
            }
            (IntervalSet::new(intervals, collation), tightness)
        }
        Predicate::Regex(regex) => of_regex(regex, collation),
        Predicate::Type(types) => {
            return Ok(of_types(*types, collation).map(|set| (set, Tightness::Inexact)));
        }
        Predicate::Modulus(_) | Predicate::Bits(_) => {
            let mut set = bracket(ElementType::Double, collation);
            if matches!(predicate, Predicate::Bits(_)) {
                set = set.union(bracket(ElementType::Binary, collation));
            }
            (set, Tightness::Inexact)
        }
        Predicate::ElementMatchValue(predicates) => {
            // All of them hold for one element, which has one key.
            let mut set = IntervalSet::all(collation);
            for predicate in predicates {
                // The elements of an element have no keys of their own.
                if matches!(predicate, Predicate::ElementMatchValue(_)) {
                    continue;
                }
                if let Some((other, _)) = of_predicate(predicate, collation)? {
                    set = set.intersect(&other);
                }
            }
            (set, Tightness::Inexact)
        }
        Predicate::Exists
        | Predicate::Size(_)
        | Predicate::ElementMatchObject(_)
        | Predicate::Not(_) => return Ok(None),
    }))
}

fn owned(operand: &RawBson) -> Result<Bson> {
    Ok(Bson::try_from(operand.as_raw_bson_ref())?)
}

fn equal(operand: &Bson, collation: Collation) -> Bounds {
    match operand {
        // A key of null stands for null and for a missing field alike, and for elements of arrays that
        // lack the rest of the path; undefined equals nothing.
        Bson::Null => (
            IntervalSet::point(Bson::Null, collation),
            Tightness::Inexact,
        ),
        Bson::Undefined => (IntervalSet::none(collation), Tightness::Exact),
        Bson::Array(elements) => {
            // The whole array is a key where it is itself an element, and where it is the value, its
            // first element has a key.
            let first = elements.first().cloned().unwrap_or(Bson::Undefined);
            let set = IntervalSet::new(
                vec![Interval::point(first), Interval::point(operand.clone())],
                collation,
            );
            (set, Tightness::Inexact)
        }
        _ => (
            IntervalSet::point(operand.clone(), collation),
            Tightness::Exact,
        ),
    }
}

/// What a comparison with `operand` that holds only for the same type class can find at all; `Err`
/// with the answer where the usual scheme does not apply.
fn comparison_bracket(
    operand: &Bson,
    inclusive: bool,
    collation: Collation,
) -> std::result::Result<IntervalSet, Bounds> {
    match operand {
        // These compare with everything, missing fields included.
        Bson::MinKey | Bson::MaxKey => Err((IntervalSet::all(collation), Tightness::Inexact)),
        // Arrays compare as a whole, but their elements are the keys.
        Bson::Array(_) => Err((IntervalSet::all(collation), Tightness::Inexact)),
        Bson::Null if inclusive => Err(equal(operand, collation)),
        Bson::Null | Bson::Undefined => Err((IntervalSet::none(collation), Tightness::Exact)),
        _ if is_nan(operand) => {
            let set = if inclusive {
                IntervalSet::point(operand.clone(), collation)
            } else {
                IntervalSet::none(collation)
            };
            Err((set, Tightness::Exact))
        }
        _ => Ok(bracket(operand.element_type(), collation)),
    }
}

fn below(operand: Bson, inclusive: bool, collation: Collation) -> Bounds {
    match comparison_bracket(&operand, inclusive, collation) {
        Err(bounds) => bounds,
        Ok(bracket) => {
            let half = Interval::new(Bson::MinKey, true, operand, inclusive);
            (
                bracket.intersect(&IntervalSet::new(vec![half], collation)),
                Tightness::Exact,
            )
        }
    }
}

fn above(operand: Bson, inclusive: bool, collation: Collation) -> Bounds {
    match comparison_bracket(&operand, inclusive, collation) {
        Err(bounds) => bounds,
        Ok(bracket) => {
            let half = Interval::new(operand, inclusive, Bson::MaxKey, true);
            (
                bracket.intersect(&IntervalSet::new(vec![half], collation)),
                Tightness::Exact,
            )
        }
    }
}

fn is_nan(value: &Bson) -> bool {
    match value {
        Bson::Double(value) => value.is_nan(),
        // The combination field of a decimal NaN starts with five ones behind the sign.
        Bson::Decimal128(value) => value.bytes()[15] & 0x7c == 0x7c,
        _ => false,
    }
}

/// The values that a comparison with an operand of this type can hold for. NaN is left out of the
/// numbers: it is neither below nor above any.
fn bracket(element_type: ElementType, collation: Collation) -> IntervalSet {
    let interval = match element_type {
        ElementType::Double | ElementType::Int32 | ElementType::Int64 | ElementType::Decimal128 => {
            Interval::closed(f64::NEG_INFINITY.into(), f64::INFINITY.into())
        }
        ElementType::String | ElementType::Symbol => {
            Interval::new("".into(), true, Document::new().into(), false)
        }
        ElementType::EmbeddedDocument => {
            Interval::new(Document::new().into(), true, Bson::Array(Vec::new()), false)
        }
        ElementType::Array => Interval::new(Bson::Array(Vec::new()), true, no_bytes(), false),
        ElementType::Binary => Interval::new(
            no_bytes(),
            true,
            ObjectId::from_bytes([0; 12]).into(),
            false,
        ),
        ElementType::ObjectId => Interval::closed(
            ObjectId::from_bytes([0; 12]).into(),
            ObjectId::from_bytes([0xFF; 12]).into(),
        ),
        ElementType::Boolean => Interval::closed(false.into(), true.into()),
        ElementType::DateTime => Interval::closed(DateTime::MIN.into(), DateTime::MAX.into()),
        ElementType::Timestamp => Interval::closed(
            Timestamp {
                time: 0,
                increment: 0,
            }
            .into(),
            Timestamp {
                time: u32::MAX,
                increment: u32::MAX,
            }
            .into(),
        ),
        ElementType::Null => Interval::point(Bson::Null),
        ElementType::Undefined => Interval::point(Bson::Undefined),
        ElementType::MinKey => Interval::point(Bson::MinKey),
        ElementType::MaxKey => Interval::point(Bson::MaxKey),
        // No least value of the types around them is at hand: everything between the two rare ones'
        // neighbours.
        ElementType::RegularExpression
        | ElementType::DbPointer
        | ElementType::JavaScriptCode
        | ElementType::JavaScriptCodeWithScope => Interval::new(
            Timestamp {
                time: u32::MAX,
                increment: u32::MAX,
            }
            .into(),
            false,
            Bson::MaxKey,
            false,
        ),
    };
    IntervalSet::new(vec![interval], collation)
}

fn no_bytes() -> Bson {
    Bson::Binary(Binary {
        subtype: BinarySubtype::Generic,
        bytes: Vec::new(),
    })
}

fn of_types(types: TypeSet, collation: Collation) -> Option<IntervalSet> {
    const ALL: [ElementType; 21] = [
        ElementType::Double,
        ElementType::String,
        ElementType::EmbeddedDocument,
        ElementType::Array,
        ElementType::Binary,
        ElementType::Undefined,
        ElementType::ObjectId,
        ElementType::Boolean,
        ElementType::DateTime,
        ElementType::Null,
        ElementType::RegularExpression,
        ElementType::DbPointer,
        ElementType::JavaScriptCode,
        ElementType::Symbol,
        ElementType::JavaScriptCodeWithScope,
        ElementType::Int32,
        ElementType::Timestamp,
        ElementType::Int64,
        ElementType::Decimal128,
        ElementType::MinKey,
        ElementType::MaxKey,
    ];
    // An array's keys are those of its elements, which may be of any type.
    if types.contains(ElementType::Array) {
        return None;
    }
    let mut set = IntervalSet::none(collation);
    for element_type in ALL
        .into_iter()
        .filter(|&element_type| types.contains(element_type))
    {
        set = set.union(bracket(element_type, collation));
        if millrace_value::canonical_rank(element_type)
            == millrace_value::canonical_rank(ElementType::Double)
        {
            set = set.union(IntervalSet::point(f64::NAN.into(), collation));
        }
    }
    Some(set)
}

fn of_regex(regex: &Regex, collation: Collation) -> Bounds {
    // A regular expression looks at the bytes of a text, so that only their order keeps a prefix together.
    let prefix = regex
        .literal_prefix()
        .filter(|_| collation == Collation::SIMPLE);
    let strings = match prefix {
        Some(prefix) => match successor(prefix) {
            Some(end) => Interval::new(prefix.into(), true, end.into(), false),
            None => Interval::new(prefix.into(), true, Document::new().into(), false),
        },
        None => Interval::new("".into(), true, Document::new().into(), false),
    };
    let mut set = IntervalSet::new(vec![strings], collation);
    // A regular expression also finds itself, stored as a value.
    set = match (
        regex.pattern().to_owned().try_into(),
        regex.options().to_owned().try_into(),
    ) {
        (Ok(pattern), Ok(options)) => {
            let itself = Bson::RegularExpression(bson::Regex { pattern, options });
            set.union(IntervalSet::point(itself, collation))
        }
        // It has no stored form.
        _ => set,
    };
    let simple = regex.options().is_empty()
        && prefix.is_some_and(|prefix| regex.pattern().strip_prefix('^') == Some(prefix));
    (
        set,
        if simple {
            Tightness::Exact
        } else {
            Tightness::Inexact
        },
    )
}

/// The least string that is greater than every string beginning with `prefix`, if there is one.
fn successor(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Strings compare as bytes, which is the order of code points; surrogates are not characters.
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            other => char::from_u32(u32::from(other) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use millrace_expression::Scope;
    use millrace_matcher::{Matcher, Node};

    use super::*;

    fn bounds(filter: &Document) -> Option<Bounds> {
        let filter = bson::RawDocumentBuf::try_from(filter).expect("a valid filter");
        let matcher =
            Matcher::parse(&filter, &Scope::new(Collation::SIMPLE)).expect("a valid filter");
        match matcher.root() {
            Node::Path { predicate, .. } => {
                of_predicate(predicate, Collation::SIMPLE).expect("valid bounds")
            }
            other => panic!("not a single predicate: {other:?}"),
        }
    }

    fn shown(filter: &Document) -> Vec<String> {
        let (set, _) = bounds(filter).expect("bounds");
        set.intervals()
            .iter()
            .map(|interval| crate::executor::display_interval(interval, false))
            .collect()
    }

    #[test]
    fn comparisons_stay_in_their_type() {
        assert_eq!(shown(&doc! {"a": 5}), ["[5, 5]"]);
        assert_eq!(shown(&doc! {"a": {"$gt": 5}}), ["(5, inf.0]"]);
        assert_eq!(shown(&doc! {"a": {"$lte": 5.5}}), ["[-inf.0, 5.5]"]);
        assert_eq!(shown(&doc! {"a": {"$lt": "m"}}), ["[\"\", \"m\")"]);
        assert_eq!(shown(&doc! {"a": {"$gte": "m"}}), ["[\"m\", {})"]);
        assert_eq!(shown(&doc! {"a": {"$gt": false}}), ["(false, true]"]);
        assert_eq!(shown(&doc! {"a": {"$gt": Bson::Null}}), [] as [&str; 0]);
        assert_eq!(shown(&doc! {"a": {"$gt": f64::NAN}}), [] as [&str; 0]);
        assert_eq!(shown(&doc! {"a": {"$gte": f64::NAN}}), ["[nan.0, nan.0]"]);
        assert_eq!(
            shown(&doc! {"a": {"$in": [3, 1, "x"]}}),
            ["[1, 1]", "[3, 3]", "[\"x\", \"x\"]"]
        );
    }

    #[test]
    fn anchored_expressions_search_below_their_prefix() {
        let regex = |pattern: &str| doc! {"a": {"$regex": pattern}};
        assert_eq!(shown(&regex("^ab")), ["[\"ab\", \"ac\")", "[/^ab/, /^ab/]"]);
        assert_eq!(bounds(&regex("^ab")).map(|b| b.1), Some(Tightness::Exact));
        assert_eq!(shown(&regex("^ab.*c"))[0], "[\"ab\", \"ac\")");
        assert_eq!(
            bounds(&regex("^ab.*c")).map(|b| b.1),
            Some(Tightness::Inexact)
        );
        assert_eq!(shown(&regex("ab"))[0], "[\"\", {})");
    }

    #[test]
    fn null_needs_a_look_at_the_document() {
        assert_eq!(
            bounds(&doc! {"a": Bson::Null}).map(|b| b.1),
            Some(Tightness::Inexact)
        );
        assert_eq!(bounds(&doc! {"a": {"$size": 2}}), None);
    }

    #[test]
    fn the_successor_of_a_prefix_skips_surrogates() {
        assert_eq!(successor("ab").as_deref(), Some("ac"));
        assert_eq!(successor("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
        assert_eq!(successor("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(successor("\u{10FFFF}"), None);
    }
}
