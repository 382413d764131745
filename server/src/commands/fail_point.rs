//! `configureFailPoint`.

use bson::{Bson, doc};
use millrace_value::{Error, ErrorCode, Result};

use super::{Answer, CommandContext, count};
use crate::arguments::wrong_type;
use crate::fail_points::{FailPoints, Mode, Rule};

/// Sets the mode of a fail point; `None` on a server that was not started for tests.
pub(super) fn configure(
    context: &CommandContext<'_>,
    fail_points: Option<&FailPoints>,
) -> Result<Answer> {
    let Some(fail_points) = fail_points else {
        return Err(Error::new(
            ErrorCode::CommandNotFound,
            "no such command: 'configureFailPoint'",
        ));
    };
    let arguments = context.arguments()?;
    let name = match arguments.get("configureFailPoint") {
        Some(Bson::String(name)) => name,
        other => {
            let value = other.unwrap_or(&Bson::Null);
            return Err(wrong_type(
                "configureFailPoint.configureFailPoint",
                value,
                "string",
            ));
        }
    };
    let mode = Mode::parse(arguments.get("mode"))?;
    let rule = match arguments.get("data") {
        Some(Bson::Document(data)) if name == "failCommand" => Rule::parse(data)?,
        None | Some(Bson::Document(_)) => Rule::default(),
        Some(other) => return Err(wrong_type("configureFailPoint.data", other, "object")),
    };
    let entered = fail_points.configure(name, mode, rule)?;
    Ok(Answer::Reply(doc! { "count": count(entered) }))
}
