//! `$cond`, `$ifNull`, `$switch`: only the branch that is taken is evaluated.

use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Error, Result, is_truthy, type_alias};

use super::parser::Parser;
use super::{Operator, Parameter, Signature, present};
use crate::frame::Frame;
use crate::{Custom, Expression, Node, Scope, Value};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$cond", parse_cond),
    Operator::lazy("$ifNull", 2, None, if_null),
    Operator::custom("$switch", Switch::parse),
];

static COND: Operator = Operator::lazy("$cond", 3, Some(3), cond);

static COND_SIGNATURE: Signature = Signature {
    not_object: (
        16020,
        "Expression {op} takes exactly 3 arguments. 1 were passed in.",
    ),
    unknown: (17083, "Unrecognized parameter to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("if", 17080),
        Parameter::required("then", 17081),
        Parameter::required("else", 17082),
    ],
};

/// Both forms become the one with operands by position.
fn parse_cond(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
    if !matches!(operand, Bson::Document(_)) {
        return parser.positional(&COND, operand, scope, 3, Some(3));
    }
    let operands = parser.named("$cond", &COND_SIGNATURE, operand, scope)?;
    Ok(Node::Call {
        operator: &COND,
        operands: operands.into_iter().flatten().collect(),
    })
}

fn cond<'a>(operands: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let condition = operands[0]
        .eval(frame)?
        .is_some_and(|value| is_truthy(&value));
    operands[if condition { 1 } else { 2 }].eval(frame)
}

/// The first operand that is neither null nor missing, else the last one whatever it is.
fn if_null<'a>(operands: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut last = None;
    for operand in operands {
        last = operand.eval(frame)?;
        if present(last.as_deref()).is_some() {
            break;
        }
    }
    Ok(last)
}

#[derive(Debug)]
struct Switch {
    branches: Vec<(Expression, Expression)>,
    default: Option<Expression>,
}

impl Switch {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        let Bson::Document(operand) = operand else {
            return Err(Error::location(
                40060,
                format!(
                    "$switch requires an object as an argument, found: {}",
                    type_alias(operand)
                ),
            ));
        };
        let (mut branches, mut default) = (Vec::new(), None);
        for (name, value) in operand {
            match (name.as_str(), value) {
                ("branches", Bson::Array(items)) => {
                    for item in items {
                        branches.push(parse_branch(parser, item, scope)?);
                    }
                }
                ("branches", other) => {
                    return Err(Error::location(
                        40061,
                        format!(
                            "$switch expected an array for 'branches', found: {}",
                            type_alias(other)
                        ),
                    ));
                }
                ("default", value) => default = Some(parser.operand(value, scope)?),
                (other, _) => {
                    return Err(Error::location(
                        40067,
                        format!("$switch found an unknown argument: {other}"),
                    ));
                }
            }
        }
        if branches.is_empty() {
            return Err(Error::location(
                40068,
                "$switch requires at least one branch.",
            ));
        }
        Ok(Node::Custom(Arc::new(Self { branches, default })))
    }
}

fn parse_branch(
    parser: &mut Parser,
    branch: &Bson,
    scope: &Scope,
) -> Result<(Expression, Expression)> {
    let Bson::Document(branch) = branch else {
        return Err(Error::location(
            40062,
            format!(
                "$switch expected each branch to be an object, found: {}",
                type_alias(branch)
            ),
        ));
    };
    if let Some(other) = branch
        .keys()
        .find(|name| !["case", "then"].contains(&name.as_str()))
    {
        return Err(Error::location(
            40063,
            format!("$switch found an unknown argument to a branch: {other}"),
        ));
    }
    let mut part = |name: &str, code: i32, branch: &Document| {
        let value = branch.get(name).ok_or_else(|| {
            Error::location(
                code,
                format!("$switch requires each branch have a '{name}' expression"),
            )
        })?;
        parser.operand(value, scope)
    };
    Ok((part("case", 40064, branch)?, part("then", 40065, branch)?))
}

impl Custom for Switch {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        for (case, then) in &self.branches {
            if case.eval(frame)?.is_some_and(|value| is_truthy(&value)) {
                return then.eval(frame);
            }
        }
        let Some(default) = &self.default else {
            return Err(Error::location(
                40066,
                "$switch could not find a matching branch for an input, and no default was specified.",
            ));
        };
        default.eval(frame)
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        for (case, then) in &self.branches {
            visit(case);
            visit(then);
        }
        self.default.iter().for_each(visit);
    }
}
