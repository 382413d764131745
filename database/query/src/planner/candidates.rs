//! The plans that a query could be answered with.

use std::sync::Arc;

use bson::{Bson, Document};
use millrace_collection::index::FieldKind;
use millrace_collection::{Collection, Index, RecordKind};
use millrace_expression::sort::SortPattern;
use millrace_matcher::{Matcher, Node, Predicate};
use millrace_value::{Collation, Error, ErrorCode, Result};

use super::assignment::Assignment;
use super::implication::index_is_complete;
use super::interval::IntervalSet;
use super::key_bounds::KeyBounds;
use super::plan::{Access, CollectionScan, IndexScan, Plan, Union};
use super::query::{Hint, Query};
use super::term::{self, Term};
use super::{covering, min_max, ordering};

/// How many scans may be merged in order; each keeps a cursor of the engine.
const MERGED_SCANS_MAX: usize = 200;

/// A filter's parts.
struct Conjunction<'q> {
    conjuncts: Vec<&'q Node>,
    terms: Vec<Term>,
    collation: Collation,
}

impl<'q> Conjunction<'q> {
    fn new(conjuncts: Vec<&'q Node>, collation: Collation) -> Result<Self> {
        let terms = term::collect(&conjuncts, collation)?;
        Ok(Self {
            conjuncts,
            terms,
            collation,
        })
    }

    /// The conjuncts that are not `satisfied` already.
    fn residual(&self, satisfied: &[bool]) -> Option<Arc<Matcher>> {
        let rest: Vec<Node> = self
            .conjuncts
            .iter()
            .zip(satisfied)
            .filter(|(_, satisfied)| !**satisfied)
            .map(|(node, _)| (*node).clone())
            .collect();
        (!rest.is_empty()).then(|| Arc::new(Matcher::of_conditions(rest, self.collation)))
    }
}

/// Makes the plans of one query.
struct Enumeration<'q> {
    collection: &'q Collection,
    query: &'q Query,
    filter: Conjunction<'q>,
    sort: Option<SortPattern>,
}

/// The plans that `query` on `collection` could be answered with; at least one.
///
/// # Errors
/// A hint that names no index, `min` and `max` that fit no index, a sort that cannot be parsed.
pub(crate) fn enumerate(collection: &Collection, query: &Query) -> Result<Vec<Plan>> {
    let mut conjuncts = Vec::new();
    term::flatten(query.filter.root(), &mut conjuncts);
    if conjuncts
        .iter()
        .any(|node| matches!(node, Node::AlwaysFalse))
    {
        return Ok(vec![Plan {
            access: Access::Nothing,
            sort: None,
        }]);
    }
    let (sort, natural) = parse_sort(query)?;
    let enumeration = Enumeration {
        collection,
        query,
        filter: Conjunction::new(conjuncts, query.collation())?,
        sort,
    };
    if query.min.is_some() || query.max.is_some() {
        return Ok(vec![enumeration.min_max()?]);
    }
    if let Some(backward) = natural {
        return Ok(vec![enumeration.collection_scan(backward)]);
    }
    if let Some(id) = enumeration.id_equality()? {
        return Ok(vec![Plan {
            access: Access::Id(id),
            sort: None,
        }]);
    }
    enumeration.plans()
}

/// The pattern to sort by, and whether natural order is asked for, and backward.
fn parse_sort(query: &Query) -> Result<(Option<SortPattern>, Option<bool>)> {
    let natural_hint = match query.hint {
        Some(Hint::Natural(direction)) => Some(direction < 0),
        _ => None,
    };
    let Some(sort) = query.sort.as_ref().filter(|sort| !sort.is_empty()) else {
        return Ok((None, natural_hint.or(query.tailable.then_some(false))));
    };
    if let Some(direction) = sort.get("$natural") {
        let descending = millrace_value::Number::from_bson(direction)
            .and_then(millrace_value::Number::as_i64_exact)
            .is_some_and(|direction| direction < 0);
        return Ok((None, Some(descending)));
    }
    Ok((
        Some(SortPattern::parse(sort, query.collation())?),
        natural_hint,
    ))
}

impl<'q> Enumeration<'q> {
    /// The `_id` of the only document that can be found, if the filter is nothing but its equality.
    fn id_equality(&self) -> Result<Option<Bson>> {
        let [
            Node::Path {
                path,
                predicate: Predicate::Equal(id),
            },
        ] = &self.filter.conjuncts[..]
        else {
            return Ok(None);
        };
        let plain = self.query.hint.is_none()
            && !self.query.return_key
            && self.query.collation() == self.collection.collation();
        if !plain || path.len() != 1 || path.first() != "_id" {
            return Ok(None);
        }
        let id = Bson::try_from(id.as_raw_bson_ref())?;
        // A missing `_id` does not occur, but these two are not found under their own key.
        Ok(Some(id).filter(|id| !matches!(id, Bson::Null | Bson::Undefined | Bson::Array(_))))
    }

