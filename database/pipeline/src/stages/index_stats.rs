//! `$indexStats`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, Result};

use super::{Position, Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::source::Report;

/// Gives one document for every index of the collection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexStats;

impl Run for IndexStats {
    fn to_document(&self) -> Document {
        doc! {"$indexStats": {}}
    }

    fn run(
        &self,
        _: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Report::boxed(context, |context, operation| {
            context
                .host
                .index_stats(operation, &context.database, &context.collection)
        }))
    }

    fn position(&self) -> Position {
        Position::First
    }
}

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    match argument {
        Bson::Document(options) if options.is_empty() => Ok(vec![Stage::IndexStats(IndexStats)]),
        _ => Err(Error::location(
            28803,
            "The $indexStats stage specification must be an empty object",
        )),
    }
}
