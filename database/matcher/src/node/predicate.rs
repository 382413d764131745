//! Conditions on a single value, and how they are decided.

use bson::spec::ElementType;
use bson::{RawArray, RawBson, RawBsonRef, RawDocument};
use millrace_expression::regex::Regex;
use millrace_value::{Collation, Result, TypeSet};

use super::Node;
use super::evaluation::Evaluation;
use crate::comparison::{Comparison, compare};
use crate::{BitTest, MatchDetails, Modulus};

/// A condition on one value a path leads to.
///
/// Comparisons hold only between values of one canonical type (all numbers are one), except that
/// `null` equals a missing value and that `MinKey` and `MaxKey` compare with everything.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `$eq`, and a bare value in a filter.
    Equal(RawBson),
    /// `$lt`.
    Less(RawBson),
    /// `$lte`.
    LessOrEqual(RawBson),
    /// `$gt`.
    Greater(RawBson),
    /// `$gte`.
    GreaterOrEqual(RawBson),
    /// `$in`. An empty list of both matches nothing.
    In {
        /// In ascending order of the matcher's collation, each value once.
        values: Vec<RawBson>,
        /// The regular expressions among the alternatives.
        regexes: Vec<Regex>,
    },
    /// `$regex`, and a bare regular expression in a filter.
    Regex(Regex),
    /// `$exists: true`.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$mod`.
    Modulus(Modulus),
    /// `$size`.
    Size(u64),
    /// `$elemMatch` with conditions on the fields of an element.
    ElementMatchObject(Box<Node>),
    /// `$elemMatch` with operators on the element itself, all of which hold.
    ElementMatchValue(Vec<Predicate>),
    /// `$bitsAllSet` and its three kin.
    Bits(BitTest),
    /// Not all of these hold. It occurs only below [`Predicate::ElementMatchValue`]; elsewhere a
    /// negation is a [`Node::Not`], because there it must cover all values of the path.
    Not(Vec<Predicate>),
}

impl Predicate {
    /// Whether the path's last array is handed over as a whole instead of element by element.
    pub(super) const fn takes_whole_array(&self) -> bool {
        matches!(
            self,
            Self::Size(_) | Self::ElementMatchObject(_) | Self::ElementMatchValue(_)
        )
    }

    /// Whether `value` (`None`: missing) satisfies this. Leaves the index of the element that
    /// satisfied an `$elemMatch` in `details`.
    pub(super) fn matches(
        &self,
        value: Option<RawBsonRef<'_>>,
        evaluation: &Evaluation<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool> {
        let collation = evaluation.context.collation;
        Ok(match self {
            Self::Equal(operand) => compare(Comparison::Equal, value, operand, collation),
            Self::Less(operand) => compare(Comparison::Less, value, operand, collation),
            Self::LessOrEqual(operand) => {
                compare(Comparison::LessOrEqual, value, operand, collation)
            }
            Self::Greater(operand) => compare(Comparison::Greater, value, operand, collation),
            Self::GreaterOrEqual(operand) => {
                compare(Comparison::GreaterOrEqual, value, operand, collation)
            }
            Self::In { values, regexes } => {
                if contains(values, value, collation) {
                    return Ok(true);
                }
                for regex in regexes {
                    if matches_regex(regex, value, evaluation)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Regex(regex) => matches_regex(regex, value, evaluation)?,
            Self::Exists => value.is_some(),
            Self::Type(types) => value.is_some_and(|v| types.contains(v.element_type())),
            Self::Modulus(modulus) => value.is_some_and(|v| modulus.matches(v)),
            Self::Bits(test) => value.is_some_and(|v| test.matches(v)),
            Self::Size(size) => match value {
                Some(RawBsonRef::Array(array)) => has_length(array, *size)?,
                _ => false,
            },
            Self::ElementMatchObject(node) => match value {
                Some(RawBsonRef::Array(array)) => {
                    element_match_object(node, array, evaluation, details)?
                }
                _ => false,
            },
            Self::ElementMatchValue(predicates) => match value {
                Some(RawBsonRef::Array(array)) => {
                    element_match_value(predicates, array, evaluation, details)?
                }
                _ => false,
            },
            Self::Not(predicates) => !all_match(predicates, value, evaluation)?,
        })
    }
}

/// Whether `values`, sorted by `collation`, contain `value`; a missing value counts as null.
pub fn contains(values: &[RawBson], value: Option<RawBsonRef<'_>>, collation: Collation) -> bool {
    let wanted = match value {
        Some(RawBsonRef::Undefined) => return false,
        Some(value) => value,
        None => RawBsonRef::Null,
    };
    values
        .binary_search_by(|v| collation.compare(v.as_raw_bson_ref(), wanted))
        .is_ok()
}

fn matches_regex(
    regex: &Regex,
    value: Option<RawBsonRef<'_>>,
    evaluation: &Evaluation<'_>,
) -> Result<bool> {
    match value {
        Some(RawBsonRef::String(text) | RawBsonRef::Symbol(text)) => {
            // One attempt may take long (see `Regex`), so that checking once a document is too rare.
            evaluation.context.operation.check()?;
            regex.is_match(text)
        }
        Some(RawBsonRef::RegularExpression(other)) => {
            Ok(regex.pattern() == other.pattern.as_str()
                && regex.options() == other.options.as_str())
        }
        _ => Ok(false),
    }
}

fn has_length(array: &RawArray, size: u64) -> Result<bool> {
    let mut length = 0;
    for element in array.iter_elements() {
        element?;
        length += 1;
        if length > size {
            return Ok(false);
        }
    }
    Ok(length == size)
}

fn element_match_object(
    node: &Node,
    array: &RawArray,
    evaluation: &Evaluation<'_>,
    details: &mut MatchDetails,
) -> Result<bool> {
    for (index, element) in array.iter_elements().enumerate() {
        let element = element?;
        let object = match element.element_type() {
            ElementType::EmbeddedDocument | ElementType::Array => element.value()?,
            _ => continue,
        };
        let object = match object {
            RawBsonRef::Document(document) => document,
            // An array is searched like a document whose fields are called 0, 1, and so on.
            RawBsonRef::Array(inner) => RawDocument::from_bytes(inner.as_bytes())?,
            _ => continue,
        };
        if evaluation.node_matches(node, object, &mut MatchDetails::default())? {
            details.array_index = Some(index);
            return Ok(true);
        }
    }
    Ok(false)
}

fn element_match_value(
    predicates: &[Predicate],
    array: &RawArray,
    evaluation: &Evaluation<'_>,
    details: &mut MatchDetails,
) -> Result<bool> {
    for (index, element) in array.iter_elements().enumerate() {
        let value = element?.value()?;
        if all_match(predicates, Some(value), evaluation)? {
            details.array_index = Some(index);
            return Ok(true);
        }
    }
    Ok(false)
}

fn all_match(
    predicates: &[Predicate],
    value: Option<RawBsonRef<'_>>,
    evaluation: &Evaluation<'_>,
) -> Result<bool> {
    let mut unused = MatchDetails::default();
    for predicate in predicates {
        if !predicate.matches(value, evaluation, &mut unused)? {
            return Ok(false);
        }
    }
    Ok(true)
}
