//! `$redact`.

use std::sync::Arc;

use bson::{Bson, Document, doc};

use super::{Run, Stage};
use crate::expression::{EvaluationContext, Expression, Variables};
use crate::pipeline::context::{Context, ParseContext};
use crate::pipeline::filter_map::FilterMap;
use crate::pipeline::{DocumentStream, display};
use crate::{Error, Result};

/// The values that tell what to do with a level, and the variables that hold them.
const DECISIONS: [(&str, &str); 3] = [("KEEP", "keep"), ("PRUNE", "prune"), ("DESCEND", "descend")];

/// Decides level by level what of a document is kept.
#[derive(Clone, Debug)]
pub(crate) struct Redact {
    argument: Bson,
    expression: Arc<Expression>,
}

impl Run for Redact {
    fn to_document(&self) -> Document {
        doc! {"$redact": self.argument.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let expression = Arc::clone(&self.expression);
        let variables = DECISIONS
            .iter()
            .fold(context.variables.clone(), |variables, decision| {
                bind(&variables, decision)
            });
        Ok(FilterMap::boxed(
            source,
            variables,
            move |document, eval| redact(document, &expression, eval),
        ))
    }
}

fn bind(variables: &Variables, (name, value): &(&str, &str)) -> Variables {
    variables.with(name, Some(Bson::String((*value).to_owned())))
}

/// What is left of `document`; none if it is pruned. The nesting of documents bounds the recursion.
fn redact(
    document: Document,
    expression: &Expression,
    eval: &EvaluationContext<'_>,
) -> Result<Option<Document>> {
    eval.operation.check()?;
    let decision = expression.evaluate(&document, eval)?;
    match decision {
        Some(Bson::String(decision)) if decision == "keep" => Ok(Some(document)),
        Some(Bson::String(decision)) if decision == "prune" => Ok(None),
        Some(Bson::String(decision)) if decision == "descend" => {
            let mut kept = Document::new();
            for (name, value) in document {
                if let Some(value) = redact_value(value, expression, eval)? {
                    kept.insert(name, value);
                }
            }
            Ok(Some(kept))
        }
        other => Err(Error::location(
            17053,
            format!(
                "$redact's expression should not return anything aside from the variables $$KEEP, \
                 $$DESCEND, and $$PRUNE, but returned {}",
                other
                    .as_ref()
                    .map_or_else(|| "MISSING".to_owned(), display::value)
            ),
        )),
    }
}

fn redact_value(
    value: Bson,
    expression: &Expression,
    eval: &EvaluationContext<'_>,
) -> Result<Option<Bson>> {
    match value {
        Bson::Document(document) => Ok(redact(document, expression, eval)?.map(Bson::Document)),
        Bson::Array(values) => {
            let mut kept = Vec::with_capacity(values.len());
            for value in values {
                kept.extend(redact_value(value, expression, eval)?);
            }
            Ok(Some(Bson::Array(kept)))
        }
        other => Ok(Some(other)),
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let scope = DECISIONS
        .iter()
        .fold(context.scope.clone(), |scope, (name, _)| scope.with(name));
    let expression = Arc::new(Expression::parse(argument, &scope)?);
    Ok(vec![Stage::Redact(Redact {
        argument: argument.clone(),
        expression,
    })])
}
