//! The table of operators, and the parser that reads expressions by it: operators parse operands, so each needs
//! the other.

mod accumulation;
mod arithmetic;
mod array;
mod boolean;
mod comparison;
mod conditional;
mod conversion;
mod date;
mod iteration;
mod literal;
mod object;
mod operand;
mod parser;
mod random;
mod regex;
mod selection;
mod set;
mod string;
mod trigonometry;
mod type_;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use bson::Bson;
use millrace_value::{Error, Result};

use super::frame::Frame;
use super::{Expression, Node, Scope, Value};

pub(crate) use parser::Parser;

/// One row of the table.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) name: &'static str,
    pub(super) form: Form,
}

/// What an evaluator answers: a computed value or missing.
type Computed = Result<Option<Bson>>;
type Unary = fn(Option<&Bson>, Frame<'_>) -> Computed;
type Binary = fn(Option<&Bson>, Option<&Bson>, Frame<'_>) -> Computed;
type Variadic = fn(&[Value<'_>], Frame<'_>) -> Computed;
type Lazy = for<'a> fn(&'a [Expression], Frame<'a>) -> Result<Value<'a>>;
type Named = for<'a> fn(Operands<'a>, Frame<'a>) -> Result<Value<'a>>;
type Parse = fn(&mut Parser, &Bson, &Scope) -> Result<Node>;

/// How an operator takes its operands. All evaluators depend on their operands only, so that calls with
/// constants can be folded; what does not, is [`Form::Custom`]. Evaluators of the first three get values, and the rest get
/// expressions, which they evaluate when and if they need them.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Unary(Unary),
    Binary(Binary),
    Variadic {
        least: usize,
        most: Option<usize>,
        evaluate: Variadic,
    },
    Lazy {
        least: usize,
        most: Option<usize>,
        evaluate: Lazy,
    },
    Named {
        signature: &'static Signature,
        evaluate: Named,
    },
    /// Parses its operand itself.
    Custom(Parse),
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unary(_) => "Unary",
            Self::Binary(_) => "Binary",
            Self::Variadic { .. } => "Variadic",
            Self::Lazy { .. } => "Lazy",
            Self::Named { .. } => "Named",
            Self::Custom(_) => "Custom",
        })
    }
}

impl Operator {
    pub(super) const fn unary(name: &'static str, evaluate: Unary) -> Self {
        Self {
            name,
            form: Form::Unary(evaluate),
        }
    }

    pub(super) const fn binary(name: &'static str, evaluate: Binary) -> Self {
        Self {
            name,
            form: Form::Binary(evaluate),
        }
    }

    pub(super) const fn variadic(
        name: &'static str,
        least: usize,
        most: Option<usize>,
        evaluate: Variadic,
    ) -> Self {
        Self {
            name,
            form: Form::Variadic {
                least,
                most,
                evaluate,
            },
        }
    }

    pub(super) const fn lazy(
        name: &'static str,
        least: usize,
        most: Option<usize>,
        evaluate: Lazy,
    ) -> Self {
        Self {
            name,
            form: Form::Lazy {
                least,
                most,
                evaluate,
            },
        }
    }

    pub(super) const fn named(
        name: &'static str,
        signature: &'static Signature,
        evaluate: Named,
    ) -> Self {
        Self {
            name,
            form: Form::Named {
                signature,
                evaluate,
            },
        }
    }

    pub(super) const fn custom(name: &'static str, parse: Parse) -> Self {
        Self {
            name,
            form: Form::Custom(parse),
        }
    }
}

