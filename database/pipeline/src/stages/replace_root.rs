//! `$replaceRoot` and `$replaceWith`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_expression::{EvaluationContext, Expression};
use millrace_value::{Error, Result, display, type_alias};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::filter_map::FilterMap;

/// Gives an object computed from every document in its place.
#[derive(Clone, Debug)]
pub(crate) struct ReplaceRoot {
    name: &'static str,
    argument: Bson,
    new_root: Arc<Expression>,
}

impl ReplaceRoot {
    /// The expression that gives the object.
    pub(crate) fn new_root(&self) -> &Expression {
        &self.new_root
    }
}

impl Run for ReplaceRoot {
    fn to_document(&self) -> Document {
        doc! {self.name: self.argument.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let new_root = Arc::clone(&self.new_root);
        let subject = if self.name == "$replaceRoot" {
            "'newRoot' expression "
        } else {
            "'replacement document' "
        };
        Ok(FilterMap::boxed(
            source,
            context.variables.clone(),
            context.collation,
            move |document, eval| replace(&document, &new_root, subject, eval).map(Some),
        ))
    }
}

fn replace(
    document: &Document,
    new_root: &Expression,
    subject: &str,
    eval: &EvaluationContext<'_>,
) -> Result<Document> {
    let found = match new_root.evaluate(document, eval)? {
        Some(Bson::Document(root)) => return Ok(root),
        Some(value) => format!(
            "{}. Type of resulting value: '{}'",
            display::value(&value),
            type_alias(&value)
        ),
        None => "MISSING. Type of resulting value: 'missing'".to_owned(),
    };
    Err(Error::location(
        40228,
        format!(
            "{subject}must evaluate to an object, but resulting value was: {found}. Input document: \
             {}",
            display::document(document)
        ),
    ))
}

pub(super) fn parse_root(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(options) = argument else {
        return Err(Error::location(
            40229,
            format!(
                "expected an object as specification for $replaceRoot stage, got {}",
                type_alias(argument)
            ),
        ));
    };
    let mut new_root = None;
    for (option, value) in options {
        if option != "newRoot" {
            return Err(Error::location(
                40230,
                format!(
                    "unrecognized option to $replaceRoot stage: {option}, only valid option is \
                     'newRoot'."
                ),
            ));
        }
        new_root = Some(value);
    }
    let new_root = new_root
        .ok_or_else(|| Error::location(40231, "no newRoot specified for the $replaceRoot stage"))?;
    stage("$replaceRoot", argument, new_root, context)
}

pub(super) fn parse_with(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    stage("$replaceWith", argument, argument, context)
}

fn stage(
    name: &'static str,
    argument: &Bson,
    new_root: &Bson,
    context: &ParseContext,
) -> Result<Vec<Stage>> {
    let new_root = Arc::new(Expression::parse(new_root, &context.scope)?);
    Ok(vec![Stage::ReplaceRoot(ReplaceRoot {
        name,
        argument: argument.clone(),
        new_root,
    })])
}
