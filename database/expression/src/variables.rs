//! Values of variables that an operation or a stage brings to its expressions.

use std::sync::Arc;

use bson::{Bson, DateTime, Document};
use millrace_value::{Collation, Error, Operation, Result};

use super::{Expression, Scope};

/// The values of variables. Cloning and adding are cheap: bindings form an immutable list.
#[derive(Clone, Debug)]
pub struct Variables {
    now: Bson,
    user_roles: Bson,
    innermost: Option<Arc<Binding>>,
}

#[derive(Debug)]
struct Binding {
    name: Box<str>,
    value: Option<Bson>,
    outer: Option<Arc<Binding>>,
}

impl Variables {
    /// The built-in variables of an operation: `$$NOW` is when it started.
    #[must_use]
    pub fn new(operation: &Operation) -> Self {
        Self::at(operation.started_wall_ms())
    }

    pub(super) fn at(now_ms: i64) -> Self {
        Self {
            now: Bson::DateTime(DateTime::from_millis(now_ms)),
            user_roles: Bson::Array(Vec::new()),
            innermost: None,
        }
    }

    /// These variables and one more; `None` is a variable whose value is missing.
    #[must_use]
    pub fn with(&self, name: &str, value: Option<Bson>) -> Self {
        let binding = Binding {
            name: name.into(),
            value,
            outer: self.innermost.clone(),
        };
        Self {
            innermost: Some(Arc::new(binding)),
            ..self.clone()
        }
    }

    /// The variables of a command's `let` argument, and the scope for parsing expressions that use them.
    /// The values are expressions that see the variables before them, but no document.
    ///
    /// # Errors
    /// What [`Expression::parse`] and [`Expression::evaluate`] answer, and 4890500 if a value reads a
    /// field.
    pub fn from_let(
        values: &Document,
        operation: &Operation,
        collation: Collation,
    ) -> Result<(Scope, Self)> {
        let (mut scope, mut variables) = (Scope::new(collation), Self::new(operation));
        let no_document = Document::new();
        for (name, value) in values {
            Scope::check_new_name(name)?;
            let expression = Expression::parse(value, &scope)?;
            let dependencies = expression.field_paths();
            if dependencies.whole_document || !dependencies.paths.is_empty() {
                return Err(Error::location(
                    4_890_500,
                    "Command let Expression tried to access a field, but this is not allowed because \
                     command let expressions run before the query examines any documents.",
                ));
            }
            let context = EvaluationContext::new(operation, &variables, collation);
            let value = expression.evaluate(&no_document, &context)?;
            variables = variables.with(name, value);
            scope = scope.with(name);
        }
        Ok((scope, variables))
    }

    /// The value of a variable added by [`with`](Self::with). The outer `None`: there is no such
    /// variable; the inner one: its value is missing.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Option<&Bson>> {
        let mut binding = self.innermost.as_deref();
        while let Some(bound) = binding {
            if &*bound.name == name {
                return Some(bound.value.as_ref());
            }
            binding = bound.outer.as_deref();
        }
        None
    }

    pub(super) fn now(&self) -> &Bson {
        &self.now
    }

    pub(super) fn user_roles(&self) -> &Bson {
        &self.user_roles
    }
}

/// What evaluation needs beside the document.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationContext<'a> {
    /// The running operation: interruption, clock, randomness.
    pub operation: &'a Operation,
    /// The values of the variables that the command defines.
    pub variables: &'a Variables,
    /// The rule by which strings are compared: that of the scope that the expression was parsed in.
    pub collation: Collation,
}

impl<'a> EvaluationContext<'a> {
    /// A context of the running operation and the variables of its command.
    #[must_use]
    pub const fn new(
        operation: &'a Operation,
        variables: &'a Variables,
        collation: Collation,
    ) -> Self {
        Self {
            operation,
            variables,
            collation,
        }
    }
}
