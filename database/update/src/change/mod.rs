//! What an update did to a document, in a form that can be applied again.
//!
//! # Format
//! A change is stored as a BSON document of one of two forms:
//! ```text
//! { $v: 2, replacement: { ... } }          the document as it is now, with its _id
//! { $v: 2, diff: DIFF }                    what differs from the document before
//! ```
//! `DIFF` describes a document; every part may be missing:
//! ```text
//! { d: { NAME: false, ... },               fields that are gone
//!   u: { NAME: value, ... },               fields that have another value
//!   i: { NAME: value, ... },               fields that are new, in their order, at the end
//!   sNAME: DIFF or ARRAY-DIFF, ... }       fields that changed inside
//! ```
//! and `ARRAY-DIFF` an array:
//! ```text
//! { a: true,                               tells the two apart
//!   l: length,                             if the array became shorter
//!   uINDEX: value, ...                     elements that are new or have another value
//!   sINDEX: DIFF or ARRAY-DIFF, ... }      elements that changed inside
//! ```
//! Names stand as they are, so fields whose names contain dots or dollars need no escape.
//!
//! # Idempotence
//! Every part says what is there afterwards, never by how much it changed, so applying a change to a
//! document that has it already leaves that document as it is. A log of changes may therefore be
//! applied from any point before a document's state: parts that do not fit the document (a field that
//! is missing or is no array any more) are skipped, because a later change in the log brings what
//! belongs there.
//!
//! # Limits
//! A change read from a log or a peer is checked by [`Change::parse`]: array positions are bounded by
//! what a stored array can hold, nesting by what a document may nest.

mod apply;
mod compare;
#[cfg(test)]
pub(super) mod tests;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, NESTING_MAX, Result, array_index};

pub(super) use compare::{compare_documents, compare_fields};

/// The most elements that an array in a document of 16 MiB can have, rounded up.
const ARRAY_LENGTH_MAX: usize = 2_000_000;

/// What an update did to a document; see the [module](self) for the stored form.
#[derive(Clone, Debug)]
pub enum Change {
    /// The document was replaced by this one.
    Replacement(Document),
    /// Parts of the document changed. An empty difference says that nothing did.
    Difference(DocumentDifference),
}

impl Default for Change {
    fn default() -> Self {
        Self::Difference(DocumentDifference::default())
    }
}

/// How a document differs from what it was.
#[derive(Clone, Debug, Default)]
pub struct DocumentDifference {
    removed: Vec<String>,
    updated: Vec<(String, Bson)>,
    inserted: Vec<(String, Bson)>,
    inside: Vec<(String, Difference)>,
}

/// How an array differs from what it was.
#[derive(Clone, Debug, Default)]
struct ArrayDifference {
    /// The length, if the array became shorter.
    truncated: Option<usize>,
    updated: Vec<(usize, Bson)>,
    inside: Vec<(usize, Difference)>,
}

/// How a value differs inside from what it was.
#[derive(Clone, Debug)]
enum Difference {
    Document(DocumentDifference),
    Array(ArrayDifference),
}

impl DocumentDifference {
    fn is_empty(&self) -> bool {
        self.removed.is_empty()
            && self.updated.is_empty()
            && self.inserted.is_empty()
            && self.inside.is_empty()
    }
}

impl Change {
    /// Whether the document is as it was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Replacement(_) => false,
            Self::Difference(difference) => difference.is_empty(),
        }
    }

    /// Whether a field of the document itself whose name begins with a dollar is new or changed.
    pub(super) fn sets_dollar_field(&self) -> bool {
        let has_dollar = |name: &String| name.starts_with('$');
        match self {
            Self::Replacement(document) => document.keys().any(has_dollar),
            Self::Difference(difference) => {
                let set = difference.updated.iter().chain(&difference.inserted);
                set.map(|(name, _)| name)
                    .chain(difference.inside.iter().map(|(name, _)| name))
                    .any(has_dollar)
            }
        }
    }

    /// The document that results when the change is made to `before`.
    #[must_use]
    pub fn apply(&self, before: &Document) -> Document {
        match self {
            Self::Replacement(document) => document.clone(),
            Self::Difference(difference) => {
                let mut document = before.clone();
                difference.apply(&mut document);
                document
            }
        }
    }

    /// The stored form of the change: `{$v: 2, replacement: ...}` or `{$v: 2, diff: ...}`.
    #[must_use]
    pub fn to_document(&self) -> Document {
        let mut out = Document::new();
        out.insert("$v", 2);
        match self {
            Self::Replacement(document) => out.insert("replacement", document.clone()),
            Self::Difference(difference) => out.insert("diff", difference.to_document()),
        };
        out
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// `FailedToParse` if `stored` is not of the form that the [module](self) describes.
    pub fn parse(stored: &Document) -> Result<Self> {
        if stored.get("$v") != Some(&Bson::Int32(2)) {
            return Err(malformed("it has no $v, or another than 2"));
        }
        let mut change = None;
        for (name, value) in stored.iter().filter(|(name, _)| *name != "$v") {
            let part = match (name.as_str(), value) {
                ("replacement", Bson::Document(document)) => Self::Replacement(document.clone()),
                ("diff", Bson::Document(diff)) => {
                    Self::Difference(DocumentDifference::parse(diff, 1)?)
                }
                _ => return Err(malformed(&format!("unexpected field '{name}'"))),
            };
            if change.replace(part).is_some() {
                return Err(malformed("it has both replacement and diff"));
            }
        }
        change.ok_or_else(|| malformed("it has neither replacement nor diff"))
    }
}

