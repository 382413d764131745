//! `$merge`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_expression::{Expression, Scope, Variables};
use millrace_value::operation::new_object_id;
use millrace_value::{Error, ErrorCode, Operation, Path, Result, display, field_path, type_alias};

use super::{Position, Run, Stage, options, shown};
use crate::context::{Context, ParseContext, Place};
use crate::{DocumentStream, Documents, MergeAction, Pipeline};

/// Writes the documents into a collection, one by one, and gives none.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    specification: Bson,
    database: Option<Arc<str>>,
    collection: Arc<str>,
    on: Vec<String>,
    on_given: bool,
    matched: Matched,
    not_matched: NotMatched,
    lets: Vec<(String, Expression)>,
}

/// What becomes of a document of the target that matches.
#[derive(Debug)]
enum Matched {
    Replace,
    KeepExisting,
    Merge,
    Fail,
    Pipeline(Pipeline),
}

/// What becomes of a document that nothing in the target matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotMatched {
    Insert,
    Discard,
    Fail,
}

impl Merge {
    /// The database, if it is not the one of the pipeline, and the collection.
    pub(crate) fn target(&self) -> (Option<&str>, &str) {
        (self.inner.database.as_deref(), &self.inner.collection)
    }
}

impl Run for Merge {
    fn to_document(&self) -> Document {
        doc! {"$merge": self.inner.specification.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let inner = Arc::clone(&self.inner);
        let database = inner
            .database
            .clone()
            .unwrap_or_else(|| Arc::clone(&context.database));
        Ok(Box::new(MergeStream {
            source: Some(source),
            inner,
            database,
            context: context.clone(),
        }))
    }

    fn position(&self) -> Position {
        Position::Last
    }
}

struct MergeStream {
    /// None once everything is written.
    source: Option<Box<dyn DocumentStream>>,
    inner: Arc<Inner>,
    database: Arc<str>,
    context: Context,
}

impl MergeStream {
    /// Matching must find at most one document.
    fn check_index(&self, operation: &Operation) -> Result<()> {
        let Inner {
            collection,
            on,
            on_given,
            ..
        } = &*self.inner;
        if !on_given
            || self
                .context
                .host
                .has_unique_index(operation, &self.database, collection, on)?
        {
            return Ok(());
        }
        Err(Error::location(
            51183,
            format!(
                "Cannot find index to verify that join fields will be unique: {}",
                options::namespace(&self.database, collection)
            ),
        ))
    }

    fn merge(&self, mut document: Document, operation: &Operation) -> Result<()> {
        if !document.contains_key("_id") && self.inner.on.iter().any(|field| field == "_id") {
            document = with_fresh_id(document, operation);
        }
        let key = self.inner.key(&document)?;
        let eval = self.context.evaluation(operation);
        let mut variables = self.context.variables.clone();
        for (name, expression) in &self.inner.lets {
            variables = variables.with(name, expression.evaluate(&document, &eval)?);
        }
        let decide = &mut |existing: Option<&Document>| {
            self.decide(&document, existing, &key, &variables, operation)
        };
        let (host, collection) = (&self.context.host, &self.inner.collection);
        host.merge(
            operation,
            &self.database,
            collection,
            &key,
            self.context.collation,
            decide,
        )
    }

    fn decide(
        &self,
        document: &Document,
        existing: Option<&Document>,
        key: &Document,
        variables: &Variables,
        operation: &Operation,
    ) -> Result<MergeAction> {
        let Some(existing) = existing else {
            return match self.inner.not_matched {
                NotMatched::Insert => Ok(MergeAction::Write(document.clone())),
                NotMatched::Discard => Ok(MergeAction::Keep),
                NotMatched::Fail => Err(Error::new(
                    ErrorCode::MergeStageNoMatchingDocument,
                    "$merge could not find a matching document in the target collection for at \
                     least one document in the source collection",
                )),
            };
        };
        Ok(MergeAction::Write(match &self.inner.matched {
            Matched::KeepExisting => return Ok(MergeAction::Keep),
            Matched::Replace => keep_id(document.clone(), existing),
            Matched::Merge => {
                let mut merged = existing.clone();
                merged.extend(document.clone());
                merged
            }
            Matched::Fail => return Err(self.duplicate(key)),
            Matched::Pipeline(pipeline) => {
                let source = Box::new(Documents::new(vec![existing.clone()]));
                let context = self
                    .context
                    .nested(&self.inner.collection, variables.clone());
                let mut stream = pipeline.run(source, &context)?;
                let changed = stream.next(operation)?.ok_or_else(|| {
                    Error::new(
                        ErrorCode::InternalError,
                        "a $merge pipeline gave no document",
                    )
                })?;
                keep_id(changed, existing)
            }
        }))
    }

