//! `$lookup`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_expression::{Expression, Scope, Variables};
use millrace_value::{Error, ErrorCode, Operation, Path, Result, field_path, size};

use super::{Match, Run, Stage, Unwind};
use crate::context::{Context, ParseContext, Place};
use crate::join::SubPipeline;
use crate::{DocumentStream, Documents, Pipeline, join};

/// How many bytes of BSON the joined array may have: a document's limit and room for what is around it.
const ARRAY_LEN_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// Adds to every document the array of the documents of another collection that go with it.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    inner: Arc<Inner>,
    /// A `$unwind` of the array, done while joining so that the array is never built.
    unwind: Option<Unwind>,
}

#[derive(Debug)]
struct Inner {
    specification: Document,
    /// The database and collection to join with; none when the pipeline makes its own documents.
    from: Option<(Option<Arc<str>>, Arc<str>)>,
    as_path: Path,
    /// The fields that must be equal.
    fields: Option<(Path, Path)>,
    lets: Vec<(String, Expression)>,
    pipeline: Option<SubPipeline>,
}

impl Lookup {
    /// Where the array goes.
    pub(crate) fn as_path(&self) -> &Path {
        &self.inner.as_path
    }

    /// Whether `unwind` can be done by this stage.
    pub(crate) fn can_absorb(&self, unwind: &Unwind) -> bool {
        self.unwind.is_none() && unwind.path() == self.as_path()
    }

    /// This stage followed by `unwind`, for which [`can_absorb`](Self::can_absorb) holds.
    pub(crate) fn absorb(&self, unwind: &Unwind) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            unwind: Some(unwind.clone()),
        }
    }

    /// The `$unwind` that is done while joining.
    pub(crate) const fn absorbed(&self) -> Option<&Unwind> {
        self.unwind.as_ref()
    }
}

impl Run for Lookup {
    fn to_document(&self) -> Document {
        let mut specification = self.inner.specification.clone();
        if let Some(unwind) = &self.unwind {
            let preserve = unwind.preserves_empty();
            specification.insert("unwinding", doc! {"preserveNullAndEmptyArrays": preserve});
        }
        doc! {"$lookup": specification}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(LookupStream {
            source,
            inner: Arc::clone(&self.inner),
            unwind: self.unwind.clone(),
            context: context.clone(),
            current: None,
        }))
    }
}

struct LookupStream {
    source: Box<dyn DocumentStream>,
    inner: Arc<Inner>,
    unwind: Option<Unwind>,
    context: Context,
    /// The document whose matches are being handed out one by one.
    current: Option<Current>,
}

struct Current {
    document: Document,
    matches: Box<dyn DocumentStream>,
    position: i64,
}

impl LookupStream {
    /// The documents that go with `document`.
    fn matches(
        &self,
        document: &Document,
        operation: &Operation,
    ) -> Result<Box<dyn DocumentStream>> {
        let inner = &*self.inner;
        let eval = self.context.evaluation(operation);
        let mut variables = self.context.variables.clone();
        for (name, expression) in &inner.lets {
            variables = variables.with(name, expression.evaluate(document, &eval)?);
        }
        let equality = inner
            .fields
            .as_ref()
            .map(|(local, foreign)| join::filter(document, local, foreign));
        let source: Box<dyn DocumentStream> = match &inner.from {
            Some((database, collection)) => {
                let compared_by = self.context.collation;
                let pushed = match &inner.pipeline {
                    Some(pipeline) => {
                        pipeline.filter(&inner.lets, &variables, operation, compared_by)?
                    }
                    None => None,
                };
                let filter = join::all_of([equality, pushed]);
                let database = database.as_ref().unwrap_or(&self.context.database);
                self.context.host.open(
                    operation,
                    database,
                    collection,
                    filter.as_ref(),
                    compared_by,
                )?
            }
            None => return self.made_matches(equality, variables),
        };
        let Some(pipeline) = &inner.pipeline else {
            return Ok(source);
        };
        let collection = inner
            .from
            .as_ref()
            .map_or_else(|| Arc::from(""), |(_, name)| Arc::clone(name));
        pipeline
            .rest()
            .run(source, &self.context.nested(&collection, variables))
    }

