//! Aggregation pipelines: a list of stages through which documents flow.
//!
//! # How a pipeline runs
//! ```text
//!   [{$match: ..}, {$group: ..}, ..]
//!        | stages/      one parser a stage, by a table of names
//!        | optimise     merge, reorder, combine
//!        v
//!   Pipeline --- prefix() ----> what the planner can do better than the stages
//!        | run(source, context)
//!        v
//!   stream of the last stage -> ... -> stream of the first stage -> source
//! ```
//! Streams pull: asking the last one for a document makes each ask the one before it. Blocking stages
//! (`$sort`, `$group`, `$bucketAuto`, `$facet`) read all their input at the first question; what
//! exceeds the operation's memory limit goes to scratch space as sorted runs (see
//! [`sort`](millrace_expression::sort)).
//!
//! # What stages may do
//! A stage reaches the database through [`Host`] alone. It owns its state, so that a cursor can keep a
//! running pipeline between two `getMore`, and it is given the [`Operation`](millrace_value::Operation) with
//! every question.
//!
//! Adding a stage is one file under `stages/`, one row in its table of names and one in its enum.

#![forbid(unsafe_code)]

mod buffered;
mod context;
mod dependencies;
mod filter_map;
mod granularity;
mod host;
mod join;
mod optimise;
mod source;
mod stages;
mod stream;

use bson::Document;
use millrace_expression::Scope;
use millrace_expression::sort::SortPattern;
use millrace_value::{Error, ErrorCode, Path, Result};

use context::{ParseContext, Place};
use stages::{Position, Run, Stage};

pub use context::Context;
pub use host::{Host, MergeAction};
pub use stream::{DocumentStream, Documents};

/// How many stages a pipeline may have.
const STAGES_MAX: usize = 1000;

/// A parsed and optimised pipeline. Cloning copies the stages' definitions, not their state.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stages: Vec<Stage>,
}

/// What the beginning of a pipeline asks for, in the terms of a `find`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefix<'a> {
    /// The filter of the documents; `None` for all.
    pub filter: Option<&'a Document>,
    /// The order of the documents; `None` for any.
    pub sort: Option<&'a SortPattern>,
    /// How many documents are left out, after sorting.
    pub skip: Option<i64>,
    /// How many documents are wanted, after sorting and skipping.
    pub limit: Option<i64>,
    /// The number of leading stages that filter, order, skip and limit stand for.
    pub stages: usize,
}

/// The collection that a pipeline writes to in its last stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTarget<'a> {
    /// The database, if it is not the one the pipeline runs in.
    pub database: Option<&'a str>,
    /// The name of the collection, without the database.
    pub collection: &'a str,
    /// Whether the collection's content is replaced (`$out`) or merged with (`$merge`).
    pub replaces: bool,
}

impl Pipeline {
    /// Parses the stages of an `aggregate` command or a view. `scope` has the command's `let`.
    ///
    /// # Errors
    /// MongoDB's codes: 40324 for an unknown stage, 40323 for a stage with several fields, 40601 and
    /// 40602 for stages out of place, and those of each stage.
    pub fn parse(stages: &[Document], scope: &Scope) -> Result<Self> {
        Self::parse_nested(stages, ParseContext::top(scope.clone()))
    }

    /// Parses the stages of an update by pipeline, of which only some are allowed.
    ///
    /// # Errors
    /// `InvalidOptions` for a stage that an update may not have; else as [`parse`](Self::parse).
    pub fn parse_update(stages: &[Document], scope: &Scope) -> Result<Self> {
        let top = ParseContext::top(scope.clone());
        Self::parse_nested(stages, top.nested(Place::Update, scope.clone())?)
    }

