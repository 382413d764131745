//! `$facet`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Operation, Result, size, type_alias};

use super::{Run, Stage};
use crate::buffered::Buffered;
use crate::context::{Context, ParseContext, Place};
use crate::{DocumentStream, Pipeline};

/// How many bytes of BSON the one document may have.
const DOCUMENT_LEN_MAX: usize = 16 * 1024 * 1024;

/// Gives one document with the results of several pipelines over the same documents.
#[derive(Clone, Debug)]
pub(crate) struct Facet {
    specification: Document,
    facets: Vec<(String, Pipeline)>,
}

impl Run for Facet {
    fn to_document(&self) -> Document {
        doc! {"$facet": self.specification.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(FacetStream {
            source: Some(source),
            facets: self.facets.clone(),
            context: context.clone(),
        }))
    }
}

struct FacetStream {
    /// None once the result is out.
    source: Option<Box<dyn DocumentStream>>,
    facets: Vec<(String, Pipeline)>,
    context: Context,
}

impl DocumentStream for FacetStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let Some(mut source) = self.source.take() else {
            return Ok(None);
        };
        let buffered = Buffered::read(source.as_mut(), operation, &self.context)?;
        drop(source);
        let (mut result, mut bytes) = (Document::new(), 0);
        for (name, pipeline) in &self.facets {
            let mut values = Vec::new();
            let mut stream = pipeline.run(buffered.stream()?, &self.context)?;
            while let Some(document) = stream.next(operation)? {
                operation.check()?;
                bytes += size::encoded_document_len(&document);
                if bytes > DOCUMENT_LEN_MAX {
                    return Err(Error::new(
                        ErrorCode::BSONObjectTooLarge,
                        format!(
                            "document constructed by $facet is {bytes} bytes, which exceeds the \
                             limit of {DOCUMENT_LEN_MAX} bytes"
                        ),
                    ));
                }
                values.push(Bson::Document(document));
            }
            result.insert(name.clone(), values);
        }
        Ok(Some(result))
    }

    fn memory_bytes(&self) -> usize {
        self.source
            .as_ref()
            .map_or(0, |source| source.memory_bytes())
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let specification = match argument {
        Bson::Document(specification) if !specification.is_empty() => specification,
        _ => {
            return Err(Error::location(
                40169,
                "the $facet specification must be a non-empty object",
            ));
        }
    };
    let facets = specification
        .iter()
        .map(|(name, stages)| Ok((name.clone(), parse_facet(name, stages, context)?)))
        .collect::<Result<_>>()?;
    Ok(vec![Stage::Facet(Facet {
        specification: specification.clone(),
        facets,
    })])
}

fn parse_facet(name: &str, stages: &Bson, context: &ParseContext) -> Result<Pipeline> {
    if name.starts_with('$') || name.contains('.') || name.is_empty() {
        return Err(Error::location(
            16410,
            format!("FieldPath field names may not start with '$' or contain '.': '{name}'"),
        ));
    }
    let Bson::Array(stages) = stages else {
        return Err(Error::location(
            40170,
            format!(
                "arguments to $facet must be arrays, {name} is type {}",
                type_alias(stages)
            ),
        ));
    };
    let stages = stages
        .iter()
        .enumerate()
        .map(|(index, stage)| match stage {
            Bson::Document(stage) => Ok(stage.clone()),
            _ => Err(Error::location(
                40171,
                format!(
                    "elements of arrays in $facet spec must be non-empty objects, {name} argument \
                     contained an element of type {} at position {index}",
                    type_alias(stage)
                ),
            )),
        })
        .collect::<Result<Vec<_>>>()?;
    Pipeline::parse_nested(
        &stages,
        context.nested(Place::Facet, context.scope.clone())?,
    )
}
