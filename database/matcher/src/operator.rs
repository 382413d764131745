//! Parsing of the operators on a field.

use bson::spec::ElementType;
use bson::{Bson, RawBson, RawBsonRef, RawDocument};
use millrace_expression::regex::Regex;
use millrace_value::{Collation, Error, ErrorCode, Number, Result, TypeSet};

use super::depth::check_depth;
use super::integer::{describe, integer, natural};
use super::modulus::truncate;
use super::parser::{Level, Parser, bad_value, holds_operators, is_pathless_operator, operand};
use super::walk::elements;
use super::{BitTest, BitTestKind, Modulus, Predicate};

impl Parser<'_> {
    /// Parses `{$op: operand, ...}` on the field `name`; all of the predicates must hold.
    pub(super) fn operators(
        &self,
        name: &str,
        operators: &RawDocument,
        depth: usize,
    ) -> Result<Vec<Predicate>> {
        check_depth(depth)?;
        let mut predicates = Vec::new();
        for element in operators.iter_elements() {
            let element = element?;
            let (operator, value) = (element.key().as_str(), element.value()?);
            match operator {
                "$all" => predicates.extend(self.all(name, value, depth)?),
                "$comment" => {}
                "$options" => {
                    if operators.get("$regex")?.is_none() {
                        return Err(bad_value("$options needs a $regex"));
                    }
                }
                "$regex" => predicates.push(Predicate::Regex(regex(operators)?)),
                "$not" => predicates.push(self.not(name, value, depth)?),
                "$elemMatch" => predicates.push(self.element_match(name, value, depth)?),
                operator => predicates.push(leaf(name, operator, value, self.collation())?),
            }
        }
        Ok(predicates)
    }

    fn not(&self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Predicate> {
        match value {
            RawBsonRef::RegularExpression(regex) => {
                let regex = Regex::compile(regex.pattern.as_str(), regex.options.as_str())?;
                Ok(Predicate::Not(vec![Predicate::Regex(regex)]))
            }
            RawBsonRef::Document(operators) if operators.is_empty() => {
                Err(bad_value("$not cannot be empty"))
            }
            RawBsonRef::Document(operators) => Ok(Predicate::Not(self.operators(
                name,
                operators,
                depth + 1,
            )?)),
            _ => Err(bad_value("$not needs a regex or a document")),
        }
    }

    fn element_match(&self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Predicate> {
        let RawBsonRef::Document(conditions) = value else {
            return Err(bad_value("$elemMatch needs an Object"));
        };
        let first = conditions.iter_elements().next().transpose()?;
        let is_value_match = holds_operators(conditions, true)?
            && first.is_some_and(|first| !is_pathless_operator(first.key().as_str()));
        if is_value_match {
            let predicates = self.operators(name, conditions, depth + 1)?;
            return Ok(Predicate::ElementMatchValue(predicates));
        }
        let node = self.document(conditions, Level::Element, depth + 1)?;
        Ok(Predicate::ElementMatchObject(Box::new(node)))
    }

    fn all(&self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Vec<Predicate>> {
        let RawBsonRef::Array(values) = value else {
            return Err(bad_value("$all needs an array"));
        };
        let mut predicates = Vec::new();
        let mut of_element_matches = None;
        for value in elements(values) {
            let value = value?;
            let first = match value {
                RawBsonRef::Document(document) => document.iter_elements().next().transpose()?,
                _ => None,
            };
            let operator = first.as_ref().map_or("", |first| first.key().as_str());
            let is_element_match = operator == "$elemMatch";
            if *of_element_matches.get_or_insert(is_element_match) {
                let Some(first) = first.filter(|_| is_element_match) else {
                    return Err(bad_value("$all/$elemMatch has to be consistent"));
                };
                predicates.push(self.element_match(name, first.value()?, depth + 2)?);
                continue;
            }
            if is_field_operator(operator) {
                return Err(bad_value("no $ expressions in $all"));
            }
            predicates.push(match value {
                RawBsonRef::RegularExpression(regex) => Predicate::Regex(Regex::compile(
                    regex.pattern.as_str(),
                    regex.options.as_str(),
                )?),
                value => Predicate::Equal(operand(value)?),
            });
        }
        if predicates.is_empty() {
            // Unlike every other conjunction, that of nothing matches nothing here.
            predicates.push(Predicate::In {
                values: Vec::new(),
                regexes: Vec::new(),
            });
        }
        Ok(predicates)
    }
}

/// Parses an operator that has no conditions below it.
fn leaf(
    name: &str,
    operator: &str,
    value: RawBsonRef<'_>,
    collation: Collation,
) -> Result<Predicate> {
    match operator {
        "$eq" => Ok(Predicate::Equal(operand(value)?)),
        "$ne" => {
            if value.element_type() == ElementType::RegularExpression {
                return Err(bad_value("Can't have regex as arg to $ne."));
            }
            Ok(Predicate::Not(vec![Predicate::Equal(operand(value)?)]))
        }
        "$lt" => Ok(Predicate::Less(bound(name, value)?)),
        "$lte" => Ok(Predicate::LessOrEqual(bound(name, value)?)),
        "$gt" => Ok(Predicate::Greater(bound(name, value)?)),
        "$gte" => Ok(Predicate::GreaterOrEqual(bound(name, value)?)),
        "$in" => any_of(operator, value, collation),
        "$nin" => Ok(Predicate::Not(vec![any_of(operator, value, collation)?])),
        "$exists" if is_true(value) => Ok(Predicate::Exists),
        "$exists" => Ok(Predicate::Not(vec![Predicate::Exists])),
        "$type" => Ok(Predicate::Type(TypeSet::parse(&Bson::try_from(value)?)?)),
        "$size" => size(value),
        "$mod" => modulus(value).map(Predicate::Modulus),
        "$bitsAllSet" => bits(BitTestKind::AllSet, operator, value),
        "$bitsAllClear" => bits(BitTestKind::AllClear, operator, value),
        "$bitsAnySet" => bits(BitTestKind::AnySet, operator, value),
        "$bitsAnyClear" => bits(BitTestKind::AnyClear, operator, value),
        "$where" => Err(bad_value("$where cannot be applied to a field")),
        operator if is_geospatial(operator) => Err(bad_value(format!(
            "{operator} is not supported: there are no geospatial operators"
        ))),
        operator => Err(bad_value(format!("unknown operator: {operator}"))),
    }
}

fn is_geospatial(operator: &str) -> bool {
    matches!(
        operator,
        "$geoIntersects" | "$geoNear" | "$geoWithin" | "$near" | "$nearSphere" | "$within"
    )
}

/// Whether `name` is an operator on a field, which as a value in `$all` is a mistake.
fn is_field_operator(name: &str) -> bool {
    matches!(
        name,
        "$all"
            | "$bitsAllClear"
            | "$bitsAllSet"
            | "$bitsAnyClear"
            | "$bitsAnySet"
            | "$elemMatch"
            | "$eq"
            | "$exists"
            | "$gt"
            | "$gte"
            | "$in"
            | "$lt"
            | "$lte"
            | "$mod"
            | "$ne"
            | "$nin"
            | "$not"
            | "$options"
            | "$regex"
            | "$size"
            | "$type"
    ) || is_geospatial(name)
}

/// The operand of an order comparison.
fn bound(name: &str, value: RawBsonRef<'_>) -> Result<RawBson> {
    if value.element_type() == ElementType::RegularExpression {
        let message = format!("Can't have RegEx as arg to predicate over field '{name}'.");
        return Err(bad_value(message));
    }
    operand(value)
}

/// What `$exists` takes for true: anything but false, zero, null and undefined.
fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => value,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        value => Number::from_raw(value).is_none_or(|number| number.as_f64() != 0.0),
    }
}

