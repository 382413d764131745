//! Field paths as stages take them: checked when parsed, read and written in trees.

use bson::{Bson, Document};

use crate::{Error, ErrorCode, Path, Result};

/// How many components a path may have, as documents may nest.
const COMPONENTS_MAX: usize = 200;

/// Parses a path with MongoDB's checks.
pub fn parse(text: &str) -> Result<Path> {
    if text.is_empty() {
        return Err(Error::location(
            40352,
            "FieldPath cannot be constructed with empty string",
        ));
    }
    if text.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    let path = Path::parse(text);
    if path.len() > COMPONENTS_MAX {
        return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
    }
    path.components()
        .iter()
        .try_for_each(|name| check_name(name))?;
    Ok(path)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::location(
            15998,
            "FieldPath field names may not be empty strings.",
        ));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            16410,
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or \
                 $setField. Found '{name}'"
            ),
        ));
    }
    if name.contains('\0') {
        return Err(Error::location(
            16411,
            "FieldPath field names may not contain '\\0'.",
        ));
    }
    Ok(())
}

/// The value at `path`, going through documents only, not through arrays.
pub fn get<'a>(document: &'a Document, path: &Path) -> Option<&'a Bson> {
    let (last, parents) = path.components().split_last()?;
    let mut parent = document;
    for name in parents {
        parent = parent.get(name)?.as_document()?;
    }
    parent.get(last)
}

/// Puts `value` at `path`. Whatever on the way is not a document is replaced by one.
pub fn set(document: &mut Document, path: &Path, value: Bson) {
    set_in(document, path.components(), value);
}

fn set_in(document: &mut Document, components: &[Box<str>], value: Bson) {
    match components {
        [] => {}
        [name] => {
            document.insert(&**name, value);
        }
        [name, rest @ ..] => {
            let child = document.entry(name.to_string()).or_insert(Bson::Null);
            if let Bson::Document(child) = child {
                set_in(child, rest, value);
            } else {
                let mut fresh = Document::new();
                set_in(&mut fresh, rest, value);
                *child = Bson::Document(fresh);
            }
        }
    }
}

/// Takes away what is at `path`, going through documents only.
pub fn remove(document: &mut Document, path: &Path) -> Option<Bson> {
    let (last, parents) = path.components().split_last()?;
    let mut parent = document;
    for name in parents {
        parent = parent.get_mut(name)?.as_document_mut()?;
    }
    parent.remove(last)
}

/// Every value that a join takes `path` to stand for: arrays on the way and at the end are replaced by
/// their elements (one level each), as MongoDB's `$lookup` and `$graphLookup` do.
pub fn visit_all<'a>(document: &'a Document, path: &Path, visit: &mut dyn FnMut(&'a Bson)) {
    visit_in(document, path.components(), visit);
}

fn visit_in<'a>(document: &'a Document, components: &[Box<str>], visit: &mut dyn FnMut(&'a Bson)) {
    let Some((name, rest)) = components.split_first() else {
        return;
    };
    match document.get(name) {
        None => {}
        Some(Bson::Array(values)) => visit_elements(values, rest, visit),
        Some(Bson::Document(child)) if !rest.is_empty() => visit_in(child, rest, visit),
        Some(value) if rest.is_empty() => visit(value),
        Some(_) => {}
    }
}

fn visit_elements<'a>(
    values: &'a [Bson],
    components: &[Box<str>],
    visit: &mut dyn FnMut(&'a Bson),
) {
    let Some((name, rest)) = components.split_first() else {
        values.iter().for_each(visit);
        return;
    };
    for value in values {
        if let Bson::Document(child) = value {
            visit_in(child, components, visit);
        }
    }
    // A numeric component also names a position.
    let Some(element) = crate::array_index(name).and_then(|index| values.get(index)) else {
        return;
    };
    match element {
        Bson::Array(values) => visit_elements(values, rest, visit),
        Bson::Document(child) if !rest.is_empty() => visit_in(child, rest, visit),
        value if rest.is_empty() => visit(value),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn paths_are_checked() {
        let code = |text: &str| {
            parse(text)
                .expect_err("the path is not valid")
                .code()
                .number()
        };
        assert_eq!(code(""), 40352);
        assert_eq!(code("a."), 40353);
        assert_eq!(code("a..b"), 15998);
        assert_eq!(code(".a"), 15998);
        assert_eq!(code("a.$b"), 16410);
        assert_eq!(code("a\0"), 16411);
        assert_eq!(code(&["a"; 201].join(".")), 15);
        assert!(parse("a.b.0").is_ok());
    }

    #[test]
    fn set_replaces_what_is_in_the_way() {
        let mut document = doc! {"a": 1, "b": {"c": 2}};
        set(&mut document, &Path::parse("a.x"), Bson::Int32(7));
        set(&mut document, &Path::parse("b.d"), Bson::Int32(8));
        assert_eq!(document, doc! {"a": {"x": 7}, "b": {"c": 2, "d": 8}});
        assert_eq!(
            remove(&mut document, &Path::parse("b.c")),
            Some(Bson::Int32(2))
        );
        assert_eq!(get(&document, &Path::parse("b.d")), Some(&Bson::Int32(8)));
        assert_eq!(get(&document, &Path::parse("b.c")), None);
    }

    #[test]
    fn joins_look_into_arrays() {
        let document = doc! {"a": [{"b": 1}, {"b": [2, 3]}, 4, {"c": 5}], "d": [], "e": [[6]]};
        let values = |path: &str| {
            let mut values = Vec::new();
            visit_all(&document, &Path::parse(path), &mut |value| {
                values.push(value.clone())
            });
            Bson::Array(values)
        };
        assert_eq!(values("a.b"), bson::bson!([1, 2, 3]));
        assert_eq!(values("a.1.b"), bson::bson!([2, 3]));
        assert_eq!(values("d"), bson::bson!([]));
        assert_eq!(values("e"), bson::bson!([[6]]));
        assert_eq!(values("x.y"), bson::bson!([]));
    }
}
