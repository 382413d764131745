//! The `$sort` clause of `$push`.

use std::cmp::Ordering;

use bson::Bson;
use millrace_value::{Collation, Number, Path, Result, array_index};

use super::bad_value;

/// An order of array elements.
#[derive(Debug)]
pub(super) enum ElementOrder {
    /// By the elements themselves.
    Whole(Direction),
    /// By fields of the elements, the first being the most significant.
    Fields(Vec<(Path, Direction)>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

impl Direction {
    fn parse(value: &Bson) -> Result<Self> {
        match Number::from_bson(value).and_then(Number::as_i64_exact) {
            Some(1) => Ok(Self::Ascending),
            Some(-1) => Ok(Self::Descending),
            _ => Err(bad_value("The $sort element value must be either 1 or -1")),
        }
    }

    fn apply(self, order: Ordering) -> Ordering {
        match self {
            Self::Ascending => order,
            Self::Descending => order.reverse(),
        }
    }
}

impl ElementOrder {
    /// Parses 1, -1 or a document of paths with 1 or -1.
    pub(super) fn parse(clause: &Bson) -> Result<Self> {
        let pattern = match clause {
            Bson::Document(pattern) => pattern,
            number if Number::from_bson(number).is_some() => {
                return Direction::parse(number).map(Self::Whole);
            }
            _ => {
                return Err(bad_value(
                    "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to \
                     sort embedded fields",
                ));
            }
        };
        if pattern.is_empty() {
            return Err(bad_value(
                "The $sort pattern is empty when it should be a set of fields.",
            ));
        }
        let mut fields = Vec::with_capacity(pattern.len());
        for (name, direction) in pattern {
            let direction = Direction::parse(direction)?;
            if name.is_empty() {
                return Err(bad_value("The $sort field cannot be empty"));
            }
            let path = Path::parse(name);
            if path
                .components()
                .iter()
                .any(|component| component.is_empty())
            {
                return Err(bad_value(format!(
                    "The $sort field is a dotted field but has an empty part: {name}"
                )));
            }
            fields.push((path, direction));
        }
        Ok(Self::Fields(fields))
    }

    /// Sorts; elements that compare equal keep their order.
    pub(super) fn sort(&self, array: &mut [Bson], collation: Collation) {
        match self {
            Self::Whole(direction) => {
                array.sort_by(|a, b| direction.apply(collation.compare_bson(a, b)));
            }
            Self::Fields(fields) => array.sort_by(|a, b| {
                let orders = fields.iter().map(|(path, direction)| {
                    direction.apply(collation.compare_bson(field(a, path), field(b, path)))
                });
                orders.fold(Ordering::Equal, Ordering::then)
            }),
        }
    }
}

/// The value at `path`; what is missing sorts as null.
fn field<'e>(element: &'e Bson, path: &Path) -> &'e Bson {
    const MISSING: &Bson = &Bson::Null;
    // An array has fields below an element, but an array element itself has none.
    let Bson::Document(_) = element else {
        return MISSING;
    };
    let mut value = element;
    for component in path.components() {
        let next = match value {
            Bson::Document(document) => document.get(component),
            Bson::Array(array) => array_index(component).and_then(|index| array.get(index)),
            _ => None,
        };
        let Some(next) = next else { return MISSING };
        value = next;
    }
    value
}
