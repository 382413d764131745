//! What a pipeline is run with, and what its stages are parsed with.

use std::sync::Arc;

use millrace_expression::spill::ScratchFactory;
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

use super::Host;

/// How deep pipelines may be nested in `$lookup`, `$unionWith`, `$facet`.
const NESTING_MAX: usize = 20;

/// What a pipeline is run with. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Context {
    /// The database layer through which stages read and write other collections.
    pub host: Arc<dyn Host>,
    /// The database that names of collections refer to.
    pub database: Arc<str>,
    /// The collection that is aggregated; empty for `{aggregate: 1}`.
    pub collection: Arc<str>,
    /// The values of the variables that the pipeline was parsed with.
    pub variables: Variables,
    /// The rule by which strings are compared: that of the scope that the pipeline was parsed in.
    pub collation: Collation,
    /// Whether blocking stages may spill to disk.
    pub allow_disk_use: bool,
}

impl Context {
    /// Where blocking stages spill to.
    pub(super) fn scratch(&self) -> ScratchFactory {
        let host = Arc::clone(&self.host);
        Box::new(move || host.scratch())
    }

    /// What the stages' expressions are evaluated with.
    pub(super) const fn evaluation<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> EvaluationContext<'a> {
        EvaluationContext::new(operation, &self.variables, self.collation)
    }

    /// The same context with other variables and for another collection.
    pub(super) fn nested(&self, collection: &Arc<str>, variables: Variables) -> Self {
        Self {
            collection: Arc::clone(collection),
            variables,
            ..self.clone()
        }
    }
}

/// Where a pipeline stands, which decides what stages it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In an `aggregate` command or a view.
    Top,
    /// In `$lookup`.
    Lookup,
    /// In `$unionWith`.
    UnionWith,
    /// In `$facet`.
    Facet,
    /// In an update by pipeline or `$merge`'s `whenMatched`.
    Update,
}

/// What stages are parsed with.
#[derive(Clone, Debug)]
pub(crate) struct ParseContext {
    /// The variables that expressions may use.
    pub(crate) scope: Scope,
    /// Where the pipeline stands.
    pub(crate) place: Place,
    depth: usize,
}

impl ParseContext {
    /// For the pipeline of a command.
    pub(super) const fn top(scope: Scope) -> Self {
        Self {
            scope,
            place: Place::Top,
            depth: 0,
        }
    }

    /// For a pipeline inside a stage of this one.
    pub(crate) fn nested(&self, place: Place, scope: Scope) -> Result<Self> {
        let depth = self.depth + 1;
        if depth > NESTING_MAX {
            return Err(Error::new(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!("Maximum number of nested sub-pipelines exceeded. Limit is {NESTING_MAX}"),
            ));
        }
        Ok(Self {
            scope,
            place,
            depth,
        })
    }
}
