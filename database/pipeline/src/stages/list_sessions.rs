//! `$listSessions` and `$listLocalSessions`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::{Position, Run, Stage, options};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::source::Report;

/// Gives one document for every session.
#[derive(Clone, Debug)]
pub(crate) struct ListSessions {
    name: String,
    specification: Document,
}

impl Run for ListSessions {
    fn to_document(&self) -> Document {
        doc! {self.name.clone(): self.specification.clone()}
    }

    fn run(
        &self,
        _: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let specification = self.specification.clone();
        Ok(Report::boxed(context, move |context, operation| {
            context.host.sessions(operation, &specification)
        }))
    }

    fn position(&self) -> Position {
        Position::First
    }

    /// `$listSessions` reads `config.system.sessions`, `$listLocalSessions` needs no collection.
    fn is_collectionless(&self) -> bool {
        self.name == "$listLocalSessions"
    }
}

pub(super) fn parse(name: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "{name} options must be specified in an object, but found: {}",
                type_alias(argument)
            ),
        ));
    };
    for (option, value) in specification {
        match (option.as_str(), value) {
            ("allUsers", Bson::Boolean(_)) | ("users", Bson::Array(_)) => {}
            ("allUsers", other) => return Err(options::wrong_type(name, option, other, "bool")),
            ("users", other) => return Err(options::wrong_type(name, option, other, "array")),
            _ => return Err(options::unknown_field(name, option)),
        }
    }
    let (name, specification) = (name.to_owned(), specification.clone());
    Ok(vec![Stage::ListSessions(ListSessions {
        name,
        specification,
    })])
}
