//! `$rand`, and the operators that are refused.

use std::borrow::Cow;
use std::sync::Arc;

use bson::Bson;
use millrace_value::{Error, ErrorCode, Result};

use super::Operator;
use super::parser::Parser;
use crate::frame::Frame;
use crate::{Custom, Expression, Node, Scope, Value, internal};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$rand", Rand::parse),
    Operator::custom("$function", |_, _, _| refuse_javascript("$function")),
    Operator::custom("$accumulator", |_, _, _| refuse_javascript("$accumulator")),
    Operator::custom("$where", |_, _, _| refuse_javascript("$where")),
    Operator::custom("$meta", |_, _, _| {
        Err(Error::new(
            ErrorCode::NotImplemented,
            "$meta is not supported: there is no text search",
        ))
    }),
];

fn refuse_javascript(operator: &str) -> Result<Node> {
    Err(Error::location(
        31264,
        format!("{operator} is not supported: this server does not execute JavaScript"),
    ))
}

/// A random number from 0 up to, but not including, 1.
#[derive(Debug)]
struct Rand;

impl Rand {
    fn parse(_: &mut Parser, operand: &Bson, _: &Scope) -> Result<Node> {
        match operand {
            Bson::Document(document) if document.is_empty() => {}
            Bson::Array(items) if items.is_empty() => {}
            Bson::Document(_) | Bson::Array(_) => {
                return Err(Error::location(
                    3_040_501,
                    "$rand does not currently accept arguments",
                ));
            }
            _ => {
                return Err(Error::location(
                    10065,
                    "invalid parameter: expected an object ($rand)",
                ));
            }
        }
        Ok(Node::Custom(Arc::new(Self)))
    }
}

impl Custom for Rand {
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what a double holds exactly"
    )]
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let operation = frame
            .operation()
            .ok_or_else(|| internal("$rand was folded as a constant"))?;
        let bits = operation.environment().random() >> 11;
        Ok(Some(Cow::Owned(Bson::Double(
            bits as f64 / (1_u64 << 53) as f64,
        ))))
    }

    fn visit(&self, _: &mut dyn FnMut(&Expression)) {}
}
