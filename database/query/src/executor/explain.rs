//! Plans and what they did, in the shape of MongoDB's `explain`.

mod filter;
mod stage;

use std::time::Duration;

use bson::{Bson, Document, doc};
use millrace_collection::Collection;
use millrace_value::Result;

use self::stage::{Detail, Stages};
use super::Executor;
use crate::planner::{PlannedQuery, Query};

/// The verbosity of `explain`; each level includes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// `queryPlanner`: the plans, none of which is run.
    QueryPlanner,
    /// And what the winning plan did.
    ExecutionStats,
    /// And what the others did when they were tried.
    AllPlansExecution,
}

/// The fields `queryPlanner` and, if `executor` has run and `verbosity` asks for it, `executionStats`.
///
/// `elapsed` is how long the run took.
///
/// # Errors
/// `InvalidBSON` when a filter cannot be shown.
pub fn explain(
    planned: &PlannedQuery,
    executor: Option<&Executor>,
    query: &Query,
    collection: &Collection,
    verbosity: Verbosity,
    elapsed: Duration,
) -> Result<Document> {
    let parsed_query = filter::shown(query.filter.root())
        .map_or_else(|| Document::try_from(&*query.filter_document), Ok)?;
    let shape = |detail| Stages { query, detail };
    // A running plan may have been made anew.
    let winning = executor.map_or(&planned.winning, Executor::plan);
    let mut winning_plan = doc! { "isCached": false };
    winning_plan.extend(shape(Detail::Plan).of(winning));
    let rejected: Vec<Bson> = planned
        .rejected
        .iter()
        .map(|plan| Bson::Document(shape(Detail::Plan).of(plan)))
        .collect();
    let mut shown = doc! {
        "queryPlanner": {
            "namespace": collection.namespace.as_str(),
            "parsedQuery": parsed_query,
            "indexFilterSet": false,
            "maxIndexedOrSolutionsReached": false,
            "maxIndexedAndSolutionsReached": false,
            "maxScansToExplodeReached": false,
            "winningPlan": winning_plan,
            "rejectedPlans": rejected,
        },
    };
    let Some(executor) = executor.filter(|_| verbosity >= Verbosity::ExecutionStats) else {
        return Ok(shown);
    };
    let statistics = executor.stats();
    let runs = executor.run_statistics();
    let detail = Detail::Execution {
        runs: &runs,
        totals: statistics,
    };
    let mut execution = doc! {
        "executionSuccess": true,
        "nReturned": number(statistics.returned),
        "executionTimeMillis": milliseconds(elapsed),
        "totalKeysExamined": number(statistics.keys_examined),
        "totalDocsExamined": number(statistics.documents_examined),
        "executionStages": shape(detail).of(winning),
    };
    if verbosity == Verbosity::AllPlansExecution {
        execution.insert("allPlansExecution", Bson::Array(Vec::new()));
    }
    shown.insert("executionStats", execution);
    Ok(shown)
}

fn milliseconds(elapsed: Duration) -> Bson {
    number(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// A count as MongoDB sends it: 32 bits if they suffice.
fn number(count: u64) -> Bson {
    match i32::try_from(count) {
        Ok(count) => Bson::Int32(count),
        Err(_) => Bson::Int64(i64::try_from(count).unwrap_or(i64::MAX)),
    }
}
