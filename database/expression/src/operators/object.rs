//! Fields of objects: `$getField`, `$setField`, `$unsetField`, `$mergeObjects`, `$objectToArray`.

use std::borrow::Cow;

use bson::{Bson, Document, doc};
use millrace_value::{Error, Result, type_alias};

use super::operand::shown;
use super::parser::{Parser, named_call};
use super::{Operands, Operator, Parameter, Signature, null, present, type_name};
use crate::frame::Frame;
use crate::{Expression, Node, Scope, Value, memory, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$getField", parse_get_field),
    Operator::custom("$setField", |parser, operand, scope| {
        parse_set_field(parser, &SET_FIELD, operand, scope)
    }),
    Operator::custom("$unsetField", |parser, operand, scope| {
        parse_set_field(parser, &UNSET_FIELD, operand, scope)
    }),
    Operator::variadic("$mergeObjects", 0, None, merge_objects),
    Operator::unary("$objectToArray", object_to_array),
];

static GET_FIELD: Operator = Operator::named("$getField", &GET_SIGNATURE, get_field);
static SET_FIELD: Operator = Operator::named("$setField", &SET_SIGNATURE, set_field);
static UNSET_FIELD: Operator = Operator::named("$unsetField", &UNSET_SIGNATURE, unset_field);

static GET_SIGNATURE: Signature = Signature {
    not_object: (3_041_701, "{op} found an unknown argument of type {type}"),
    unknown: (3_041_701, "{op} found an unknown argument: {name}"),
    missing: "{op} requires '{name}' to be specified",
    parameters: &[
        Parameter::required("field", 3_041_702),
        Parameter::required("input", 3_041_703),
    ],
};

static SET_SIGNATURE: Signature = changing(&[
    Parameter::required("field", 4_161_102),
    Parameter::required("input", 4_161_109),
    Parameter::required("value", 4_161_103),
]);

static UNSET_SIGNATURE: Signature = changing(&[
    Parameter::required("field", 4_161_102),
    Parameter::required("input", 4_161_109),
]);

const fn changing(parameters: &'static [Parameter]) -> Signature {
    Signature {
        not_object: (4_161_100, "{op} only supports an object as its argument"),
        unknown: (4_161_101, "{op} found an unknown argument: {name}"),
        missing: "{op} requires '{name}' to be specified",
        parameters,
    }
}

/// The short form names a field of the current document.
fn parse_get_field(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
    let short = match operand {
        Bson::Document(fields) => fields
            .keys()
            .next()
            .is_some_and(|name| name.starts_with('$')),
        _ => true,
    };
    let long = Bson::Document(doc! {"field": operand.clone(), "input": "$$CURRENT"});
    let operands = parser.named(
        "$getField",
        &GET_SIGNATURE,
        if short { &long } else { operand },
        scope,
    )?;
    if let Some(field) = operands[0].as_ref().and_then(Expression::as_constant) {
        field_name("$getField", 3_041_704, Some(field))?;
    }
    Ok(named_call(&GET_FIELD, operands, scope))
}

/// The name of the field, which a value must be.
fn field_name<'v>(operator: &str, code: i32, value: Option<&'v Bson>) -> Result<&'v str> {
    match value {
        Some(Bson::String(name)) => Ok(name),
        other => Err(Error::location(
            code,
            format!(
                "{operator} requires 'field' to evaluate to type String, but got {}",
                type_name(other)
            ),
        )),
    }
}

fn get_field<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let field = operands.value(0, frame)?;
    let name = field_name("$getField", 3_041_704, field.as_deref())?;
    Ok(match operands.value(1, frame)? {
        Some(Cow::Borrowed(Bson::Document(document))) => document.get(name).map(Cow::Borrowed),
        Some(Cow::Owned(Bson::Document(mut document))) => document.remove(name).map(Cow::Owned),
        input if present(input.as_deref()).is_none() => input.and_then(|_| owned(Bson::Null)),
        _ => None,
    })
}