    /// The documents that go with one, of those that the pipeline makes by itself: `equality` is asked of what its
    /// first stage gives.
    fn made_matches(
        &self,
        equality: Option<Document>,
        variables: Variables,
    ) -> Result<Box<dyn DocumentStream>> {
        let empty: Box<dyn DocumentStream> = Box::new(Documents::empty());
        let Some(pipeline) = &self.inner.pipeline else {
            return Ok(empty);
        };
        let context = self.context.nested(&Arc::from(""), variables);
        let Some(equality) = equality else {
            return pipeline.rest().run(empty, &context);
        };
        let (first, rest) = pipeline.split_source();
        let made = first.run(empty, &context)?;
        let joined = Match::new(equality, &Scope::new(context.collation))?.run(made, &context)?;
        rest.run(joined, &context)
    }

    fn join(&self, mut document: Document, operation: &Operation) -> Result<Document> {
        let mut matches = self.matches(&document, operation)?;
        let (mut joined, mut bytes) = (Vec::new(), 0);
        while let Some(found) = matches.next(operation)? {
            operation.check()?;
            bytes += size::encoded_document_len(&found);
            if bytes > ARRAY_LEN_MAX {
                return Err(self.too_large());
            }
            joined.push(Bson::Document(found));
        }
        field_path::set(&mut document, &self.inner.as_path, Bson::Array(joined));
        Ok(document)
    }

    fn too_large(&self) -> Error {
        let collection = self.inner.from.as_ref().map_or("", |(_, name)| name);
        Error::location(
            4568,
            format!(
                "Total size of documents in {collection} matching pipeline's $lookup stage exceeds \
                 {ARRAY_LEN_MAX} bytes"
            ),
        )
    }

    /// The next document of the join followed by `unwind`.
    fn next_unwound(&mut self, operation: &Operation, unwind: &Unwind) -> Result<Option<Document>> {
        loop {
            operation.check()?;
            if let Some(current) = &mut self.current {
                if let Some(found) = current.matches.next(operation)? {
                    let mut document = current.document.clone();
                    field_path::set(&mut document, unwind.path(), Bson::Document(found));
                    if let Some(path) = unwind.index_path() {
                        field_path::set(&mut document, path, Bson::Int64(current.position));
                    }
                    current.position += 1;
                    return Ok(Some(document));
                }
            }
            if let Some(preserved) = self
                .current
                .take()
                .and_then(|current| current.preserve(unwind))
            {
                return Ok(Some(preserved));
            }
            let Some(document) = self.source.next(operation)? else {
                return Ok(None);
            };
            let matches = self.matches(&document, operation)?;
            self.current = Some(Current {
                document,
                matches,
                position: 0,
            });
        }
    }
}

impl Current {
    /// What is given for a document that nothing goes with.
    fn preserve(self, unwind: &Unwind) -> Option<Document> {
        if self.position > 0 || !unwind.preserves_empty() {
            return None;
        }
        let mut document = self.document;
        field_path::remove(&mut document, unwind.path());
        if let Some(path) = unwind.index_path() {
            field_path::set(&mut document, path, Bson::Null);
        }
        Some(document)
    }
}

impl DocumentStream for LookupStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        if let Some(unwind) = self.unwind.clone() {
            return self.next_unwound(operation, &unwind);
        }
        match self.source.next(operation)? {
            Some(document) => self.join(document, operation).map(Some),
            None => Ok(None),
        }
    }

    fn memory_bytes(&self) -> usize {
        let current = self.current.as_ref().map_or(0, |current| {
            size::document_bytes(&current.document) + current.matches.memory_bytes()
        });
        self.source.memory_bytes() + current
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(failed(
            "the $lookup specification must be an Object".to_owned(),
        ));
    };
    let mut options = Options::default();
    for (name, value) in specification {
        options.set(name, value)?;
    }
    let inner = options.finish(specification, context)?;
    Ok(vec![Stage::Lookup(Lookup {
        inner: Arc::new(inner),
        unwind: None,
    })])
}

fn failed(message: String) -> Error {
    Error::new(ErrorCode::FailedToParse, message)
}

/// The options while they are read.
#[derive(Default)]
struct Options<'a> {
    from: Option<(Option<Arc<str>>, Arc<str>)>,
    as_field: Option<&'a str>,
    local_field: Option<&'a str>,
    foreign_field: Option<&'a str>,
    lets: Option<&'a Document>,
    pipeline: Option<Vec<Document>>,
}

