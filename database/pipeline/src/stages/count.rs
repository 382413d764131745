//! `$count` as a stage.

use bson::{Bson, Document, doc};
use millrace_value::{Error, Number, Operation, Result};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Gives the number of documents in one document; nothing if there are none.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    field: String,
}

impl Run for Count {
    fn to_document(&self) -> Document {
        doc! {"$count": &self.field}
    }

    fn run(&self, source: Box<dyn DocumentStream>, _: &Context) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(CountStream {
            source: Some(source),
            field: self.field.clone(),
        }))
    }
}

struct CountStream {
    /// None once the documents are counted.
    source: Option<Box<dyn DocumentStream>>,
    field: String,
}

impl DocumentStream for CountStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let Some(mut source) = self.source.take() else {
            return Ok(None);
        };
        let mut count = 0;
        while source.next(operation)?.is_some() {
            operation.check()?;
            count += 1;
        }
        let number = Number::from_i64(count).to_bson();
        Ok((count > 0).then(|| doc! {self.field.clone(): number}))
    }

    fn memory_bytes(&self) -> usize {
        self.source
            .as_ref()
            .map_or(0, |source| source.memory_bytes())
    }
}

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let refuse = |code, message: &str| Err(Error::location(code, message));
    let Bson::String(field) = argument else {
        return refuse(40156, "the count field must be a non-empty string");
    };
    if field.is_empty() {
        return refuse(40157, "the count field must be a non-empty string");
    }
    if field.starts_with('$') {
        return refuse(40158, "the count field cannot be a $-prefixed path");
    }
    if field.contains('\0') {
        return refuse(40159, "the count field cannot contain a null byte");
    }
    if field.contains('.') {
        return refuse(40160, "the count field cannot contain '.'");
    }
    Ok(vec![Stage::Count(Count {
        field: field.clone(),
    })])
}
