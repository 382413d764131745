//! The `let` of commands: variables for expressions.

use bson::Document;
use millrace_expression::{EvaluationContext, Expression, Scope, Variables};
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

/// The names and the values that a command's expressions may use.
#[derive(Clone, Debug)]
pub(crate) struct Bindings {
    pub(crate) scope: Scope,
    pub(crate) variables: Variables,
}

impl Bindings {
    /// The system variables alone; strings are compared by `collation`.
    pub(crate) fn system(operation: &Operation, collation: Collation) -> Self {
        Self {
            scope: Scope::new(collation),
            variables: Variables::new(operation),
        }
    }

    /// The same bindings for a statement that compares strings by `collation`.
    pub(crate) fn compared_by(&self, collation: Collation) -> Self {
        Self {
            scope: self.scope.compared_by(collation),
            ..self.clone()
        }
    }

    /// The rule by which strings are compared.
    pub(crate) const fn collation(&self) -> Collation {
        self.scope.collation()
    }

    /// What expressions that were parsed with these bindings are evaluated with.
    pub(crate) const fn evaluation<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> EvaluationContext<'a> {
        EvaluationContext::new(operation, &self.variables, self.collation())
    }

    /// The system variables and those of `definitions`, whose expressions must be constant.
    ///
    /// # Errors
    /// When a name is not allowed, or an expression is wrong or refers to a document.
    pub(crate) fn with_let(
        definitions: Option<&Document>,
        operation: &Operation,
        collation: Collation,
    ) -> Result<Self> {
        Self::system(operation, collation).and(definitions, operation)
    }

    /// The bindings of a command whose statements bring collations of their own, see
    /// [`compared_by`](Self::compared_by). The definitions compare strings by the simple one.
    ///
    /// # Errors
    /// As [`Bindings::with_let`].
    pub(crate) fn of_batch(definitions: Option<&Document>, operation: &Operation) -> Result<Self> {
        Self::with_let(definitions, operation, Collation::SIMPLE)
    }

    /// These and further definitions.
    ///
    /// # Errors
    /// As [`Bindings::with_let`].
    pub(crate) fn and(
        &self,
        definitions: Option<&Document>,
        operation: &Operation,
    ) -> Result<Self> {
        let mut bindings = self.clone();
        let root = Document::new();
        for (name, value) in definitions.into_iter().flatten() {
            check_name(name)?;
            let expression = Expression::parse(value, &bindings.scope)?;
            let context = bindings.evaluation(operation);
            let value = expression.evaluate(&root, &context)?;
            bindings.variables = bindings.variables.with(name, value);
            bindings.scope = bindings.scope.with(name);
        }
        Ok(bindings)
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "empty variable names are not allowed",
        ));
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase() || !c.is_ascii()) {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            format!("'{name}' starts with an invalid character for a user variable name"),
        ));
    }
    match name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())) {
        None => Ok(()),
        Some(at) => Err(Error::new(
            ErrorCode::FailedToParse,
            format!(
                "'{name}' contains an invalid character for a variable name: '{}'",
                name[at..].chars().next().unwrap_or(' ')
            ),
        )),
    }
}