/// The name of the field has to be a constant string here.
fn parse_set_field(
    parser: &mut Parser,
    operator: &'static Operator,
    operand: &Bson,
    scope: &Scope,
) -> Result<Node> {
    let signature = if operator.name == "$setField" {
        &SET_SIGNATURE
    } else {
        &UNSET_SIGNATURE
    };
    let field = match operand {
        Bson::Document(fields) => fields.get("field"),
        _ => None,
    };
    if let Some(Bson::String(path)) = field {
        if path.starts_with('$') {
            return Err(Error::location(
                4_161_108,
                format!(
                    "'{path}' is a field path reference which is not allowed in this context. Did you \
                     mean {{$literal: '{path}'}}?"
                ),
            ));
        }
    }
    let operands = parser.named(operator.name, signature, operand, scope)?;
    let Some(name) = operands[0].as_ref().and_then(Expression::as_constant) else {
        return Err(Error::location(
            4_161_106,
            format!(
                "{} requires 'field' to evaluate to a constant, but got a non-constant argument",
                operator.name
            ),
        ));
    };
    field_name(operator.name, 4_161_107, Some(name))?;
    Ok(named_call(operator, operands, scope))
}

/// The object to change; `None` if it is null.
fn changed_object(operator: &str, input: Value<'_>) -> Result<Option<Document>> {
    match input.map(Cow::into_owned) {
        None | Some(Bson::Null | Bson::Undefined) => Ok(None),
        Some(Bson::Document(document)) => Ok(Some(document)),
        Some(other) => Err(Error::location(
            4_161_105,
            format!(
                "{operator} requires 'input' to evaluate to type Object, but got {}",
                type_alias(&other)
            ),
        )),
    }
}

fn set_field<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let field = operands.value(0, frame)?;
    let name = field_name("$setField", 4_161_107, field.as_deref())?;
    let input = operands.value(1, frame)?;
    let value = operands.value(2, frame)?;
    let Some(mut document) = changed_object("$setField", input)? else {
        return Ok(owned(Bson::Null));
    };
    match value {
        Some(value) => document.insert(name, value.into_owned()),
        None => document.remove(name),
    };
    Ok(owned(Bson::Document(document)))
}

fn unset_field<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let field = operands.value(0, frame)?;
    let name = field_name("$unsetField", 4_161_107, field.as_deref())?;
    let Some(mut document) = changed_object("$unsetField", operands.value(1, frame)?)? else {
        return Ok(owned(Bson::Null));
    };
    document.remove(name);
    Ok(owned(Bson::Document(document)))
}

/// Later objects win; null and missing ones are skipped. A single operand that is an array stands for
/// its elements.
fn merge_objects(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let mut merged = Document::new();
    let meter = frame.meter();
    let mut merge = |value: Option<&Bson>| match present(value) {
        None => Ok(()),
        Some(Bson::Document(document)) => {
            frame.check()?;
            for (name, value) in document {
                meter.add(memory::field_bytes(name, value))?;
                merged.insert(name.clone(), value.clone());
            }
            Ok(())
        }
        Some(other) => Err(Error::location(
            40400,
            format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                shown(Some(other)),
                type_alias(other)
            ),
        )),
    };
    match operands {
        [only] => match only.as_deref() {
            Some(Bson::Array(items)) => items.iter().try_for_each(|item| merge(Some(item)))?,
            single => merge(single)?,
        },
        several => several
            .iter()
            .try_for_each(|value| merge(value.as_deref()))?,
    }
    Ok(Some(Bson::Document(merged)))
}

fn object_to_array(object: Option<&Bson>, frame: Frame<'_>) -> Result<Option<Bson>> {
    match present(object) {
        None => null(),
        Some(Bson::Document(document)) => {
            // Each field becomes an object of two.
            let pair_bytes = 2 * memory::field_bytes("k", &Bson::Null);
            frame
                .meter()
                .add(document.len().saturating_mul(pair_bytes))?;
            let pairs = document
                .iter()
                .map(|(name, value)| Bson::Document(doc! {"k": name.as_str(), "v": value.clone()}));
            Ok(Some(Bson::Array(pairs.collect())))
        }
        other => Err(Error::location(
            40390,
            format!(
                "$objectToArray requires a document input, found: {}",
                type_name(other)
            ),
        )),
    }
}
