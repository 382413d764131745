//! What to sort by.

use std::cmp::Ordering;

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use millrace_value::key::TypeBits;
use millrace_value::{Collation, Error, ErrorCode, Number, Path, Result, array_index, field_path};

use crate::sort::node::{Node, RawNode, TreeNode};

/// As many fields as a sort pattern may have, as in a compound index.
const FIELDS_MAX: usize = 32;

/// One field of a [`SortPattern`], with its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortField {
    /// The path of the field whose values are compared.
    pub path: Path,
    /// Whether the direction is descending (-1): large values come first.
    pub descending: bool,
}

/// The fields to sort by, the most significant first.
///
/// Values are compared in MongoDB's order. A missing field counts as null. An array stands for its
/// least element in ascending order and for its greatest in descending order; when several fields run
/// through one array, the element is chosen for all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct SortPattern {
    fields: Vec<SortField>,
    document: Document,
    collation: Collation,
}

/// A document that sort keys can be taken from.
pub trait SortSource {
    /// Appends the key of this document under `pattern`.
    ///
    /// # Errors
    /// `BadValue` when two fields of the pattern run through two different arrays.
    fn append_key(&self, pattern: &SortPattern, out: &mut Vec<u8>) -> Result<()>;
}

impl SortSource for Document {
    fn append_key(&self, pattern: &SortPattern, out: &mut Vec<u8>) -> Result<()> {
        pattern.append_node_key(TreeNode::Root(self), out)
    }
}

impl SortSource for RawDocument {
    fn append_key(&self, pattern: &SortPattern, out: &mut Vec<u8>) -> Result<()> {
        pattern.append_node_key(RawNode::root(self), out)
    }
}

impl SortSource for RawDocumentBuf {
    fn append_key(&self, pattern: &SortPattern, out: &mut Vec<u8>) -> Result<()> {
        pattern.append_node_key(RawNode::root(self), out)
    }
}

