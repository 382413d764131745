//! `$sort`.

use bson::{Bson, Document, doc};
use millrace_expression::sort::{SortPattern, Sorted, Sorter};
use millrace_value::{Error, Operation, Result};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Gives the documents in order.
#[derive(Clone, Debug)]
pub(crate) struct Sort {
    pattern: SortPattern,
    /// How many of the first documents are wanted; the optimiser finds out from a later `$limit`,
    /// which stays where it is.
    limit: Option<i64>,
}

impl Sort {
    /// A stage that sorts by `pattern`.
    pub(super) const fn new(pattern: SortPattern) -> Self {
        Self {
            pattern,
            limit: None,
        }
    }

    /// What to sort by.
    pub(crate) const fn pattern(&self) -> &SortPattern {
        &self.pattern
    }

    /// How many of the first documents are wanted.
    pub(crate) const fn limit(&self) -> Option<i64> {
        self.limit
    }

    /// Notes that no more than `limit` documents are wanted.
    pub(crate) fn set_limit(&mut self, limit: i64) {
        self.limit = Some(self.limit.map_or(limit, |old| old.min(limit)));
    }
}

impl Run for Sort {
    fn to_document(&self) -> Document {
        doc! {"$sort": self.pattern.document().clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(SortStream {
            state: State::Reading(source),
            pattern: self.pattern.clone(),
            limit: self.limit,
            context: context.clone(),
        }))
    }
}

struct SortStream {
    state: State,
    pattern: SortPattern,
    limit: Option<i64>,
    context: Context,
}

enum State {
    Reading(Box<dyn DocumentStream>),
    Sorted(Sorted<Document>),
}

impl SortStream {
    fn sort(
        &self,
        source: &mut dyn DocumentStream,
        operation: &Operation,
    ) -> Result<Sorted<Document>> {
        // A limit that no memory could hold is no limit.
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let mut sorter = Sorter::new(
            self.pattern.clone(),
            limit,
            self.context.scratch(),
            self.context.allow_disk_use,
        );
        while let Some(document) = source.next(operation)? {
            sorter.push(operation, document)?;
        }
        sorter.finish(operation)
    }
}

impl DocumentStream for SortStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        loop {
            match &mut self.state {
                State::Sorted(sorted) => return sorted.next(operation),
                State::Reading(source) => {
                    let mut source = std::mem::replace(source, Box::new(crate::Documents::empty()));
                    self.state = State::Sorted(self.sort(source.as_mut(), operation)?);
                }
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.state {
            State::Reading(source) => source.memory_bytes(),
            State::Sorted(sorted) => sorted.memory_bytes(),
        }
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(fields) = argument else {
        return Err(Error::location(
            15973,
            "the $sort key specification must be an object",
        ));
    };
    let pattern = SortPattern::parse(fields, context.scope.collation())?;
    if pattern.is_empty() {
        return Err(Error::location(
            15976,
            "$sort stage must have at least one sort key",
        ));
    }
    Ok(vec![Stage::Sort(Sort::new(pattern))])
}
