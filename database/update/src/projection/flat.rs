//! The everyday projection, `{a: 1, b: 1, _id: 0}`: it comes with every read of many applications, so it
//! is parsed without copying a name and applied without a tree.

use bson::RawDocument;
use millrace_value::{Elements, Result};

use super::tree::tag;
use super::{Field, Projection, Shape, Tree};

/// The most fields that are searched one after the other for each field of a document.
const NAMES_MAX: usize = 32;

/// A projection that does nothing but keep or drop fields of the top level.
#[derive(Clone, Debug)]
pub struct Flat<'s> {
    /// Whether fields that are not named are kept, and the named ones dropped.
    keeps_others: bool,
    /// The named fields with their tags, no more than [`NAMES_MAX`] and none twice.
    names: Vec<(u16, &'s [u8])>,
}

impl<'s> Flat<'s> {
    /// Parses a specification; none if it does anything else, or is wrong.
    pub fn parse(spec: &'s RawDocument) -> Option<Self> {
        let mut flat = Self {
            keeps_others: false,
            names: Vec::with_capacity(12),
        };
        let mut includes = None;
        let mut includes_id = None;
        for element in Elements::new(spec) {
            let element = element.ok()?;
            let (name, truth) = (element.name, element.truth()?);
            if name == b"_id" {
                if includes_id.replace(truth).is_some() {
                    return None;
                }
                continue;
            }
            let is_plain = !name.is_empty() && !name.iter().any(|byte| b".$".contains(byte));
            let agrees = *includes.get_or_insert(truth) == truth;
            if !is_plain
                || !agrees
                || flat.find(name).is_some()
                || flat.names.len() == NAMES_MAX - 1
            {
                return None;
            }
            flat.names.push((tag(name), name));
        }
        flat.keeps_others = !includes.or(includes_id)?;
        // The _id is kept unless it is said otherwise.
        if flat.keeps_others == (includes_id == Some(false)) {
            flat.names.push((tag(b"_id"), b"_id"));
        }
        Some(flat)
    }

    /// Appends the projected document to `out`. After an error `out` ends in the middle of a document.
    ///
    /// # Errors
    /// `InvalidBSON` for bytes that are no document.
    pub fn append(&self, out: &mut Vec<u8>, document: &RawDocument) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        // A bit for each named field that has not been met.
        let mut left = (1_u64 << self.names.len()) - 1;
        for element in Elements::new(document) {
            let element = element?;
            let found = self.find(element.name);
            if found.is_some() != self.keeps_others {
                out.extend_from_slice(element.bytes);
            }
            left &= !found.map_or(0, |index| 1 << index);
            if left == 0 && !self.keeps_others {
                break;
            }
        }
        out.push(0);
        let length = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// The same projection without a borrow; none if a name is not UTF-8.
    pub(super) fn to_projection(&self) -> Option<Projection> {
        let mut tree = Tree::default();
        for (_, name) in &self.names {
            let field = if self.keeps_others {
                Field::Exclude
            } else {
                Field::Include
            };
            tree.add(&[std::str::from_utf8(name).ok()?.into()], field)
                .ok()?;
        }
        Some(Projection {
            shape: Shape {
                keeps_others: self.keeps_others,
                tree,
                sources: Vec::new(),
            },
            positional: None,
        })
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let tag = tag(name);
        self.names
            .iter()
            .position(|&(known, candidate)| known == tag && candidate == name)
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::cstr;
    use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
    use millrace_expression::Scope;
    use millrace_value::Collation;

    use super::super::Mode;
    use super::*;

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
            let flat = Flat::parse(&raw).unwrap_or_else(|| panic!("{spec} is flat"));
            let whole = Projection::parse(&spec, Mode::Find, &Scope::new(Collation::SIMPLE));
            let whole = whole.unwrap_or_else(|error| panic!("{spec}: {error}"));
            let document = rawdoc! {"_id": 1, "a": 2, "b": 3, "c": 4};
            let mut out = vec![7];
            flat.append(&mut out, &document).expect("it applies");
            let applied = RawDocument::from_bytes(&out[1..]).expect("BSON");
            let names = applied
                .iter_elements()
                .map(|element| element.expect("BSON").key().to_string());
            assert_eq!(names.collect::<Vec<_>>(), left(&whole), "{spec}");
            let owned = flat.to_projection().expect("UTF-8");
            assert_eq!(left(&owned), left(&whole), "{spec}");
            assert_eq!(owned.is_exclusion(), whole.is_exclusion(), "{spec}");
        }
    }

    #[test]
    fn a_field_that_a_document_has_twice_counts_once() {
        let spec = rawdoc! {"a": 1, "b": 1, "_id": 0};
        let mut document = rawdoc! {"a": 1};
        document.append(cstr!("a"), 2);
        document.append(cstr!("b"), 3);
        document.append(cstr!("b"), 4);
        let mut out = Vec::new();
        let flat = Flat::parse(&spec).expect("it is flat");
        flat.append(&mut out, &document).expect("it applies");
        let applied = RawDocument::from_bytes(&out).expect("BSON");
        let values = applied
            .iter()
            .map(|element| element.expect("BSON").1.as_i32());
        assert_eq!(values.collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
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
            (0..100)
                .map(|number| (number.to_string(), Bson::Int32(1)))
                .collect(),
        ] {
            let raw = RawDocumentBuf::try_from(&spec).expect("BSON");
            assert!(Flat::parse(&raw).is_none(), "{spec}");
        }
    }
}