impl SortPattern {
    /// Parses `{field: 1 or -1, ...}`; strings are ordered by `collation`. An empty document gives a pattern without fields, under which
    /// all documents are equal.
    ///
    /// # Errors
    /// MongoDB's codes for directions that are not 1 or -1 and for paths that are not valid.
    pub fn parse(document: &Document, collation: Collation) -> Result<Self> {
        if document.len() > FIELDS_MAX {
            return Err(Error::location(13103, "too many compound keys"));
        }
        let fields = document
            .iter()
            .map(|(name, direction)| {
                let descending = parse_direction(name, direction)?;
                Ok(SortField {
                    path: field_path::parse(name)?,
                    descending,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            fields,
            document: document.clone(),
            collation,
        })
    }

    /// The fields, the most significant first.
    #[must_use]
    pub fn fields(&self) -> &[SortField] {
        &self.fields
    }

    /// The document that the pattern was parsed from.
    #[must_use]
    pub const fn document(&self) -> &Document {
        &self.document
    }

    /// Whether there is nothing to sort by.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The sort key of `document`: the byte order of keys is the order of the pattern.
    ///
    /// # Errors
    /// As [`SortSource::append_key`].
    pub fn key<S: SortSource + ?Sized>(&self, document: &S) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        document.append_key(self, &mut key)?;
        Ok(key)
    }

    /// Compares two documents.
    ///
    /// # Errors
    /// As [`SortSource::append_key`].
    pub fn compare<S: SortSource + ?Sized>(&self, a: &S, b: &S) -> Result<Ordering> {
        Ok(self.key(a)?.cmp(&self.key(b)?))
    }

    fn append_node_key<'a, N: Node<'a>>(&self, root: N, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        for field in &self.fields {
            match walk(root, &field.path, 0)? {
                Step::Value(value) => self.encode_field(value, field, out)?,
                Step::Array { .. } => {
                    out.truncate(start);
                    let cursors = vec![
                        Cursor::At {
                            node: root,
                            consumed: 0
                        };
                        self.fields.len()
                    ];
                    let mut least = None;
                    self.expand(&cursors, &mut least)?;
                    out.extend_from_slice(&least.unwrap_or_default());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits every combination of values that the arrays on the way give and keeps the least key.
    fn expand<'a, N: Node<'a>>(
        &self,
        cursors: &[Cursor<N>],
        least: &mut Option<Vec<u8>>,
    ) -> Result<()> {
        let steps = cursors
            .iter()
            .zip(&self.fields)
            .map(|(cursor, field)| match *cursor {
                Cursor::Done(value) => Ok(Step::Value(value)),
                Cursor::At { node, consumed } => walk(node, &field.path, consumed),
            })
            .collect::<Result<Vec<_>>>()?;
        let Some(array) = self.shared_array(&steps)? else {
            return self.keep_least(&steps, least);
        };
        let elements = array.elements()?;
        if elements.is_empty() {
            return self.expand(&self.below(&steps, Slot::Empty), least);
        }
        elements
            .into_iter()
            .try_for_each(|element| self.expand(&self.below(&steps, Slot::Element(element)), least))
    }

    /// The array at which fields are stopped; all of them must be stopped at the same one.
    fn shared_array<'a, N: Node<'a>>(&self, steps: &[Step<N>]) -> Result<Option<N>> {
        let mut shared: Option<(N, &[Box<str>])> = None;
        for (step, field) in steps.iter().zip(&self.fields) {
            let Step::Array { array, consumed } = *step else {
                continue;
            };
            let prefix = &field.path.components()[..consumed];
            match shared {
                Some((_, other)) if other != prefix => {
                    return Err(Error::new(
                        ErrorCode::BadValue,
                        "cannot sort with keys that are parallel arrays",
                    ));
                }
                _ => shared = Some((array, prefix)),
            }
        }
        Ok(shared.map(|(array, _)| array))
    }

    /// The cursors after the fields that are stopped at an array went on to one of its elements.
    fn below<'a, N: Node<'a>>(&self, steps: &[Step<N>], slot: Slot<N>) -> Vec<Cursor<N>> {
        let below = |(step, field): (&Step<N>, &SortField)| match *step {
            Step::Value(value) => Cursor::Done(value),
            Step::Array { consumed, .. } => match slot {
                Slot::Empty if consumed == field.path.len() => Cursor::Done(Leaf::Undefined),
                Slot::Element(element) if consumed == field.path.len() => {
                    Cursor::Done(Leaf::Value(element))
                }
                Slot::Element(element) if element.is_document() => Cursor::At {
                    node: element,
                    consumed,
                },
                // Elements that are not documents do not have the rest of the path.
                Slot::Empty | Slot::Element(_) => Cursor::Done(Leaf::Missing),
            },
        };
        steps.iter().zip(&self.fields).map(below).collect()
    }

    fn keep_least<'a, N: Node<'a>>(
        &self,
        steps: &[Step<N>],
        least: &mut Option<Vec<u8>>,
    ) -> Result<()> {
        let mut key = Vec::new();
        for (step, field) in steps.iter().zip(&self.fields) {
            if let Step::Value(value) = *step {
                self.encode_field(value, field, &mut key)?;
            }
        }
        if least.as_ref().is_none_or(|least| key < *least) {
            *least = Some(key);
        }
        Ok(())
    }

    fn encode_field<'a, N: Node<'a>>(
        &self,
        leaf: Leaf<N>,
        field: &SortField,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let collation = self.collation;
        let mut bits = TypeBits::default();
        match leaf {
            Leaf::Missing => {
                collation.encode_key(out, &mut bits, RawBsonRef::Null, field.descending)
            }
            Leaf::Undefined => {
                collation.encode_key(out, &mut bits, RawBsonRef::Undefined, field.descending)
            }
            Leaf::Value(value) => value.encode(collation, out, &mut bits, field.descending),
        }
    }
}

/// What a path led to.
#[derive(Clone, Copy, Debug)]
enum Leaf<N> {
    Missing,
    /// An empty array, which sorts before everything else but MinKey.
    Undefined,
    Value(N),
}

/// How far a walk came.
#[derive(Clone, Copy, Debug)]
enum Step<N> {
    Value(Leaf<N>),
    /// An array, reached after `consumed` components of the path.
    Array {
        array: N,
        consumed: usize,
    },
}

/// Where a field stands before a walk.
#[derive(Clone, Copy, Debug)]
enum Cursor<N> {
    Done(Leaf<N>),
    At { node: N, consumed: usize },
}

/// What of an array takes its place.
#[derive(Clone, Copy, Debug)]
enum Slot<N> {
    Empty,
    Element(N),
}

/// Follows `path`, of which `consumed` components led to `node`, until its end or an array.
fn walk<'a, N: Node<'a>>(mut node: N, path: &Path, mut consumed: usize) -> Result<Step<N>> {
    loop {
        let rest = &path.components()[consumed..];
        if node.is_array() {
            let element = match rest.first().and_then(|name| array_index(name)) {
                Some(index) => node.elements()?.get(index).copied(),
                None => None,
            };
            match element {
                // A numeric component that the array has names one element and expands nothing.
                Some(element) => node = element,
                None => {
                    return Ok(Step::Array {
                        array: node,
                        consumed,
                    });
                }
            }
        } else {
            let Some(name) = rest.first() else {
                return Ok(Step::Value(Leaf::Value(node)));
            };
            match node.field(name)? {
                Some(value) => node = value,
                None => return Ok(Step::Value(Leaf::Missing)),
            }
        }
        consumed += 1;
    }
}

/// Whether `direction` says descending.
fn parse_direction(name: &str, direction: &Bson) -> Result<bool> {
    if let Bson::Document(meta) = direction {
        return Err(match meta.get("$meta") {
            Some(Bson::String(kind)) if kind == "textScore" => Error::location(
                40218,
                "query requires text score metadata, but it is not available",
            ),
            Some(Bson::String(kind)) => {
                Error::location(31138, format!("Illegal $meta sort: $meta: \"{kind}\""))
            }
            _ => Error::location(
                17312,
                "$meta is the only expression supported by $sort right now",
            ),
        });
    }
    let number = Number::from_bson(direction).ok_or_else(|| {
        let shown = millrace_value::display::element(name, direction);
        Error::location(
            15974,
            format!("Illegal key in $sort specification: {shown}"),
        )
    })?;
    match number.as_i64_exact() {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => Err(Error::location(
            15975,
            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
        )),
    }
}