    fn plans(&self) -> Result<Vec<Plan>> {
        let indexes = self.indexes()?;
        let hinted = self.query.hint.is_some();
        let mut plans = Vec::new();
        for index in &indexes {
            let complete = index_is_complete(index, &self.filter.conjuncts, &self.filter.terms)?;
            // A sparse index may be asked for by name although it does not hold every document.
            let trusted = hinted && index.spec.partial_filter.is_none();
            if !(complete || trusted) {
                continue;
            }
            plans.extend(self.plans_on(index, &self.filter, hinted)?);
        }
        if !hinted {
            plans.extend(self.union_plan(&indexes)?);
        }
        if plans.is_empty() {
            if hinted {
                return Err(self.refuse(ErrorCode::NoQueryExecutionPlans, "No query solutions"));
            }
            plans.push(self.collection_scan(false));
        }
        Ok(plans)
    }

    /// The indexes that may be used, hint considered.
    fn indexes(&self) -> Result<Vec<Arc<Index>>> {
        let sees_hidden = matches!(self.query.hint, Some(Hint::Internal(_)));
        let usable = self
            .collection
            .indexes
            .iter()
            .filter(|index| index.ready && !index.is_dropped())
            .filter(|index| sees_hidden || !index.spec.hidden)
            // The keys of an index with another collation are neither equal nor ordered as the query's values.
            .filter(|index| index.spec.collation == self.query.collation());
        let matches = |index: &Arc<Index>| match &self.query.hint {
            None | Some(Hint::Natural(_)) => true,
            Some(Hint::Name(name) | Hint::Internal(name)) => index.spec.name == *name,
            Some(Hint::Keys(keys)) => key_pattern(index).is_some_and(|own| same_keys(own, keys)),
        };
        let indexes: Vec<_> = usable.filter(|index| matches(index)).cloned().collect();
        if indexes.is_empty() && self.query.hint.is_some() {
            return Err(self.refuse(
                ErrorCode::BadValue,
                "hint provided does not correspond to an existing index",
            ));
        }
        Ok(indexes)
    }

    fn refuse(&self, code: ErrorCode, why: &str) -> Error {
        let namespace = &self.collection.namespace;
        Error::new(
            code,
            format!(
                "error processing query: ns={namespace} planner returned error :: caused by :: {why}"
            ),
        )
    }

    /// The plans that use `index` alone for `filter`; without bounds only if it gives the order of the
    /// sort or `always`.
    fn plans_on(
        &self,
        index: &Arc<Index>,
        filter: &Conjunction<'_>,
        always: bool,
    ) -> Result<Vec<Plan>> {
        let scan = self.scan(index, filter)?;
        let bounded = narrows(&scan);
        let Some(pattern) = &self.sort else {
            let access = Access::Index(scan);
            return Ok(if bounded || always {
                vec![Plan { access, sort: None }]
            } else {
                Vec::new()
            });
        };
        if let Some(backward) = ordering::provides(&scan, pattern) {
            let access = Access::Index(IndexScan { backward, ..scan });
            return Ok(vec![Plan { access, sort: None }]);
        }
        if !bounded && !always {
            return Ok(Vec::new());
        }
        Ok(vec![match self.split_for_order(&scan, pattern)? {
            Some(union) => Plan {
                access: Access::Union(union),
                sort: None,
            },
            None => Plan {
                access: Access::Index(scan),
                sort: Some(pattern.clone()),
            },
        }])
    }

    /// The scan that finds the documents of `filter` by `index`.
    fn scan(&self, index: &Arc<Index>, filter: &Conjunction<'_>) -> Result<IndexScan> {
        // One reading of the mask for all that follows: it may grow at any moment.
        let multikey = index.multikey();
        let assignment = Assignment::new(index, multikey, &filter.terms, filter.conjuncts.len())?;
        let residual = filter.residual(&assignment.satisfied);
        let clustered = self.is_clustered_by(index);
        let bounds = self.key_bounds(index, &assignment.fields)?;
        let covered = covering::is_covered(
            self.query,
            index,
            multikey,
            residual.as_deref(),
            self.sort.as_ref(),
        );
        Ok(IndexScan {
            index: Arc::clone(index),
            clustered,
            multikey,
            fields: assignment.fields,
            bounds,
            backward: false,
            filter: residual,
            covered,
        })
    }

