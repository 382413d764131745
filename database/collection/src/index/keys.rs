//! The keys a document has in an index.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use millrace_value::hashed::hashed_raw;
use millrace_value::key::TypeBits;
use millrace_value::{Error, ErrorCode, Path, Result, array_index};

use super::{FieldKind, IndexField, IndexSpec};

/// How many keys one document may have in one index.
const KEYS_MAX: usize = 100_000;
/// How many bytes the keys of one document in one index may take together: a compound index on an
/// array and a long string repeats the string for each element.
const KEYS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The keys of one document in one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexKeys {
    /// The keys in ascending order, each once. None if the index leaves the document out.
    pub keys: Vec<IndexKey>,
    /// Bit *i* is set if an array was expanded along the path of field *i*, even an empty one; fields from
    /// the 64th on share the last bit.
    pub multikey: u64,
}

/// One key: the encoded fields, and what restores their types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexKey {
    /// The values of the index's fields, encoded one after the other (see [`millrace_value::key`]).
    pub fields: Vec<u8>,
    /// The type bits of the fields together.
    pub type_bits: Vec<u8>,
}

impl IndexKeys {
    /// Makes the keys of `document`.
    ///
    /// A path through an array leads to one key for each element; an element that is itself an array is
    /// not expanded further. A component that is the position of an element steps into that one. All
    /// fields that go through an array must go through the same one. A missing field has the key of null,
    /// an empty array at the end of a path that of undefined. A sparse index has no key in which all
    /// fields are missing, and a partial one none for a document that its filter does not match.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), 16746 if a position could also be a field's name, 16766 for an
    /// array under a hashed field, `CannotBuildIndexKeys` beyond the limits on keys of one document,
    /// `InvalidBSON`.
    pub fn of(spec: &IndexSpec, document: &RawDocument) -> Result<Self> {
        if !spec.holds(document)? {
            return Ok(Self::default());
        }
        let mut generator = Generator {
            spec,
            keys: Vec::new(),
            bytes: 0,
            multikey: 0,
        };
        let start = State::At { document, next: 0 };
        generator.expand(vec![start; spec.fields.len()])?;
        let mut keys = generator.keys;
        if keys.len() > 1 {
            // Stable: of keys that differ only in type bits the first stays, on every run.
            keys.sort_by(|a, b| a.fields.cmp(&b.fields));
            keys.dedup_by(|a, b| a.fields == b.fields);
        }
        Ok(Self {
            keys,
            multikey: generator.multikey,
        })
    }
}

/// How far one field of the key has been followed.
#[derive(Clone, Copy, Debug)]
enum State<'a> {
    /// In `document`, where component `next` comes.
    At {
        document: &'a RawDocument,
        next: usize,
    },
    /// At an array; component `next` comes, or none.
    Array { array: &'a RawArray, next: usize },
    /// At the end of the path.
    Value(RawBsonRef<'a>),
    /// The path ends early.
    Missing,
}

struct Generator<'a> {
    spec: &'a IndexSpec,
    keys: Vec<IndexKey>,
    bytes: usize,
    multikey: u64,
}

