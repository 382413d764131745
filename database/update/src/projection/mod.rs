//! Projections: which fields of a document are answered, and what is computed beside them.
//!
//! # Purpose
//! [`Projection`] is the projection of find and of `$project`; [`AddFields`] is `$addFields`. Both are
//! a [`tree`] of fields and a list of computed values.
//!
//! # Cost
//! [`Projection::append_raw`] copies the bytes of chosen fields from document to output without
//! reading them; inclusion stops at the last field asked for. A tree of the document is made only for
//! expressions, and once.
//!
//! # Order of fields
//! Included fields keep the document's order. Computed fields (and `$elemMatch`) follow in the order of
//! the specification, below fields that exist already in the place of these.

mod add_fields;
mod field_path;
mod flat;
mod owned;
mod parser;
mod raw;
mod slice;
#[cfg(test)]
mod tests;
mod tree;

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use millrace_expression::{EvaluationContext, Expression, Scope};
use millrace_matcher::{MatchDetails, Matcher, Node};
use millrace_value::{Error, Path, Result};

use parser::Parser;
use tree::{Field, Tree};

pub use add_fields::AddFields;
pub use flat::Flat;

/// Which language a projection is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// find's, with the positional `$`, `$elemMatch` and find's `$slice`.
    Find,
    /// `$project`'s.
    Aggregate,
}

/// A parsed projection, applied to one document after the other.
#[derive(Clone, Debug)]
pub struct Projection {
    shape: Shape,
    /// The path of the positional projection as it was written.
    positional: Option<Box<str>>,
}

/// What becomes of each field, and the values that are computed.
#[derive(Clone, Debug)]
struct Shape {
    /// Whether fields that the tree does not name are kept.
    keeps_others: bool,
    tree: Tree,
    /// The sources of the tree's computed fields, by slot.
    sources: Vec<Source>,
}

/// Where a computed value comes from.
#[derive(Clone, Debug)]
enum Source {
    Expression(Box<Expression>),
    /// find's `$elemMatch`: the first element of the array in this field that the matcher accepts.
    ElementMatch {
        field: Box<str>,
        matcher: Box<Matcher>,
    },
}

/// The computed values of one document, by slot; `None` for missing ones.
type Computed = Vec<Option<Bson>>;

/// Where an application of the positional `$` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The next array on the positional path is cut to the element with this index.
    Pending(Option<usize>),
    /// There is nothing to cut, or no longer.
    Done,
}

impl Projection {
    /// Parses a specification. An empty one keeps every field in find.
    ///
    /// # Errors
    /// MongoDB's codes and messages (`31249` and following, `16410`, ...).
    pub fn parse(spec: &Document, mode: Mode, scope: &Scope) -> Result<Self> {
        Parser::new(mode, scope).parse(spec)
    }

    /// Parses a specification as it came, without building a tree if it only keeps or drops fields of
    /// the top level.
    ///
    /// # Errors
    /// As for [`Projection::parse`].
    pub fn parse_raw(spec: &RawDocument, mode: Mode, scope: &Scope) -> Result<Self> {
        match Flat::parse(spec).and_then(|flat| flat.to_projection()) {
            Some(projection) => Ok(projection),
            None => Self::parse(&spec.try_into()?, mode, scope),
        }
    }

    /// The projected document.
    ///
    /// # Errors
    /// Those of expressions; `51246` and `51247` when the positional `$` stands for no element; and
    /// `InvalidBSON` for bytes that are no document.
    pub fn apply_raw(
        &self,
        document: &RawDocument,
        matched: Option<&MatchDetails>,
        context: &EvaluationContext<'_>,
    ) -> Result<RawDocumentBuf> {
        let mut bytes = Vec::with_capacity(document.as_bytes().len());
        self.append_raw(&mut bytes, document, matched, context)?;
        Ok(RawDocumentBuf::from_bytes(bytes)?)
    }

    /// Appends the projected document to `out`. After an error `out` ends in the middle of a
    /// document.
    ///
    /// # Errors
    /// As for [`Projection::apply_raw`].
    pub fn append_raw(
        &self,
        out: &mut Vec<u8>,
        document: &RawDocument,
        matched: Option<&MatchDetails>,
        context: &EvaluationContext<'_>,
    ) -> Result<()> {
        let computed = self.shape.compute_raw(document, context)?;
        raw::append(
            &self.shape,
            out,
            document,
            &computed,
            self.position(matched),
        )
    }

    /// The projection of a document that is a tree already.
    ///
    /// # Errors
    /// As for [`Projection::apply_raw`].
    pub fn apply(
        &self,
        document: Document,
        matched: Option<&MatchDetails>,
        context: &EvaluationContext<'_>,
    ) -> Result<Document> {
        let computed = self.shape.compute(&document, context)?;
        owned::apply(&self.shape, document, computed, self.position(matched))
    }

