//! The aggregation expression language.
//!
//! # How an expression runs
//! ```text
//!   Bson --parse (names resolved against a Scope, constants folded)--> Expression
//!   Expression + root document + EvaluationContext --evaluate--> value or missing
//! ```
//! Inside, an expression is a tree of [`Node`]s. Evaluation borrows wherever it can: a field path answers
//! a reference into the root document, and only results that leave the evaluator are cloned.
//!
//! # Adding an operator
//! Write a function in the file of its family under `operators/` and add one row to that file's table.
//! Operators that bind variables or parse their operand by themselves implement [`Custom`].
//!
//! # Limits
//! Operands come from clients. Parsing refuses more than [`DEPTH_MAX`] levels, evaluation refuses values
//! deeper than that or larger than [`VALUE_BYTES_MAX`] in all, and every loop over a value's elements
//! calls [`Operation::check`](millrace_value::Operation::check).

#![forbid(unsafe_code)]

pub mod accumulator;
pub mod regex;
pub mod sort;
pub mod spill;

mod calendar;
mod field_path;
mod frame;
mod memory;
mod operators;
mod scope;
#[cfg(test)]
mod tests;
mod time_zone;
mod variables;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Result};

use field_path::{FieldPath, VariablePath};
use frame::Frame;
use operators::{Form, Operands, Operator, Parser};

pub use scope::Scope;
pub use variables::{EvaluationContext, Variables};

/// How many levels an operand and a result may be nested, as deep as BSON itself may be.
pub const DEPTH_MAX: usize = 200;

/// How many bytes the intermediate values of one evaluation may hold together.
pub const VALUE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// What evaluation hands around: missing, borrowed from the document or a variable, or computed.
type Value<'a> = Option<Cow<'a, Bson>>;

/// A parsed expression. Cloning is proportional to the tree; constants are cloned with it.
#[derive(Clone, Debug)]
pub struct Expression {
    node: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Constant(Bson),
    /// A path that starts at the root document.
    Path(FieldPath),
    Variable(VariablePath),
    Object(Vec<(String, Expression)>),
    Array(Vec<Expression>),
    /// An operator with operands by position.
    Call {
        operator: &'static Operator,
        operands: Vec<Expression>,
    },
    /// An operator with operands by name; absent ones are `None`, in the order of its signature.
    NamedCall {
        operator: &'static Operator,
        operands: Vec<Option<Expression>>,
    },
    Custom(Arc<dyn Custom>),
}

/// An operator that needs more than its operands' values: it binds variables, chooses branches or keeps
/// something compiled.
trait Custom: Debug + Send + Sync {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>>;

    /// Shows every subexpression to `visit`, for dependency analysis.
    fn visit(&self, visit: &mut dyn FnMut(&Expression));
}

/// The fields and variables that an expression reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths from the root document.
    pub paths: BTreeSet<String>,
    /// Whether the root document is read as a whole (`$$ROOT`); `paths` is then not exhaustive.
    pub whole_document: bool,
    /// Names of the variables that are read, without `$$`, those bound inside the expression included.
    pub variables: BTreeSet<String>,
}

impl Expression {
    /// Parses an operand: a `$path`, a `$$variable`, an operator, a literal, or an object or array of
    /// these.
    ///
    /// # Errors
    /// What MongoDB answers: `InvalidPipelineOperator` for an unknown operator, a location code of the
    /// operator for a malformed operand, 17276 for a variable that `scope` does not know, `Overflow` for
    /// too deep a nesting.
    pub fn parse(operand: &Bson, scope: &Scope) -> Result<Self> {
        Parser::new().operand(operand, scope)
    }

    /// An expression with this value, whatever it looks like.
    #[must_use]
    pub const fn constant(value: Bson) -> Self {
        Self {
            node: Node::Constant(value),
        }
    }

    /// Computes the value for a document; `None` means missing.
    ///
    /// # Errors
    /// The operator's error, `Overflow` if the result is nested too deeply, `ExceededMemoryLimit`, or
    /// the interruption of the operation.
    pub fn evaluate(&self, root: &Document, eval: &EvaluationContext<'_>) -> Result<Option<Bson>> {
        Ok(self.evaluate_cow(root, eval)?.map(Cow::into_owned))
    }

    /// Computes the value for a document while the variable `CURRENT`, which the scope of
    /// [`parse`](Self::parse) has to bind, has the value `current`: plain paths start there, `$$ROOT` is
    /// `root`.
    ///
    /// # Errors
    /// As `evaluate`.
    pub fn evaluate_at(
        &self,
        root: &Document,
        current: &Bson,
        eval: &EvaluationContext<'_>,
    ) -> Result<Option<Bson>> {
        let live_bytes = Cell::new(0);
        let frame = Frame::new(root, eval, &live_bytes);
        let local = frame.local("CURRENT", Some(Cow::Borrowed(current)));
        let value = self.eval(frame.with(&local))?.map(Cow::into_owned);
        if let Some(value) = &value {
            memory::check_depth(value)?;
        }
        Ok(value)
    }

