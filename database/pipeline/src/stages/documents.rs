//! `$documents`.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_expression::{EvaluationContext, Expression, Variables};
use millrace_value::{Collation, Error, Operation, Result, type_alias};

use super::{Position, Run, Stage};
use crate::context::{Context, ParseContext};
use crate::{DocumentStream, Documents};

/// Gives the documents that an expression makes.
#[derive(Clone, Debug)]
pub(crate) struct DocumentsStage {
    argument: Bson,
    expression: Arc<Expression>,
}

impl Run for DocumentsStage {
    fn to_document(&self) -> Document {
        doc! {"$documents": self.argument.clone()}
    }

    fn run(
        &self,
        _: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(ExpressionStream {
            expression: Arc::clone(&self.expression),
            variables: context.variables.clone(),
            collation: context.collation,
            documents: None,
        }))
    }

    fn position(&self) -> Position {
        Position::First
    }

    fn is_collectionless(&self) -> bool {
        true
    }
}

struct ExpressionStream {
    expression: Arc<Expression>,
    variables: Variables,
    collation: Collation,
    /// None until the expression is evaluated.
    documents: Option<Documents>,
}

impl ExpressionStream {
    fn evaluate(&self, operation: &Operation) -> Result<Documents> {
        let eval = EvaluationContext::new(operation, &self.variables, self.collation);
        let values = match self.expression.evaluate(&Document::new(), &eval)? {
            Some(Bson::Array(values)) => values,
            other => {
                let found = other.as_ref().map_or("missing", type_alias);
                return Err(Error::location(
                    5858203,
                    format!("an array is expected in $documents, but found {found}"),
                ));
            }
        };
        let documents = values
            .into_iter()
            .map(|value| match value {
                Bson::Document(document) => Ok(document),
                other => Err(Error::location(
                    40228,
                    format!(
                        "'newRoot' expression must evaluate to an object, but resulting value was: \
                         {}. Type of resulting value: '{}'",
                        super::shown(&other),
                        type_alias(&other)
                    ),
                )),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Documents::new(documents))
    }
}

impl DocumentStream for ExpressionStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let documents = match &mut self.documents {
            Some(documents) => documents,
            None => {
                let documents = self.evaluate(operation)?;
                self.documents.insert(documents)
            }
        };
        documents.next(operation)
    }

    fn memory_bytes(&self) -> usize {
        self.documents
            .as_ref()
            .map_or(0, DocumentStream::memory_bytes)
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let expression = Arc::new(Expression::parse(argument, &context.scope)?);
    Ok(vec![Stage::DocumentsStage(DocumentsStage {
        argument: argument.clone(),
        expression,
    })])
}