/// What an operator that takes an object as its operand calls its fields, and how it complains. Each
/// operator has codes and words of its own; `{op}` stands for its name, `{name}` for the field's and
/// `{type}` for the operand's type.
#[derive(Debug)]
pub(super) struct Signature {
    /// The operand is not an object.
    pub(super) not_object: (i32, &'static str),
    /// The operand has a field that the operator does not know.
    pub(super) unknown: (i32, &'static str),
    /// A required field is missing; its code is the parameter's.
    pub(super) missing: &'static str,
    pub(super) parameters: &'static [Parameter],
}

/// One field of such an operand.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// The code for its absence; `None` if it is optional.
    pub(super) missing: Option<i32>,
}

impl Parameter {
    pub(super) const fn required(name: &'static str, code: i32) -> Self {
        Self {
            name,
            missing: Some(code),
        }
    }

    pub(super) const fn optional(name: &'static str) -> Self {
        Self {
            name,
            missing: None,
        }
    }

    pub(super) fn check_optional(&self, operator: &str, signature: &Signature) -> Result<()> {
        let Some(code) = self.missing else {
            return Ok(());
        };
        Err(Error::location(
            code,
            fill(signature.missing, operator, self.name, "missing"),
        ))
    }
}

impl Signature {
    pub(super) fn not_an_object(&self, operator: &str, operand: &Bson) -> Error {
        let (code, words) = self.not_object;
        Error::location(
            code,
            fill(words, operator, "", millrace_value::type_alias(operand)),
        )
    }

    pub(super) fn unknown(&self, operator: &str, name: &str) -> Error {
        let (code, words) = self.unknown;
        Error::location(code, fill(words, operator, name, ""))
    }
}

fn fill(words: &str, operator: &str, name: &str, type_name: &str) -> String {
    words
        .replace("{op}", operator)
        .replace("{type}", type_name)
        .replace("{name}", name)
}

/// Operands by name, in the order of the signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands<'a>(&'a [Option<Expression>]);

impl<'a> Operands<'a> {
    pub(super) const fn new(operands: &'a [Option<Expression>]) -> Self {
        Self(operands)
    }

    /// The expression at a place of the signature, if it was given.
    pub(super) fn get(&self, place: usize) -> Option<&'a Expression> {
        self.0[place].as_ref()
    }

    /// Its value; missing if the operand was not given. It counts as held until the call is over.
    pub(super) fn value(&self, place: usize, frame: Frame<'a>) -> Result<Value<'a>> {
        self.get(place)
            .map_or(Ok(None), |operand| frame.hold(operand.eval(frame)?))
    }
}

/// The rows of each family.
const FAMILIES: &[&[Operator]] = &[
    accumulation::OPERATORS,
    arithmetic::OPERATORS,
    array::OPERATORS,
    boolean::OPERATORS,
    comparison::OPERATORS,
    conditional::OPERATORS,
    conversion::OPERATORS,
    iteration::OPERATORS,
    literal::OPERATORS,
    object::OPERATORS,
    random::OPERATORS,
    regex::OPERATORS,
    selection::OPERATORS,
    set::OPERATORS,
    string::OPERATORS,
    trigonometry::OPERATORS,
    type_::OPERATORS,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Operator>> =
    LazyLock::new(|| all().map(|row| (row.name, row)).collect());

/// All rows of the table.
pub(super) fn all() -> impl Iterator<Item = &'static Operator> {
    FAMILIES
        .iter()
        .chain(date::FAMILIES)
        .flat_map(|family| family.iter())
}

/// The operator with this name, which begins with `$`.
pub(super) fn find(name: &str) -> Option<&'static Operator> {
    BY_NAME.get(name).copied()
}

/// The value, unless it is null, undefined or missing.
fn present(value: Option<&Bson>) -> Option<&Bson> {
    value.filter(|value| !matches!(value, Bson::Null | Bson::Undefined))
}

/// Null as an evaluator's result.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands where evaluators answer a result"
)]
fn null() -> Result<Option<Bson>> {
    Ok(Some(Bson::Null))
}

/// The alias of a value's type, "missing" if there is none.
fn type_name(value: Option<&Bson>) -> &'static str {
    value.map_or("missing", millrace_value::type_alias)
}