    /// The same as [`evaluate`](Self::evaluate), borrowing from the document where possible.
    ///
    /// # Errors
    /// As `evaluate`.
    pub fn evaluate_cow<'a>(
        &'a self,
        root: &'a Document,
        eval: &EvaluationContext<'a>,
    ) -> Result<Option<Cow<'a, Bson>>> {
        // The counter lives as long as this call only, results never borrow from it.
        let live_bytes = Cell::new(0);
        let frame = Frame::new(root, eval, &live_bytes);
        let value = match &self.node {
            Node::Constant(value) => return Ok(Some(Cow::Borrowed(value))),
            Node::Path(path) => return Ok(path.evaluate(root)),
            _ => self.eval(frame)?.map(Cow::into_owned),
        };
        if let Some(value) = &value {
            memory::check_depth(value)?;
        }
        Ok(value.map(Cow::Owned))
    }

    /// The value, if it is the same for every document.
    #[must_use]
    pub const fn as_constant(&self) -> Option<&Bson> {
        match &self.node {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn into_constant(self) -> Option<Bson> {
        match self.node {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The dotted path, if the expression is a plain path from the root document.
    #[must_use]
    pub fn as_field_path(&self) -> Option<String> {
        match &self.node {
            Node::Path(path) => Some(path.to_string()),
            _ => None,
        }
    }

    /// The fields and variables that the expression reads, nested expressions included.
    #[must_use]
    pub fn field_paths(&self) -> Dependencies {
        let mut dependencies = Dependencies::default();
        self.collect(&mut dependencies);
        dependencies
    }

    fn collect(&self, into: &mut Dependencies) {
        match &self.node {
            Node::Constant(_) => {}
            Node::Path(path) => {
                into.paths.insert(path.to_string());
            }
            Node::Variable(variable) => variable.collect(into),
            Node::Object(fields) => fields.iter().for_each(|(_, value)| value.collect(into)),
            Node::Array(items) => items.iter().for_each(|item| item.collect(into)),
            Node::Call { operands, .. } => {
                operands.iter().for_each(|operand| operand.collect(into))
            }
            Node::NamedCall { operands, .. } => {
                operands
                    .iter()
                    .flatten()
                    .for_each(|operand| operand.collect(into));
            }
            Node::Custom(custom) => custom.visit(&mut |child| child.collect(into)),
        }
    }

    fn eval<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        match &self.node {
            Node::Constant(value) => Ok(Some(Cow::Borrowed(value))),
            Node::Path(path) => Ok(path.evaluate(frame.root())),
            Node::Variable(variable) => variable.evaluate(frame),
            Node::Object(fields) => eval_object(fields, frame).map(owned),
            Node::Array(items) => eval_array(items, frame).map(owned),
            Node::Call { operator, operands } => eval_call(operator, operands, frame),
            Node::NamedCall { operator, operands } => match operator.form {
                Form::Named { evaluate, .. } => {
                    // It gives back what the operands took.
                    let _meter = frame.meter();
                    evaluate(Operands::new(operands), frame)
                }
                _ => Err(internal(
                    "a call by name of an operator that takes operands by position",
                )),
            },
            Node::Custom(custom) => custom.evaluate(frame),
        }
    }
}

/// Wraps a computed value.
fn owned<'a>(value: Bson) -> Value<'a> {
    Some(Cow::Owned(value))
}

fn internal(what: &str) -> Error {
    Error::new(
        ErrorCode::InternalError,
        format!("broken invariant: {what}"),
    )
}

fn eval_object(fields: &[(String, Expression)], frame: Frame<'_>) -> Result<Bson> {
    let meter = frame.meter();
    let mut document = Document::new();
    for (name, expression) in fields {
        if let Some(value) = expression.eval(frame)? {
            meter.add(memory::field_bytes(name, &value))?;
            document.insert(name.clone(), value.into_owned());
        }
    }
    Ok(Bson::Document(document))
}

/// Missing elements become null, for an array has no holes.
fn eval_array(items: &[Expression], frame: Frame<'_>) -> Result<Bson> {
    let meter = frame.meter();
    let mut array = Vec::with_capacity(items.len());
    for expression in items {
        let value = expression.eval(frame)?.map_or(Bson::Null, Cow::into_owned);
        meter.add(millrace_value::size::value_bytes(&value))?;
        array.push(value);
    }
    Ok(Bson::Array(array))
}

fn eval_call<'a>(
    operator: &'static Operator,
    operands: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    match (operator.form, operands) {
        (Form::Unary(evaluate), [operand]) => {
            let operand = operand.eval(frame)?;
            Ok(evaluate(operand.as_deref(), frame)?.map(Cow::Owned))
        }
        (Form::Binary(evaluate), [first, second]) => {
            let meter = frame.meter();
            let first = meter.hold(first.eval(frame)?)?;
            let second = second.eval(frame)?;
            Ok(evaluate(first.as_deref(), second.as_deref(), frame)?.map(Cow::Owned))
        }
        (Form::Variadic { evaluate, .. }, operands) => {
            let meter = frame.meter();
            let mut values = Vec::with_capacity(operands.len());
            for operand in operands {
                values.push(meter.hold(operand.eval(frame)?)?);
            }
            Ok(evaluate(&values, frame)?.map(Cow::Owned))
        }
        (Form::Lazy { evaluate, .. }, operands) => evaluate(operands, frame),
        _ => Err(internal(
            "an operator with a number of operands that its form excludes",
        )),
    }
}
