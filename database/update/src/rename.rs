//! `$rename`.
//!
//! A rename takes its value from a path that no other operator of the update may touch, so all values
//! are fetched before the update begins and all sources removed after it.

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Path, Result, array_index};

use super::path::UpdatePath;
use super::text;
use super::walk::immutable_id;

/// One `$rename`.
#[derive(Clone, Debug)]
pub(super) struct Rename {
    source: Path,
    target: Path,
}

impl Rename {
    /// Checks the two paths of `{source: target}`.
    ///
    /// # Errors
    /// `BadValue` if they are the same, one leads to the other, or one is dynamic.
    pub(super) fn new(source: &UpdatePath<'_>, target: &UpdatePath<'_>) -> Result<Self> {
        let bad = |message: String| Err(Error::new(ErrorCode::BadValue, message));
        let shown = || text::element(source.text(), &Bson::from(target.text()));
        let rename = Self {
            source: Path::parse(source.text()),
            target: Path::parse(target.text()),
        };
        if rename.source == rename.target {
            return bad(format!(
                "The source and target field for $rename must differ: {}",
                shown()
            ));
        }
        if rename.source.overlaps(&rename.target) {
            return bad(format!(
                "The source and target field for $rename must not be on the same path: {}",
                shown()
            ));
        }
        if source.is_dynamic() {
            return bad(format!(
                "The source field for $rename may not be dynamic: {}",
                source.text()
            ));
        }
        if target.is_dynamic() {
            return bad(format!(
                "The destination field for $rename may not be dynamic: {}",
                target.text()
            ));
        }
        Ok(rename)
    }

    /// The value to move, if there is one.
    ///
    /// # Errors
    /// `PathNotViable` if the source leads through a value without fields, `BadValue` if one of the
    /// paths leads through an array, `ImmutableField` for `_id`.
    pub(super) fn fetch(&self, document: &Document) -> Result<Option<Bson>> {
        let Some(value) = self.find_source(document)? else {
            return Ok(None);
        };
        check_no_array(document, &self.source, "source")?;
        check_no_array(document, &self.target, "destination")?;
        if self.source.first() == "_id" {
            return Err(immutable_id(&self.source));
        }
        Ok(Some(value.clone()))
    }

    fn find_source<'d>(&self, document: &'d Document) -> Result<Option<&'d Bson>> {
        let components = self.source.components();
        let mut value = document.get(&components[0]);
        for (depth, component) in components.iter().enumerate().skip(1) {
            let Some(holder) = value else { return Ok(None) };
            value = match holder {
                Bson::Document(document) => document.get(component),
                Bson::Array(array) if component.bytes().all(|byte| byte.is_ascii_digit()) => {
                    array_index(component).and_then(|index| array.get(index))
                }
                _ => {
                    let name = &components[depth - 1];
                    return Err(Error::new(
                        ErrorCode::PathNotViable,
                        format!(
                            "cannot use the part ({name} of {}) to traverse the element ({{{}}})",
                            self.source,
                            text::element(name, holder)
                        ),
                    ));
                }
            };
        }
        Ok(value)
    }

    /// Removes the source. It has not changed since [`Rename::fetch`] found it.
    pub(super) fn remove_source(&self, document: &mut Document) {
        let components = self.source.components();
        let (last, way) = components
            .split_last()
            .expect("invariant: a path has a component");
        let mut holder = document;
        for component in way {
            match holder.get_mut(component) {
                Some(Bson::Document(inner)) => holder = inner,
                _ => return,
            }
        }
        holder.remove(last);
    }
}

/// Checks that no value above the last component of `path` is an array.
fn check_no_array(document: &Document, path: &Path, role: &str) -> Result<()> {
    let mut holder = document;
    for component in &path.components()[..path.len() - 1] {
        match holder.get(component) {
            Some(Bson::Document(inner)) => holder = inner,
            Some(Bson::Array(_)) => {
                return Err(Error::new(
                    ErrorCode::BadValue,
                    format!(
                        "The {role} field cannot be an array element, '{path}' in doc with {} has \
                         an array field called '{component}'",
                        text::identity(document)
                    ),
                ));
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}
