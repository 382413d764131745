//! `$unionWith`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Operation, Result, type_alias};

use super::{Run, Stage, options};
use crate::context::{Context, ParseContext, Place};
use crate::join::SubPipeline;
use crate::{DocumentStream, Documents, Pipeline};

/// Gives the documents and after them those of another collection.
#[derive(Clone, Debug)]
pub(crate) struct UnionWith {
    argument: Bson,
    /// None when the pipeline makes its own documents.
    collection: Option<Arc<str>>,
    pipeline: SubPipeline,
}

impl Run for UnionWith {
    fn to_document(&self) -> Document {
        doc! {"$unionWith": self.argument.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(UnionStream {
            stream: source,
            other: Some((self.clone(), context.clone())),
        }))
    }
}

struct UnionStream {
    stream: Box<dyn DocumentStream>,
    /// What comes after the stream; none once it has become the stream.
    other: Option<(UnionWith, Context)>,
}

impl UnionWith {
    fn open(&self, context: &Context, operation: &Operation) -> Result<Box<dyn DocumentStream>> {
        let Some(collection) = &self.collection else {
            let context = context.nested(&Arc::from(""), context.variables.clone());
            return self
                .pipeline
                .rest()
                .run(Box::new(Documents::empty()), &context);
        };
        let filter = self
            .pipeline
            .filter(&[], &context.variables, operation, context.collation)?;
        let host = &context.host;
        let source = host.open(
            operation,
            &context.database,
            collection,
            filter.as_ref(),
            context.collation,
        )?;
        let context = context.nested(collection, context.variables.clone());
        self.pipeline.rest().run(source, &context)
    }
}

impl DocumentStream for UnionStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        if let Some(document) = self.stream.next(operation)? {
            return Ok(Some(document));
        }
        let Some((stage, context)) = self.other.take() else {
            return Ok(None);
        };
        self.stream = stage.open(&context, operation)?;
        self.stream.next(operation)
    }

    fn memory_bytes(&self) -> usize {
        self.stream.memory_bytes()
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let (mut collection, mut stages) = (None, Vec::new());
    match argument {
        Bson::String(name) => collection = Some(Arc::from(name.as_str())),
        Bson::Document(fields) => {
            for (field, value) in fields {
                match (field.as_str(), value) {
                    ("coll", Bson::String(name)) => collection = Some(Arc::from(name.as_str())),
                    ("coll", other) => {
                        return Err(options::wrong_type("$unionWith", "coll", other, "string"));
                    }
                    ("pipeline", Bson::Array(_)) => {
                        stages = super::documents_of("pipeline", value)?;
                    }
                    ("pipeline", other) => {
                        return Err(options::wrong_type(
                            "$unionWith",
                            "pipeline",
                            other,
                            "array",
                        ));
                    }
                    _ => return Err(options::unknown_field("$unionWith", field)),
                }
            }
        }
        _ => {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                format!(
                    "the $unionWith stage specification must be an object or string, but found {}",
                    type_alias(argument)
                ),
            ));
        }
    }
    let nested = context.nested(Place::UnionWith, context.scope.clone())?;
    let pipeline = SubPipeline::new(&Pipeline::parse_nested(&stages, nested)?);
    if collection.is_none() && !pipeline.is_collectionless() {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "$unionWith stage without explicit collection must have a pipeline with $documents as \
             first stage",
        ));
    }
    let collection = collection.filter(|_| !pipeline.is_collectionless());
    Ok(vec![Stage::UnionWith(UnionWith {
        argument: argument.clone(),
        collection,
        pipeline,
    })])
}
