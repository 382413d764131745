//! The everyday projection, `{a: 1, b: 1, _id: 0}`, parsed without building a tree of its values: it
//! comes with every read of many applications.

use bson::RawDocument;
use bson::raw::RawBsonRef;

use super::{Field, Projection, Shape, Tree};

/// Parses a specification that does nothing but keep or drop fields of the top level; none if it is
/// anything else, or wrong.
pub(super) fn parse(spec: &RawDocument) -> Option<Projection> {
    let mut includes = None;
    let mut includes_id = None;
    let mut count = 0;
    for element in spec {
        let (name, value) = element.ok()?;
        let truth = truth(value)?;
        count += 1;
        match name.as_str() {
            "_id" if includes_id.is_some() => return None,
            "_id" => includes_id = Some(truth),
            name if name.is_empty() || name.contains(['.', '$']) => return None,
            _ if includes.is_some_and(|includes| includes != truth) => return None,
            _ => includes = Some(truth),
        }
    }
    if count == 0 {
        return None;
    }
    let keeps_others = !includes.or(includes_id)?;
    let names_id = if keeps_others {
        includes_id == Some(false)
    } else {
        includes_id != Some(false)
    };
    let field = || {
        if keeps_others {
            Field::Exclude
        } else {
            Field::Include
        }
    };
    let mut tree = Tree::default();
    for element in spec {
        let name = element.ok()?.0.as_str();
        if name != "_id" {
            tree.add(&[name.into()], field()).ok()?;
        }
    }
    if names_id {
        tree.add(&["_id".into()], field()).ok()?;
    }
    Some(Projection {
        shape: Shape {
            keeps_others,
            tree,
            sources: Vec::new(),
        },
        positional: None,
    })
}

/// Whether a value says that its field is kept; none for values that say something else.
fn truth(value: RawBsonRef<'_>) -> Option<bool> {
    match value {
        RawBsonRef::Boolean(value) => Some(value),
        RawBsonRef::Int32(value) => Some(value != 0),
        RawBsonRef::Int64(value) => Some(value != 0),
        RawBsonRef::Double(value) => Some(value != 0.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, RawDocumentBuf, doc};

    use super::super::Mode;
    use super::*;
    use crate::expression::Scope;

    /// The fields that a projection leaves of a document with these.
    fn left(projection: &Projection) -> Vec<String> {
        let document = doc! {"_id": 1, "a": 2, "b": 3, "c": 4};
        let applied = super::super::owned::apply(
            &projection.shape,
            document,
            Vec::new(),
            super::super::Position::Done,
        );
        applied.expect("it applies").keys().cloned().collect()
    }

    #[test]
    fn it_does_what_the_whole_parser_does() {
        let specs: [Document; 8] = [
            doc! {"a": 1, "b": true},
            doc! {"a": 1_i64, "_id": 0},
            doc! {"_id": false, "c": 1.0, "a": 1},
            doc! {"_id": 1},
            doc! {"_id": 0},
            doc! {"a": 0, "b": false},
            doc! {"a": 0, "_id": 0},
            doc! {"a": 0, "_id": 1},
        ];
        for spec in specs {
            let raw = RawDocumentBuf::try_from(&spec).expect("BSON");
            let flat = parse(&raw).unwrap_or_else(|| panic!("{spec} is flat"));
            let whole = Projection::parse(&spec, Mode::Find, &Scope::default());
            let whole = whole.unwrap_or_else(|error| panic!("{spec}: {error}"));
            assert_eq!(left(&flat), left(&whole), "{spec}");
            assert_eq!(flat.is_exclusion(), whole.is_exclusion(), "{spec}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_whole_parser() {
        for spec in [
            doc! {},
            doc! {"a.b": 1},
            doc! {"a": 1, "b": 0},
            doc! {"a": "$b"},
            doc! {"a": {"$slice": 1}},
            doc! {"a.$": 1},
            doc! {"": 1},
        ] {
            let raw = RawDocumentBuf::try_from(&spec).expect("BSON");
            assert!(parse(&raw).is_none(), "{spec}");
        }
    }
}
