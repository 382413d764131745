//! Which fields filters, expressions and stages read.

use bson::{Bson, Document};
use millrace_expression::Expression;
use millrace_expression::accumulator::Accumulation;
use millrace_value::Path;

use super::stages::Stage;

/// Fields that are read; none once the whole document may be.
#[derive(Debug)]
struct Reads(Option<Vec<Path>>);

impl Reads {
    fn path(&mut self, path: &Path) {
        if let Some(paths) = &mut self.0 {
            if !paths.iter().any(|known| known.is_prefix_of(path)) {
                paths.retain(|known| !path.is_prefix_of(known));
                paths.push(path.clone());
            }
        }
    }

    fn paths(&mut self, paths: Option<Vec<Path>>) {
        match paths {
            Some(paths) => paths.iter().for_each(|path| self.path(path)),
            None => self.0 = None,
        }
    }

    fn expression(&mut self, expression: &Expression) {
        let reads = expression.field_paths();
        if reads.whole_document {
            self.0 = None;
        }
        reads
            .paths
            .iter()
            .for_each(|path| self.path(&Path::parse(path)));
    }

    fn accumulations(&mut self, fields: &[(String, Accumulation)]) {
        for (_, accumulation) in fields {
            self.expression(accumulation.expression());
            for field in accumulation
                .sort_by()
                .into_iter()
                .flat_map(|pattern| pattern.fields())
            {
                self.path(&field.path);
            }
        }
    }
}

/// The fields that the result of `stages` depends on; none if it may depend on all of the document.
pub(super) fn required_fields(stages: &[Stage]) -> Option<Vec<Path>> {
    let mut reads = Reads(Some(Vec::new()));
    for stage in stages {
        match stage {
            Stage::Match(stage) => reads.paths(filter_paths(stage.filter())),
            Stage::Sort(stage) => {
                stage
                    .pattern()
                    .fields()
                    .iter()
                    .for_each(|field| reads.path(&field.path));
            }
            Stage::Unwind(stage) => reads.path(stage.path()),
            Stage::Limit(_) | Stage::Skip(_) | Stage::Sample(_) => {}
            // The following make new documents: nothing after them reads the old ones.
            Stage::Count(_) => return reads.0,
            Stage::Group(stage) => {
                reads.expression(stage.id());
                reads.accumulations(stage.fields());
                return reads.0;
            }
            Stage::ReplaceRoot(stage) => {
                reads.expression(stage.new_root());
                return reads.0;
            }
            Stage::Project(stage) => {
                let paths = stage.projection().required_fields()?;
                reads.paths(Some(paths));
                return reads.0;
            }
            _ => return None,
        }
    }
    None
}

/// The fields that a filter looks at; none if that is not known.
pub(super) fn filter_paths(filter: &Document) -> Option<Vec<Path>> {
    let mut paths = Vec::new();
    collect_filter_paths(filter, &mut paths)?;
    Some(paths)
}

fn collect_filter_paths(filter: &Document, paths: &mut Vec<Path>) -> Option<()> {
    for (name, value) in filter {
        match (name.as_str(), value) {
            ("$and" | "$or" | "$nor", Bson::Array(filters)) => {
                for filter in filters {
                    collect_filter_paths(filter.as_document()?, paths)?;
                }
            }
            ("$comment", _) => {}
            (operator, _) if operator.starts_with('$') => return None,
            (field, _) => paths.push(Path::parse(field)),
        }
    }
    Some(())
}
