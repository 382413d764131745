//! `$regexFind`, `$regexFindAll`, `$regexMatch`.

use std::borrow::Cow;
use std::sync::Arc;

use bson::{Bson, doc};
use millrace_value::{Error, Number, Result};

use super::operand::{shown, text};
use super::parser::Parser;
use super::{Operator, Parameter, Signature, present, type_name};
use crate::frame::Frame;
use crate::regex::{Regex, RegexMatch};
use crate::{Custom, Expression, Node, Scope, Value, memory, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::custom("$regexFind", |parser, operand, scope| {
        Search::parse(parser, "$regexFind", Answer::First, operand, scope)
    }),
    Operator::custom("$regexFindAll", |parser, operand, scope| {
        Search::parse(parser, "$regexFindAll", Answer::All, operand, scope)
    }),
    Operator::custom("$regexMatch", |parser, operand, scope| {
        Search::parse(parser, "$regexMatch", Answer::Whether, operand, scope)
    }),
];

static SIGNATURE: Signature = Signature {
    not_object: (
        51103,
        "{op} expects an object of named arguments but found: {type}",
    ),
    unknown: (31024, "{op} found an unknown argument: {name}"),
    missing: "{op} requires '{name}' parameter",
    parameters: &[
        Parameter::required("input", 31022),
        Parameter::required("regex", 31023),
        Parameter::optional("options"),
    ],
};

/// What of a search is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    First,
    All,
    Whether,
}

#[derive(Debug)]
struct Search {
    operator: &'static str,
    answer: Answer,
    input: Expression,
    regex: Expression,
    options: Option<Expression>,
    /// Compiled once if pattern and options are constants.
    compiled: Option<Regex>,
}

impl Search {
    fn parse(
        parser: &mut Parser,
        operator: &'static str,
        answer: Answer,
        operand: &Bson,
        scope: &Scope,
    ) -> Result<Node> {
        let operands = parser.named(operator, &SIGNATURE, operand, scope)?;
        let Ok([Some(input), Some(regex), options]) = <[Option<Expression>; 3]>::try_from(operands)
        else {
            return Err(crate::internal("a required operand is missing"));
        };
        let compiled = match (
            regex.as_constant(),
            options.as_ref().map(Expression::as_constant),
        ) {
            (Some(regex), None) => compile(operator, Some(regex), None)?,
            (Some(regex), Some(Some(options))) => compile(operator, Some(regex), Some(options))?,
            _ => None,
        };
        Ok(Node::Custom(Arc::new(Self {
            operator,
            answer,
            input,
            regex,
            options,
            compiled,
        })))
    }

    /// The answer when there is nothing to find.
    fn nothing(&self) -> Bson {
        match self.answer {
            Answer::First => Bson::Null,
            Answer::All => Bson::Array(Vec::new()),
            Answer::Whether => Bson::Boolean(false),
        }
    }

    fn search(&self, regex: &Regex, input: &str, frame: Frame<'_>) -> Result<Bson> {
        Ok(match self.answer {
            Answer::Whether => Bson::Boolean(regex.is_match(input)?),
            Answer::First => match regex.find_at(input, 0)? {
                Some(found) => describe(input, &found, code_points(&input[..found.start])),
                None => Bson::Null,
            },
            Answer::All => find_all(regex, input, frame)?,
        })
    }
}

impl Custom for Search {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        frame.check()?;
        let meter = frame.meter();
        let input = meter.hold(self.input.eval(frame)?)?;
        let input = match (present(input.as_deref()), text(input.as_deref())) {
            (Some(_), None) => {
                return Err(Error::location(
                    51104,
                    format!(
                        "{} needs 'input' to be of type string, but got {}",
                        self.operator,
                        type_name(input.as_deref())
                    ),
                ));
            }
            (_, input) => input,
        };
        let compiled = match &self.compiled {
            Some(compiled) => Some(Cow::Borrowed(compiled)),
            None => {
                let regex = self.regex.eval(frame)?;
                let options = self.options.as_ref().map_or(Ok(None), |o| o.eval(frame))?;
                compile(self.operator, regex.as_deref(), options.as_deref())?.map(Cow::Owned)
            }
        };
        Ok(owned(match (input, compiled) {
            (Some(input), Some(regex)) => self.search(&regex, input, frame)?,
            _ => self.nothing(),
        }))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(&self.input);
        visit(&self.regex);
        self.options.iter().for_each(visit);
    }
}

/// The expression to search for; `None` if it is null.
fn compile(operator: &str, regex: Option<&Bson>, options: Option<&Bson>) -> Result<Option<Regex>> {
    let given = match (present(options), text(options)) {
        (Some(_), None) => {
            return Err(Error::location(
                51106,
                format!(
                    "{operator} needs 'options' to be of type string, but got {}",
                    type_name(options)
                ),
            ));
        }
        (_, options) => options,
    };
    let (pattern, own) = match present(regex) {
        None => return Ok(None),
        Some(Bson::RegularExpression(regex)) => (regex.pattern.as_str(), regex.options.as_str()),
        value => match text(value) {
            Some(pattern) => (pattern, ""),
            None => {
                return Err(Error::location(
                    51105,
                    format!(
                        "{operator} needs 'regex' to be of type string or regex, but got {}",
                        type_name(value)
                    ),
                ));
            }
        },
    };
    if given.is_some() && !own.is_empty() {
        return Err(Error::location(
            51107,
            format!(
                "{operator} found regex option(s) specified in both 'regex' and 'option' fields: {}",
                shown(regex)
            ),
        ));
    }
    let options = given.unwrap_or(own);
    for (code, what, text) in [
        (51109, "regex pattern", pattern),
        (51110, "regex options", options),
    ] {
        if text.contains('\0') {
            return Err(Error::location(
                code,
                format!("{operator}: {what} must not have embedded null bytes"),
            ));
        }
    }
    Regex::compile(pattern, options)
        .map(Some)
        .map_err(|error| match error.code().number() {
            51108 => Error::location(51108, format!("{operator} {}", error.message())),
            51091 => Error::location(
                51111,
                format!("Invalid Regex in {operator}: {}", error.message()),
            ),
            _ => error,
        })
}

fn find_all(regex: &Regex, input: &str, frame: Frame<'_>) -> Result<Bson> {
    let meter = frame.meter();
    let mut matches = Vec::new();
    let (mut start, mut counted_to, mut index) = (0, 0, 0);
    while let Some(found) = regex.find_at(input, start)? {
        frame.check()?;
        // A match may begin before the search did, if a look-behind was moved by `\K`.
        let Some(skipped) = input.get(counted_to..found.start) else {
            break;
        };
        index += code_points(skipped);
        counted_to = found.start;
        let described = describe(input, &found, index);
        meter.add(memory::value_bytes(&described))?;
        matches.push(described);
        // An empty match would be found again at the same place.
        start = if found.end > start.max(found.start) {
            found.end
        } else {
            match input[found.end..].chars().next() {
                Some(next) => found.end + next.len_utf8(),
                None => break,
            }
        };
    }
    Ok(Bson::Array(matches))
}

fn code_points(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

/// A match, where it begins in code points, and what its groups captured.
fn describe(input: &str, found: &RegexMatch, index: i64) -> Bson {
    let captures = found.captures.iter().map(|range| match range {
        Some((start, end)) => Bson::String(input[*start..*end].to_owned()),
        None => Bson::Null,
    });
    Bson::Document(doc! {
        "match": &input[found.start..found.end],
        "idx": Number::from_i64(index).to_bson(),
        "captures": captures.collect::<Vec<_>>(),
    })
}
