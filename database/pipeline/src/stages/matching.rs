//! `$match`.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_expression::Scope;
use millrace_matcher::Matcher;
use millrace_value::{Error, Result};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};
use crate::filter_map::FilterMap;

/// Lets through the documents that match a filter.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    filter: Document,
    matcher: Arc<Matcher>,
    scope: Scope,
}

impl Match {
    /// A stage with this filter.
    pub(crate) fn new(filter: Document, scope: &Scope) -> Result<Self> {
        let matcher = Matcher::parse(&RawDocumentBuf::try_from(&filter)?, scope)?;
        Ok(Self {
            filter,
            matcher: Arc::new(matcher),
            scope: scope.clone(),
        })
    }

    /// The filter in the query language.
    pub(crate) const fn filter(&self) -> &Document {
        &self.filter
    }

    /// A stage that lets through what both let through.
    pub(crate) fn and(&self, other: &Self) -> Result<Self> {
        let filter = match (self.filter.is_empty(), other.filter.is_empty()) {
            (true, _) => other.filter.clone(),
            (_, true) => self.filter.clone(),
            _ => doc! {"$and": [self.filter.clone(), other.filter.clone()]},
        };
        Self::new(filter, &self.scope)
    }

    /// A stage of the same pipeline with another filter.
    pub(crate) fn with_filter(&self, filter: Document) -> Result<Self> {
        Self::new(filter, &self.scope)
    }
}

impl Run for Match {
    fn to_document(&self) -> Document {
        doc! {"$match": self.filter.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        let matcher = Arc::clone(&self.matcher);
        Ok(FilterMap::boxed(
            source,
            context.variables.clone(),
            context.collation,
            move |document, eval| {
                let raw = RawDocumentBuf::try_from(&document)?;
                Ok(matcher.matches(&raw, eval)?.then_some(document))
            },
        ))
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(filter) = argument else {
        return Err(Error::location(
            15959,
            "the match filter must be an expression in an object",
        ));
    };
    Ok(vec![Stage::Match(Match::new(
        filter.clone(),
        &context.scope,
    )?)])
}