    fn is_clustered_by(&self, index: &Index) -> bool {
        self.collection.kind == RecordKind::Clustered && index.spec.name == "_id_"
    }

    fn key_bounds(&self, index: &Index, sets: &[IntervalSet]) -> Result<KeyBounds> {
        let ident = if self.is_clustered_by(index) {
            self.collection.ident
        } else {
            index.ident
        };
        let fields: Vec<_> = sets
            .iter()
            .zip(&index.spec.fields)
            .map(|(set, field)| (set, field.kind == FieldKind::Descending))
            .collect();
        KeyBounds::new(ident, &fields)
    }

    /// The scan as one for each combination of the values of its leading fields, if each of them then
    /// finds documents in the order of `pattern` and there are not too many.
    fn split_for_order(&self, scan: &IndexScan, pattern: &SortPattern) -> Result<Option<Union>> {
        let listed = scan
            .fields
            .iter()
            .take_while(|set| set.is_points() && !set.is_empty())
            .count();
        let mut combinations: Vec<Vec<IntervalSet>> = vec![Vec::new()];
        for set in &scan.fields[..listed] {
            if combinations.len() * set.intervals().len() > MERGED_SCANS_MAX {
                return Ok(None);
            }
            let extended = |before: &Vec<IntervalSet>| {
                let before = before.clone();
                set.intervals().iter().map(move |interval| {
                    let mut fields = before.clone();
                    fields.push(IntervalSet::point(interval.start.clone(), set.collation()));
                    fields
                })
            };
            combinations = combinations.iter().flat_map(extended).collect();
        }
        if combinations.len() < 2 {
            return Ok(None);
        }
        let mut arms = Vec::with_capacity(combinations.len());
        for mut fields in combinations {
            fields.extend_from_slice(&scan.fields[listed..]);
            let bounds = self.key_bounds(&scan.index, &fields)?;
            let arm = IndexScan {
                fields,
                bounds,
                covered: false,
                ..scan.clone()
            };
            match ordering::provides(&arm, pattern) {
                Some(backward) => arms.push(IndexScan { backward, ..arm }),
                None => return Ok(None),
            }
        }
        Ok(Some(Union {
            arms,
            merge: Some(pattern.clone()),
            disjoint: scan.multikey == 0,
        }))
    }

    /// The plan that finds the documents of a disjunction by one index each alternative.
    fn union_plan(&self, indexes: &[Arc<Index>]) -> Result<Option<Plan>> {
        for (position, node) in self.filter.conjuncts.iter().enumerate() {
            let Node::Or(_) = node else { continue };
            let mut alternatives = Vec::new();
            flatten_alternatives(node, &mut alternatives);
            let mut others = self.filter.conjuncts.clone();
            others.remove(position);
            // A condition that is drawn by lot must not be asked twice of one document.
            if others
                .iter()
                .any(|node| matches!(node, Node::SampleRate(_)))
            {
                continue;
            }
            let arms = alternatives
                .iter()
                .map(|alternative| self.best_arm(indexes, &others, alternative))
                .collect::<Result<Option<Vec<_>>>>()?;
            if let Some(arms) = arms.filter(|arms| !arms.is_empty()) {
                return Ok(Some(self.finish_union(arms)));
            }
        }
        Ok(None)
    }

    /// The best scan for the documents that satisfy `others` and `alternative`; none if no index narrows
    /// the search for them.
    fn best_arm(
        &self,
        indexes: &[Arc<Index>],
        others: &[&Node],
        alternative: &Node,
    ) -> Result<Option<IndexScan>> {
        let mut conjuncts = others.to_vec();
        term::flatten(alternative, &mut conjuncts);
        let filter = Conjunction::new(conjuncts, self.query.collation())?;
        let mut best: Option<IndexScan> = None;
        for index in indexes {
            if !index_is_complete(index, &filter.conjuncts, &filter.terms)? {
                continue;
            }
            let scan = IndexScan {
                covered: false,
                ..self.scan(index, &filter)?
            };
            let better = best
                .as_ref()
                .is_none_or(|best| self.rank(&scan) > self.rank(best));
            if narrows(&scan) && better {
                best = Some(scan);
            }
        }
        Ok(best)
    }

