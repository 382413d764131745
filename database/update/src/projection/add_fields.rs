//! `$addFields`.

use bson::{Bson, Document};
use millrace_expression::{EvaluationContext, Expression, Scope};
use millrace_matcher::DEPTH_MAX;
use millrace_value::{Error, ErrorCode, Path, Result};

use super::field_path::field_path;
use super::{Field, Position, Shape, Source, Tree, owned};

/// Fields that are computed and set, at any depth.
///
/// Existing fields are replaced in their place, new ones follow. On the way to a nested field, every
/// element of an array gets it, and what is no document is replaced by one. An expression without a
/// value (`$$REMOVE`) removes the field.
#[derive(Clone, Debug)]
pub struct AddFields {
    shape: Shape,
}

impl AddFields {
    /// Parses `{path: expression, ...}`, in which an expression may be a document of further paths.
    ///
    /// # Errors
    /// `40176` when two paths conflict, `16410` and its kin for names that no field may have, and those
    /// of [`Expression::parse`].
    pub fn parse(spec: &Document, scope: &Scope) -> Result<Self> {
        let mut shape = Shape {
            keeps_others: true,
            tree: Tree::default(),
            sources: Vec::new(),
        };
        for (name, value) in spec {
            add(&mut shape, &[], name, value, scope)?;
        }
        Ok(Self { shape })
    }

    /// The document with the fields.
    ///
    /// # Errors
    /// Those of the expressions.
    pub fn apply(&self, document: Document, context: &EvaluationContext<'_>) -> Result<Document> {
        let computed = self.shape.compute(&document, context)?;
        owned::apply(&self.shape, document, computed, Position::Done)
    }

    /// The paths of the fields that are set. What depends on none of them may be decided before.
    #[must_use]
    pub fn assigned_paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        collect(&self.shape.tree, &mut Vec::new(), &mut paths);
        paths
    }
}

fn collect(tree: &Tree, prefix: &mut Vec<Box<str>>, paths: &mut Vec<Path>) {
    for (name, field) in tree.fields() {
        prefix.push(name.clone());
        match field {
            Field::Children(children) => collect(children, prefix, paths),
            _ => paths.extend(Path::from_components(prefix.iter().cloned())),
        }
        prefix.pop();
    }
}

fn add(
    shape: &mut Shape,
    parents: &[Box<str>],
    name: &str,
    value: &Bson,
    scope: &Scope,
) -> Result<()> {
    let mut path = parents.to_vec();
    path.extend(field_path(name)?);
    if path.len() > DEPTH_MAX {
        return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
    }
    if let Bson::Document(document) = value {
        let nests = |first: &String| !first.starts_with('$');
        if document.keys().next().is_some_and(nests) {
            for (name, value) in document {
                add(shape, &path, name, value, scope)?;
            }
            return Ok(());
        }
    }
    let expression = Expression::parse(value, scope)?;
    let slot = shape.sources.len();
    if shape.tree.add(&path, Field::Computed(slot)).is_err() {
        return Err(conflict(&shape.tree, &path));
    }
    shape.sources.push(Source::Expression(Box::new(expression)));
    Ok(())
}

/// Names the path of `tree` that leads to `path` or through it.
fn conflict(tree: &Tree, path: &[Box<str>]) -> Error {
    let mut known = Vec::new();
    collect(tree, &mut Vec::new(), &mut known);
    let overlaps = |other: &&Path| {
        other
            .components()
            .iter()
            .zip(path)
            .all(|(theirs, ours)| theirs == ours)
    };
    let other = known
        .iter()
        .find(overlaps)
        .map(ToString::to_string)
        .unwrap_or_default();
    let path = path.join(".");
    Error::location(
        40176,
        format!(
            "specification contains two conflicting paths. Cannot specify both '{path}' and '{other}'"
        ),
    )
}
