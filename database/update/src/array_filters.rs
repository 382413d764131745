//! Array filters: the conditions behind `$[name]`.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};
use millrace_expression::{EvaluationContext, Scope};
use millrace_matcher::ElementMatcher;
use millrace_value::{Error, ErrorCode, Result, document_text};

use super::path::{Component, UpdatePath};

/// The array filters of one update, by name.
#[derive(Debug, Default)]
pub(super) struct ArrayFilters {
    matchers: BTreeMap<String, ElementMatcher>,
    used: BTreeSet<String>,
}

impl ArrayFilters {
    /// Parses the filters, each a query over a document whose only field is the name.
    ///
    /// # Errors
    /// `FailedToParse` if a filter has no name, more than one or that of another filter; `BadValue`
    /// for a malformed name; whatever is wrong with the condition.
    pub(super) fn parse(filters: &[Document], scope: &Scope) -> Result<Self> {
        let mut matchers = BTreeMap::new();
        for filter in filters {
            let context = |error: Error| error.context("Error parsing array filter");
            let mut name = None;
            find_name(filter, &mut name).map_err(context)?;
            let Some(name) = name else {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "Cannot use an expression without a top-level field name in arrayFilters",
                ));
            };
            let matcher =
                ElementMatcher::parse_array_filter(name, filter, scope).map_err(context)?;
            check_name(name).map_err(context)?;
            if matchers.insert(name.to_owned(), matcher).is_some() {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    format!(
                        "Found multiple array filters with the same top-level field name {name}"
                    ),
                ));
            }
        }
        Ok(Self {
            matchers,
            used: BTreeSet::new(),
        })
    }

    /// Notes that `path` uses filters.
    ///
    /// # Errors
    /// `BadValue` if one of them does not exist.
    pub(super) fn resolve(&mut self, path: &UpdatePath<'_>) -> Result<()> {
        for component in path.components() {
            let Component::Filtered(name) = component else {
                continue;
            };
            if name.is_empty() || self.used.contains(*name) {
                continue;
            }
            if !self.matchers.contains_key(*name) {
                return Err(Error::new(
                    ErrorCode::BadValue,
                    format!(
                        "No array filter found for identifier '{name}' in path '{}'",
                        path.text()
                    ),
                ));
            }
            self.used.insert((*name).to_owned());
        }
        Ok(())
    }

    /// Checks that every filter was used by some path of `update`.
    ///
    /// # Errors
    /// `FailedToParse` if one was not.
    pub(super) fn check_all_used(&self, update: &Document) -> Result<()> {
        match self.matchers.keys().find(|name| !self.used.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(Error::new(
                ErrorCode::FailedToParse,
                format!(
                    "The array filter for identifier '{name}' was not used in the update {}",
                    document_text(update)
                ),
            )),
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.matchers.is_empty()
    }

    /// Whether the filter `name` selects this array element; the empty name selects all.
    pub(super) fn selects(
        &self,
        name: &str,
        element: &Bson,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<bool> {
        if name.is_empty() {
            return Ok(true);
        }
        self.matchers[name].matches(element, evaluation)
    }
}

/// Finds the one field that a filter is about, also inside `$and`, `$or` and `$nor`.
fn find_name<'f>(filter: &'f Document, found: &mut Option<&'f str>) -> Result<()> {
    for (key, value) in filter {
        match (key.as_str(), value) {
            ("$and" | "$or" | "$nor", Bson::Array(branches)) => {
                for branch in branches.iter().filter_map(Bson::as_document) {
                    find_name(branch, found)?;
                }
            }
            (key, _) if key.starts_with('$') => {}
            (key, _) => {
                let name = key.split('.').next().unwrap_or(key);
                match *found {
                    Some(other) if other != name => {
                        return Err(Error::new(
                            ErrorCode::FailedToParse,
                            format!(
                                "Expected a single top-level field name, found '{other}' and \
                                 '{name}'"
                            ),
                        ));
                    }
                    _ => *found = Some(name),
                }
            }
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let starts_low = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts_low && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::BadValue,
        format!(
            "The top-level field name must be an alphanumeric string beginning with a lowercase \
             letter, found '{name}'"
        ),
    ))
}
