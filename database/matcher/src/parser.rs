//! Parsing of filters: fields, logical operators, and operators that look at the whole document.
//! The operators on a field are parsed in `operator`.

use bson::spec::ElementType;
use bson::{Bson, RawBson, RawBsonRef, RawDocument};
use millrace_expression::regex::Regex;
use millrace_expression::{Expression, Scope};
use millrace_value::{Collation, Error, ErrorCode, Number, Path, Result};

use super::depth::check_depth;
use super::integer::integer;
use super::schema::Schema;
use super::walk::elements;
use super::{Node, Predicate};

/// Parses one filter. The depth counts levels of nesting from the filter's root.
pub(super) struct Parser<'a> {
    scope: &'a Scope,
}

/// Where a condition stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// It is about the document that is matched.
    Document,
    /// It is about an element of an array in it, so that `$expr` has no meaning.
    Element,
}

pub(super) fn bad_value(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::BadValue, message)
}

/// Whether `name` is one of the operators that stand in place of a field. The three of a DBRef are
/// fields whose names look like operators.
pub(super) fn is_pathless_operator(name: &str) -> bool {
    matches!(
        name,
        "$and"
            | "$or"
            | "$nor"
            | "$expr"
            | "$jsonSchema"
            | "$comment"
            | "$where"
            | "$text"
            | "$sampleRate"
            | "$alwaysTrue"
            | "$alwaysFalse"
    ) || is_dbref_field(name)
}

pub(super) fn is_dbref_field(name: &str) -> bool {
    matches!(name, "$ref" | "$id" | "$db")
}

/// Whether the document holds operators rather than being a value: its first field is called
/// `$something`, and it is no DBRef. With `lenient`, any field of a DBRef makes it one; otherwise
/// `$ref` and `$id` do.
pub(super) fn holds_operators(document: &RawDocument, lenient: bool) -> Result<bool> {
    let Some(first) = document.iter_elements().next() else {
        return Ok(false);
    };
    if !first?.key().as_str().starts_with('$') {
        return Ok(false);
    }
    let (mut has_ref, mut has_id, mut has_db) = (false, false, false);
    for element in document.iter_elements() {
        match element?.key().as_str() {
            "$ref" => has_ref = true,
            "$id" => has_id = true,
            "$db" => has_db = true,
            _ => {}
        }
    }
    let is_dbref = if lenient {
        has_ref || has_id || has_db
    } else {
        has_ref && has_id
    };
    Ok(!is_dbref)
}

/// An operand to compare with. MongoDB refuses `undefined`.
pub(super) fn operand(value: RawBsonRef<'_>) -> Result<RawBson> {
    if value.element_type() == ElementType::Undefined {
        return Err(bad_value("cannot compare to undefined"));
    }
    Ok(value.into())
}

/// The condition that a predicate is of the path: negations then cover all values it leads to.
fn lift(path: &Path, predicate: Predicate) -> Node {
    match predicate {
        Predicate::Not(inner) => {
            let inner = inner
                .into_iter()
                .map(|predicate| lift(path, predicate))
                .collect();
            Node::Not(Box::new(Node::all_of(inner)))
        }
        predicate => Node::Path {
            path: path.clone(),
            predicate,
        },
    }
}

impl<'a> Parser<'a> {
    pub(super) const fn new(scope: &'a Scope) -> Self {
        Self { scope }
    }

    /// The rule by which the conditions compare strings.
    pub(super) const fn collation(&self) -> Collation {
        self.scope.collation()
    }

    /// Parses a whole filter.
    pub(super) fn filter(&self, filter: &RawDocument) -> Result<Node> {
        self.document(filter, Level::Document, 0)
    }

    /// Parses conditions on the fields of a document.
    pub(super) fn document(
        &self,
        filter: &RawDocument,
        level: Level,
        depth: usize,
    ) -> Result<Node> {
        check_depth(depth)?;
        let mut conditions = Vec::new();
        for element in filter.iter_elements() {
            let element = element?;
            let (name, value) = (element.key().as_str(), element.value()?);
            if name.starts_with('$') && !is_dbref_field(name) {
                conditions.extend(self.pathless(name, value, level, depth)?);
            } else {
                self.field(name, value, depth, &mut conditions)?;
            }
        }
        Ok(Node::all_of(conditions))
    }

