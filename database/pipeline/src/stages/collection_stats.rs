//! `$collStats`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, Result};

use super::{Position, Run, Stage, options, shown};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::source::Report;

/// Gives a document about the collection.
#[derive(Clone, Debug)]
pub(crate) struct CollectionStats {
    specification: Document,
}

impl Run for CollectionStats {
    fn to_document(&self) -> Document {
        doc! {"$collStats": self.specification.clone()}
    }

    fn run(
        &self,
        _: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let specification = self.specification.clone();
        Ok(Report::boxed(context, move |context, operation| {
            let (database, collection) = (&context.database, &context.collection);
            context
                .host
                .collection_stats(operation, database, collection, &specification)
        }))
    }

    fn position(&self) -> Position {
        Position::First
    }
}

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(Error::location(
            5447000,
            format!(
                "$collStats must take a nested object but found: {}",
                shown(argument)
            ),
        ));
    };
    for (option, value) in specification {
        match (option.as_str(), value) {
            ("latencyStats" | "storageStats" | "count" | "queryExecStats", Bson::Document(_)) => {}
            ("latencyStats" | "storageStats" | "count" | "queryExecStats", other) => {
                return Err(options::wrong_type("$collStats", option, other, "object"));
            }
            _ => return Err(options::unknown_field("$collStats", option)),
        }
    }
    Ok(vec![Stage::CollectionStats(CollectionStats {
        specification: specification.clone(),
    })])
}