    /// How promising a scan is, without a look at the data.
    fn rank(&self, scan: &IndexScan) -> (bool, usize, bool, usize, bool) {
        let points = scan.leading_points();
        let narrowed_next = scan.fields.get(points).is_some_and(|set| !set.is_all());
        let ordered = self
            .sort
            .as_ref()
            .is_some_and(|pattern| ordering::provides(scan, pattern).is_some());
        let bounded = scan.fields.iter().filter(|set| !set.is_all()).count();
        (
            scan.is_unique_point(),
            points,
            narrowed_next || ordered,
            bounded,
            scan.filter.is_none(),
        )
    }

    fn finish_union(&self, arms: Vec<IndexScan>) -> Plan {
        let Some(pattern) = &self.sort else {
            return Plan {
                access: Access::Union(Union {
                    arms,
                    merge: None,
                    disjoint: false,
                }),
                sort: None,
            };
        };
        // A merge keeps a cursor on every arm at once.
        let directions: Option<Vec<bool>> = arms
            .iter()
            .map(|arm| ordering::provides(arm, pattern))
            .collect::<Option<_>>()
            .filter(|_| arms.len() <= MERGED_SCANS_MAX);
        match directions {
            Some(directions) => {
                let arms = arms
                    .into_iter()
                    .zip(directions)
                    .map(|(arm, backward)| IndexScan { backward, ..arm })
                    .collect();
                let union = Union {
                    arms,
                    merge: Some(pattern.clone()),
                    disjoint: false,
                };
                Plan {
                    access: Access::Union(union),
                    sort: None,
                }
            }
            None => Plan {
                access: Access::Union(Union {
                    arms,
                    merge: None,
                    disjoint: false,
                }),
                sort: Some(pattern.clone()),
            },
        }
    }

    fn collection_scan(&self, backward: bool) -> Plan {
        let nothing = vec![false; self.filter.conjuncts.len()];
        let filter = self.filter.residual(&nothing);
        Plan {
            access: Access::Collection(CollectionScan { backward, filter }),
            sort: self.sort.clone(),
        }
    }

    /// The plan for a query with `min` or `max`.
    fn min_max(&self) -> Result<Plan> {
        if !matches!(
            self.query.hint,
            Some(Hint::Name(_) | Hint::Internal(_) | Hint::Keys(_))
        ) {
            return Err(Error::location(
                51173,
                "When using min()/max() a hint of which index to use must be provided",
            ));
        }
        let index = self
            .indexes()?
            .into_iter()
            .next()
            .expect("invariant: a hint that fits no index is refused");
        let clustered = self.is_clustered_by(&index);
        let ident = if clustered {
            self.collection.ident
        } else {
            index.ident
        };
        let bounds = min_max::key_bounds(
            ident,
            &index.spec,
            self.query.min.as_ref(),
            self.query.max.as_ref(),
        )?;
        let nothing = vec![false; self.filter.conjuncts.len()];
        let scan = IndexScan {
            multikey: index.multikey(),
            index,
            clustered,
            fields: Vec::new(),
            bounds,
            backward: false,
            filter: self.filter.residual(&nothing),
            covered: false,
        };
        Ok(match &self.sort {
            Some(pattern) => {
                match ordering::provides(&scan, pattern).filter(|_| scan.multikey == 0) {
                    Some(backward) => Plan {
                        access: Access::Index(IndexScan { backward, ..scan }),
                        sort: None,
                    },
                    None => Plan {
                        access: Access::Index(scan),
                        sort: Some(pattern.clone()),
                    },
                }
            }
            None => Plan {
                access: Access::Index(scan),
                sort: None,
            },
        })
    }
}

/// Whether a scan visits less than its whole index, or an index that is smaller than the collection.
fn narrows(scan: &IndexScan) -> bool {
    scan.fields.first().is_some_and(|set| !set.is_all())
        || scan.index.spec.sparse
        || scan.index.spec.partial_filter.is_some()
}

fn flatten_alternatives<'a>(node: &'a Node, out: &mut Vec<&'a Node>) {
    match node {
        Node::Or(nodes) => nodes
            .iter()
            .for_each(|node| flatten_alternatives(node, out)),
        other => out.push(other),
    }
}

/// The document that says what an index is on.
pub fn key_pattern(index: &Index) -> Option<&Document> {
    index.spec.document.get_document("key").ok()
}

/// Whether two key patterns are the same: 1, 1.0 and NumberLong(1) are. They are compared as written.
pub fn same_keys(a: &Document, b: &Document) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((name_a, a), (name_b, b))| {
            name_a == name_b && Collation::SIMPLE.compare_bson(a, b).is_eq()
        })
}
