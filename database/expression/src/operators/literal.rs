//! `$literal`: a value that is not to be parsed.

use bson::Bson;
use millrace_value::Result;

use super::Operator;
use super::parser::Parser;
use crate::{Node, Scope};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$literal", parse),
    Operator::custom("$const", parse),
];

fn parse(_: &mut Parser, operand: &Bson, _: &Scope) -> Result<Node> {
    Ok(Node::Constant(operand.clone()))
}
