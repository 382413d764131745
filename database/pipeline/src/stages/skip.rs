//! `$skip`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, Operation, Result};

use super::{Run, Stage, options};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Leaves out the first documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skip {
    count: i64,
}

impl Skip {
    /// All but the first `count` documents.
    pub(crate) const fn new(count: i64) -> Self {
        Self { count }
    }

    /// How many.
    pub(crate) const fn count(self) -> i64 {
        self.count
    }
}

impl Run for Skip {
    fn to_document(&self) -> Document {
        doc! {"$skip": self.count}
    }

    fn run(&self, source: Box<dyn DocumentStream>, _: &Context) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(SkipStream {
            source,
            remaining: self.count,
        }))
    }
}

struct SkipStream {
    source: Box<dyn DocumentStream>,
    remaining: i64,
}

impl DocumentStream for SkipStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        while self.remaining > 0 {
            operation.check()?;
            if self.source.next(operation)?.is_none() {
                return Ok(None);
            }
            self.remaining -= 1;
        }
        self.source.next(operation)
    }

    fn memory_bytes(&self) -> usize {
        self.source.memory_bytes()
    }
}

pub(super) fn parse(name: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let count = options::non_negative_integer(name, argument).map_err(|reason| {
        Error::location(
            5107200,
            format!("invalid argument to $skip stage: {reason}"),
        )
    })?;
    Ok(vec![Stage::Skip(Skip { count })])
}