impl Generator<'_> {
    /// Follows all fields as far as they go without expanding an array, then expands the one they
    /// have in common. Each level of recursion is a level of nesting of the document, whose depth is
    /// bounded, or a component of a path.
    fn expand<'d>(&mut self, mut states: Vec<State<'d>>) -> Result<()> {
        let mut shared: Option<(usize, &'d RawArray)> = None;
        for position in 0..states.len() {
            let field = &self.spec.fields[position];
            states[position] = follow(&field.path, states[position])?;
            let State::Array { array, .. } = states[position] else {
                continue;
            };
            if field.kind == FieldKind::Hashed {
                return Err(Error::location(
                    16766,
                    format!(
                        "hashed indexes do not currently support array values. Found array at path: {}",
                        field.path
                    ),
                ));
            }
            match shared {
                // Two paths lead to the same array if it lies at the same place in memory.
                Some((_, other)) if std::ptr::eq(other, array) => {}
                Some((other, _)) => {
                    return Err(
                        self.parallel_arrays((other, states[other]), (position, states[position]))
                    );
                }
                None => shared = Some((position, array)),
            }
        }
        match shared {
            None => self.emit(&states),
            Some((_, array)) => self.expand_array(states, array),
        }
    }

    fn expand_array<'d>(&mut self, mut states: Vec<State<'d>>, array: &'d RawArray) -> Result<()> {
        // Fields whose next component is a position in the array step into that element, once for all.
        let mut whole = Vec::new();
        for (position, state) in states.iter_mut().enumerate() {
            let State::Array { next, .. } = *state else {
                continue;
            };
            let field = &self.spec.fields[position];
            match element_by_position(field, array, next)? {
                Some(element) => *state = enter(&field.path, element, next + 1),
                None => whole.push((position, next)),
            }
        }
        if whole.is_empty() {
            return self.expand(states);
        }
        for (position, _) in &whole {
            self.multikey |= 1 << (*position).min(63);
        }
        if array.is_empty() {
            for (position, next) in whole {
                let ends = next == self.spec.fields[position].path.len();
                states[position] = if ends {
                    State::Value(RawBsonRef::Undefined)
                } else {
                    State::Missing
                };
            }
            return self.expand(states);
        }
        for element in array {
            let element = element?;
            let mut states = states.clone();
            for &(position, next) in &whole {
                let ends = next == self.spec.fields[position].path.len();
                states[position] = match element {
                    element if ends => State::Value(element),
                    RawBsonRef::Document(document) => State::At { document, next },
                    _ => State::Missing,
                };
            }
            self.expand(states)?;
        }
        Ok(())
    }

    fn emit(&mut self, states: &[State<'_>]) -> Result<()> {
        let all_missing = states.iter().all(|state| matches!(state, State::Missing));
        if self.spec.sparse && all_missing {
            return Ok(());
        }
        let (mut fields, mut type_bits) = (Vec::with_capacity(16), TypeBits::new());
        for (field, state) in self.spec.fields.iter().zip(states) {
            let value = match state {
                State::Value(value) => *value,
                _ => RawBsonRef::Null,
            };
            let value = match field.kind {
                FieldKind::Hashed => RawBsonRef::Int64(hashed_raw(value, self.spec.collation)?),
                FieldKind::Ascending | FieldKind::Descending => value,
            };
            let descending = field.kind == FieldKind::Descending;
            self.spec
                .collation
                .encode_key(&mut fields, &mut type_bits, value, descending)?;
        }
        self.bytes = self.bytes.saturating_add(fields.len());
        if self.keys.len() >= KEYS_MAX || self.bytes > KEYS_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::CannotBuildIndexKeys,
                format!(
                    "a document has more than {KEYS_MAX} keys, or more than {KEYS_BYTES_MAX} bytes of \
                     keys, in index {}",
                    self.spec.name
                ),
            ));
        }
        self.keys.push(IndexKey {
            fields,
            type_bits: type_bits.into_bytes(),
        });
        Ok(())
    }

    /// The failure for two fields that are at different arrays.
    fn parallel_arrays(&self, a: (usize, State<'_>), b: (usize, State<'_>)) -> Error {
        let name = |(position, state): (usize, State<'_>)| {
            let components = self.spec.fields[position].path.components();
            match state {
                // The component before the next one is the array's name.
                State::Array { next, .. } => components.get(next.wrapping_sub(1)),
                _ => components.last(),
            }
            .map_or("", |name| &**name)
        };
        Error::new(
            ErrorCode::CannotIndexParallelArrays,
            format!("cannot index parallel arrays [{}] [{}]", name(b), name(a)),
        )
    }
}

/// Follows `path` from `state` to its end, to an array, or to where it is missing.
fn follow<'d>(path: &Path, mut state: State<'d>) -> Result<State<'d>> {
    while let State::At { document, next } = state {
        let Some(component) = path.components().get(next) else {
            return Ok(State::Value(RawBsonRef::Document(document)));
        };
        state = match document.get(&**component)? {
            Some(value) => enter(path, value, next + 1),
            None => State::Missing,
        };
    }
    Ok(state)
}

/// The state at `value`, where component `next` comes, or none.
fn enter<'d>(path: &Path, value: RawBsonRef<'d>, next: usize) -> State<'d> {
    match value {
        RawBsonRef::Array(array) => State::Array { array, next },
        value if next == path.len() => State::Value(value),
        RawBsonRef::Document(document) => State::At { document, next },
        _ => State::Missing,
    }
}

/// The element of `array` whose position component `next` of the field's path is.
fn element_by_position<'d>(
    field: &IndexField,
    array: &'d RawArray,
    next: usize,
) -> Result<Option<RawBsonRef<'d>>> {
    let Some(component) = field.path.components().get(next) else {
        return Ok(None);
    };
    let Some(index) = array_index(component) else {
        return Ok(None);
    };
    let Some(found) = array.get(index)? else {
        return Ok(None);
    };
    for element in array {
        if let RawBsonRef::Document(document) = element? {
            if document.get(&**component)?.is_some() {
                return Err(Error::location(
                    16746,
                    format!(
                        "Ambiguous field name found in array (do not use numeric field names in \
                         embedded elements in an array), field: '{component}' for array: {}",
                        array_text(array)
                    ),
                ));
            }
        }
    }
    Ok(Some(found))
}

/// The array as messages print it.
fn array_text(array: &RawArray) -> String {
    let owned = RawBsonRef::Array(array).try_into();
    owned.map_or_else(
        |_| "[]".to_owned(),
        |value: bson::Bson| millrace_value::value_text(&value),
    )
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
