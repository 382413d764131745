//! The stages: one file each, one row each in [`TABLE`].

mod add_fields;
mod bucket;
mod bucket_auto;
mod collection_stats;
mod count;
mod current_op;
mod documents;
mod facet;
mod graph_lookup;
mod group;
mod index_stats;
mod limit;
mod list_sessions;
mod lookup;
mod matching;
mod merge;
mod options;
mod out;
mod project;
mod redact;
mod replace_root;
mod sample;
mod skip;
mod sort;
mod sort_by_count;
mod union_with;
mod unset;
mod unwind;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Result, display};

use super::DocumentStream;
use super::context::{Context, ParseContext};

pub(crate) use add_fields::AddFields;
pub(crate) use bucket_auto::BucketAuto;
pub(crate) use collection_stats::CollectionStats;
pub(crate) use count::Count;
pub(crate) use current_op::CurrentOp;
pub(crate) use documents::DocumentsStage;
pub(crate) use facet::Facet;
pub(crate) use graph_lookup::GraphLookup;
pub(crate) use group::Group;
pub(crate) use index_stats::IndexStats;
pub(crate) use limit::Limit;
pub(crate) use list_sessions::ListSessions;
pub(crate) use lookup::Lookup;
pub(crate) use matching::Match;
pub(crate) use merge::Merge;
pub(crate) use out::Out;
pub(crate) use project::Project;
pub(crate) use redact::Redact;
pub(crate) use replace_root::ReplaceRoot;
pub(crate) use sample::Sample;
pub(crate) use skip::Skip;
pub(crate) use sort::Sort;
pub(crate) use union_with::UnionWith;
pub(crate) use unwind::Unwind;

/// Where a stage may stand in its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Anywhere.
    Any,
    /// Only at the beginning, because it makes documents instead of taking them.
    First,
    /// Only at the end, because it writes them.
    Last,
}

/// What every stage can do.
pub(crate) trait Run {
    /// The stage as a client would write it.
    fn to_document(&self) -> Document;

    /// The documents that the stage makes of those of `source`.
    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>>;

    /// Where the stage may stand.
    fn position(&self) -> Position {
        Position::Any
    }

    /// Whether the stage makes documents without a collection.
    fn is_collectionless(&self) -> bool {
        false
    }
}

macro_rules! stages {
    ($($stage:ident,)*) => {
        /// A parsed stage. It is an enum because the optimiser and the planner look into some of them.
        #[derive(Clone, Debug)]
        pub(crate) enum Stage {
            $($stage($stage),)*
        }

        impl Stage {
            fn as_run(&self) -> &dyn Run {
                match self {
                    $(Self::$stage(stage) => stage,)*
                }
            }
        }
    };
}

stages! {
    AddFields, BucketAuto, CollectionStats, Count, CurrentOp, DocumentsStage, Facet, GraphLookup,
    Group, IndexStats, Limit, ListSessions, Lookup, Match, Merge, Out, Project, Redact, ReplaceRoot,
    Sample, Skip, Sort, UnionWith, Unwind,
}

impl Run for Stage {
    fn to_document(&self) -> Document {
        self.as_run().to_document()
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        self.as_run().run(source, context)
    }

    fn position(&self) -> Position {
        self.as_run().position()
    }

    fn is_collectionless(&self) -> bool {
        self.as_run().is_collectionless()
    }
}

impl Stage {
    /// The name with its dollar sign.
    pub(crate) fn name(&self) -> String {
        self.to_document()
            .keys()
            .next()
            .cloned()
            .unwrap_or_default()
    }
}

/// Parses the argument of a stage. Some stages stand for several simpler ones.
type Parse = fn(&str, &Bson, &ParseContext) -> Result<Vec<Stage>>;

/// All stages by name, in the order of names.
const TABLE: &[(&str, Parse)] = &[
    ("$addFields", add_fields::parse),
    ("$bucket", bucket::parse),
    ("$bucketAuto", bucket_auto::parse),
    ("$changeStream", refuse_change_stream),
    ("$collStats", collection_stats::parse),
    ("$count", count::parse),
    ("$currentOp", current_op::parse),
    ("$densify", refuse),
    ("$documents", documents::parse),
    ("$facet", facet::parse),
    ("$fill", refuse),
    ("$geoNear", refuse),
    ("$graphLookup", graph_lookup::parse),
    ("$group", group::parse),
    ("$indexStats", index_stats::parse),
    ("$limit", limit::parse),
    ("$listLocalSessions", list_sessions::parse),
    ("$listSessions", list_sessions::parse),
    ("$lookup", lookup::parse),
    ("$match", matching::parse),
    ("$merge", merge::parse),
    ("$out", out::parse),
    ("$planCacheStats", refuse),
    ("$project", project::parse),
    ("$redact", redact::parse),
    ("$replaceRoot", replace_root::parse_root),
    ("$replaceWith", replace_root::parse_with),
    ("$sample", sample::parse),
    ("$search", refuse),
    ("$searchMeta", refuse),
    ("$set", add_fields::parse),
    ("$setWindowFields", refuse),
    ("$skip", skip::parse),
    ("$sort", sort::parse),
    ("$sortByCount", sort_by_count::parse),
    ("$unionWith", union_with::parse),
    ("$unset", unset::parse),
    ("$unwind", unwind::parse),
    ("$vectorSearch", refuse),
];

/// Parses one element of a pipeline.
pub(crate) fn parse(specification: &Document, context: &ParseContext) -> Result<Vec<Stage>> {
    let mut fields = specification.iter();
    let (Some((name, argument)), None) = (fields.next(), fields.next()) else {
        return Err(Error::location(
            40323,
            "A pipeline stage specification object must contain exactly one field.",
        ));
    };
    let row = TABLE
        .binary_search_by(|(row, _)| (*row).cmp(name))
        .map_err(|_| {
            Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'"))
        })?;
    TABLE[row].1(name, argument, context)
}

/// Parses the elements of an array as a pipeline's stages.
pub(crate) fn documents_of(field: &str, value: &Bson) -> Result<Vec<Document>> {
    let Bson::Array(values) = value else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!("'{field}' option must be specified as an array"),
        ));
    };
    values
        .iter()
        .map(|value| match value {
            Bson::Document(document) => Ok(document.clone()),
            _ => Err(Error::new(
                ErrorCode::TypeMismatch,
                "Each element of the 'pipeline' array must be an object",
            )),
        })
        .collect()
}

fn refuse(name: &str, _argument: &Bson, _context: &ParseContext) -> Result<Vec<Stage>> {
    Err(Error::new(
        ErrorCode::CommandNotSupported,
        format!("{name} is not supported"),
    ))
}

fn refuse_change_stream(_: &str, _: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    Err(Error::location(
        40573,
        "The $changeStream stage is only supported on replica sets",
    ))
}

/// What a message says of a value of the wrong kind.
pub(crate) fn shown(value: &Bson) -> String {
    display::value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(TABLE.windows(2).all(|rows| rows[0].0 < rows[1].0));
    }
}