/// Parses the operand of `$in` and `$nin`.
fn any_of(operator: &str, value: RawBsonRef<'_>, collation: Collation) -> Result<Predicate> {
    let RawBsonRef::Array(array) = value else {
        return Err(bad_value(format!("{operator} needs an array")));
    };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for value in elements(array) {
        match value? {
            RawBsonRef::Document(document) if holds_operators(document, false)? => {
                return Err(bad_value("cannot nest $ under $in"));
            }
            RawBsonRef::RegularExpression(regex) => {
                regexes.push(Regex::compile(
                    regex.pattern.as_str(),
                    regex.options.as_str(),
                )?);
            }
            RawBsonRef::Undefined => {
                return Err(bad_value("InMatchExpression equality cannot be undefined"));
            }
            value => values.push(RawBson::from(value)),
        }
    }
    let order =
        |a: &RawBson, b: &RawBson| collation.compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
    values.sort_by(order);
    values.dedup_by(|a, b| order(a, b).is_eq());
    Ok(match (values.len(), regexes.len()) {
        (1, 0) => Predicate::Equal(values.remove(0)),
        (0, 1) => Predicate::Regex(regexes.remove(0)),
        _ => Predicate::In { values, regexes },
    })
}

/// Parses `{$regex: ..., $options: ...}`.
fn regex(operators: &RawDocument) -> Result<Regex> {
    let (mut pattern, mut options) = ("", "");
    for element in operators.iter_elements() {
        let element = element?;
        match (element.key().as_str(), element.value()?) {
            ("$regex", RawBsonRef::String(text)) => pattern = text,
            ("$regex", RawBsonRef::RegularExpression(regex)) => {
                pattern = regex.pattern.as_str();
                if !regex.options.is_empty() {
                    if !options.is_empty() {
                        return Err(both_options(51074));
                    }
                    options = regex.options.as_str();
                }
            }
            ("$regex", _) => return Err(bad_value("$regex has to be a string")),
            ("$options", RawBsonRef::String(text)) => {
                if !options.is_empty() {
                    return Err(both_options(51075));
                }
                options = text;
            }
            ("$options", _) => return Err(bad_value("$options has to be a string")),
            _ => {}
        }
    }
    Regex::compile(pattern, options)
}

