//! Following a dotted path through documents and arrays.
//!
//! A path leads to any number of values, visited in MongoDB's order:
//!
//! 1. A component names a field of a document. If the field is absent, or holds neither document
//!    nor array while components remain, the path leads to one missing value (`None`).
//! 2. At an array with components remaining, each element that is a document is searched for the
//!    rest of the path. Other elements are passed over; an array directly inside an array is not
//!    entered, and an array without documents leads nowhere at all.
//! 3. If the next component is a number, it may also name an element of the array. The path then
//!    goes on in that element, or ends there.
//! 4. A path that ends at an array visits its elements and then the array itself, unless the
//!    predicate takes the array as a whole. An array reached by its index is visited whole.

use bson::spec::ElementType;
use bson::{RawArray, RawBsonRef, RawDocument};
use millrace_value::Result;

/// What to do with an array at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Visit each element, then the array.
    Elements,
    /// Visit the array only.
    Whole,
}

/// Calls `visit` with each value that `path` leads to and the index by which the outermost array
/// was entered implicitly, until `visit` returns true. Returns whether it did.
pub fn walk<F>(document: &RawDocument, path: &[Box<str>], leaf: Leaf, visit: &mut F) -> Result<bool>
where
    F: FnMut(Option<RawBsonRef<'_>>, Option<usize>) -> Result<bool>,
{
    walk_document(document, path, leaf, None, visit)
}

/// The value of the first field called `name`. Values before it are skipped without being read.
pub(super) fn field<'d>(document: &'d RawDocument, name: &str) -> Result<Option<RawBsonRef<'d>>> {
    for element in document.iter_elements() {
        let element = element?;
        if element.key().as_str() == name {
            return Ok(Some(element.value()?));
        }
    }
    Ok(None)
}

fn walk_document<F>(
    document: &RawDocument,
    path: &[Box<str>],
    leaf: Leaf,
    outer: Option<usize>,
    visit: &mut F,
) -> Result<bool>
where
    F: FnMut(Option<RawBsonRef<'_>>, Option<usize>) -> Result<bool>,
{
    let mut current = document;
    let mut rest = path;
    loop {
        let Some((name, after)) = rest.split_first() else {
            return visit(Some(RawBsonRef::Document(current)), outer);
        };
        match field(current, name)? {
            Some(RawBsonRef::Array(array)) if after.is_empty() => {
                return visit_leaf(array, leaf, outer, visit);
            }
            Some(RawBsonRef::Array(array)) => return walk_array(array, after, leaf, outer, visit),
            Some(value) if after.is_empty() => return visit(Some(value), outer),
            Some(RawBsonRef::Document(inner)) => {
                current = inner;
                rest = after;
            }
            Some(_) | None => return visit(None, outer),
        }
    }
}

fn visit_leaf<F>(array: &RawArray, leaf: Leaf, outer: Option<usize>, visit: &mut F) -> Result<bool>
where
    F: FnMut(Option<RawBsonRef<'_>>, Option<usize>) -> Result<bool>,
{
    if leaf == Leaf::Elements {
        for (index, element) in array.iter_elements().enumerate() {
            if visit(Some(element?.value()?), outer.or(Some(index)))? {
                return Ok(true);
            }
        }
    }
    visit(Some(RawBsonRef::Array(array)), outer)
}

/// Follows `rest`, which is not empty, into the elements of `array`.
fn walk_array<F>(
    array: &RawArray,
    rest: &[Box<str>],
    leaf: Leaf,
    outer: Option<usize>,
    visit: &mut F,
) -> Result<bool>
where
    F: FnMut(Option<RawBsonRef<'_>>, Option<usize>) -> Result<bool>,
{
    let wanted = millrace_value::array_index(&rest[0]);
    let after = &rest[1..];
    for (index, element) in array.iter_elements().enumerate() {
        let element = element?;
        let named = wanted == Some(index);
        if !named && element.element_type() != ElementType::EmbeddedDocument {
            continue;
        }
        let value = element.value()?;
        if let RawBsonRef::Document(document) = value {
            if walk_document(document, rest, leaf, outer.or(Some(index)), visit)? {
                return Ok(true);
            }
        }
        if !named {
            continue;
        }
        let found = match value {
            _ if after.is_empty() => visit(Some(value), outer)?,
            RawBsonRef::Document(document) => walk_document(document, after, leaf, outer, visit)?,
            RawBsonRef::Array(inner) => walk_array(inner, after, leaf, outer, visit)?,
            _ => false,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The values of an array.
pub(crate) fn elements(
    array: &RawArray,
) -> impl Iterator<Item = bson::error::Result<RawBsonRef<'_>>> {
    array.iter_elements().map(|element| element?.value())
}
