//! `$let`, and the operators that evaluate an expression for each element of an array: `$map`, `$filter`,
//! `$reduce`.

use std::borrow::Cow;
use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Error, Result, is_truthy};

use super::operand::{int32, shown};
use super::parser::Parser;
use super::{Operator, present, type_name};
use crate::frame::Frame;
use crate::{Custom, Expression, Node, Scope, Value, memory, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$let", Let::parse),
    Operator::custom("$map", Map::parse),
    Operator::custom("$filter", Filter::parse),
    Operator::custom("$reduce", Reduce::parse),
];

/// The codes of an operator that takes an object.
struct Codes {
    operator: &'static str,
    not_object: i32,
    unknown: i32,
}

impl Codes {
    /// The operand's fields, which must all be among `known`.
    fn fields<'a>(&self, operand: &'a Bson, known: &[&str]) -> Result<&'a Document> {
        let Bson::Document(fields) = operand else {
            return Err(Error::location(
                self.not_object,
                format!("{} only supports an object as its argument", self.operator),
            ));
        };
        match fields.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(Error::location(
                self.unknown,
                format!("Unrecognized parameter to {}: {name}", self.operator),
            )),
            None => Ok(fields),
        }
    }

    fn required<'a>(&self, fields: &'a Document, name: &str, code: i32) -> Result<&'a Bson> {
        fields.get(name).ok_or_else(|| {
            Error::location(
                code,
                format!("Missing '{name}' parameter to {}", self.operator),
            )
        })
    }
}

/// The name that `as` gives to the elements; `this` by default.
fn element_name(fields: &Document) -> Result<Box<str>> {
    match fields.get("as") {
        None => Ok("this".into()),
        Some(Bson::String(name)) => {
            Scope::check_new_name(name)?;
            Ok(name.as_str().into())
        }
        // An empty name is refused with the words for names that are none.
        Some(_) => Scope::check_new_name("").map(|()| Box::default()),
    }
}

/// The elements of an evaluated input; `None` if it is null.
fn elements<'v>(operator: &str, code: i32, input: &'v Value<'_>) -> Result<Option<&'v [Bson]>> {
    match present(input.as_deref()) {
        None => Ok(None),
        Some(Bson::Array(items)) => Ok(Some(items)),
        other => Err(Error::location(
            code,
            format!(
                "input to {operator} must be an array not {}",
                type_name(other)
            ),
        )),
    }
}

#[derive(Debug)]
struct Let {
    bindings: Vec<(Box<str>, Expression)>,
    body: Expression,
}

impl Let {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        const CODES: Codes = Codes {
            operator: "$let",
            not_object: 16874,
            unknown: 16875,
        };
        let fields = CODES.fields(operand, &["vars", "in"])?;
        let vars = CODES.required(fields, "vars", 16876)?;
        let body = CODES.required(fields, "in", 16877)?;
        let Bson::Document(vars) = vars else {
            return Err(Error::location(
                10065,
                "invalid parameter: expected an object (vars)",
            ));
        };
        // Values see the variables outside of the `$let`, not each other.
        let (mut inner, mut bindings) = (scope.clone(), Vec::with_capacity(vars.len()));
        for (name, value) in vars {
            Scope::check_new_name(name)?;
            bindings.push((name.as_str().into(), parser.operand(value, scope)?));
            inner = inner.with(name);
        }
        let body = parser.operand(body, &inner)?;
        Ok(Node::Custom(Arc::new(Self { bindings, body })))
    }

    /// Binds the variables one on the other's frame and evaluates the body in the innermost.
    fn bind<'a>(
        &'a self,
        mut values: std::vec::IntoIter<Value<'a>>,
        names: &'a [(Box<str>, Expression)],
        frame: Frame<'a>,
    ) -> Result<Value<'static>> {
        let (Some((name, _)), Some(value)) = (names.first(), values.next()) else {
            return Ok(self
                .body
                .eval(frame)?
                .map(|value| Cow::Owned(value.into_owned())));
        };
        let local = frame.local(name, value);
        self.bind(values, &names[1..], frame.with(&local))
    }
}

impl Custom for Let {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let meter = frame.meter();
        let mut values = Vec::with_capacity(self.bindings.len());
        for (_, expression) in &self.bindings {
            values.push(meter.hold(expression.eval(frame)?)?);
        }
        self.bind(values.into_iter(), &self.bindings, frame)
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        self.bindings.iter().for_each(|(_, value)| visit(value));
        visit(&self.body);
    }
}

#[derive(Debug)]
struct Map {
    input: Expression,
    element: Box<str>,
    body: Expression,
}

impl Map {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        const CODES: Codes = Codes {
            operator: "$map",
            not_object: 16878,
            unknown: 16879,
        };
        let fields = CODES.fields(operand, &["input", "as", "in"])?;
        let input = parser.operand(CODES.required(fields, "input", 16880)?, scope)?;
        let element = element_name(fields)?;
        let body = CODES.required(fields, "in", 16882)?;
        let body = parser.operand(body, &scope.with(&element))?;
        Ok(Node::Custom(Arc::new(Self {
            input,
            element,
            body,
        })))
    }
}

