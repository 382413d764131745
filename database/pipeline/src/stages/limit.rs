//! `$limit`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, Operation, Result};

use super::{Run, Stage, options};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Lets through the first documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    count: i64,
}

impl Limit {
    /// The first `count` documents; `count` is positive.
    pub(crate) const fn new(count: i64) -> Self {
        Self { count }
    }

    /// How many.
    pub(crate) const fn count(self) -> i64 {
        self.count
    }
}

impl Run for Limit {
    fn to_document(&self) -> Document {
        doc! {"$limit": self.count}
    }

    fn run(&self, source: Box<dyn DocumentStream>, _: &Context) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(LimitStream {
            source,
            remaining: self.count,
        }))
    }
}

struct LimitStream {
    source: Box<dyn DocumentStream>,
    remaining: i64,
}

impl DocumentStream for LimitStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.remaining -= 1;
        self.source.next(operation)
    }

    fn memory_bytes(&self) -> usize {
        self.source.memory_bytes()
    }
}

pub(super) fn parse(name: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let count = options::non_negative_integer(name, argument).map_err(|reason| {
        Error::location(
            5107201,
            format!("invalid argument to $limit stage: {reason}"),
        )
    })?;
    if count == 0 {
        return Err(Error::location(15958, "the limit must be positive"));
    }
    Ok(vec![Stage::Limit(Limit { count })])
}
