//! `$unset`, a `$project` that excludes.

use bson::{Bson, Document};
use millrace_value::{Error, Result};

use super::{Project, Stage};
use crate::context::ParseContext;

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let fields = match argument {
        Bson::String(field) => vec![field.clone()],
        Bson::Array(fields) if fields.is_empty() => {
            return Err(Error::location(
                31119,
                "$unset specification must be a string or an array with at least one field",
            ));
        }
        Bson::Array(fields) => fields.iter().map(field_name).collect::<Result<_>>()?,
        _ => {
            return Err(Error::location(
                31002,
                "$unset specification must be a string or an array",
            ));
        }
    };
    let mut specification = Document::new();
    for field in fields {
        if specification.insert(field.clone(), false).is_some() {
            return Err(Error::location(
                31250,
                format!("Invalid $unset :: caused by :: Path collision at {field}"),
            ));
        }
    }
    let project = Project::new("$unset", argument.clone(), specification, context)?;
    Ok(vec![Stage::Project(project)])
}

fn field_name(value: &Bson) -> Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| {
        Error::location(
            31120,
            "$unset specification must be a string or an array containing only string values",
        )
    })
}
