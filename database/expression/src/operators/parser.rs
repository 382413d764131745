//! From BSON to an expression tree.

use std::cell::Cell;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Result, document_text};

use super::{Form, Operator, Signature, find};
use crate::field_path::{FieldPath, VariablePath, check_constructed_name};
use crate::frame::Frame;
use crate::{DEPTH_MAX, Expression, Node, Scope, Variables, memory};

/// Constants larger than this stay unfolded, so that a small operand cannot make a large tree.
const FOLDED_BYTES_MAX: usize = 64 * 1024;

/// Parses one expression; it counts how deep it is.
#[derive(Debug)]
pub(crate) struct Parser {
    depth: usize,
}

impl Parser {
    pub(crate) const fn new() -> Self {
        Self { depth: 0 }
    }

    /// Parses whatever stands at the place of a value.
    pub(crate) fn operand(&mut self, operand: &Bson, scope: &Scope) -> Result<Expression> {
        if self.depth >= DEPTH_MAX {
            return Err(memory::too_deep());
        }
        self.depth += 1;
        let node = match operand {
            Bson::String(text) => match text.strip_prefix('$') {
                Some(path) => path_node(path, scope),
                None => Ok(Node::Constant(operand.clone())),
            },
            Bson::Document(document) => self.document(document, scope),
            Bson::Array(items) => self.array(items, scope),
            constant => Ok(Node::Constant(constant.clone())),
        };
        self.depth -= 1;
        Ok(Expression { node: node? })
    }

    fn document(&mut self, document: &Document, scope: &Scope) -> Result<Node> {
        let Some((first, operand)) = document.iter().next() else {
            return Ok(Node::Constant(Bson::Document(Document::new())));
        };
        if !first.starts_with('$') {
            return self.object(document, scope);
        }
        if document.len() != 1 {
            return Err(Error::location(
                15983,
                format!(
                    "an object representing an expression must have exactly one field: {}",
                    document_text(document)
                ),
            ));
        }
        let operator = find(first).ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidPipelineOperator,
                format!("Unrecognized expression '{first}'"),
            )
        })?;
        self.call(operator, operand, scope)
    }

    fn object(&mut self, document: &Document, scope: &Scope) -> Result<Node> {
        let mut fields = Vec::with_capacity(document.len());
        for (name, value) in document {
            check_constructed_name(name)?;
            fields.push((name.clone(), self.operand(value, scope)?));
        }
        if fields
            .iter()
            .any(|(_, value)| value.as_constant().is_none())
        {
            return Ok(Node::Object(fields));
        }
        let constants = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.into_constant()?)));
        Ok(Node::Constant(Bson::Document(constants.collect())))
    }

    fn array(&mut self, items: &[Bson], scope: &Scope) -> Result<Node> {
        let items = self.operands(items, scope)?;
        if items.iter().any(|item| item.as_constant().is_none()) {
            return Ok(Node::Array(items));
        }
        let constants = items.into_iter().filter_map(Expression::into_constant);
        Ok(Node::Constant(Bson::Array(constants.collect())))
    }

    fn operands(&mut self, items: &[Bson], scope: &Scope) -> Result<Vec<Expression>> {
        items.iter().map(|item| self.operand(item, scope)).collect()
    }

    fn call(&mut self, operator: &'static Operator, operand: &Bson, scope: &Scope) -> Result<Node> {
        match operator.form {
            Form::Unary(_) => self.positional(operator, operand, scope, 1, Some(1)),
            Form::Binary(_) => self.positional(operator, operand, scope, 2, Some(2)),
            Form::Variadic { least, most, .. } | Form::Lazy { least, most, .. } => {
                self.positional(operator, operand, scope, least, most)
            }
            Form::Named { signature, .. } => {
                let operands = self.named(operator.name, signature, operand, scope)?;
                Ok(named_call(operator, operands, scope))
            }
            Form::Custom(parse) => parse(self, operand, scope),
        }
    }

    /// Operands by position: an array, or the only one by itself.
    pub(crate) fn positional(
        &mut self,
        operator: &'static Operator,
        operand: &Bson,
        scope: &Scope,
        least: usize,
        most: Option<usize>,
    ) -> Result<Node> {
        let operands = match operand {
            Bson::Array(items) => self.operands(items, scope)?,
            single => vec![self.operand(single, scope)?],
        };
        check_count(operator.name, operands.len(), least, most)?;
        Ok(positional_call(operator, operands, scope))
    }

    /// Operands by name, in the order of the signature.
    pub(crate) fn named(
        &mut self,
        operator: &str,
        signature: &Signature,
        operand: &Bson,
        scope: &Scope,
    ) -> Result<Vec<Option<Expression>>> {
        let Bson::Document(document) = operand else {
            return Err(signature.not_an_object(operator, operand));
        };
        let mut operands: Vec<Option<Expression>> = vec![None; signature.parameters.len()];
        for (name, value) in document {
            let slot = signature
                .parameters
                .iter()
                .position(|parameter| parameter.name == name)
                .ok_or_else(|| signature.unknown(operator, name))?;
            operands[slot] = Some(self.operand(value, scope)?);
        }
        for (parameter, operand) in signature.parameters.iter().zip(&operands) {
            if operand.is_none() {
                parameter.check_optional(operator, signature)?;
            }
        }
        Ok(operands)
    }
}