impl<'a> Options<'a> {
    fn set(&mut self, name: &str, value: &'a Bson) -> Result<()> {
        match (name, value) {
            ("pipeline", value) => self.pipeline = Some(super::documents_of("pipeline", value)?),
            ("let", Bson::Document(lets)) => self.lets = Some(lets),
            ("let", other) => {
                return Err(failed(format!(
                    "$lookup argument 'let: {}' must be an object, is type {}",
                    super::shown(other),
                    millrace_value::type_alias(other)
                )));
            }
            ("from", Bson::Document(namespace)) => self.from = Some(parse_namespace(namespace)?),
            ("from" | "as" | "localField" | "foreignField", Bson::String(text)) => match name {
                "from" => self.from = Some((None, Arc::from(text.as_str()))),
                "as" => self.as_field = Some(text),
                "localField" => self.local_field = Some(text),
                _ => self.foreign_field = Some(text),
            },
            ("from" | "as" | "localField" | "foreignField", other) => {
                return Err(failed(format!(
                    "$lookup argument '{name}' must be a string, found {}: {}",
                    millrace_value::display::element(name, other),
                    millrace_value::type_alias(other)
                )));
            }
            _ => return Err(failed(format!("unknown argument to $lookup: {name}"))),
        }
        Ok(())
    }

    fn finish(self, specification: &Document, context: &ParseContext) -> Result<Inner> {
        let as_field = self
            .as_field
            .ok_or_else(|| failed("must specify 'as' field for a $lookup".to_owned()))?;
        let fields = match (self.local_field, self.foreign_field) {
            (Some(local), Some(foreign)) => {
                Some((field_path::parse(local)?, field_path::parse(foreign)?))
            }
            (None, None) => None,
            _ => {
                return Err(failed(
                    "$lookup requires both or neither of 'localField' and 'foreignField' to be \
                     specified"
                        .to_owned(),
                ));
            }
        };
        if fields.is_none() && self.pipeline.is_none() {
            return Err(failed(
                "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be \
                 specified"
                    .to_owned(),
            ));
        }
        if self.lets.is_some() && self.pipeline.is_none() {
            return Err(failed(
                "$lookup with a 'let' argument must also specify 'pipeline'".to_owned(),
            ));
        }
        let (lets, scope) = parse_lets(self.lets, context)?;
        let pipeline = match &self.pipeline {
            Some(stages) => Some(Pipeline::parse_nested(
                stages,
                context.nested(Place::Lookup, scope)?,
            )?),
            None => None,
        };
        let pipeline = pipeline.as_ref().map(SubPipeline::new);
        let makes_documents = pipeline
            .as_ref()
            .is_some_and(SubPipeline::is_collectionless);
        if self.from.is_none() && !makes_documents {
            return Err(failed("must specify 'from' field for a $lookup".to_owned()));
        }
        Ok(Inner {
            specification: specification.clone(),
            from: self.from.filter(|_| !makes_documents),
            as_path: field_path::parse(as_field)?,
            fields,
            lets,
            pipeline,
        })
    }
}

fn parse_namespace(namespace: &Document) -> Result<(Option<Arc<str>>, Arc<str>)> {
    let text = |field: &str| match namespace.get(field) {
        Some(Bson::String(text)) => Ok(Arc::from(text.as_str())),
        _ => Err(failed(format!(
            "$lookup argument 'from' must be an object with 'db' and 'coll', found {}",
            millrace_value::display::document(namespace)
        ))),
    };
    Ok((Some(text("db")?), text("coll")?))
}

/// The variables of a sub-pipeline and the scope it is parsed in.
fn parse_lets(
    lets: Option<&Document>,
    context: &ParseContext,
) -> Result<(Vec<(String, Expression)>, Scope)> {
    let mut scope = context.scope.clone();
    let mut parsed = Vec::new();
    for (name, value) in lets.into_iter().flatten() {
        Scope::check_new_name(name)?;
        parsed.push((name.clone(), Expression::parse(value, &context.scope)?));
        scope = scope.with(name);
    }
    Ok((parsed, scope))
}