impl Custom for Map {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let meter = frame.meter();
        let input = meter.hold(self.input.eval(frame)?)?;
        let Some(items) = elements("$map", 16883, &input)? else {
            return Ok(owned(Bson::Null));
        };
        let mut mapped = Vec::with_capacity(items.len());
        for item in items {
            frame.check()?;
            let local = frame.local(&self.element, Some(Cow::Borrowed(item)));
            let value = self
                .body
                .eval(frame.with(&local))?
                .map_or(Bson::Null, Cow::into_owned);
            meter.add(memory::value_bytes(&value))?;
            mapped.push(value);
        }
        Ok(owned(Bson::Array(mapped)))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(&self.input);
        visit(&self.body);
    }
}

#[derive(Debug)]
struct Filter {
    input: Expression,
    element: Box<str>,
    condition: Expression,
    limit: Option<Expression>,
}

impl Filter {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        const CODES: Codes = Codes {
            operator: "$filter",
            not_object: 28646,
            unknown: 28647,
        };
        let fields = CODES.fields(operand, &["input", "as", "cond", "limit"])?;
        let input = parser.operand(CODES.required(fields, "input", 28648)?, scope)?;
        let element = element_name(fields)?;
        let condition = CODES.required(fields, "cond", 28650)?;
        let condition = parser.operand(condition, &scope.with(&element))?;
        let limit = fields
            .get("limit")
            .map(|limit| parser.operand(limit, scope))
            .transpose()?;
        Ok(Node::Custom(Arc::new(Self {
            input,
            element,
            condition,
            limit,
        })))
    }

    /// How many elements may be answered; a limit of null is none.
    fn limit(&self, frame: Frame<'_>) -> Result<usize> {
        let limit = self
            .limit
            .as_ref()
            .map_or(Ok(None), |limit| limit.eval(frame))?;
        let Some(limit) = present(limit.as_deref()) else {
            return Ok(usize::MAX);
        };
        let limit = int32(limit).ok_or_else(|| {
            Error::location(
                327_391,
                format!(
                    "$filter: limit must be represented as a 32-bit integral value: {}",
                    shown(Some(limit))
                ),
            )
        })?;
        usize::try_from(limit)
            .ok()
            .filter(|&limit| limit > 0)
            .ok_or_else(|| {
                Error::location(
                    327_392,
                    format!("$filter: limit must be greater than 0: {limit}"),
                )
            })
    }
}

impl Custom for Filter {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let meter = frame.meter();
        let input = meter.hold(self.input.eval(frame)?)?;
        let Some(items) = elements("$filter", 28651, &input)? else {
            return Ok(owned(Bson::Null));
        };
        let limit = self.limit(frame)?;
        let mut kept = Vec::new();
        for item in items {
            frame.check()?;
            let local = frame.local(&self.element, Some(Cow::Borrowed(item)));
            if self
                .condition
                .eval(frame.with(&local))?
                .is_some_and(|value| is_truthy(&value))
            {
                meter.add(memory::value_bytes(item))?;
                kept.push(item.clone());
                if kept.len() == limit {
                    break;
                }
            }
        }
        Ok(owned(Bson::Array(kept)))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(&self.input);
        visit(&self.condition);
        self.limit.iter().for_each(visit);
    }
}

#[derive(Debug)]
struct Reduce {
    input: Expression,
    initial: Expression,
    body: Expression,
}

impl Reduce {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        let Bson::Document(fields) = operand else {
            return Err(Error::location(
                40075,
                format!(
                    "$reduce requires an object as an argument, found: {}",
                    type_name(Some(operand))
                ),
            ));
        };
        let known = ["input", "initialValue", "in"];
        if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::location(
                40076,
                format!("$reduce found an unknown argument: {name}"),
            ));
        }
        let required = |name: &str, code: i32| {
            fields.get(name).ok_or_else(|| {
                Error::location(code, format!("$reduce requires '{name}' to be specified"))
            })
        };
        let inner = scope.with("this").with("value");
        let input = parser.operand(required("input", 40077)?, scope)?;
        let initial = parser.operand(required("initialValue", 40078)?, scope)?;
        let body = parser.operand(required("in", 40079)?, &inner)?;
        Ok(Node::Custom(Arc::new(Self {
            input,
            initial,
            body,
        })))
    }
}

impl Custom for Reduce {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let held = frame.meter();
        let input = held.hold(self.input.eval(frame)?)?;
        let items = match present(input.as_deref()) {
            None => return Ok(owned(Bson::Null)),
            Some(Bson::Array(items)) => items,
            other => {
                return Err(Error::location(
                    40080,
                    format!(
                        "$reduce requires that 'input' be an array, found: {}",
                        shown(other)
                    ),
                ));
            }
        };
        let meter = frame.meter();
        let mut accumulated = self.initial.eval(frame)?.map(Cow::into_owned);
        for item in items {
            frame.check()?;
            let next = {
                let this = frame.local("this", Some(Cow::Borrowed(item)));
                let inner = frame.with(&this);
                let value = inner.local("value", accumulated.as_ref().map(Cow::Borrowed));
                self.body.eval(inner.with(&value))?.map(Cow::into_owned)
            };
            // Each round may add a level of nesting, so that the result could outgrow every limit.
            if let Some(next) = &next {
                memory::check_depth(next)?;
                meter.replace(memory::value_bytes(next))?;
            }
            accumulated = next;
        }
        Ok(accumulated.map(Cow::Owned))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(&self.input);
        visit(&self.initial);
        visit(&self.body);
    }
}
