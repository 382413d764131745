//! `$redact`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_expression::{EvaluationContext, Expression, Variables};
use millrace_value::{Error, Result, display};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::filter_map::FilterMap;

/// The names of the variables that hold the decisions about a level, and the decisions.
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
            context.collation,
            move |document, eval| {
                let root = Bson::Document(document);
                match redact(&root, &root, &expression, eval)? {
                    Some(Bson::Document(kept)) => Ok(Some(kept)),
                    _ => Ok(None),
                }
            },
        ))
    }
}

fn bind(variables: &Variables, (name, value): &(&str, &str)) -> Variables {
    variables.with(name, Some(Bson::String((*value).to_owned())))
}

/// What is left of `level`; none if it is pruned. `root` is the document that it is a part of: `$$ROOT` at every
/// level, while `$$CURRENT` is the level. The nesting of documents bounds the recursion.
fn redact(
    root: &Bson,
    level: &Bson,
    expression: &Expression,
    eval: &EvaluationContext<'_>,
) -> Result<Option<Bson>> {
    eval.operation.check()?;
    let (Bson::Document(whole), Bson::Document(fields)) = (root, level) else {
        return redact_elements(root, level, expression, eval);
    };
    match expression.evaluate_at(whole, level, eval)? {
        Some(Bson::String(decision)) if decision == "keep" => Ok(Some(level.clone())),
        Some(Bson::String(decision)) if decision == "prune" => Ok(None),
        Some(Bson::String(decision)) if decision == "descend" => {
            let mut kept = Document::new();
            for (name, value) in fields {
                if let Some(value) = redact(root, value, expression, eval)? {
                    kept.insert(name.clone(), value);
                }
            }
            Ok(Some(Bson::Document(kept)))
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

/// What is left of a value that is no document: of an array, what is left of its elements.
fn redact_elements(
    root: &Bson,
    value: &Bson,
    expression: &Expression,
    eval: &EvaluationContext<'_>,
) -> Result<Option<Bson>> {
    let Bson::Array(values) = value else {
        return Ok(Some(value.clone()));
    };
    let mut kept = Vec::with_capacity(values.len());
    for value in values {
        kept.extend(redact(root, value, expression, eval)?);
    }
    Ok(Some(Bson::Array(kept)))
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let scope = DECISIONS
        .iter()
        .fold(context.scope.clone(), |scope, (name, _)| scope.with(name))
        .with("CURRENT");
    let expression = Arc::new(Expression::parse(argument, &scope)?);
    Ok(vec![Stage::Redact(Redact {
        argument: argument.clone(),
        expression,
    })])
}