    fn duplicate(&self, key: &Document) -> Error {
        let index: Vec<String> = self
            .inner
            .on
            .iter()
            .map(|field| format!("{field}_1"))
            .collect();
        let pattern: Document = self
            .inner
            .on
            .iter()
            .map(|field| (field.clone(), Bson::Int32(1)))
            .collect();
        let index = if self.inner.on == ["_id"] {
            "_id_".to_owned()
        } else {
            index.join("_")
        };
        Error::new(
            ErrorCode::DuplicateKey,
            format!(
                "E11000 duplicate key error collection: {} index: {index} dup key: {}",
                options::namespace(&self.database, &self.inner.collection),
                display::document(key)
            ),
        )
        .with_details(doc! {"keyPattern": pattern, "keyValue": key.clone()})
    }
}

/// A document that takes the place of `existing` keeps its `_id` unless it brings one.
fn keep_id(document: Document, existing: &Document) -> Document {
    match existing.get("_id") {
        Some(id) if !document.contains_key("_id") => {
            let mut kept = doc! {"_id": id.clone()};
            kept.extend(document);
            kept
        }
        _ => document,
    }
}

/// The document with a new `_id` in front.
fn with_fresh_id(document: Document, operation: &Operation) -> Document {
    let mut identified = doc! {"_id": new_object_id(&**operation.environment())};
    identified.extend(document);
    identified
}

impl Inner {
    /// The fields by which the document's counterpart is found.
    fn key(&self, document: &Document) -> Result<Document> {
        let mut key = Document::new();
        for field in &self.on {
            match field_path::get(document, &Path::parse(field)) {
                None | Some(Bson::Null | Bson::Undefined | Bson::Array(_)) => {
                    return Err(Error::location(
                        51132,
                        format!(
                            "$merge write error: 'on' field '{field}' cannot be missing, null, \
                             undefined or an array"
                        ),
                    ));
                }
                Some(value) => key.insert(field.clone(), value.clone()),
            };
        }
        Ok(key)
    }
}

impl DocumentStream for MergeStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let Some(mut source) = self.source.take() else {
            return Ok(None);
        };
        self.check_index(operation)?;
        while let Some(document) = source.next(operation)? {
            operation.check()?;
            self.merge(document, operation)?;
        }
        Ok(None)
    }

    fn memory_bytes(&self) -> usize {
        self.source
            .as_ref()
            .map_or(0, |source| source.memory_bytes())
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let into_only;
    let fields = match argument {
        Bson::String(_) => {
            into_only = doc! {"into": argument.clone()};
            &into_only
        }
        Bson::Document(fields) => fields,
        _ => {
            return Err(Error::location(
                51182,
                format!(
                    "$merge only supports a string or object argument, not {}",
                    type_alias(argument)
                ),
            ));
        }
    };
    let known = [
        "into",
        "on",
        "whenMatched",
        "let",
        "whenNotMatched",
        "targetCollectionVersion",
    ];
    if let Some(field) = fields.keys().find(|field| !known.contains(&field.as_str())) {
        return Err(options::unknown_field("$merge", field));
    }
    let (database, collection) = parse_into(fields.get("into"))?;
    let (lets, scope) = parse_lets(fields, context)?;
    let inner = Inner {
        specification: argument.clone(),
        database: database.map(Arc::from),
        collection: Arc::from(collection),
        on: parse_on(fields.get("on"))?,
        on_given: fields.contains_key("on"),
        matched: parse_matched(fields.get("whenMatched"), scope, context)?,
        not_matched: parse_not_matched(fields.get("whenNotMatched"))?,
        lets,
    };
    inner.check_modes()?;
    Ok(vec![Stage::Merge(Merge {
        inner: Arc::new(inner),
    })])
}

impl Inner {
    /// Not every combination of modes makes sense.
    fn check_modes(&self) -> Result<()> {
        let matched = match &self.matched {
            Matched::Fail => "fail",
            Matched::KeepExisting => "keepExisting",
            _ => return Ok(()),
        };
        let not_matched = match self.not_matched {
            NotMatched::Insert => return Ok(()),
            NotMatched::Discard => "discard",
            NotMatched::Fail => "fail",
        };
        Err(Error::location(
            51181,
            format!(
                "Combination of $merge modes 'whenMatched: {matched}' and 'whenNotMatched: \
                 {not_matched}' is not supported"
            ),
        ))
    }
}

fn parse_into(into: Option<&Bson>) -> Result<(Option<&str>, &str)> {
    let (database, collection) = match into {
        Some(Bson::String(collection)) => (None, collection.as_str()),
        Some(Bson::Document(fields)) => {
            let (mut database, mut collection) = (None, None);
            for (field, value) in fields {
                match (field.as_str(), value) {
                    ("db", Bson::String(name)) => database = Some(name.as_str()),
                    ("coll", Bson::String(name)) => collection = Some(name.as_str()),
                    ("db" | "coll", other) => {
                        return Err(options::wrong_type("$merge.into", field, other, "string"));
                    }
                    _ => return Err(options::unknown_field("$merge.into", field)),
                }
            }
            let collection = collection.ok_or_else(|| {
                Error::location(5786800, "$merge 'into' field must specify 'coll'")
            })?;
            (database, collection)
        }
        Some(other) => {
            return Err(Error::location(
                51178,
                format!(
                    "$merge 'into' field  must be either a string or an object, but found {}",
                    type_alias(other)
                ),
            ));
        }
        None => return Err(options::missing_field("$merge", "into")),
    };
    if collection.is_empty() || collection.contains('\0') {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid $merge target namespace: '{collection}'"),
        ));
    }
    Ok((database, collection))
}

