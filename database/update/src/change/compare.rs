//! Finding out what changed.

use bson::{Bson, Document};

use super::{ArrayDifference, Change, Difference, DocumentDifference};
use crate::identical::identical;

/// How a value compares with the one before.
enum Comparison {
    Identical,
    /// It changed inside.
    Inside(Difference),
    /// It is another value, or describing it inside would be no shorter.
    Other,
}

/// The change between a document and what it was, if only the fields in `before` were touched, all
/// others kept their place, and new ones came to the end in the order of `before`.
///
/// `before` has each touched field's earlier value. The cost is that of the touched fields, not of
/// the document.
pub(crate) fn compare_fields(before: Vec<(&str, Option<Bson>)>, after: &Document) -> Change {
    let mut difference = DocumentDifference::default();
    for (name, earlier) in before {
        match (earlier, after.get(name)) {
            (None, None) => {}
            (None, Some(value)) => difference.inserted.push((name.to_owned(), value.clone())),
            (Some(_), None) => difference.removed.push(name.to_owned()),
            (Some(earlier), Some(value)) => difference.compare_field(name, &earlier, value),
        }
    }
    Change::Difference(difference)
}

/// The change between two documents that may differ in any way.
pub(crate) fn compare_documents(before: &Document, after: &Document) -> Change {
    DocumentDifference::between(before, after)
        .map_or_else(|| Change::Replacement(after.clone()), Change::Difference)
}

impl DocumentDifference {
    /// The difference between two documents; `None` if it cannot be described, because common fields
    /// changed their order or new ones stand before old ones.
    fn between(before: &Document, after: &Document) -> Option<Self> {
        let mut difference = Self::default();
        let mut later = after.iter();
        for (name, earlier) in before {
            if !after.contains_key(name) {
                difference.removed.push(name.clone());
                continue;
            }
            let (later_name, value) = later.next()?;
            if later_name != name {
                return None;
            }
            difference.compare_field(name, earlier, value);
        }
        let new = later.map(|(name, value)| (name.clone(), value.clone()));
        difference.inserted.extend(new);
        Some(difference)
    }

    fn compare_field(&mut self, name: &str, earlier: &Bson, value: &Bson) {
        match compare_values(earlier, value) {
            Comparison::Identical => {}
            Comparison::Inside(inside) => self.inside.push((name.to_owned(), inside)),
            Comparison::Other => self.updated.push((name.to_owned(), value.clone())),
        }
    }

    fn parts(&self) -> usize {
        self.removed.len() + self.updated.len() + self.inserted.len() + self.inside.len()
    }
}

fn compare_values(before: &Bson, after: &Bson) -> Comparison {
    match (before, after) {
        (Bson::Document(before), Bson::Document(after)) => compare_inside(before, after),
        (Bson::Array(before), Bson::Array(after)) => compare_arrays(before, after),
        _ if identical(before, after) => Comparison::Identical,
        _ => Comparison::Other,
    }
}

fn compare_inside(before: &Document, after: &Document) -> Comparison {
    match DocumentDifference::between(before, after) {
        None => Comparison::Other,
        Some(difference) if difference.is_empty() => Comparison::Identical,
        // When every field is another one, the document itself is the shortest description.
        Some(difference) if difference.parts() >= after.len() => Comparison::Other,
        Some(difference) => Comparison::Inside(Difference::Document(difference)),
    }
}

fn compare_arrays(before: &[Bson], after: &[Bson]) -> Comparison {
    let mut difference = ArrayDifference::default();
    for (index, (earlier, value)) in before.iter().zip(after).enumerate() {
        match compare_values(earlier, value) {
            Comparison::Identical => {}
            Comparison::Inside(inside) => difference.inside.push((index, inside)),
            Comparison::Other => difference.updated.push((index, value.clone())),
        }
    }
    if after.len() < before.len() {
        difference.truncated = Some(after.len());
    }
    for (index, value) in after.iter().enumerate().skip(before.len()) {
        difference.updated.push((index, value.clone()));
    }
    let parts = difference.updated.len() + difference.inside.len();
    if parts == 0 && difference.truncated.is_none() {
        Comparison::Identical
    } else if parts > after.len() / 2 {
        Comparison::Other
    } else {
        Comparison::Inside(Difference::Array(difference))
    }
}
