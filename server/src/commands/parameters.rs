//! `getParameter` and `setParameter`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Result};

use super::{Answer, CommandContext};
use crate::arguments::{truthy, unknown_field, wrong_type};
use crate::parameters::{Parameter, Parameters};

pub(super) fn get(context: &CommandContext<'_>, parameters: &Parameters) -> Result<Answer> {
    let arguments = context.arguments()?;
    let (all, details) = match arguments.get("getParameter") {
        Some(Bson::String(text)) => (text == "*", false),
        Some(Bson::Document(options)) => {
            for name in options.keys() {
                if name != "allParameters" && name != "showDetails" && name != "setAt" {
                    return Err(unknown_field("getParameter", name));
                }
            }
            (
                truthy(options.get("allParameters")),
                truthy(options.get("showDetails")),
            )
        }
        Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Boolean(_)) => {
            (false, false)
        }
        other => {
            return Err(wrong_type(
                "getParameter",
                other.unwrap_or(&Bson::Null),
                "string",
            ));
        }
    };
    let mut reply = Document::new();
    for (name, Parameter { value, settable }) in parameters.all() {
        if !all && !arguments.contains_key(name) {
            continue;
        }
        if details {
            reply.insert(
                name,
                doc! {
                    "value": value,
                    "settableAtRuntime": settable.at_runtime,
                    "settableAtStartup": settable.at_startup,
                },
            );
        } else {
            reply.insert(name, value);
        }
    }
    if reply.is_empty() {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "no option found to get",
        ));
    }
    Ok(Answer::Reply(reply))
}

pub(super) fn set(context: &CommandContext<'_>, parameters: &Parameters) -> Result<Answer> {
    let mut arguments = context.arguments()?;
    arguments.remove("setParameter");
    if arguments.is_empty() {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "no option found to set, use help:true to see options ",
        ));
    }
    let mut reply = Document::new();
    for (name, value) in &arguments {
        let was = parameters.set_at_runtime(name, value)?;
        if !reply.contains_key("was") {
            reply.insert("was", was);
        }
        tracing::info!(target: "COMMAND", id = 23_435_u32, parameterName = name, newValue = %value,
            "Successfully set parameter to new value");
    }
    Ok(Answer::Reply(reply))
}
