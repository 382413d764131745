//! `$literal`: a value that is not to be parsed.

use bson::Bson;

use super::Operator;
use crate::Result;
use crate::expression::parse::Parser;
use crate::expression::{Node, Scope};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$literal", parse),
    Operator::custom("$const", parse),
];

fn parse(_: &mut Parser, operand: &Bson, _: &Scope) -> Result<Node> {
    Ok(Node::Constant(operand.clone()))
}
