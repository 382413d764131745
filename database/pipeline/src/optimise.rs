//! Rewrites of pipelines that keep their result.
//!
//! Two neighbours are looked at at a time. Every rewrite either removes a stage, brings a `$match`, a
//! `$limit` or a `$skip` nearer to the beginning, or notes a limit in a `$sort`; none does the
//! opposite, so that rewriting ends.

use bson::{Bson, Document, doc};
use millrace_value::{Number, Path, Result, is_truthy};

use super::dependencies::filter_paths;
use super::stages::{AddFields, Limit, Lookup, Match, Project, Skip, Stage};

/// The same pipeline, rewritten.
pub(super) fn optimise(mut stages: Vec<Stage>) -> Result<Vec<Stage>> {
    stages.retain(|stage| match stage {
        Stage::Skip(skip) => skip.count() > 0,
        Stage::Match(stage) => !stage.filter().is_empty(),
        _ => true,
    });
    let mut index = 0;
    while index + 1 < stages.len() {
        match rewrite(&stages[index], &stages[index + 1])? {
            Some(replacement) => {
                stages.splice(index..index + 2, replacement);
                // What changed may now suit the stage before it.
                index = index.saturating_sub(1);
            }
            None => index += 1,
        }
    }
    Ok(stages)
}

/// What two neighbours are replaced by; none if they stay.
fn rewrite(first: &Stage, second: &Stage) -> Result<Option<Vec<Stage>>> {
    Ok(match (first, second) {
        (Stage::Match(a), Stage::Match(b)) => Some(vec![Stage::Match(a.and(b)?)]),
        (_, Stage::Match(filter)) => move_match(first, filter)?,
        (Stage::Limit(a), Stage::Limit(b)) => {
            Some(vec![Stage::Limit(Limit::new(a.count().min(b.count())))])
        }
        (Stage::Skip(a), Stage::Skip(b)) => a
            .count()
            .checked_add(b.count())
            .map(|count| vec![Stage::Skip(Skip::new(count))]),
        (Stage::Skip(skip), Stage::Limit(limit)) => skip
            .count()
            .checked_add(limit.count())
            .map(|count| vec![Stage::Limit(Limit::new(count)), first.clone()]),
        (Stage::Sort(sort), Stage::Limit(limit)) => {
            let known = sort.limit().is_some_and(|known| known <= limit.count());
            (!known).then(|| {
                let mut sort = sort.clone();
                sort.set_limit(limit.count());
                vec![Stage::Sort(sort), second.clone()]
            })
        }
        // These make one document of each, in the same order.
        (
            Stage::Project(_) | Stage::AddFields(_) | Stage::ReplaceRoot(_),
            Stage::Limit(_) | Stage::Skip(_),
        ) => Some(vec![second.clone(), first.clone()]),
        (Stage::Lookup(lookup), Stage::Unwind(unwind)) if lookup.can_absorb(unwind) => {
            Some(vec![Stage::Lookup(lookup.absorb(unwind))])
        }
        _ => None,
    })
}

