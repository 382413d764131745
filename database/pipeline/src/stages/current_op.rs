//! `$currentOp`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::{Position, Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::source::Report;

/// Gives one document for every running operation.
#[derive(Clone, Debug)]
pub(crate) struct CurrentOp {
    specification: Document,
}

impl Run for CurrentOp {
    fn to_document(&self) -> Document {
        doc! {"$currentOp": self.specification.clone()}
    }

    fn run(
        &self,
        _: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let specification = self.specification.clone();
        Ok(Report::boxed(context, move |context, operation| {
            context.host.current_operations(operation, &specification)
        }))
    }

    fn position(&self) -> Position {
        Position::First
    }

    fn is_collectionless(&self) -> bool {
        true
    }
}

/// The options, all of them booleans.
const OPTIONS: &[&str] = &[
    "allUsers",
    "idleConnections",
    "idleCursors",
    "idleSessions",
    "localOps",
    "targetAllNodes",
    "truncateOps",
    "backtrace",
];

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let fail = |message: String| Err(Error::new(ErrorCode::FailedToParse, message));
    let Bson::Document(specification) = argument else {
        return fail(format!(
            "$currentOp options must be specified in an object, but found: {}",
            type_alias(argument)
        ));
    };
    for (option, value) in specification {
        if !OPTIONS.contains(&option.as_str()) {
            return fail(format!(
                "Unrecognized option '{option}' in $currentOp stage."
            ));
        }
        if !matches!(value, Bson::Boolean(_)) {
            return fail(format!(
                "The '{option}' parameter of the $currentOp stage must be a boolean value, but \
                 found: {}",
                type_alias(value)
            ));
        }
    }
    Ok(vec![Stage::CurrentOp(CurrentOp {
        specification: specification.clone(),
    })])
}
