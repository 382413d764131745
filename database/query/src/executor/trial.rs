//! The choice among plans, by running each of them for a little while.

use std::sync::Arc;

use millrace_collection::Collection;
use millrace_expression::Variables;
use millrace_value::{Operation, ReadView, Result};

use super::executor::{Executor, Progress};
use crate::planner::{self, Access, IndexScan, IntervalSet, Plan, PlannedQuery, Query};

/// After how many results of one plan a trial ends.
const RESULTS_MAX: u64 = 101;

/// After how many units of work of each plan a trial ends.
const WORKS_MAX: u64 = 10_000;

/// How many units of work a plan does before it is the next one's turn.
const WORKS_PER_TURN: u64 = 16;

/// Finds the best way to answer `query`: the planner's candidates, tried at `view` if there are several.
///
/// # Errors
/// `BadValue` for a hint that fits no index, `NoQueryExecutionPlans` for one whose index does not hold
/// all documents, MongoDB's codes for `min`, `max` and `sort`; the operation's interruption; a failure
/// of the engine.
pub fn choose_plan(
    view: &ReadView,
    collection: &Arc<Collection>,
    query: &Query,
    operation: &Operation,
) -> Result<PlannedQuery> {
    let mut plans = planner::enumerate(collection, query)?;
    if let Some(best) = plans.iter().position(is_certain) {
        let winning = plans.swap_remove(best);
        return Ok(PlannedQuery {
            winning,
            rejected: plans,
        });
    }
    let (mut contenders, mut rejected) = drop_dominated(plans);
    let best = if contenders.len() > 1 {
        compare(view, collection, query, &contenders, operation)?
    } else {
        0
    };
    let winning = contenders.remove(best);
    contenders.append(&mut rejected);
    Ok(PlannedQuery {
        winning,
        rejected: contenders,
    })
}

/// Whether no plan can be much better: there is at most one key to look at.
fn is_certain(plan: &Plan) -> bool {
    matches!(&plan.access, Access::Index(scan) if scan.is_unique_point() || scan.bounds.is_empty())
}

/// Sets aside the plans that are worse than another one whatever the data: (those to be tried, the
/// others).
fn drop_dominated(plans: Vec<Plan>) -> (Vec<Plan>, Vec<Plan>) {
    let mut contenders: Vec<Plan> = Vec::new();
    let mut rejected = Vec::new();
    for plan in plans {
        if contenders.iter().any(|other| dominates(other, &plan)) {
            rejected.push(plan);
            continue;
        }
        let (worse, rest) = contenders
            .into_iter()
            .partition(|other| dominates(&plan, other));
        rejected.extend::<Vec<Plan>>(worse);
        contenders = rest;
        contenders.push(plan);
    }
    (contenders, rejected)
}

/// Whether `a` reads no more keys and documents than `b` and sorts no more.
fn dominates(a: &Plan, b: &Plan) -> bool {
    let (Access::Index(scan_a), Access::Index(scan_b)) = (&a.access, &b.access) else {
        return false;
    };
    let bounds_more = scan_b
        .fields
        .iter()
        .zip(&scan_b.index.spec.fields)
        .all(|(set, field)| set.is_all() || bound_of(scan_a, field).is_some_and(|own| own == set));
    let points = scan_b.leading_points();
    // The same values must be the first fields of both, or the keys that are skipped over may be more.
    bounds_more
        && scan_a.leading_points() >= points
        && (points > 0 || std::ptr::eq(Arc::as_ptr(&scan_a.index), Arc::as_ptr(&scan_b.index)))
        && (a.sort.is_none() || b.sort.is_some())
        && (scan_a.covered || !scan_b.covered)
        && (scan_a.filter.is_none() || scan_b.filter.is_some())
}

fn bound_of<'a>(
    scan: &'a IndexScan,
    field: &millrace_collection::index::IndexField,
) -> Option<&'a IntervalSet> {
    let position = scan
        .index
        .spec
        .fields
        .iter()
        .position(|own| own.path == field.path && own.kind == field.kind)?;
    scan.fields.get(position)
}

/// Runs all plans in turn and returns which was the most productive.
fn compare(
    view: &ReadView,
    collection: &Arc<Collection>,
    query: &Query,
    plans: &[Plan],
    operation: &Operation,
) -> Result<usize> {
    let query = Arc::new(query.clone());
    let mut trials = plans
        .iter()
        .map(|plan| {
            let executor = Executor::new(
                view.clone(),
                Arc::clone(collection),
                Arc::clone(&query),
                plan.clone(),
                Variables::new(operation),
            )?;
            Ok(Trial {
                executor,
                works: 0,
                results: 0,
                ended: false,
                failed: false,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut works = 0;
    while works < WORKS_MAX {
        for trial in &mut trials {
            trial.take_turn(operation)?;
        }
        if trials
            .iter()
            .any(|trial| trial.ended || trial.results >= RESULTS_MAX)
            || trials.iter().all(|trial| trial.failed)
        {
            break;
        }
        works += WORKS_PER_TURN;
    }
    let mut best = 0;
    for (position, (trial, plan)) in trials.iter().zip(plans).enumerate() {
        let better = trial
            .score(plan)
            .total_cmp(&trials[best].score(&plans[best]))
            .is_gt();
        if better {
            best = position;
        }
    }
    Ok(best)
}

/// One plan being tried.
struct Trial {
    executor: Executor,
    works: u64,
    results: u64,
    ended: bool,
    /// Whether it failed: an expression may need variables, of which a trial has none.
    failed: bool,
}

impl Trial {
    fn take_turn(&mut self, operation: &Operation) -> Result<()> {
        for _ in 0..WORKS_PER_TURN {
            if self.ended || self.failed || self.results >= RESULTS_MAX {
                break;
            }
            self.works += 1;
            match self.executor.progress(operation) {
                Ok(Progress::Result) => self.results += 1,
                Ok(Progress::Nothing) => {}
                Ok(Progress::End) => self.ended = true,
                Err(error) => {
                    operation.check()?;
                    tracing::debug!(%error, "a plan failed on trial");
                    self.failed = true;
                }
            }
        }
        Ok(())
    }

    /// How good the plan was: results for each unit of work, a good deal for coming to the end, and a
    /// very little for what is cheaper at equal productivity: no sort, no fetch, no intersection.
    fn score(&self, plan: &Plan) -> f64 {
        const LITTLE: f64 = 0.000_1;
        if self.failed {
            return 0.0;
        }
        let ratio = |part: u64, whole: u64| {
            let [part, whole] = [part, whole].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
            f64::from(part) / f64::from(whole.max(1))
        };
        let mut score = 1.0 + ratio(self.results, self.works);
        if self.ended {
            score += 1.0;
        }
        if plan.sort.is_none() {
            score += LITTLE;
        }
        if matches!(&plan.access, Access::Index(scan) if scan.covered) {
            score += LITTLE;
        }
        score
    }
}
