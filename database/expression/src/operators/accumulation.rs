//! Accumulators as expressions: they take a list of values, or a single array of them.

use std::sync::Arc;

use bson::Bson;
use millrace_value::Result;

use super::{Operator, present};
use crate::accumulator::{
    Accumulation, Accumulator, Average, Collated, Input, Max, Min, Population, Sample, Sum,
};
use crate::frame::Frame;
use crate::{Custom, EvaluationContext, Expression, Node, Scope, Value, internal, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::variadic("$avg", 0, None, over::<Average>),
    Operator::variadic("$max", 0, None, over_compared::<Max>),
    Operator::variadic("$min", 0, None, over_compared::<Min>),
    Operator::variadic("$stdDevPop", 0, None, over::<Population>),
    Operator::variadic("$stdDevSamp", 0, None, over::<Sample>),
    Operator::variadic("$sum", 0, None, over::<Sum>),
    Operator::custom("$median", |_, operand, scope| {
        Quantile::parse("$median", operand, scope)
    }),
    Operator::custom("$percentile", |_, operand, scope| {
        Quantile::parse("$percentile", operand, scope)
    }),
];

/// Accumulates the operands, or the elements of the only one if it is an array.
fn over<A: Accumulator + Default>(
    operands: &[Value<'_>],
    frame: Frame<'_>,
) -> Result<Option<Bson>> {
    accumulate(&mut A::default(), operands, frame)
}

/// As [`over`], with an accumulator that compares values.
fn over_compared<A: Collated>(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    accumulate(&mut A::with_collation(frame.collation()), operands, frame)
}

fn accumulate(
    accumulator: &mut dyn Accumulator,
    operands: &[Value<'_>],
    frame: Frame<'_>,
) -> Result<Option<Bson>> {
    match operands {
        [only] => add_elements(accumulator, only.as_deref(), frame)?,
        several => {
            for value in several {
                add(accumulator, value.as_deref())?;
            }
        }
    }
    accumulator.finish()
}

fn add_elements(
    accumulator: &mut dyn Accumulator,
    value: Option<&Bson>,
    frame: Frame<'_>,
) -> Result<()> {
    let Some(Bson::Array(items)) = value else {
        return add(accumulator, value);
    };
    for item in items {
        frame.check()?;
        add(accumulator, Some(item))?;
    }
    Ok(())
}

fn add(accumulator: &mut dyn Accumulator, value: Option<&Bson>) -> Result<()> {
    // The operators here skip null and missing.
    let Some(value) = present(value) else {
        return Ok(());
    };
    accumulator.add(Input {
        value: Some(value.clone()),
        key: Vec::new(),
    })
}

/// `$median` and `$percentile`, whose operand is the accumulator's.
#[derive(Debug)]
struct Quantile(Accumulation);

impl Quantile {
    fn parse(operator: &str, operand: &Bson, scope: &Scope) -> Result<Node> {
        Ok(Node::Custom(Arc::new(Self(Accumulation::parse(
            operator, operand, scope,
        )?))))
    }
}

impl Custom for Quantile {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let operation = frame
            .operation()
            .ok_or_else(|| internal("an accumulation was folded as a constant"))?;
        let eval = EvaluationContext::new(operation, frame.variables(), frame.collation());
        let mut accumulator = self.0.start(&Bson::Null, &eval)?;
        let input = self.0.expression().eval(frame)?;
        add_elements(accumulator.as_mut(), input.as_deref(), frame)?;
        Ok(accumulator.finish()?.and_then(owned))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(self.0.expression());
    }
}
