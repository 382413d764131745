//! Projection from bytes to bytes.

use std::io::Write;

use bson::spec::ElementType;
use bson::{Bson, RawBson, RawDocument, RawDocumentBuf, raw};
use millrace_matcher::DEPTH_MAX;
use millrace_value::{Elements, Error, ErrorCode, Result};

use super::{Computed, Field, Position, Shape, Tree};

/// Appends the projection of `document` to `out`.
pub(super) fn append(
    shape: &Shape,
    out: &mut Vec<u8>,
    document: &RawDocument,
    computed: &Computed,
    position: Position,
) -> Result<()> {
    let mut writer = Writer {
        shape,
        out,
        computed,
        depth: 0,
    };
    writer.document(&shape.tree, Elements::new(document), position)
}

struct Writer<'a> {
    shape: &'a Shape,
    out: &'a mut Vec<u8>,
    computed: &'a Computed,
    /// How many documents and arrays are open. Damaged data must not exhaust the stack.
    depth: usize,
}

impl Writer<'_> {
    fn document(&mut self, tree: &Tree, elements: Elements<'_>, position: Position) -> Result<()> {
        let start = self.open()?;
        // Which named fields need no appending any more. Only computed ones ever do.
        let mut seen = vec![
            false;
            if tree.computes() {
                tree.fields().len()
            } else {
                0
            }
        ];
        let mut wanted = wanted_bits(tree.fields().len());
        for element in elements {
            let element = element?;
            let Some(index) = tree.find(element.name) else {
                if self.shape.keeps_others {
                    self.out.extend_from_slice(element.bytes);
                }
                continue;
            };
            let (name, field) = &tree.fields()[index];
            let value = Value {
                kind: element.kind,
                bytes: element.value,
            };
            let written = match field {
                Field::Include => {
                    self.out.extend_from_slice(element.bytes);
                    true
                }
                Field::Exclude => true,
                Field::Children(children) => {
                    self.children(name, children, value, position)?;
                    true
                }
                Field::Computed(slot) => {
                    if self.shape.keeps_others {
                        self.append_computed(name, *slot)?;
                    }
                    self.shape.keeps_others
                }
                Field::Slice(slice) => {
                    self.cut(name, value, |length| Ok(slice.range(length)))?;
                    true
                }
                Field::Positional => {
                    self.cut(name, value, |length| {
                        let only = position.enter_array(length)?;
                        Ok(only.map_or(0..length, |index| index..index + 1))
                    })?;
                    true
                }
            };
            if let Some(seen) = seen.get_mut(index) {
                *seen = written;
            }
            wanted &= !field_bit(index);
            if wanted == 0 && !self.shape.keeps_others {
                break;
            }
        }
        self.append_unseen(tree, &seen)?;
        self.close(start);
        Ok(())
    }

    /// Appends the computed fields that stand in no place yet.
    fn append_unseen(&mut self, tree: &Tree, seen: &[bool]) -> Result<()> {
        if !tree.computes() {
            return Ok(());
        }
        for ((name, field), seen) in tree.fields().iter().zip(seen) {
            match field {
                _ if *seen => {}
                Field::Computed(slot) => self.append_computed(name, *slot)?,
                Field::Children(children) if children.computes() => {
                    self.created(name, children)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn append_computed(&mut self, name: &str, slot: usize) -> Result<()> {
        if let Some(value) = &self.computed[slot] {
            append_value(self.out, name, value)?;
        }
        Ok(())
    }

    /// Appends a document that consists of computed fields only.
    fn created(&mut self, name: &str, children: &Tree) -> Result<()> {
        self.header(ElementType::EmbeddedDocument, name);
        let start = self.open()?;
        self.append_unseen(children, &vec![false; children.fields().len()])?;
        self.close(start);
        Ok(())
    }

    /// Appends what `children` leave of a value.
    fn children(
        &mut self,
        name: &str,
        children: &Tree,
        value: Value<'_>,
        position: Position,
    ) -> Result<()> {
        match value.kind {
            ElementType::EmbeddedDocument => {
                self.header(value.kind, name);
                self.document(children, Elements::of_value(value.bytes)?, position)
            }
            ElementType::Array => {
                self.header(value.kind, name);
                self.array(children, value.bytes, position)
            }
            _ if children.computes() => self.created(name, children),
            kind => {
                if self.shape.keeps_others {
                    self.header(kind, name);
                    self.out.extend_from_slice(value.bytes);
                }
                Ok(())
            }
        }
    }

    fn array(&mut self, children: &Tree, bytes: &[u8], position: Position) -> Result<()> {
        let (mut only, mut position) = (None, position);
        if children.is_positional() && position != Position::Done {
            only = position.enter_array(Elements::of_value(bytes)?.count())?;
            position = Position::Done;
        }
        let start = self.open()?;
        let mut written = 0_usize;
        for (index, element) in Elements::of_value(bytes)?.enumerate() {
            let element = element?;
            if only.is_some_and(|only| only != index) {
                continue;
            }
            let before = self.out.len();
            let value = Value {
                kind: element.kind,
                bytes: element.value,
            };
            self.children(&written.to_string(), children, value, position)?;
            if self.out.len() > before {
                written += 1;
            }
        }
        self.close(start);
        Ok(())
    }

    /// Appends the part of an array that `range` picks by its length; other values stay whole.
    fn cut(
        &mut self,
        name: &str,
        value: Value<'_>,
        range: impl FnOnce(usize) -> Result<std::ops::Range<usize>>,
    ) -> Result<()> {
        self.header(value.kind, name);
        if value.kind != ElementType::Array {
            self.out.extend_from_slice(value.bytes);
            return Ok(());
        }
        let range = range(Elements::of_value(value.bytes)?.count())?;
        let start = self.open()?;
        let kept = Elements::of_value(value.bytes)?
            .skip(range.start)
            .take(range.len());
        for (index, element) in kept.enumerate() {
            let element = element?;
            self.index_header(element.kind, index);
            self.out.extend_from_slice(element.value);
        }
        self.close(start);
        Ok(())
    }

    fn header(&mut self, kind: ElementType, name: &str) {
        self.out.push(kind as u8);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
    }

    fn index_header(&mut self, kind: ElementType, index: usize) {
        self.out.push(kind as u8);
        write!(self.out, "{index}\0").expect("invariant: writing to a vector succeeds");
    }

    /// Begins a document or array; returns where.
    fn open(&mut self) -> Result<usize> {
        if self.depth > DEPTH_MAX {
            return Err(Error::new(
                ErrorCode::Overflow,
                "BSON nests too deep to be projected",
            ));
        }
        self.depth += 1;
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        Ok(start)
    }

    /// Ends the document or array that began at `start`.
    fn close(&mut self, start: usize) {
        self.depth -= 1;
        self.out.push(0);
        let length = i32::try_from(self.out.len() - start).unwrap_or(i32::MAX);
        self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// A bit for each named field that has not been met. What is past the last bit shares it, so that the
/// bit is never cleared and the whole document is read.
const fn wanted_bits(fields: usize) -> u64 {
    match fields {
        0..=63 => (1 << fields) - 1,
        _ => u64::MAX,
    }
}

const fn field_bit(index: usize) -> u64 {
    if index < 63 { 1 << index } else { 0 }
}

/// An encoded value.
#[derive(Clone, Copy)]
struct Value<'d> {
    kind: ElementType,
    bytes: &'d [u8],
}

/// Appends an element with a value that is a tree.
fn append_value(out: &mut Vec<u8>, name: &str, value: &Bson) -> Result<()> {
    let name: &raw::CStr = name.try_into()?;
    let mut document = RawDocumentBuf::new();
    document.append(name, RawBson::try_from(value.clone())?);
    // Between the length and the closing zero lies the element.
    let bytes = document.as_bytes();
    out.extend_from_slice(&bytes[4..bytes.len() - 1]);
    Ok(())
}
