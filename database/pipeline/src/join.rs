//! How stages read other collections: with filters, so that indexes are used.

use bson::{Bson, Document, doc};
use millrace_expression::{EvaluationContext, Expression, Scope, Variables};
use millrace_value::{Collation, Operation, Path, Result, field_path};

use super::Pipeline;

/// The filter for documents whose `foreign` field equals the `local` field of `document`. An array
/// stands for its elements; nothing stands for null, which also finds documents without the field.
pub(super) fn filter(document: &Document, local: &Path, foreign: &Path) -> Document {
    let mut values = Vec::new();
    field_path::visit_all(document, local, &mut |value| values.push(value.clone()));
    equal_to_any(foreign, values)
}

/// The filter for documents whose field equals any of `values`; of null if there are none.
pub(super) fn equal_to_any(path: &Path, mut values: Vec<Bson>) -> Document {
    if values.is_empty() {
        values.push(Bson::Null);
    }
    let field = path.to_string();
    if values.len() == 1 {
        return doc! {field: {"$eq": values.remove(0)}};
    }
    // A regular expression in `$in` would be matched against, but values are joined as they are.
    if values
        .iter()
        .any(|value| matches!(value, Bson::RegularExpression(_)))
    {
        let any: Vec<Document> = values
            .into_iter()
            .map(|value| doc! {field.clone(): {"$eq": value}})
            .collect();
        return doc! {"$or": any};
    }
    doc! {field: {"$in": values}}
}

/// The filter that asks for all of those given.
pub(super) fn all_of(filters: impl IntoIterator<Item = Option<Document>>) -> Option<Document> {
    let mut filters: Vec<Document> = filters.into_iter().flatten().collect();
    match filters.len() {
        0 => None,
        1 => filters.pop(),
        _ => Some(doc! {"$and": filters}),
    }
}

/// A pipeline over another collection, split into what the collection can be asked for and the rest.
#[derive(Clone, Debug)]
pub(super) struct SubPipeline {
    /// A leading filter that the collection answers as a whole.
    answered: Option<Document>,
    /// The other stages. They may begin with a filter of which the collection can answer a part.
    rest: Pipeline,
}

impl SubPipeline {
    /// Splits `pipeline`.
    pub(super) fn new(pipeline: &Pipeline) -> Self {
        let answered = pipeline
            .leading_match()
            .filter(|filter| !holds_expression(filter))
            .cloned();
        let rest = match answered {
            Some(_) => pipeline.without_leading_match(),
            None => pipeline.clone(),
        };
        Self { answered, rest }
    }

    /// The stages after what [`filter`](Self::filter) asks for.
    pub(super) const fn rest(&self) -> &Pipeline {
        &self.rest
    }

    /// The stage that makes the documents of a pipeline that needs no collection, and the stages after it.
    pub(super) fn split_source(&self) -> (Pipeline, Pipeline) {
        (self.rest.prefix_of(1), self.rest.without_prefix(1))
    }

    /// Whether the pipeline makes its own documents.
    pub(super) fn is_collectionless(&self) -> bool {
        self.answered.is_none() && self.rest.is_collectionless()
    }

    /// What to ask the collection for: conditions without expressions as they are, and
    /// `{$expr: {$eq: ["$field", "$$variable"]}}` as an equality with the variable's value. `lets` are
    /// the variables of this pipeline.
    pub(super) fn filter(
        &self,
        lets: &[(String, Expression)],
        variables: &Variables,
        operation: &Operation,
        collation: Collation,
    ) -> Result<Option<Document>> {
        if self.answered.is_some() {
            return Ok(self.answered.clone());
        }
        let mut conditions = Vec::new();
        if let Some(filter) = self.rest.leading_match() {
            Pushing {
                lets,
                variables,
                operation,
                collation,
            }
            .collect(filter, &mut conditions)?;
        }
        Ok(all_of(conditions.into_iter().map(Some)))
    }
}

struct Pushing<'a> {
    lets: &'a [(String, Expression)],
    variables: &'a Variables,
    operation: &'a Operation,
    collation: Collation,
}

