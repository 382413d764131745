//! `$sortByCount`, which is a `$group` and a `$sort`.

use bson::{Bson, doc};
use millrace_value::{Error, Result};

use super::{Stage, group, shown, sort};
use crate::context::ParseContext;

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    match argument {
        Bson::Document(fields)
            if !fields
                .keys()
                .next()
                .is_some_and(|name| name.starts_with('$')) =>
        {
            return Err(Error::location(
                40147,
                format!(
                    "the sortByCount field must be defined as a $-prefixed path or an expression \
                     inside an object, but found: {}",
                    shown(argument)
                ),
            ));
        }
        Bson::Document(_) => {}
        Bson::String(path) if path.starts_with('$') => {}
        Bson::String(_) => {
            return Err(Error::location(
                40148,
                "the sortByCount field must be a $-prefixed path",
            ));
        }
        _ => {
            return Err(Error::location(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            ));
        }
    }
    let counted = doc! {"_id": argument.clone(), "count": {"$sum": 1}};
    let mut stages = group::parse("$group", &Bson::Document(counted), context)?;
    stages.extend(sort::parse(
        "$sort",
        &Bson::Document(doc! {"count": -1}),
        context,
    )?);
    Ok(stages)
}
