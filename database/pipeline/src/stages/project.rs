//! `$project`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_update::projection::{Mode, Projection};
use millrace_value::{Error, Result};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::filter_map::FilterMap;

/// Reshapes every document.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// `$project` or `$unset`.
    name: &'static str,
    /// The argument as the client wrote it.
    argument: Bson,
    specification: Document,
    projection: Arc<Projection>,
}

impl Project {
    /// A stage that a client calls `name` and writes with `argument`, which means `specification`.
    pub(super) fn new(
        name: &'static str,
        argument: Bson,
        specification: Document,
        context: &ParseContext,
    ) -> Result<Self> {
        let projection = Projection::parse(&specification, Mode::Aggregate, &context.scope)
            .map_err(|error| error.context(&format!("Invalid {name}")))?;
        Ok(Self {
            name,
            argument,
            specification,
            projection: Arc::new(projection),
        })
    }

    /// What to project, in `$project`'s language.
    pub(crate) const fn specification(&self) -> &Document {
        &self.specification
    }

    /// The parsed projection.
    pub(crate) fn projection(&self) -> &Projection {
        &self.projection
    }
}

impl Run for Project {
    fn to_document(&self) -> Document {
        doc! {self.name: self.argument.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let projection = Arc::clone(&self.projection);
        Ok(FilterMap::boxed(
            source,
            context.variables.clone(),
            context.collation,
            move |document, eval| projection.apply(document, None, eval).map(Some),
        ))
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(Error::location(
            15969,
            "$project specification must be an object",
        ));
    };
    if specification.is_empty() {
        return Err(Error::location(
            51272,
            "Invalid $project :: caused by :: projection specification must have at least one field",
        ));
    }
    let project = Project::new("$project", argument.clone(), specification.clone(), context)?;
    Ok(vec![Stage::Project(project)])
}