impl Pushing<'_> {
    /// Collects what every document that matches `filter` fulfils. The matcher has checked `filter`, and
    /// with it how deep it is nested.
    fn collect(&self, filter: &Document, conditions: &mut Vec<Document>) -> Result<()> {
        for (name, value) in filter {
            match (name.as_str(), value) {
                ("$and", Bson::Array(all)) => {
                    for filter in all.iter().filter_map(Bson::as_document) {
                        self.collect(filter, conditions)?;
                    }
                }
                ("$expr", expression) => self.collect_expression(expression, conditions)?,
                // Operators may hold expressions, whose variables the collection does not know.
                (operator, _) if operator.starts_with('$') => {}
                (_, value) if value_holds_expression(value) => {}
                (field, value) => conditions.push(doc! {field: value.clone()}),
            }
        }
        Ok(())
    }

    fn collect_expression(&self, expression: &Bson, conditions: &mut Vec<Document>) -> Result<()> {
        let Bson::Document(operator) = expression else {
            return Ok(());
        };
        match operator.iter().next() {
            Some((name, Bson::Array(all))) if name == "$and" => all
                .iter()
                .try_for_each(|one| self.collect_expression(one, conditions)),
            Some((name, Bson::Array(sides))) if name == "$eq" => {
                if let [a, b] = sides.as_slice() {
                    let field = field_of(a).map(|field| (field, b));
                    if let Some((field, value)) =
                        field.or_else(|| field_of(b).map(|field| (field, a)))
                    {
                        conditions.extend(self.equality(field, value)?);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// `field: value` if `value` does not depend on the document. Null and arrays are left out: the query
    /// language compares them differently.
    fn equality(&self, field: &str, value: &Bson) -> Result<Option<Document>> {
        let scope = self
            .lets
            .iter()
            .fold(Scope::new(self.collation), |scope, (name, _)| {
                scope.with(name)
            });
        // Variables from further out are not in this scope; such conditions are not pushed.
        let Ok(expression) = Expression::parse(value, &scope) else {
            return Ok(None);
        };
        let reads = expression.field_paths();
        if reads.whole_document || !reads.paths.is_empty() {
            return Ok(None);
        }
        let eval = EvaluationContext::new(self.operation, self.variables, self.collation);
        Ok(match expression.evaluate(&Document::new(), &eval)? {
            None | Some(Bson::Null | Bson::Undefined | Bson::Array(_)) => None,
            Some(value) => Some(doc! {field: {"$eq": value}}),
        })
    }
}

/// The path of a `"$path"`.
fn field_of(operand: &Bson) -> Option<&str> {
    operand
        .as_str()?
        .strip_prefix('$')
        .filter(|path| !path.starts_with('$'))
}

/// Whether `$expr` occurs anywhere in a filter.
fn holds_expression(filter: &Document) -> bool {
    filter
        .iter()
        .any(|(name, value)| name == "$expr" || value_holds_expression(value))
}

fn value_holds_expression(value: &Bson) -> bool {
    match value {
        Bson::Document(document) => holds_expression(document),
        Bson::Array(values) => values.iter().any(value_holds_expression),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::Regex;

    use super::*;

    #[test]
    fn local_values_become_equality_with_the_foreign_field() {
        let case = |document: Document, expected: Document| {
            assert_eq!(
                filter(&document, &Path::parse("a.b"), &Path::parse("x")),
                expected
            );
        };
        case(doc! {"a": {"b": 1}}, doc! {"x": {"$eq": 1}});
        case(doc! {"a": {"b": [1, 2]}}, doc! {"x": {"$in": [1, 2]}});
        case(
            doc! {"a": [{"b": 1}, {"b": [2]}]},
            doc! {"x": {"$in": [1, 2]}},
        );
        case(doc! {}, doc! {"x": {"$eq": null}});
        case(doc! {"a": {"b": []}}, doc! {"x": {"$eq": null}});
    }

    #[test]
    fn regular_expressions_are_joined_as_values() {
        let regex = Bson::RegularExpression(Regex {
            pattern: "a".try_into().expect("no NUL"),
            options: "".try_into().expect("no NUL"),
        });
        let filter = equal_to_any(&Path::parse("x"), vec![regex.clone(), Bson::Int32(1)]);
        assert_eq!(
            filter,
            doc! {"$or": [{"x": {"$eq": regex}}, {"x": {"$eq": 1}}]}
        );
    }
}