    /// Parses the stages of a pipeline that stands where `context` says.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the context is made for this pipeline"
    )]
    pub(crate) fn parse_nested(stages: &[Document], context: ParseContext) -> Result<Self> {
        if stages.len() > STAGES_MAX {
            return Err(Error::location(
                7749501,
                format!("Pipeline length must be no longer than {STAGES_MAX} stages."),
            ));
        }
        let mut parsed = Vec::with_capacity(stages.len());
        for (index, specification) in stages.iter().enumerate() {
            let expanded = stages::parse(specification, &context)?;
            for stage in &expanded {
                check_place(stage, context.place)?;
                check_position(stage, index, stages.len())?;
            }
            parsed.extend(expanded);
        }
        Ok(Self {
            stages: optimise::optimise(parsed)?,
        })
    }

    /// Whether the pipeline has no stages and passes its input on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The filter of the first stage, if it is a `$match`.
    #[must_use]
    pub fn leading_match(&self) -> Option<&Document> {
        match self.stages.first() {
            Some(Stage::Match(stage)) => Some(stage.filter()),
            _ => None,
        }
    }

    /// The pipeline without the `$match` it begins with, if any.
    #[must_use]
    pub fn without_leading_match(&self) -> Self {
        self.without_prefix(usize::from(self.leading_match().is_some()))
    }

    /// What the first stages ask for, as far as a query can do it: `$match`, `$sort`, `$skip` and
    /// `$limit` in this order, each if present.
    #[must_use]
    pub fn prefix(&self) -> Prefix<'_> {
        let mut prefix = Prefix::default();
        let mut rest = self.stages.iter().peekable();
        if let Some(Stage::Match(stage)) = rest.peek() {
            prefix.filter = Some(stage.filter());
            prefix.stages += 1;
            rest.next();
        }
        if let Some(Stage::Sort(stage)) = rest.peek() {
            prefix.sort = Some(stage.pattern());
            prefix.stages += 1;
            rest.next();
        }
        // The optimiser puts a limit before a skip; together they are a skip before a smaller limit.
        let limit = match rest.peek() {
            Some(Stage::Limit(stage)) => {
                rest.next();
                prefix.stages += 1;
                Some(stage.count())
            }
            _ => None,
        };
        prefix.limit = limit;
        if let Some(Stage::Skip(stage)) = rest.peek() {
            if limit.is_none_or(|limit| limit > stage.count()) {
                prefix.skip = Some(stage.count());
                prefix.limit = limit.map(|limit| limit - stage.count());
                prefix.stages += 1;
            }
        }
        prefix
    }

    /// The pipeline without its first stages.
    #[must_use]
    pub fn without_prefix(&self, stages: usize) -> Self {
        Self {
            stages: self.stages.get(stages..).unwrap_or_default().to_vec(),
        }
    }

    /// The first `stages` stages.
    fn prefix_of(&self, stages: usize) -> Self {
        let stages = self.stages.get(..stages).unwrap_or(&self.stages);
        Self {
            stages: stages.to_vec(),
        }
    }

    /// The fields that the result depends on; none if it may depend on all of the document.
    #[must_use]
    pub fn required_fields(&self) -> Option<Vec<Path>> {
        dependencies::required_fields(&self.stages)
    }

    /// Where the pipeline writes, if it ends with `$out` or `$merge`.
    #[must_use]
    pub fn writes_to(&self) -> Option<WriteTarget<'_>> {
        let ((database, collection), replaces) = match self.stages.last()? {
            Stage::Out(stage) => (stage.target(), true),
            Stage::Merge(stage) => (stage.target(), false),
            _ => return None,
        };
        Some(WriteTarget {
            database,
            collection,
            replaces,
        })
    }

    /// Whether the first stage makes documents without a collection (`$documents`, `$currentOp`).
    #[must_use]
    pub fn is_collectionless(&self) -> bool {
        self.stages.first().is_some_and(Run::is_collectionless)
    }

    /// Whether the first stage makes documents by itself, so that the collection need not be read.
    #[must_use]
    pub fn makes_documents(&self) -> bool {
        self.stages
            .first()
            .is_some_and(|stage| stage.position() == Position::First)
    }

    /// Checks that a pipeline for `{aggregate: 1}` needs no collection and another one does.
    ///
    /// # Errors
    /// `InvalidNamespace`.
    pub fn check_namespace(&self, has_collection: bool) -> Result<()> {
        let message = match (self.stages.first(), has_collection) {
            (None, false) => "{aggregate: 1} is not valid for an empty pipeline.".to_owned(),
            (Some(stage), false) if !stage.is_collectionless() => format!(
                "{{aggregate: 1}} is not valid for '{}'; a collection is required.",
                stage.name()
            ),
            (Some(stage), true) if stage.is_collectionless() => {
                format!("'{}' can only be run with {{aggregate: 1}}", stage.name())
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorCode::InvalidNamespace, message))
    }

    /// The stages as `explain` shows them.
    #[must_use]
    pub fn to_bson(&self) -> Vec<Document> {
        self.stages.iter().map(Run::to_document).collect()
    }

    /// The documents that the stages make of those of `source`. Nothing is read or written before the
    /// first is asked for.
    ///
    /// # Errors
    /// As of now none; the signature leaves room for stages that prepare something.
    pub fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        self.stages
            .iter()
            .try_fold(source, |source, stage| stage.run(source, context))
    }
}

/// Stages that a nested pipeline may not have.
fn check_place(stage: &Stage, place: Place) -> Result<()> {
    let position = stage.position();
    let refuse = |code, message: String| Err(Error::location(code, message));
    match place {
        Place::Lookup if position == Position::Last => refuse(
            51047,
            format!(
                "{} is not allowed within a $lookup's sub-pipeline",
                stage.name()
            ),
        ),
        Place::UnionWith if position == Position::Last => refuse(
            31441,
            format!(
                "{} is not allowed within a $unionWith's sub-pipeline",
                stage.name()
            ),
        ),
        Place::Facet if position != Position::Any || matches!(stage, Stage::Facet(_)) => refuse(
            40600,
            format!(
                "{} is not allowed to be used within a $facet stage",
                stage.name()
            ),
        ),
        Place::Update
            if !matches!(
                stage,
                Stage::AddFields(_) | Stage::Project(_) | Stage::ReplaceRoot(_)
            ) =>
        {
            Err(Error::new(
                ErrorCode::InvalidOptions,
                format!(
                    "{} is not allowed to be used within an update",
                    stage.name()
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Stages that must come first or last.
fn check_position(stage: &Stage, index: usize, len: usize) -> Result<()> {
    match stage.position() {
        Position::First if index > 0 => Err(Error::location(
            40602,
            format!(
                "{} is only valid as the first stage in a pipeline",
                stage.name()
            ),
        )),
        Position::Last if index + 1 < len => Err(Error::location(
            40601,
            format!(
                "{} can only be the final stage in the pipeline",
                stage.name()
            ),
        )),
        _ => Ok(()),
    }
}