    fn field(
        &self,
        name: &str,
        value: RawBsonRef<'_>,
        depth: usize,
        conditions: &mut Vec<Node>,
    ) -> Result<()> {
        let path = Path::parse(name);
        match value {
            RawBsonRef::Document(operators) if holds_operators(operators, false)? => {
                let predicates = self.operators(name, operators, depth + 1)?;
                conditions.extend(
                    predicates
                        .into_iter()
                        .map(|predicate| lift(&path, predicate)),
                );
            }
            RawBsonRef::RegularExpression(regex) => {
                let regex = Regex::compile(regex.pattern.as_str(), regex.options.as_str())?;
                conditions.push(Node::Path {
                    path,
                    predicate: Predicate::Regex(regex),
                });
            }
            value => {
                let predicate = Predicate::Equal(operand(value)?);
                conditions.push(Node::Path { path, predicate });
            }
        }
        Ok(())
    }

    /// Parses an operator that stands in place of a field. `$comment` is no condition at all.
    fn pathless(
        &self,
        name: &str,
        value: RawBsonRef<'_>,
        level: Level,
        depth: usize,
    ) -> Result<Option<Node>> {
        Ok(Some(match name {
            "$and" => Node::And(self.nodes(name, value, level, depth)?),
            "$or" => Node::Or(self.nodes(name, value, level, depth)?),
            "$nor" => Node::Nor(self.nodes(name, value, level, depth)?),
            "$expr" => self.expression(value, level)?,
            "$jsonSchema" => match value {
                RawBsonRef::Document(schema) => Node::JsonSchema(Box::new(Schema::parse(schema)?)),
                _ => {
                    return Err(Error::new(
                        ErrorCode::TypeMismatch,
                        "$jsonSchema must be an object",
                    ));
                }
            },
            "$comment" => return Ok(None),
            "$sampleRate" => sample_rate(value)?,
            "$alwaysTrue" => always(name, value, Node::AlwaysTrue)?,
            "$alwaysFalse" => always(name, value, Node::AlwaysFalse)?,
            "$where" => {
                return Err(bad_value(
                    "$where is not supported: there is no JavaScript engine",
                ));
            }
            "$text" => {
                return Err(bad_value(
                    "$text is not supported: there are no text indexes",
                ));
            }
            name => {
                return Err(bad_value(format!(
                    "unknown top level operator: {name}. If you have a field name that starts with \
                     a '$' symbol, consider using $getField or $setField."
                )));
            }
        }))
    }

    fn nodes(
        &self,
        name: &str,
        value: RawBsonRef<'_>,
        level: Level,
        depth: usize,
    ) -> Result<Vec<Node>> {
        let RawBsonRef::Array(filters) = value else {
            return Err(bad_value(format!("{name} must be an array")));
        };
        if filters.is_empty() {
            return Err(bad_value("$and/$or/$nor must be a nonempty array"));
        }
        let parse = |filter: bson::error::Result<RawBsonRef<'_>>| match filter? {
            // The array is a level of its own.
            RawBsonRef::Document(filter) => self.document(filter, level, depth + 2),
            _ => Err(bad_value("$or/$and/$nor entries need to be full objects")),
        };
        elements(filters).map(parse).collect()
    }

    fn expression(&self, value: RawBsonRef<'_>, level: Level) -> Result<Node> {
        if level == Level::Element {
            return Err(bad_value(
                "$expr can only be applied to the top-level document",
            ));
        }
        let expression = Expression::parse(&Bson::try_from(value)?, self.scope)?;
        Ok(Node::Expression(Box::new(expression)))
    }
}

fn sample_rate(value: RawBsonRef<'_>) -> Result<Node> {
    let Some(number) = Number::from_raw(value) else {
        return Err(bad_value("argument to $sampleRate must be a numeric type"));
    };
    let rate = number.as_f64();
    if !(0.0..=1.0).contains(&rate) {
        return Err(bad_value(
            "numeric argument to $sampleRate must be in [0, 1]",
        ));
    }
    Ok(Node::SampleRate(rate))
}

fn always(name: &str, value: RawBsonRef<'_>, node: Node) -> Result<Node> {
    let number =
        integer(name, value).map_err(|reason| Error::new(ErrorCode::FailedToParse, reason))?;
    if number != 1 {
        let message = format!("{name} must be an integer value of 1");
        return Err(Error::new(ErrorCode::FailedToParse, message));
    }
    Ok(node)
}