fn path_node(path: &str, scope: &Scope) -> Result<Node> {
    if path.is_empty() {
        return Err(Error::location(
            16872,
            "'$' by itself is not a valid FieldPath",
        ));
    }
    if let Some(variable) = path.strip_prefix('$') {
        let variable = VariablePath::parse(variable, scope)?;
        return Ok(variable
            .as_root_path()
            .map_or(Node::Variable(variable), Node::Path));
    }
    if scope.binds("CURRENT") {
        return Ok(Node::Variable(VariablePath::parse(
            &format!("CURRENT.{path}"),
            scope,
        )?));
    }
    Ok(Node::Path(FieldPath::parse(path)?))
}

fn check_count(operator: &str, count: usize, least: usize, most: Option<usize>) -> Result<()> {
    if count >= least && most.is_none_or(|most| count <= most) {
        return Ok(());
    }
    Err(match most {
        Some(most) if most == least => Error::location(
            16020,
            format!(
                "Expression {operator} takes exactly {least} arguments. {count} were passed in."
            ),
        ),
        Some(most) => Error::location(
            28667,
            format!(
                "Expression {operator} takes at least {least} arguments, and at most {most}, but {count} \
                 were passed in."
            ),
        ),
        None => Error::location(
            28667,
            format!(
                "Expression {operator} takes at least {least} arguments, but {count} were passed in."
            ),
        ),
    })
}

/// A call with operands by position.
fn positional_call(operator: &'static Operator, operands: Vec<Expression>, scope: &Scope) -> Node {
    let constant = operands
        .iter()
        .all(|operand| operand.as_constant().is_some());
    fold(constant, Node::Call { operator, operands }, scope)
}

/// A call with operands by name, in the order of the signature.
pub(crate) fn named_call(
    operator: &'static Operator,
    operands: Vec<Option<Expression>>,
    scope: &Scope,
) -> Node {
    let constant = operands
        .iter()
        .flatten()
        .all(|operand| operand.as_constant().is_some());
    fold(constant, Node::NamedCall { operator, operands }, scope)
}

/// Computes a call now if all its operands are `constant`. A call that fails is left for evaluation,
/// which may never reach it.
fn fold(constant: bool, call: Node, scope: &Scope) -> Node {
    if !constant {
        return call;
    }
    let call = Expression { node: call };
    let (root, variables, live_bytes) = (Document::new(), Variables::at(0), Cell::new(0));
    let frame = Frame::folding(
        &root,
        &variables,
        scope.collation(),
        &live_bytes,
        FOLDED_BYTES_MAX,
    );
    let folded = match call.eval(frame) {
        Ok(Some(value)) if memory::value_bytes(&value) <= FOLDED_BYTES_MAX => {
            Some(value.into_owned())
        }
        _ => None,
    };
    folded.map_or(call.node, Node::Constant)
}
