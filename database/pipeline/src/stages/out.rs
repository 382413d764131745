//! `$out`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Operation, Result, type_alias};

use super::{Position, Run, Stage, options};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Makes the documents the content of a collection and gives none.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    argument: Bson,
    database: Option<Arc<str>>,
    collection: Arc<str>,
}

impl Out {
    /// The database, if it is not the one of the pipeline, and the collection.
    pub(crate) fn target(&self) -> (Option<&str>, &str) {
        (self.database.as_deref(), &self.collection)
    }
}

impl Run for Out {
    fn to_document(&self) -> Document {
        doc! {"$out": self.argument.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(OutStream {
            source: Some(source),
            database: self
                .database
                .clone()
                .unwrap_or_else(|| Arc::clone(&context.database)),
            collection: Arc::clone(&self.collection),
            context: context.clone(),
        }))
    }

    fn position(&self) -> Position {
        Position::Last
    }
}

struct OutStream {
    /// None once everything is written.
    source: Option<Box<dyn DocumentStream>>,
    database: Arc<str>,
    collection: Arc<str>,
    context: Context,
}

impl DocumentStream for OutStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        if let Some(mut source) = self.source.take() {
            let host = &self.context.host;
            host.replace_collection(operation, &self.database, &self.collection, source.as_mut())?;
        }
        Ok(None)
    }

    fn memory_bytes(&self) -> usize {
        self.source
            .as_ref()
            .map_or(0, |source| source.memory_bytes())
    }
}

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let (database, collection) = match argument {
        Bson::String(collection) => (None, collection.as_str()),
        Bson::Document(fields) => parse_target(fields)?,
        _ => {
            return Err(Error::location(
                16990,
                format!(
                    "$out only supports a string or object argument, but found {}",
                    type_alias(argument)
                ),
            ));
        }
    };
    if collection.is_empty() || collection.contains('\0') {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid $out target namespace, {collection}"),
        ));
    }
    Ok(vec![Stage::Out(Out {
        argument: argument.clone(),
        database: database.map(Arc::from),
        collection: Arc::from(collection),
    })])
}

fn parse_target(fields: &Document) -> Result<(Option<&str>, &str)> {
    let (mut database, mut collection) = (None, None);
    for (field, value) in fields {
        match (field.as_str(), value) {
            ("db", Bson::String(name)) => database = Some(name.as_str()),
            ("coll", Bson::String(name)) => collection = Some(name.as_str()),
            ("db" | "coll", other) => {
                return Err(options::wrong_type("$out", field, other, "string"));
            }
            ("timeseries", _) => {
                return Err(Error::new(
                    ErrorCode::CommandNotSupported,
                    "$out to a time-series collection is not supported",
                ));
            }
            _ => return Err(options::unknown_field("$out", field)),
        }
    }
    let database = database.ok_or_else(|| options::missing_field("$out", "db"))?;
    let collection = collection.ok_or_else(|| options::missing_field("$out", "coll"))?;
    Ok((Some(database), collection))
}
