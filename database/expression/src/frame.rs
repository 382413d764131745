//! What evaluation of one expression can see.

use std::borrow::Cow;
use std::cell::Cell;

use bson::{Bson, Document};
use millrace_value::{Collation, Operation, Result};

use super::memory::{self, Meter};
use super::{EvaluationContext, VALUE_BYTES_MAX, Value, Variables};

/// The root document, the variables, the collation and the operation. Passed by value: it is five references.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    root: &'a Document,
    variables: &'a Variables,
    collation: Collation,
    /// `None` while constants are folded, when no operation runs yet.
    operation: Option<&'a Operation>,
    /// Variables bound inside the expression, innermost first. They are on the stack of the operator that
    /// bound them, so that `$map` over a large array neither clones nor allocates for its variable.
    locals: Option<&'a Local<'a>>,
    live_bytes: &'a Cell<usize>,
    bytes_max: usize,
}

/// One variable bound inside the expression.
#[derive(Debug)]
pub(super) struct Local<'a> {
    name: &'a str,
    value: Value<'a>,
    outer: Option<&'a Local<'a>>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(
        root: &'a Document,
        eval: &EvaluationContext<'a>,
        live_bytes: &'a Cell<usize>,
    ) -> Self {
        Self {
            root,
            variables: eval.variables,
            collation: eval.collation,
            operation: Some(eval.operation),
            locals: None,
            live_bytes,
            bytes_max: VALUE_BYTES_MAX,
        }
    }

    /// A frame for computing constants while parsing, which must not take much memory or time.
    pub(super) fn folding(
        root: &'a Document,
        variables: &'a Variables,
        collation: Collation,
        live_bytes: &'a Cell<usize>,
        bytes_max: usize,
    ) -> Self {
        Self {
            root,
            variables,
            collation,
            operation: None,
            locals: None,
            live_bytes,
            bytes_max,
        }
    }

    pub(super) fn root(&self) -> &'a Document {
        self.root
    }

    pub(super) fn variables(&self) -> &'a Variables {
        self.variables
    }

    /// The rule by which operators compare strings.
    pub(super) const fn collation(&self) -> Collation {
        self.collation
    }

    pub(super) fn operation(&self) -> Option<&'a Operation> {
        self.operation
    }

    /// Fails if the operation was interrupted. Loops over elements call it.
    pub(super) fn check(&self) -> Result<()> {
        self.operation.map_or(Ok(()), Operation::check)
    }

    /// A variable to be seen by [`with`](Self::with) on top of this frame's.
    pub(super) fn local(&self, name: &'a str, value: Value<'a>) -> Local<'a> {
        Local {
            name,
            value,
            outer: self.locals,
        }
    }

    /// This frame with one more variable.
    pub(super) fn with(self, local: &'a Local<'a>) -> Self {
        Self {
            locals: Some(local),
            ..self
        }
    }

    /// The value of a variable that has a name: bound inside the expression, else defined by the command.
    /// The outer `None` means that the variable is not bound.
    pub(super) fn lookup(&self, name: &str) -> Option<Option<&'a Bson>> {
        let mut local = self.locals;
        while let Some(binding) = local {
            if binding.name == name {
                return Some(binding.value.as_deref());
            }
            local = binding.outer;
        }
        self.variables.get(name)
    }

    /// Counts a value that is held until the innermost meter there is now is dropped.
    pub(super) fn hold(&self, value: Value<'a>) -> Result<Value<'a>> {
        if let Some(Cow::Owned(value)) = &value {
            memory::count(self.live_bytes, memory::value_bytes(value), self.bytes_max)?;
        }
        Ok(value)
    }

    /// Counts bytes of intermediate values until it is dropped.
    pub(super) fn meter(&self) -> Meter<'a> {
        Meter::new(self.live_bytes, self.bytes_max)
    }
}
