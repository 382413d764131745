//! Matching of single elements of arrays, for `$pull` and `arrayFilters`.

use bson::{Bson, Document, RawBson, RawDocumentBuf};
use millrace_expression::{EvaluationContext, Scope};
use millrace_value::{Error, ErrorCode, Result};

use super::Matcher;
use super::parser::{holds_operators, is_dbref_field, is_pathless_operator};

/// A condition on an element of an array.
#[derive(Clone, Debug)]
pub struct ElementMatcher {
    condition: Condition,
}

#[derive(Clone, Debug)]
enum Condition {
    /// The element equals this value.
    Equal(Bson),
    /// The element is a document that matches.
    Document(Matcher),
    /// The document whose only field is this one, holding the element, matches.
    Named(String, Matcher),
}

impl ElementMatcher {
    /// Parses what `$pull` takes: operators that the element must satisfy, a filter for elements
    /// that are documents, a regular expression, or a value that the element must equal. Operators of no
    /// path (`$or`, `$and`, `$nor`, `$expr`, ...) begin a filter.
    ///
    /// # Errors
    /// As for [`Matcher::parse`].
    pub fn parse(condition: &Bson, scope: &Scope) -> Result<Self> {
        let condition = match condition {
            Bson::Document(document) => {
                let filter = RawDocumentBuf::try_from(document)?;
                let of_a_path = document
                    .keys()
                    .next()
                    .is_some_and(|first| is_dbref_field(first) || !is_pathless_operator(first));
                if of_a_path && holds_operators(&filter, false)? {
                    Self::named("", condition, scope)?
                } else {
                    Condition::Document(Matcher::parse(&filter, scope)?)
                }
            }
            Bson::RegularExpression(_) => Self::named("", condition, scope)?,
            value => Condition::Equal(value.clone()),
        };
        Ok(Self { condition })
    }

    /// Parses one of `arrayFilters`, in which all paths begin with `name`, which stands for the
    /// element.
    ///
    /// # Errors
    /// As for [`Matcher::parse`].
    pub fn parse_array_filter(name: &str, filter: &Document, scope: &Scope) -> Result<Self> {
        let matcher = Matcher::parse(&RawDocumentBuf::try_from(filter)?, scope)?;
        Ok(Self {
            condition: Condition::Named(name.to_owned(), matcher),
        })
    }

    /// Whether `element` satisfies the condition.
    ///
    /// # Errors
    /// As for [`Matcher::matches`].
    pub fn matches(&self, element: &Bson, context: &EvaluationContext<'_>) -> Result<bool> {
        match &self.condition {
            Condition::Equal(value) => Ok(context.collation.compare_bson(value, element).is_eq()),
            Condition::Document(matcher) => match element {
                Bson::Document(document) => {
                    matcher.matches(&RawDocumentBuf::try_from(document)?, context)
                }
                _ => Ok(false),
            },
            Condition::Named(name, matcher) => matcher.matches(&wrap(name, element)?, context),
        }
    }

    fn named(name: &str, condition: &Bson, scope: &Scope) -> Result<Condition> {
        let matcher = Matcher::parse(&wrap(name, condition)?, scope)?;
        Ok(Condition::Named(name.to_owned(), matcher))
    }
}

/// The document `{name: value}`.
fn wrap(name: &str, value: &Bson) -> Result<RawDocumentBuf> {
    let name = bson::raw::CString::try_from(name.to_owned()).map_err(|_| {
        Error::new(
            ErrorCode::BadValue,
            "field names cannot contain the null byte",
        )
    })?;
    let mut document = RawDocumentBuf::new();
    document.append(name, RawBson::try_from(value.clone())?);
    Ok(document)
}