fn both_options(code: i32) -> Error {
    Error::location(code, "options set in both $regex and $options")
}

fn size(value: RawBsonRef<'_>) -> Result<Predicate> {
    match natural("$size", value) {
        Ok(size) => Ok(Predicate::Size(size)),
        Err(reason) => Err(bad_value(format!("Failed to parse $size. {reason}"))),
    }
}

fn modulus(value: RawBsonRef<'_>) -> Result<Modulus> {
    let RawBsonRef::Array(array) = value else {
        return Err(bad_value("malformed mod, needs to be an array"));
    };
    let operands = elements(array).collect::<Result<Vec<_>, _>>()?;
    let (divisor, remainder) = match operands[..] {
        [] | [_] => return Err(bad_value("malformed mod, not enough elements")),
        [divisor, remainder] => (divisor, remainder),
        _ => return Err(bad_value("malformed mod, too many elements")),
    };
    let part = |what: &str, value| {
        let number = Number::from_raw(value)
            .ok_or_else(|| bad_value(format!("malformed mod, {what} not a number")))?;
        truncate(number).ok_or_else(|| {
            let received = describe("", value);
            bad_value(format!(
                "malformed mod, {what} value is invalid :: caused by :: Unable to coerce NaN/Inf \
                 or a number out of range to an integral type{received}"
            ))
        })
    };
    Modulus::new(part("divisor", divisor)?, part("remainder", remainder)?)
}

fn bits(kind: BitTestKind, operator: &str, value: RawBsonRef<'_>) -> Result<Predicate> {
    let test = match value {
        RawBsonRef::Array(array) => {
            let positions = elements(array)
                .enumerate()
                .map(|(index, value)| bit_position(&index.to_string(), value?));
            BitTest::new(kind, positions.collect::<Result<_>>()?)
        }
        RawBsonRef::Binary(binary) => BitTest::from_bytes(kind, binary.bytes),
        value if Number::from_raw(value).is_some() => {
            let mask = natural(operator, value)
                .map_err(|reason| Error::new(ErrorCode::FailedToParse, reason))?;
            BitTest::from_bytes(kind, &mask.to_le_bytes())
        }
        value => {
            return Err(bad_value(format!(
                "{operator} takes an Array, a number, or a BinData but received: {}",
                describe(operator, value)
            )));
        }
    };
    Ok(Predicate::Bits(test))
}

fn bit_position(name: &str, value: RawBsonRef<'_>) -> Result<u32> {
    let received = || describe(name, value);
    let position = match Number::from_raw(value) {
        Some(number) if number.as_f64().is_nan() => {
            return Err(bad_value(format!(
                "bit positions cannot take a NaN: {}",
                received()
            )));
        }
        Some(number) if number.as_f64().abs() > f64::from(i32::MAX) => {
            return Err(bad_value(format!(
                "bit positions cannot be represented as a 32-bit signed integer: {}",
                received()
            )));
        }
        _ => integer(name, value).map_err(|_| {
            bad_value(format!(
                "bit positions must be an integer but got: {}",
                received()
            ))
        })?,
    };
    u32::try_from(position).map_err(|_| {
        bad_value(format!(
            "bit positions must be >= 0 but got: {}",
            received()
        ))
    })
}
