//! Types as the `$type` operators name them.

use bson::Bson;
use bson::spec::ElementType;

use super::Number;
use crate::{Error, ErrorCode, Result};

/// Every type, its alias and its bit in a [`TypeSet`] (its place in this table).
const TYPES: [(ElementType, &str); 21] = [
    (ElementType::Double, "double"),
    (ElementType::String, "string"),
    (ElementType::EmbeddedDocument, "object"),
    (ElementType::Array, "array"),
    (ElementType::Binary, "binData"),
    (ElementType::Undefined, "undefined"),
    (ElementType::ObjectId, "objectId"),
    (ElementType::Boolean, "bool"),
    (ElementType::DateTime, "date"),
    (ElementType::Null, "null"),
    (ElementType::RegularExpression, "regex"),
    (ElementType::DbPointer, "dbPointer"),
    (ElementType::JavaScriptCode, "javascript"),
    (ElementType::Symbol, "symbol"),
    (ElementType::JavaScriptCodeWithScope, "javascriptWithScope"),
    (ElementType::Int32, "int"),
    (ElementType::Timestamp, "timestamp"),
    (ElementType::Int64, "long"),
    (ElementType::Decimal128, "decimal"),
    (ElementType::MinKey, "minKey"),
    (ElementType::MaxKey, "maxKey"),
];

/// The alias of `element_type`, as `$type` answers it.
#[must_use]
pub fn element_type_alias(element_type: ElementType) -> &'static str {
    match element_type {
        ElementType::Double => "double",
        ElementType::String => "string",
        ElementType::EmbeddedDocument => "object",
        ElementType::Array => "array",
        ElementType::Binary => "binData",
        ElementType::Undefined => "undefined",
        ElementType::ObjectId => "objectId",
        ElementType::Boolean => "bool",
        ElementType::DateTime => "date",
        ElementType::Null => "null",
        ElementType::RegularExpression => "regex",
        ElementType::DbPointer => "dbPointer",
        ElementType::JavaScriptCode => "javascript",
        ElementType::Symbol => "symbol",
        ElementType::JavaScriptCodeWithScope => "javascriptWithScope",
        ElementType::Int32 => "int",
        ElementType::Timestamp => "timestamp",
        ElementType::Int64 => "long",
        ElementType::Decimal128 => "decimal",
        ElementType::MinKey => "minKey",
        ElementType::MaxKey => "maxKey",
    }
}

/// The alias of the type of `value`, as `$type` answers it.
#[must_use]
pub fn type_alias(value: &Bson) -> &'static str {
    element_type_alias(value.element_type())
}

/// A set of types: the operand of the query operator `$type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeSet {
    bits: u32,
}

impl TypeSet {
    /// Parses the operand of `$type`: an alias, `"number"`, a type's number, or an array of them.
    ///
    /// # Errors
    /// `BadValue` for an unknown alias or number, `TypeMismatch` for an operand of another type,
    /// `FailedToParse` for an empty array.
    pub fn parse(operand: &Bson) -> Result<Self> {
        let mut set = Self::default();
        match operand {
            Bson::Array(operands) => {
                for operand in operands {
                    set.add_operand(operand)?;
                }
            }
            operand => set.add_operand(operand)?,
        }
        if set.is_empty() {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "$type must match at least one type",
            ));
        }
        Ok(set)
    }

    /// The set of one alias, `"number"` included; `None` if there is no such alias.
    #[must_use]
    pub fn from_alias(alias: &str) -> Option<Self> {
        let mut set = Self::default();
        if alias == "number" {
            set.insert(ElementType::Int32);
            set.insert(ElementType::Int64);
            set.insert(ElementType::Double);
            set.insert(ElementType::Decimal128);
        } else {
            let (element_type, _) = TYPES.iter().find(|(_, name)| *name == alias)?;
            set.insert(*element_type);
        }
        Some(set)
    }

    /// Adds a type; one that the set has already is no change.
    pub fn insert(&mut self, element_type: ElementType) {
        self.bits |= bit(element_type);
    }

    /// Adds all types that `other` has.
    pub fn extend(&mut self, other: Self) {
        self.bits |= other.bits;
    }

    /// Whether the set contains the BSON type `element_type`.
    #[must_use]
    pub fn contains(self, element_type: ElementType) -> bool {
        self.bits & bit(element_type) != 0
    }

    /// Whether the set has no type.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The types of the set, in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = ElementType> {
        TYPES
            .iter()
            .map(|(element_type, _)| *element_type)
            .filter(move |t| self.contains(*t))
    }

    fn add_operand(&mut self, operand: &Bson) -> Result<()> {
        match operand {
            Bson::String(alias) => {
                self.extend(Self::from_alias(alias).ok_or_else(|| unknown_alias(alias))?);
                Ok(())
            }
            operand => {
                let Some(number) = Number::from_bson(operand) else {
                    return Err(Error::new(
                        ErrorCode::TypeMismatch,
                        "type must be represented as a number or a string",
                    ));
                };
                self.insert(type_of_number(number)?);
                Ok(())
            }
        }
    }
}

