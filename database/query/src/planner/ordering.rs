//! Whether the keys of an index scan come in the order of a sort.

use millrace_collection::Index;
use millrace_collection::index::FieldKind;
use millrace_expression::sort::SortPattern;

use super::assignment::has_position;
use super::plan::IndexScan;

/// The direction in which a scan of `scan.fields` on `scan.index` finds documents in the order of
/// `pattern`: whether it runs backward; none if it does in neither.
///
/// Fields with one value do not matter to the order, neither in the index nor in the pattern. A field
/// with several keys in a document gives the document's place by its first one, which is right only if
/// no bounds hide that key.
pub(crate) fn provides(scan: &IndexScan, pattern: &SortPattern) -> Option<bool> {
    let index = &scan.index;
    let fields = &index.spec.fields;
    let is_point = |position: usize| scan.fields.get(position).is_some_and(|set| set.is_point());
    let mut backward = None;
    let mut position = 0;
    let mut sorted = Vec::new();
    for wanted in pattern.fields() {
        let fixed = fields.iter().enumerate().any(|(position, field)| {
            field.path == wanted.path
                && is_point(position)
                && field.kind != FieldKind::Hashed
                && !index.is_field_multikey(position)
        });
        if fixed {
            continue;
        }
        while position < fields.len() && is_point(position) && fields[position].path != wanted.path
        {
            position += 1;
        }
        let field = fields.get(position)?;
        if field.path != wanted.path || has_position(&field.path) {
            return None;
        }
        let against = match field.kind {
            FieldKind::Ascending => wanted.descending,
            FieldKind::Descending => !wanted.descending,
            FieldKind::Hashed => return None,
        };
        if *backward.get_or_insert(against) != against {
            return None;
        }
        sorted.push(position);
        position += 1;
    }
    let sound = sorted
        .iter()
        .all(|&position| is_sound(scan, index, position));
    sound.then_some(backward.unwrap_or(false))
}

/// Whether the first key of a document within the bounds is the one it is sorted by, as far as the
/// field at `position` is concerned.
fn is_sound(scan: &IndexScan, index: &Index, position: usize) -> bool {
    !index.is_field_multikey(position)
        || scan
            .fields
            .iter()
            .enumerate()
            .all(|(other, set)| set.is_all() || !index.is_field_multikey(other))
}