impl DocumentDifference {
    fn to_document(&self) -> Document {
        let mut out = Document::new();
        if !self.removed.is_empty() {
            let names = self
                .removed
                .iter()
                .map(|name| (name.clone(), Bson::Boolean(false)));
            out.insert("d", names.collect::<Document>());
        }
        if !self.updated.is_empty() {
            out.insert("u", self.updated.iter().cloned().collect::<Document>());
        }
        if !self.inserted.is_empty() {
            out.insert("i", self.inserted.iter().cloned().collect::<Document>());
        }
        for (name, difference) in &self.inside {
            out.insert(format!("s{name}"), difference.to_document());
        }
        out
    }

    fn parse(stored: &Document, depth: usize) -> Result<Self> {
        check_depth(depth)?;
        let mut difference = Self::default();
        for (name, value) in stored {
            match (name.as_str(), value) {
                ("d", Bson::Document(names)) => {
                    difference.removed = names.keys().cloned().collect()
                }
                ("u", Bson::Document(fields)) => difference.updated = pairs(fields),
                ("i", Bson::Document(fields)) => difference.inserted = pairs(fields),
                (name, Bson::Document(inside)) if name.starts_with('s') => {
                    let inside = Difference::parse(inside, depth + 1)?;
                    difference.inside.push((name[1..].to_owned(), inside));
                }
                _ => return Err(malformed(&format!("unexpected field '{name}' in a diff"))),
            }
        }
        Ok(difference)
    }
}

impl ArrayDifference {
    fn to_document(&self) -> Document {
        let mut out = Document::new();
        out.insert("a", true);
        if let Some(length) = self.truncated {
            let length = i32::try_from(length).expect("invariant: a stored array is short");
            out.insert("l", length);
        }
        for (index, value) in &self.updated {
            out.insert(format!("u{index}"), value.clone());
        }
        for (index, difference) in &self.inside {
            out.insert(format!("s{index}"), difference.to_document());
        }
        out
    }

    fn parse(stored: &Document, depth: usize) -> Result<Self> {
        check_depth(depth)?;
        let mut difference = Self::default();
        for (name, value) in stored.iter().filter(|(name, _)| *name != "a") {
            let unexpected = || malformed(&format!("unexpected field '{name}' in an array's diff"));
            match (name.as_bytes().first(), value) {
                (Some(b'l'), Bson::Int32(length)) if name == "l" => {
                    difference.truncated =
                        Some(usize::try_from(*length).map_err(|_| unexpected())?);
                }
                (Some(b'u'), value) => {
                    let index = parse_index(&name[1..]).ok_or_else(unexpected)?;
                    difference.updated.push((index, value.clone()));
                }
                (Some(b's'), Bson::Document(inside)) => {
                    let index = parse_index(&name[1..]).ok_or_else(unexpected)?;
                    difference
                        .inside
                        .push((index, Difference::parse(inside, depth + 1)?));
                }
                _ => return Err(unexpected()),
            }
        }
        Ok(difference)
    }
}

impl Difference {
    fn to_document(&self) -> Document {
        match self {
            Self::Document(difference) => difference.to_document(),
            Self::Array(difference) => difference.to_document(),
        }
    }

    fn parse(stored: &Document, depth: usize) -> Result<Self> {
        if stored.get("a") == Some(&Bson::Boolean(true)) {
            ArrayDifference::parse(stored, depth).map(Self::Array)
        } else {
            DocumentDifference::parse(stored, depth).map(Self::Document)
        }
    }
}

fn pairs(fields: &Document) -> Vec<(String, Bson)> {
    fields
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn parse_index(text: &str) -> Option<usize> {
    array_index(text).filter(|index| *index < ARRAY_LENGTH_MAX)
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > NESTING_MAX {
        return Err(malformed("it nests too deep"));
    }
    Ok(())
}

fn malformed(problem: &str) -> Error {
    Error::new(
        ErrorCode::FailedToParse,
        format!("Malformed description of a change: {problem}"),
    )
}