fn unknown_alias(alias: &str) -> Error {
    let message = if alias == "missing" {
        "'missing' is not a legal type name. To query for non-existence of a field, use \
         {$exists:false}."
            .to_owned()
    } else {
        format!("Unknown type name alias: {alias}")
    };
    Error::new(ErrorCode::BadValue, message)
}

fn type_of_number(number: Number) -> Result<ElementType> {
    let known = match number.as_i64_exact() {
        Some(0) => {
            return Err(Error::new(
                ErrorCode::BadValue,
                "Invalid numerical type code: 0. Instead use {$exists:false}.",
            ));
        }
        Some(-1) => Some(ElementType::MinKey),
        // 255 is how MinKey's -1 looks on the wire; as an operand it names no type.
        Some(number) if number != 255 => u8::try_from(number).ok().and_then(ElementType::from),
        _ => None,
    };
    known.ok_or_else(|| {
        Error::new(
            ErrorCode::BadValue,
            format!("Invalid numerical type code: {number}"),
        )
    })
}

/// The bit of `element_type`: its place in [`TYPES`], which a test holds to be complete.
fn bit(element_type: ElementType) -> u32 {
    TYPES
        .iter()
        .position(|(known, _)| *known == element_type)
        .map_or(0, |place| 1 << place)
}

#[cfg(test)]
mod tests {
    use bson::bson;

    use super::*;

    #[test]
    fn every_type_has_a_bit_an_alias_and_a_number() {
        for tag in 0..=u8::MAX {
            let Some(element_type) = ElementType::from(tag) else {
                continue;
            };
            let alias = element_type_alias(element_type);
            let by_alias = TypeSet::parse(&Bson::String(alias.into())).unwrap();
            assert!(by_alias.contains(element_type), "{alias}");
            assert_eq!(by_alias.iter().count(), 1);
            let number = if tag == 255 { -1 } else { i32::from(tag) };
            assert_eq!(TypeSet::parse(&Bson::Int32(number)).unwrap(), by_alias);
            assert_eq!(
                TypeSet::parse(&Bson::Double(f64::from(number))).unwrap(),
                by_alias
            );
        }
    }

    #[test]
    fn number_and_arrays() {
        let set = TypeSet::parse(&bson!(["number", 2, "null"])).unwrap();
        for (value, expected) in [
            (bson!(1), true),
            (bson!(1_i64), true),
            (bson!(1.5), true),
            (bson!("x"), true),
            (Bson::Null, true),
            (bson!(true), false),
            (Bson::Undefined, false),
        ] {
            assert_eq!(set.contains(value.element_type()), expected, "{value:?}");
        }
    }

    #[test]
    fn refusals() {
        let cases = [
            (bson!("what"), 2, "Unknown type name alias: what"),
            (bson!(99), 2, "Invalid numerical type code: 99"),
            (bson!(255), 2, "Invalid numerical type code: 255"),
            (bson!(1.5), 2, "Invalid numerical type code: 1.5"),
            (
                bson!(0),
                2,
                "Invalid numerical type code: 0. Instead use {$exists:false}.",
            ),
            (
                bson!(true),
                14,
                "type must be represented as a number or a string",
            ),
            (bson!([]), 9, "$type must match at least one type"),
        ];
        for (operand, code, message) in cases {
            let error = TypeSet::parse(&operand).unwrap_err();
            assert_eq!((error.code().number(), error.message()), (code, message));
        }
    }
}
