//! `$addFields`, also called `$set`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_update::projection;
use millrace_value::{Error, Result, type_alias};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::filter_map::FilterMap;

/// Adds fields to every document, or replaces them.
#[derive(Clone, Debug)]
pub(crate) struct AddFields {
    name: String,
    specification: Document,
    fields: Arc<projection::AddFields>,
}

impl AddFields {
    /// The fields and their expressions.
    pub(crate) const fn specification(&self) -> &Document {
        &self.specification
    }
}

impl Run for AddFields {
    fn to_document(&self) -> Document {
        doc! {self.name.clone(): self.specification.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let fields = Arc::clone(&self.fields);
        Ok(FilterMap::boxed(
            source,
            context.variables.clone(),
            context.collation,
            move |document, eval| fields.apply(document, eval).map(Some),
        ))
    }
}

pub(super) fn parse(name: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(Error::location(
            40272,
            format!(
                "{name} specification stage must be an object, got {}",
                type_alias(argument)
            ),
        ));
    };
    let fields = projection::AddFields::parse(specification, &context.scope)
        .map_err(|error| error.context(&format!("Invalid {name}")))?;
    Ok(vec![Stage::AddFields(AddFields {
        name: name.to_owned(),
        specification: specification.clone(),
        fields: Arc::new(fields),
    })])
}