/// Moves those conditions of a filter before `stage` that it does not change.
fn move_match(stage: &Stage, filter: &Match) -> Result<Option<Vec<Stage>>> {
    // A limited sort must not be given fewer documents than it was limited for.
    if let Stage::Sort(sort) = stage {
        let free = sort.limit().is_none();
        return Ok(free.then(|| vec![Stage::Match(filter.clone()), stage.clone()]));
    }
    let Some(changes) = Changes::of(stage) else {
        return Ok(None);
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for condition in conditions(filter.filter()) {
        let keeps = filter_paths(&condition)
            .is_some_and(|paths| !paths.is_empty() && paths.iter().all(|path| changes.keep(path)));
        if keeps {
            before.push(condition)
        } else {
            after.push(condition)
        }
    }
    if before.is_empty() {
        return Ok(None);
    }
    let mut stages = vec![
        Stage::Match(filter.with_filter(join(before))?),
        stage.clone(),
    ];
    if !after.is_empty() {
        stages.push(Stage::Match(filter.with_filter(join(after))?));
    }
    Ok(Some(stages))
}

/// The conditions that a filter asks for together.
fn conditions(filter: &Document) -> Vec<Document> {
    let mut conditions = Vec::new();
    for (name, value) in filter {
        match (name.as_str(), value) {
            ("$and", Bson::Array(filters)) => {
                for filter in filters.iter().filter_map(Bson::as_document) {
                    conditions.extend(self::conditions(filter));
                }
            }
            _ => conditions.push(doc! {name: value.clone()}),
        }
    }
    conditions
}

/// One filter that asks for all conditions.
fn join(mut conditions: Vec<Document>) -> Document {
    if conditions.len() == 1 {
        return conditions.remove(0);
    }
    doc! {"$and": conditions}
}

/// What a stage that makes one or more documents of each changes in them.
enum Changes {
    /// These fields.
    Of(Vec<Path>),
    /// Everything but these fields.
    AllBut {
        kept: Vec<Path>,
        computed: Vec<Path>,
    },
}

impl Changes {
    fn of(stage: &Stage) -> Option<Self> {
        match stage {
            Stage::AddFields(stage) => Some(Self::of_added(stage)),
            Stage::Project(stage) => Some(Self::of_projection(stage)),
            Stage::Unwind(stage) => {
                let index = stage.index_path().cloned();
                Some(Self::Of(
                    std::iter::once(stage.path().clone()).chain(index).collect(),
                ))
            }
            Stage::Lookup(stage) => Some(Self::of_lookup(stage)),
            Stage::GraphLookup(stage) => Some(Self::Of(vec![stage.as_path().clone()])),
            _ => None,
        }
    }

    fn of_added(stage: &AddFields) -> Self {
        Self::Of(
            stage
                .specification()
                .keys()
                .map(|name| Path::parse(name))
                .collect(),
        )
    }

    fn of_lookup(stage: &Lookup) -> Self {
        let index = stage
            .absorbed()
            .and_then(|unwind| unwind.index_path().cloned());
        Self::Of(
            std::iter::once(stage.as_path().clone())
                .chain(index)
                .collect(),
        )
    }

    fn of_projection(stage: &Project) -> Self {
        let mut fields = Fields::default();
        fields.collect(None, stage.specification());
        let id = Path::parse("_id");
        if fields.included.is_empty() && fields.computed.is_empty() {
            return Self::Of(fields.excluded);
        }
        if !fields.excluded.contains(&id) {
            fields.included.push(id);
        }
        Self::AllBut {
            kept: fields.included,
            computed: fields.computed,
        }
    }

    /// Whether a condition on `path` finds the same after the change as before.
    fn keep(&self, path: &Path) -> bool {
        match self {
            Self::Of(changed) => !changed.iter().any(|changed| changed.overlaps(path)),
            Self::AllBut { kept, computed } => {
                kept.iter().any(|kept| kept.is_prefix_of(path))
                    && !computed.iter().any(|computed| computed.overlaps(path))
            }
        }
    }
}

/// The fields of a projection by what happens to them.
#[derive(Default)]
struct Fields {
    included: Vec<Path>,
    excluded: Vec<Path>,
    computed: Vec<Path>,
}

impl Fields {
    fn collect(&mut self, parent: Option<&Path>, specification: &Document) {
        for (name, value) in specification {
            let path = match parent {
                Some(parent) => Path::parse(&format!("{parent}.{name}")),
                None => Path::parse(name),
            };
            match value {
                Bson::Document(nested)
                    if !nested
                        .keys()
                        .next()
                        .is_none_or(|name| name.starts_with('$')) =>
                {
                    self.collect(Some(&path), nested);
                }
                value
                    if matches!(value, Bson::Boolean(_)) || Number::from_bson(value).is_some() =>
                {
                    let fields = if is_truthy(value) {
                        &mut self.included
                    } else {
                        &mut self.excluded
                    };
                    fields.push(path);
                }
                _ => self.computed.push(path),
            }
        }
    }
}
