//! Parsing of projections.

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_expression::{Expression, Scope};
use millrace_matcher::{DEPTH_MAX, Matcher};
use millrace_value::{Error, ErrorCode, Number, Result, document_text, type_alias, value_text};

use super::field_path::field_path;
use super::slice::Slice;
use super::tree::Collision;
use super::{Field, Mode, Projection, Shape, Source, Tree};

/// Whether named fields are the ones that remain or the ones that go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inclusion,
    Exclusion,
}

/// Parses one specification, field by field.
pub(super) struct Parser<'a> {
    mode: Mode,
    scope: &'a Scope,
    /// Decided by the first field that is not `_id: true` or `_id: false`.
    kind: Option<Kind>,
    tree: Tree,
    sources: Vec<Source>,
    positional: Option<Box<str>>,
    has_slice: bool,
    has_element_match: bool,
    names_id: bool,
    includes_id: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(mode: Mode, scope: &'a Scope) -> Self {
        Self {
            mode,
            scope,
            kind: None,
            tree: Tree::default(),
            sources: Vec::new(),
            positional: None,
            has_slice: false,
            has_element_match: false,
            names_id: false,
            includes_id: false,
        }
    }

    pub(super) fn parse(mut self, spec: &Document) -> Result<Projection> {
        if self.mode == Mode::Aggregate && spec.is_empty() {
            let message = "projection specification must have at least one field";
            return Err(Error::location(51272, message));
        }
        for (name, value) in spec {
            self.names_id |= name == "_id" || name.starts_with("_id.");
            self.element(&mut Vec::new(), name, value)?;
        }
        let kind = self.kind.unwrap_or_else(|| self.undecided_kind());
        match kind {
            Kind::Inclusion if !self.names_id => self.add(&["_id".into()], Field::Include)?,
            // `_id: true` is allowed beside exclusions and means nothing there.
            Kind::Exclusion if self.includes_id => self.tree.remove("_id"),
            _ => {}
        }
        Ok(Projection {
            shape: Shape {
                keeps_others: kind == Kind::Exclusion,
                tree: self.tree,
                sources: self.sources,
            },
            positional: self.positional,
        })
    }

    /// The kind of a specification with nothing but `_id` and find's operators.
    const fn undecided_kind(&self) -> Kind {
        let is_inclusion = if self.has_slice {
            self.includes_id
        } else {
            self.has_element_match || self.includes_id
        };
        if is_inclusion {
            Kind::Inclusion
        } else {
            Kind::Exclusion
        }
    }

    /// Parses one field; `parents` is the path to the document it stands in.
    fn element(&mut self, parents: &mut Vec<Box<str>>, name: &str, value: &Bson) -> Result<()> {
        if parents.len() > DEPTH_MAX {
            return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
        }
        let positional = positional_operator(name);
        if positional.is_some() && self.mode == Mode::Aggregate {
            let message = "Cannot use positional projection in aggregation projection";
            return Err(Error::location(31324, message));
        }
        match (value, truth(value)) {
            (Bson::Document(_), _) if positional.is_some() => Err(Error::location(
                31271,
                "positional projection cannot be used with an expression or sub object",
            )),
            (Bson::Document(document), _) => self.object(parents, name, document),
            (_, Some(true)) => self.inclusion(parents, name, positional),
            (_, Some(false)) => self.exclusion(parents, name),
            (_, None) if positional.is_some() => Err(Error::location(
                31308,
                "positional projection cannot be used with a literal",
            )),
            (literal, None) => self.literal(parents, name, literal),
        }
    }

    fn inclusion(
        &mut self,
        parents: &[Box<str>],
        name: &str,
        positional: Option<(usize, usize)>,
    ) -> Result<()> {
        let is_id = name == "_id" && parents.is_empty();
        match positional {
            None => {
                self.add(&joined(parents, name)?, Field::Include)?;
                self.includes_id |= is_id;
            }
            Some(place) => self.positional(parents, name, place)?,
        }
        if is_id {
            return Ok(());
        }
        self.decide(Kind::Inclusion, || {
            let message = format!("Cannot do inclusion on field {name} in exclusion projection");
            Error::location(31253, message)
        })
    }

    fn positional(
        &mut self,
        parents: &[Box<str>],
        name: &str,
        (start, end): (usize, usize),
    ) -> Result<()> {
        if self.positional.is_some() {
            return Err(Error::location(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        if self.has_element_match {
            return Err(Error::location(
                31256,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        if name.ends_with(".$.") {
            return Err(Error::location(31270, "Path cannot end with '.$.'"));
        }
        let rest = &name[end..];
        if positional_operator(rest).is_some() || rest == "$" {
            let message = format!("Cannot use positional operator twice: {name}");
            return Err(Error::location(31287, message));
        }
        let path = joined(parents, &name[..start])?;
        self.add(&path, Field::Positional)?;
        let prefix = parents
            .iter()
            .map(|parent| format!("{parent}."))
            .collect::<String>();
        self.positional = Some(format!("{prefix}{name}").into());
        Ok(())
    }

    fn exclusion(&mut self, parents: &[Box<str>], name: &str) -> Result<()> {
        self.add(&joined(parents, name)?, Field::Exclude)?;
        if name == "_id" && parents.is_empty() {
            return Ok(());
        }
        self.decide(Kind::Exclusion, || {
            let message = format!("Cannot do exclusion on field {name} in inclusion projection");
            Error::location(31254, message)
        })
    }

    fn literal(&mut self, parents: &[Box<str>], name: &str, literal: &Bson) -> Result<()> {
        let expression = Expression::parse(literal, self.scope)?;
        self.add_source(
            &joined(parents, name)?,
            Source::Expression(Box::new(expression)),
        )?;
        self.decide(Kind::Inclusion, || {
            let text = value_text(literal);
            let message =
                format!("Cannot use an expression {name}: {text} in an exclusion projection");
            Error::location(31310, message)
        })
    }

    /// Parses a document: an operator, an expression, or the projection of a subdocument.
    fn object(
        &mut self,
        parents: &mut Vec<Box<str>>,
        name: &str,
        document: &Document,
    ) -> Result<()> {
        let Some((first, operand)) = document.iter().next() else {
            return Err(Error::location(
                51270,
                format!(
                    "An empty sub-projection is not a valid value. Found empty object at path {name}"
                ),
            ));
        };
        if document.len() == 1 && first.starts_with('$') {
            return self.operator(parents, name, document, first, operand);
        }
        let path = field_path(name)?;
        if parents.is_empty() && self.tree.find(path[0].as_bytes()).is_some() && path.len() == 1 {
            return Err(collision(Collision::AtEnd, &path));
        }
        let depth = parents.len();
        parents.extend(path);
        for (name, value) in document {
            self.element(parents, name, value)?;
        }
        parents.truncate(depth);
        Ok(())
    }

    fn operator(
        &mut self,
        parents: &[Box<str>],
        name: &str,
        document: &Document,
        operator: &str,
        operand: &Bson,
    ) -> Result<()> {
        let path = joined(parents, name)?;
        match (self.mode, operator) {
            (Mode::Find, "$slice") => match Slice::parse(operand) {
                Ok(slice) => {
                    self.has_slice = true;
                    self.add(&path, Field::Slice(slice))
                }
                // What is not find's form may be the expression `$slice`.
                Err(find_error) => self.expression(&path, document, operator).map_err(|error| {
                    let given = document_text(document);
                    error.context(&format!(
                        "Invalid $slice syntax. The given syntax {given} did not match the \
                             find() syntax because :: {find_error} :: The given syntax did not \
                             match the expression $slice syntax."
                    ))
                }),
            },
            (Mode::Find, "$elemMatch") => self.element_match(&path, document, operand),
            (Mode::Aggregate, "$elemMatch") => Err(Error::new(
                ErrorCode::InvalidPipelineOperator,
                "Cannot use $elemMatch in this context",
            )),
            _ => self.expression(&path, document, operator),
        }
    }

    fn element_match(
        &mut self,
        path: &[Box<str>],
        document: &Document,
        operand: &Bson,
    ) -> Result<()> {
        if !matches!(operand, Bson::Document(_)) {
            let found = type_alias(operand);
            let message = format!("elemMatch: Invalid argument, object required, but got {found}");
            return Err(Error::location(31274, message));
        }
        if self.positional.is_some() {
            return Err(Error::location(
                31255,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        let [field] = path else {
            let message = "Cannot use $elemMatch projection on a nested field.";
            return Err(Error::location(31275, message));
        };
        let filter = RawDocumentBuf::try_from(doc! { &**field: document.clone() })?;
        let matcher = Box::new(Matcher::parse(&filter, self.scope)?);
        let field = field.clone();
        self.has_element_match = true;
        self.add_source(path, Source::ElementMatch { field, matcher })
    }

    fn expression(&mut self, path: &[Box<str>], document: &Document, operator: &str) -> Result<()> {
        self.decide(Kind::Inclusion, || {
            let message = "Cannot use expression other than $meta in exclusion projection";
            Error::location(31252, message)
        })?;
        let parsed = Expression::parse(&Bson::Document(document.clone()), self.scope);
        let expression = parsed.map_err(|error| {
            let is_unknown = error.code() == ErrorCode::InvalidPipelineOperator
                && error.message() == format!("Unrecognized expression '{operator}'");
            if is_unknown {
                Error::location(31325, format!("Unknown expression {operator}"))
            } else {
                error
            }
        })?;
        self.add_source(path, Source::Expression(Box::new(expression)))
    }

    fn add_source(&mut self, path: &[Box<str>], source: Source) -> Result<()> {
        let slot = self.sources.len();
        self.sources.push(source);
        self.add(path, Field::Computed(slot))
    }

    fn add(&mut self, path: &[Box<str>], field: Field) -> Result<()> {
        self.tree
            .add(path, field)
            .map_err(|kind| collision(kind, path))
    }

    /// Notes the kind that a field implies, or fails if another field implied the other one.
    fn decide(&mut self, kind: Kind, conflict: impl FnOnce() -> Error) -> Result<()> {
        match self.kind {
            Some(decided) if decided != kind => Err(conflict()),
            _ => {
                self.kind = Some(kind);
                Ok(())
            }
        }
    }
}

fn collision(kind: Collision, path: &[Box<str>]) -> Error {
    let full = path.join(".");
    match kind {
        Collision::AtEnd => Error::location(31250, format!("Path collision at {full}")),
        Collision::OnTheWay => {
            let rest = path[1..].join(".");
            let message = format!("Path collision at {full} remaining portion {rest}");
            Error::location(31249, message)
        }
    }
}

fn joined(parents: &[Box<str>], name: &str) -> Result<Vec<Box<str>>> {
    let mut path = parents.to_vec();
    path.extend(field_path(name)?);
    Ok(path)
}

/// Whether a boolean or a number stands for inclusion; `None` for other values.
fn truth(value: &Bson) -> Option<bool> {
    match value {
        Bson::Boolean(value) => Some(*value),
        value => Number::from_bson(value).map(|number| !number.is_zero()),
    }
}

/// Where the first positional operator stands in a path, with its dots.
fn positional_operator(path: &str) -> Option<(usize, usize)> {
    if let Some(start) = path.find(".$.") {
        return Some((start, start + 3));
    }
    if path.ends_with(".$") {
        return Some((path.len() - 2, path.len()));
    }
    (path == "$").then_some((0, 1))
}
