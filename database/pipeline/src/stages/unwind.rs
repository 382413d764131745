//! `$unwind`.

use bson::{Bson, Document, doc};
use millrace_value::{Error, Operation, Path, Result, display, field_path, size, type_alias};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Gives one document for every element of an array.
#[derive(Clone, Debug)]
pub(crate) struct Unwind {
    path: Path,
    index_path: Option<Path>,
    preserve_empty: bool,
}

impl Unwind {
    /// The array.
    pub(crate) const fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a document without elements is given once, without the array.
    pub(crate) const fn preserves_empty(&self) -> bool {
        self.preserve_empty
    }

    /// Where the position of the element goes.
    pub(crate) const fn index_path(&self) -> Option<&Path> {
        self.index_path.as_ref()
    }
}

impl Run for Unwind {
    fn to_document(&self) -> Document {
        let mut options = doc! {"path": format!("${}", self.path)};
        if let Some(path) = &self.index_path {
            options.insert("includeArrayIndex", path.to_string());
        }
        if self.preserve_empty {
            options.insert("preserveNullAndEmptyArrays", true);
        }
        doc! {"$unwind": options}
    }

    fn run(&self, source: Box<dyn DocumentStream>, _: &Context) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(UnwindStream {
            source,
            unwind: self.clone(),
            current: None,
        }))
    }
}

struct UnwindStream {
    source: Box<dyn DocumentStream>,
    unwind: Unwind,
    current: Option<Current>,
}

/// A document that is being unwound.
struct Current {
    /// The document; the array's place holds null until an element is put there.
    document: Document,
    elements: std::iter::Enumerate<std::vec::IntoIter<Bson>>,
    bytes: usize,
}

impl UnwindStream {
    /// What becomes of a document whose value at the path is no array with elements.
    fn preserve(&self, mut document: Document, keep: bool) -> Option<Document> {
        if !keep {
            return None;
        }
        if let Some(path) = &self.unwind.index_path {
            field_path::set(&mut document, path, Bson::Null);
        }
        Some(document)
    }

    /// Starts on a document; gives one that needs no unwinding.
    fn start(&mut self, mut document: Document) -> Option<Document> {
        let keep = self.unwind.preserve_empty;
        match field_path::get(&document, &self.unwind.path) {
            None | Some(Bson::Null | Bson::Undefined) => self.preserve(document, keep),
            Some(Bson::Array(values)) if values.is_empty() => {
                field_path::remove(&mut document, &self.unwind.path);
                self.preserve(document, keep)
            }
            Some(Bson::Array(_)) => {
                let bytes = size::document_bytes(&document);
                let elements = take_array(&mut document, &self.unwind.path);
                let elements = elements.into_iter().enumerate();
                self.current = Some(Current {
                    document,
                    elements,
                    bytes,
                });
                None
            }
            Some(_) => self.preserve(document, true),
        }
    }

    /// The document for the next element.
    fn next_element(&mut self) -> Option<Document> {
        let current = self.current.as_mut()?;
        let Some((index, element)) = current.elements.next() else {
            self.current = None;
            return None;
        };
        let mut document = if current.elements.len() == 0 {
            std::mem::take(&mut current.document)
        } else {
            current.document.clone()
        };
        field_path::set(&mut document, &self.unwind.path, element);
        if let Some(path) = &self.unwind.index_path {
            let index = i64::try_from(index).unwrap_or(i64::MAX);
            field_path::set(&mut document, path, Bson::Int64(index));
        }
        Some(document)
    }
}

impl DocumentStream for UnwindStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        loop {
            operation.check()?;
            if let Some(document) = self.next_element() {
                return Ok(Some(document));
            }
            let Some(document) = self.source.next(operation)? else {
                return Ok(None);
            };
            if let Some(document) = self.start(document) {
                return Ok(Some(document));
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.source.memory_bytes() + self.current.as_ref().map_or(0, |current| current.bytes)
    }
}

/// Takes the elements of the array at `path` out and leaves null in its place.
fn take_array(document: &mut Document, path: &Path) -> Vec<Bson> {
    let mut value = None;
    if let Some((last, parents)) = path.components().split_last() {
        let mut parent = Some(document);
        for name in parents {
            parent = parent.and_then(|parent| parent.get_mut(name)?.as_document_mut());
        }
        value = parent.and_then(|parent| parent.get_mut(last));
    }
    match value.map(|value| std::mem::replace(value, Bson::Null)) {
        Some(Bson::Array(values)) => values,
        _ => Vec::new(),
    }
}

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let mut options = Options::default();
    match argument {
        Bson::String(path) => options.path = Some(path),
        Bson::Document(fields) => {
            for (field, value) in fields {
                options.set(field, value)?;
            }
        }
        _ => {
            return Err(Error::location(
                15981,
                format!(
                    "expected either a string or an object as specification for $unwind stage, got \
                     {}",
                    type_alias(argument)
                ),
            ));
        }
    }
    Ok(vec![Stage::Unwind(options.finish()?)])
}

/// The options while they are read.
#[derive(Default)]
struct Options<'a> {
    path: Option<&'a str>,
    index_path: Option<&'a str>,
    preserve_empty: bool,
}

impl<'a> Options<'a> {
    fn set(&mut self, field: &str, value: &'a Bson) -> Result<()> {
        match (field, value) {
            ("path", Bson::String(path)) => self.path = Some(path),
            ("path", other) => {
                return Err(Error::location(
                    28808,
                    format!(
                        "expected a string as the path for $unwind stage, got {}",
                        type_alias(other)
                    ),
                ));
            }
            ("preserveNullAndEmptyArrays", Bson::Boolean(preserve)) => {
                self.preserve_empty = *preserve;
            }
            ("preserveNullAndEmptyArrays", other) => {
                return Err(Error::location(
                    28809,
                    format!(
                        "expected a boolean for the preserveNullAndEmptyArrays option to $unwind \
                         stage, got {}",
                        type_alias(other)
                    ),
                ));
            }
            ("includeArrayIndex", Bson::String(path)) if !path.is_empty() => {
                if path.starts_with('$') {
                    return Err(Error::location(
                        28822,
                        format!(
                            "includeArrayIndex option to $unwind stage should not be prefixed with \
                             a '$': {path}"
                        ),
                    ));
                }
                self.index_path = Some(path);
            }
            ("includeArrayIndex", other) => {
                return Err(Error::location(
                    28810,
                    format!(
                        "expected a non-empty string for the includeArrayIndex  option to $unwind \
                         stage, got {}",
                        display::value(other)
                    ),
                ));
            }
            _ => {
                return Err(Error::location(
                    28811,
                    format!("unrecognized option to $unwind stage: {field}"),
                ));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Unwind> {
        let path = self
            .path
            .filter(|path| !path.is_empty())
            .ok_or_else(|| Error::location(28812, "no path specified to $unwind stage"))?;
        let path = path.strip_prefix('$').ok_or_else(|| {
            Error::location(
                28818,
                format!("path option to $unwind stage should be prefixed with a '$': {path}"),
            )
        })?;
        Ok(Unwind {
            path: field_path::parse(path)?,
            index_path: self.index_path.map(field_path::parse).transpose()?,
            preserve_empty: self.preserve_empty,
        })
    }
}