    /// The paths that the answer depends on, so that an index which holds them covers the
    /// projection. `None` if it depends on the whole document.
    #[must_use]
    pub fn required_fields(&self) -> Option<Vec<Path>> {
        if self.shape.keeps_others {
            return None;
        }
        let mut paths = Vec::new();
        self.shape
            .tree
            .collect_included(&mut Vec::new(), &mut paths);
        for source in &self.shape.sources {
            match source {
                Source::Expression(expression) => {
                    let dependencies = expression.field_paths();
                    if dependencies.whole_document {
                        return None;
                    }
                    paths.extend(dependencies.paths.iter().map(|path| Path::parse(path)));
                }
                Source::ElementMatch { field, .. } => paths.push(Path::parse(field)),
            }
        }
        Some(paths)
    }

    /// Whether the fields that are not named are kept.
    #[must_use]
    pub const fn is_exclusion(&self) -> bool {
        self.shape.keeps_others
    }

    /// Whether it does nothing but keep or drop fields of the top level.
    #[must_use]
    pub fn is_simple(&self) -> bool {
        let plain = |field: &Field| matches!(field, Field::Include | Field::Exclude);
        self.shape
            .tree
            .fields()
            .iter()
            .all(|(_, field)| plain(field))
    }

    /// Whether the positional `$` occurs, so that [`MatchDetails`] must be recorded.
    #[must_use]
    pub const fn needs_match_details(&self) -> bool {
        self.positional.is_some()
    }

    /// Checks that `query` looks at the field of a positional projection.
    ///
    /// # Errors
    /// `31277` if it does not.
    pub fn check_positional(&self, query: &Node) -> Result<()> {
        match &self.positional {
            Some(path) if !query.looks_at(path.split('.').next().unwrap_or(path)) => {
                Err(Error::location(
                    31277,
                    format!("Positional projection '{path}' does not match the query document."),
                ))
            }
            _ => Ok(()),
        }
    }

    fn position(&self, matched: Option<&MatchDetails>) -> Position {
        match self.positional {
            Some(_) => Position::Pending(matched.and_then(|details| details.array_index)),
            None => Position::Done,
        }
    }
}

impl Shape {
    fn compute_raw(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<Computed> {
        if self.sources.is_empty() {
            return Ok(Computed::new());
        }
        let needs_tree = self
            .sources
            .iter()
            .any(|s| matches!(s, Source::Expression(_)));
        let tree = if needs_tree {
            Document::try_from(document)?
        } else {
            Document::new()
        };
        self.sources
            .iter()
            .map(|source| source.compute(&tree, document, context))
            .collect()
    }

    fn compute(&self, document: &Document, context: &EvaluationContext<'_>) -> Result<Computed> {
        let needs_raw = self
            .sources
            .iter()
            .any(|s| matches!(s, Source::ElementMatch { .. }));
        let raw = if needs_raw {
            RawDocumentBuf::try_from(document)?
        } else {
            RawDocumentBuf::new()
        };
        self.sources
            .iter()
            .map(|source| source.compute(document, &raw, context))
            .collect()
    }
}

impl Source {
    /// The value for a document given in the form that this kind of source needs.
    fn compute(
        &self,
        tree: &Document,
        raw: &RawDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<Option<Bson>> {
        let (field, matcher) = match self {
            Self::Expression(expression) => return expression.evaluate(tree, context),
            Self::ElementMatch { field, matcher } => (field, matcher),
        };
        let Some(RawBsonRef::Array(array)) = raw.get(field)? else {
            return Ok(None);
        };
        let mut details = MatchDetails::default();
        if !matcher.matches_recording(raw, context, &mut details)? {
            return Ok(None);
        }
        let Some(index) = details.array_index else {
            return Ok(None);
        };
        match array.get(index)? {
            Some(element) => Ok(Some(Bson::Array(vec![Bson::try_from(element)?]))),
            None => Ok(None),
        }
    }
}

impl Position {
    /// Enters an array of `length` elements that lies on the positional path. Returns the only
    /// element to keep, if the array is to be cut.
    fn enter_array(self, length: usize) -> Result<Option<usize>> {
        match self {
            Self::Done => Ok(None),
            Self::Pending(Some(index)) if index < length => Ok(Some(index)),
            Self::Pending(Some(_)) => Err(Error::location(
                51247,
                "Executor error during find command :: caused by :: positional operator '.$' element \
                 mismatch",
            )),
            Self::Pending(None) => Err(Error::location(
                51246,
                "Executor error during find command :: caused by :: positional operator '.$' \
                 couldn't find a matching element in the array",
            )),
        }
    }
}