fn parse_on(on: Option<&Bson>) -> Result<Vec<String>> {
    let fields = match on {
        None => return Ok(vec!["_id".to_owned()]),
        Some(Bson::String(field)) => vec![field.clone()],
        Some(Bson::Array(fields)) if fields.is_empty() => {
            return Err(Error::location(
                51187,
                "If explicitly specifying $merge 'on', must include at least one field",
            ));
        }
        Some(Bson::Array(fields)) => fields
            .iter()
            .map(|field| match field {
                Bson::String(field) => Ok(field.clone()),
                other => Err(Error::location(
                    51134,
                    format!(
                        "$merge 'on' array elements must be strings, but found {}",
                        type_alias(other)
                    ),
                )),
            })
            .collect::<Result<Vec<_>>>()?,
        Some(other) => {
            return Err(Error::location(
                51186,
                format!(
                    "$merge 'on' field  must be either a string or an array of strings, but found {}",
                    type_alias(other)
                ),
            ));
        }
    };
    for (index, field) in fields.iter().enumerate() {
        field_path::parse(field)?;
        if fields[..index].contains(field) {
            return Err(Error::location(
                31465,
                format!("Found a duplicate field '{field}' in $merge 'on'"),
            ));
        }
    }
    Ok(fields)
}

/// The variables of the `whenMatched` pipeline: by default `new`, the document that is merged.
fn parse_lets(
    fields: &Document,
    context: &ParseContext,
) -> Result<(Vec<(String, Expression)>, Scope)> {
    let by_default = doc! {"new": "$$ROOT"};
    let lets = match fields.get("let") {
        None => &by_default,
        Some(Bson::Document(lets)) => lets,
        Some(other) => return Err(options::wrong_type("$merge", "let", other, "object")),
    };
    if !matches!(fields.get("whenMatched"), Some(Bson::Array(_))) {
        if fields.contains_key("let") {
            let mode = fields
                .get("whenMatched")
                .map_or_else(|| "merge".to_owned(), shown);
            return Err(Error::location(
                51199,
                format!("Cannot use 'let' variables with 'whenMatched: {mode}' mode"),
            ));
        }
        return Ok((Vec::new(), context.scope.clone()));
    }
    if let Some(new) = lets
        .get("new")
        .filter(|new| **new != Bson::String("$$ROOT".to_owned()))
    {
        return Err(Error::location(
            51273,
            format!(
                "'let' may not define a value for the reserved 'new' variable other than \
                     '$$ROOT', but found {}",
                shown(new)
            ),
        ));
    }
    let mut scope = context.scope.clone();
    let mut parsed = Vec::new();
    for (name, value) in by_default
        .iter()
        .chain(lets.iter().filter(|(name, _)| *name != "new"))
    {
        Scope::check_new_name(name)?;
        parsed.push((name.clone(), Expression::parse(value, &context.scope)?));
        scope = scope.with(name);
    }
    Ok((parsed, scope))
}

fn parse_matched(mode: Option<&Bson>, scope: Scope, context: &ParseContext) -> Result<Matched> {
    match mode {
        None => Ok(Matched::Merge),
        Some(Bson::String(mode)) => match mode.as_str() {
            "replace" => Ok(Matched::Replace),
            "keepExisting" => Ok(Matched::KeepExisting),
            "merge" => Ok(Matched::Merge),
            "fail" => Ok(Matched::Fail),
            _ => Err(options::not_a_choice("$merge", "whenMatched", mode)),
        },
        Some(pipeline @ Bson::Array(_)) => {
            let stages = super::documents_of("whenMatched", pipeline)?;
            let nested = context.nested(Place::Update, scope)?;
            Ok(Matched::Pipeline(Pipeline::parse_nested(&stages, nested)?))
        }
        Some(other) => Err(Error::location(
            51191,
            format!(
                "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                type_alias(other)
            ),
        )),
    }
}

fn parse_not_matched(mode: Option<&Bson>) -> Result<NotMatched> {
    match mode {
        None => Ok(NotMatched::Insert),
        Some(Bson::String(mode)) => match mode.as_str() {
            "insert" => Ok(NotMatched::Insert),
            "discard" => Ok(NotMatched::Discard),
            "fail" => Ok(NotMatched::Fail),
            _ => Err(options::not_a_choice("$merge", "whenNotMatched", mode)),
        },
        Some(other) => Err(options::wrong_type(
            "$merge",
            "whenNotMatched",
            other,
            "string",
        )),
    }
}
