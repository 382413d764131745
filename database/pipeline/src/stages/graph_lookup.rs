//! `$graphLookup`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_expression::{EvaluationContext, Expression};
use millrace_value::stage_memory::StageMemory;
use millrace_value::{
    Collation, Error, ErrorCode, Number, Path, Result, field_path, size, type_alias,
};

use super::{Run, Stage, shown};
use crate::context::{Context, ParseContext};
use crate::filter_map::FilterMap;
use crate::{DocumentStream, join};

/// Adds to every document the array of all documents that are reached from it by following references,
/// breadth first.
#[derive(Clone, Debug)]
pub(crate) struct GraphLookup {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    specification: Document,
    from: Arc<str>,
    as_path: Path,
    start_with: Expression,
    connect_from: Path,
    connect_to: Path,
    max_depth: Option<i64>,
    depth_path: Option<Path>,
    restriction: Option<Document>,
}

impl GraphLookup {
    /// Where the array goes.
    pub(crate) fn as_path(&self) -> &Path {
        &self.inner.as_path
    }
}

impl Run for GraphLookup {
    fn to_document(&self) -> Document {
        doc! {"$graphLookup": self.inner.specification.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let (inner, context) = (Arc::clone(&self.inner), context.clone());
        let (variables, collation) = (context.variables.clone(), context.collation);
        Ok(FilterMap::boxed(
            source,
            variables,
            collation,
            move |mut document, eval| {
                let found = inner.search(&document, &context, eval)?;
                field_path::set(&mut document, &inner.as_path, Bson::Array(found));
                Ok(Some(document))
            },
        ))
    }
}

/// A set of values under MongoDB's equality, in a stable order.
struct Frontier {
    collation: Collation,
    values: BTreeMap<Vec<u8>, Bson>,
}

impl Frontier {
    const fn new(collation: Collation) -> Self {
        Self {
            collation,
            values: BTreeMap::new(),
        }
    }

    fn insert(&mut self, value: &Bson) {
        self.values
            .entry(self.collation.equality_key(value))
            .or_insert_with(|| value.clone());
    }
}

impl Inner {
    fn search(
        &self,
        document: &Document,
        context: &Context,
        eval: &EvaluationContext<'_>,
    ) -> Result<Vec<Bson>> {
        let mut frontier = Frontier::new(context.collation);
        match self
            .start_with
            .evaluate(document, eval)?
            .unwrap_or(Bson::Null)
        {
            Bson::Array(values) => values.iter().for_each(|value| frontier.insert(value)),
            value => frontier.insert(&value),
        }
        let (mut found, mut visited, mut bytes) = (Vec::new(), HashSet::new(), 0);
        let mut memory = StageMemory::default();
        let mut depth = 0;
        while !frontier.values.is_empty() && self.max_depth.is_none_or(|max| depth <= max) {
            let filter = self.filter(std::mem::take(&mut frontier.values));
            let mut matches = context.host.open(
                eval.operation,
                &context.database,
                &self.from,
                Some(&filter),
                context.collation,
            )?;
            while let Some(mut reached) = matches.next(eval.operation)? {
                eval.operation.check()?;
                let id = reached.get("_id").unwrap_or(&Bson::Null);
                let id = context.collation.equality_key(id);
                bytes += id.len();
                if !visited.insert(id) {
                    continue;
                }
                field_path::visit_all(&reached, &self.connect_from, &mut |value| {
                    frontier.insert(value);
                });
                if let Some(path) = &self.depth_path {
                    field_path::set(&mut reached, path, Bson::Int64(depth));
                }
                bytes += size::document_bytes(&reached);
                if !memory.allows(eval.operation, bytes) {
                    return Err(Error::location(
                        40099,
                        "$graphLookup reached maximum memory consumption",
                    ));
                }
                found.push(Bson::Document(reached));
            }
            depth += 1;
        }
        Ok(found)
    }

    /// The filter for documents that one of the values refers to.
    fn filter(&self, frontier: BTreeMap<Vec<u8>, Bson>) -> Document {
        let values = frontier.into_values().collect();
        let connected = join::equal_to_any(&self.connect_to, values);
        match &self.restriction {
            Some(restriction) => doc! {"$and": [restriction.clone(), connected]},
            None => connected,
        }
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            format!(
                "the $graphLookup stage specification must be an object, but found {}",
                type_alias(argument)
            ),
        ));
    };
    let mut texts = BTreeMap::new();
    let (mut start_with, mut max_depth, mut restriction) = (None, None, None);
    for (name, value) in specification {
        match (name.as_str(), value) {
            ("startWith", value) => start_with = Some(Expression::parse(value, &context.scope)?),
            ("maxDepth", value) => max_depth = Some(parse_depth(value)?),
            ("restrictSearchWithMatch", Bson::Document(filter)) => {
                super::Match::new(filter.clone(), &context.scope)?;
                restriction = Some(filter.clone());
            }
            ("restrictSearchWithMatch", other) => {
                return Err(Error::location(
                    40185,
                    format!(
                        "restrictSearchWithMatch must be an object, found {}",
                        type_alias(other)
                    ),
                ));
            }
            ("as" | "connectFromField" | "connectToField" | "depthField" | "from", value) => {
                texts.insert(name.as_str(), text_argument(name, value)?);
            }
            _ => {
                return Err(Error::location(
                    40104,
                    format!("Unknown argument to $graphLookup: {name}"),
                ));
            }
        }
    }
    let path = |name: &str| {
        texts
            .get(name)
            .map(|text| field_path::parse(text))
            .transpose()
    };
    let (Some(from), Some(as_path), Some(start_with), Some(connect_from), Some(connect_to)) = (
        texts.get("from"),
        path("as")?,
        start_with,
        path("connectFromField")?,
        path("connectToField")?,
    ) else {
        return Err(Error::location(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and \
             'connectToField' to be specified.",
        ));
    };
    let inner = Inner {
        specification: specification.clone(),
        from: Arc::from(*from),
        as_path,
        start_with,
        connect_from,
        connect_to,
        max_depth,
        depth_path: path("depthField")?,
        restriction,
    };
    Ok(vec![Stage::GraphLookup(GraphLookup {
        inner: Arc::new(inner),
    })])
}

fn text_argument<'a>(name: &str, value: &'a Bson) -> Result<&'a str> {
    let Bson::String(text) = value else {
        return Err(Error::location(
            40103,
            format!(
                "expected string as argument for {name}, found: {}",
                type_alias(value)
            ),
        ));
    };
    if name != "from" && text.starts_with('$') {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    Ok(text)
}

fn parse_depth(value: &Bson) -> Result<i64> {
    let number = Number::from_bson(value).ok_or_else(|| {
        Error::location(
            40100,
            format!(
                "maxDepth must be numeric, found type: {}",
                type_alias(value)
            ),
        )
    })?;
    let depth = number.as_i64_exact().ok_or_else(|| {
        Error::location(
            40102,
            format!(
                "maxDepth could not be represented as a long long: {}",
                shown(value)
            ),
        )
    })?;
    if depth < 0 {
        return Err(Error::location(
            40101,
            format!("maxDepth requires a nonnegative argument, found: {depth}"),
        ));
    }
    Ok(depth)
}
