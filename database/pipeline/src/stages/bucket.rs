//! `$bucket`, which is a `$group` by a `$switch` and a `$sort`.

use std::cmp::Ordering;

use bson::{Bson, Document, doc};
use millrace_expression::Expression;
use millrace_value::{Collation, Error, Result, canonical_rank, type_alias};

use super::{Stage, group, shown, sort};
use crate::context::ParseContext;

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(fields) = argument else {
        return Err(Error::location(
            40201,
            format!(
                "Argument to $bucket stage must be an object, but found type: {}.",
                type_alias(argument)
            ),
        ));
    };
    let options = Options::parse(fields, context)?;
    let mut grouped = doc! {"_id": options.switch()};
    match options.output {
        Some(output) => grouped.extend(output.clone()),
        None => {
            grouped.insert("count", doc! {"$sum": 1});
        }
    }
    let mut stages = group::parse("$group", &Bson::Document(grouped), context)?;
    stages.extend(sort::parse(
        "$sort",
        &Bson::Document(doc! {"_id": 1}),
        context,
    )?);
    Ok(stages)
}

struct Options<'a> {
    group_by: &'a Bson,
    boundaries: Vec<Bson>,
    default: Option<Bson>,
    output: Option<&'a Document>,
}

impl<'a> Options<'a> {
    fn parse(fields: &'a Document, context: &ParseContext) -> Result<Self> {
        let (mut group_by, mut boundaries, mut default, mut output) = (None, None, None, None);
        for (field, value) in fields {
            match field.as_str() {
                "groupBy" => group_by = Some(check_group_by(value)?),
                "boundaries" => boundaries = Some(parse_boundaries(value, context)?),
                "default" => default = Some(parse_default(value, context)?),
                "output" => {
                    output = Some(value.as_document().ok_or_else(|| {
                        Error::location(
                            40196,
                            format!(
                                "The $bucket 'output' field must be an object, but found type: {}.",
                                type_alias(value)
                            ),
                        )
                    })?);
                }
                _ => {
                    return Err(Error::location(
                        40197,
                        format!("Unrecognized option to $bucket: {field}."),
                    ));
                }
            }
        }
        let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
            return Err(Error::location(
                40198,
                "$bucket requires 'groupBy' and 'boundaries' to be specified.",
            ));
        };
        check_default(default.as_ref(), &boundaries, context.scope.collation())?;
        Ok(Self {
            group_by,
            boundaries,
            default,
            output,
        })
    }

    /// The expression whose value is the lower boundary of the bucket a document belongs to.
    fn switch(&self) -> Document {
        let branches: Vec<Document> = self
            .boundaries
            .windows(2)
            .map(|bounds| {
                let (lower, upper) = (literal(&bounds[0]), literal(&bounds[1]));
                let inside = vec![
                    doc! {"$gte": [self.group_by.clone(), lower.clone()]},
                    doc! {"$lt": [self.group_by.clone(), upper]},
                ];
                doc! {"case": {"$and": inside}, "then": lower}
            })
            .collect();
        let mut switch = doc! {"branches": branches};
        if let Some(default) = &self.default {
            switch.insert("default", literal(default));
        }
        doc! {"$switch": switch}
    }
}

fn literal(value: &Bson) -> Document {
    doc! {"$literal": value.clone()}
}

fn check_group_by(value: &Bson) -> Result<&Bson> {
    let valid = match value {
        Bson::Document(operator) => operator
            .keys()
            .next()
            .is_some_and(|name| name.starts_with('$')),
        Bson::String(path) => path.starts_with('$'),
        _ => false,
    };
    if valid {
        return Ok(value);
    }
    Err(Error::location(
        40202,
        format!(
            "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but \
             found: {}.",
            shown(value)
        ),
    ))
}

fn parse_boundaries(value: &Bson, context: &ParseContext) -> Result<Vec<Bson>> {
    let Bson::Array(values) = value else {
        return Err(Error::location(
            40200,
            format!(
                "The $bucket 'boundaries' field must be an array, but found type: {}.",
                type_alias(value)
            ),
        ));
    };
    if values.len() < 2 {
        return Err(Error::location(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                values.len()
            ),
        ));
    }
    let boundaries = values
        .iter()
        .map(|value| {
            constant(value, context)?.ok_or_else(|| {
                Error::location(
                    40191,
                    format!(
                        "The $bucket 'boundaries' field must be an array of constant values, but \
                         found value: {}.",
                        shown(value)
                    ),
                )
            })
        })
        .collect::<Result<Vec<_>>>()?;
    for (index, bounds) in boundaries.windows(2).enumerate() {
        check_pair(index, &bounds[0], &bounds[1], context.scope.collation())?;
    }
    Ok(boundaries)
}

fn check_pair(index: usize, lower: &Bson, upper: &Bson, collation: Collation) -> Result<()> {
    if canonical_rank(lower.element_type()) != canonical_rank(upper.element_type()) {
        return Err(Error::location(
            40193,
            format!(
                "All values in the the 'boundaries' option to $bucket must have the same type. \
                 Found conflicting types {} and {}.",
                type_alias(lower),
                type_alias(upper)
            ),
        ));
    }
    if collation.compare_bson(lower, upper) != Ordering::Less {
        return Err(Error::location(
            40194,
            format!(
                "The 'boundaries' option to $bucket must be sorted, but elements {index} and {} are \
                 not in ascending order ({} is not less than {}).",
                index + 1,
                shown(lower),
                shown(upper)
            ),
        ));
    }
    Ok(())
}

fn parse_default(value: &Bson, context: &ParseContext) -> Result<Bson> {
    constant(value, context)?.ok_or_else(|| {
        Error::location(
            40195,
            format!(
                "The $bucket 'default' field must be a constant value, but found: {}.",
                shown(value)
            ),
        )
    })
}

/// The default must lie outside the boundaries, lest its bucket be confused with another.
fn check_default(default: Option<&Bson>, boundaries: &[Bson], collation: Collation) -> Result<()> {
    let (Some(default), [lowest, .., highest]) = (default, boundaries) else {
        return Ok(());
    };
    let inside = collation.compare_bson(default, lowest) != Ordering::Less
        && collation.compare_bson(default, highest) == Ordering::Less;
    if inside {
        return Err(Error::location(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or \
             equal to the highest boundary.",
        ));
    }
    Ok(())
}

fn constant(value: &Bson, context: &ParseContext) -> Result<Option<Bson>> {
    Ok(Expression::parse(value, &context.scope)?
        .as_constant()
        .cloned())
}
