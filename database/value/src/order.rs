//! MongoDB's total order of values.

use std::cmp::Ordering;

use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, RawElement};
use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, Document};

use super::{Collation, NESTING_MAX, Number};

/// How deep [`Collation::compare`] follows nested values. Stored documents are less deep; what lies below in
/// hostile ones is compared as bytes, so that the stack stays bounded.
const COMPARE_DEPTH_MAX: usize = NESTING_MAX + 50;

/// Where the values of a type stand among those of other types. Types of equal rank are compared with
/// each other: the four numbers, string and symbol.
///
/// Undefined stands below null, as in MongoDB, where it is the index key of an empty array.
#[must_use]
pub const fn canonical_rank(element_type: ElementType) -> u8 {
    match element_type {
        ElementType::MinKey => 0,
        ElementType::Undefined => 1,
        ElementType::Null => 2,
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => {
            3
        }
        ElementType::String | ElementType::Symbol => 4,
        ElementType::EmbeddedDocument => 5,
        ElementType::Array => 6,
        ElementType::Binary => 7,
        ElementType::ObjectId => 8,
        ElementType::Boolean => 9,
        ElementType::DateTime => 10,
        ElementType::Timestamp => 11,
        ElementType::RegularExpression => 12,
        ElementType::DbPointer => 13,
        ElementType::JavaScriptCode => 14,
        ElementType::JavaScriptCodeWithScope => 15,
        ElementType::MaxKey => 16,
    }
}

impl Collation {
    /// Compares two values in MongoDB's order.
    ///
    /// Values of different rank ([`canonical_rank`]) are ordered by it. Numbers compare by value,
    /// whatever their types, with NaN below all others and -0 equal to 0; strings and symbols by
    /// the collation; documents field by field, first by the rank of the value, then by name, then by value; arrays
    /// element by element; binary data by length, subtype, bytes; regular expressions by pattern, then
    /// options; code with scope by code, then scope.
    ///
    /// Bytes that are not valid BSON end the document they stand in.
    #[must_use]
    pub fn compare(self, a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
        self.compare_at(a, b, COMPARE_DEPTH_MAX)
    }

    /// Compares two owned values in MongoDB's order; see [`compare`](Self::compare).
    #[must_use]
    pub fn compare_bson(self, a: &Bson, b: &Bson) -> Ordering {
        let rank_a = canonical_rank(a.element_type());
        let rank_b = canonical_rank(b.element_type());
        rank_a
            .cmp(&rank_b)
            .then_with(|| self.compare_bson_in_rank(a, b))
    }

    fn compare_at(self, a: RawBsonRef<'_>, b: RawBsonRef<'_>, depth: usize) -> Ordering {
        let rank_a = canonical_rank(a.element_type());
        let rank_b = canonical_rank(b.element_type());
        rank_a
            .cmp(&rank_b)
            .then_with(|| self.compare_in_rank(a, b, depth))
    }

    /// Compares values of equal rank.
    fn compare_in_rank(self, a: RawBsonRef<'_>, b: RawBsonRef<'_>, depth: usize) -> Ordering {
        use RawBsonRef as R;
        match (a, b) {
            (R::Int32(a), R::Int32(b)) => a.cmp(&b),
            (R::String(a) | R::Symbol(a), R::String(b) | R::Symbol(b)) => self.compare_text(a, b),
            (R::Document(a), R::Document(b)) => self.compare_documents(a, b, depth),
            (R::Array(a), R::Array(b)) => self.compare_arrays(a, b, depth),
            (R::Binary(a), R::Binary(b)) => binary_len(a.subtype, a.bytes)
                .cmp(&binary_len(b.subtype, b.bytes))
                .then_with(|| u8::from(a.subtype).cmp(&u8::from(b.subtype)))
                .then_with(|| a.bytes.cmp(b.bytes)),
            (R::ObjectId(a), R::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
            (R::Boolean(a), R::Boolean(b)) => a.cmp(&b),
            (R::DateTime(a), R::DateTime(b)) => a.timestamp_millis().cmp(&b.timestamp_millis()),
            (R::Timestamp(a), R::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
            (R::RegularExpression(a), R::RegularExpression(b)) => {
                let (pattern_a, pattern_b) = (a.pattern.as_str(), b.pattern.as_str());
                pattern_a
                    .as_bytes()
                    .cmp(pattern_b.as_bytes())
                    .then_with(|| {
                        a.options
                            .as_str()
                            .as_bytes()
                            .cmp(b.options.as_str().as_bytes())
                    })
            }
            (R::DbPointer(_), R::DbPointer(_)) => compare_db_pointers(a, b),
            (R::JavaScriptCode(a), R::JavaScriptCode(b)) => a.as_bytes().cmp(b.as_bytes()),
            (R::JavaScriptCodeWithScope(a), R::JavaScriptCodeWithScope(b)) => a
                .code
                .as_bytes()
                .cmp(b.code.as_bytes())
                // The scope of code is never compared by a collation.
                .then_with(|| Self::SIMPLE.compare_documents(a.scope, b.scope, depth)),
            (a, b) => match (Number::from_raw(a), Number::from_raw(b)) {
                (Some(a), Some(b)) => a.compare(b),
                // MinKey, MaxKey, null and undefined: all values are equal.
                _ => Ordering::Equal,
            },
        }
    }

    fn compare_documents(self, a: &RawDocument, b: &RawDocument, depth: usize) -> Ordering {
        let Some(depth) = depth.checked_sub(1) else {
            return a.as_bytes().cmp(b.as_bytes());
        };
        let (mut fields_a, mut fields_b) = (a.iter_elements(), b.iter_elements());
        loop {
            let (a, b) = match (next_valid(&mut fields_a), next_valid(&mut fields_b)) {
                (None, None) => return Ordering::Equal,
                (None, Some(_)) => return Ordering::Less,
                (Some(_), None) => return Ordering::Greater,
                (Some(a), Some(b)) => (a, b),
            };
            let order = canonical_rank(a.element_type())
                .cmp(&canonical_rank(b.element_type()))
                .then_with(|| a.key().as_str().as_bytes().cmp(b.key().as_str().as_bytes()))
                .then_with(|| self.compare_elements(&a, &b, depth));
            if order != Ordering::Equal {
                return order;
            }
        }
    }

    fn compare_arrays(self, a: &RawArray, b: &RawArray, depth: usize) -> Ordering {
        let Some(depth) = depth.checked_sub(1) else {
            return a.as_bytes().cmp(b.as_bytes());
        };
        let (mut elements_a, mut elements_b) = (a.iter_elements(), b.iter_elements());
        loop {
            let (a, b) = match (next_valid(&mut elements_a), next_valid(&mut elements_b)) {
                (None, None) => return Ordering::Equal,
                (None, Some(_)) => return Ordering::Less,
                (Some(_), None) => return Ordering::Greater,
                (Some(a), Some(b)) => (a, b),
            };
            let order = canonical_rank(a.element_type())
                .cmp(&canonical_rank(b.element_type()))
                .then_with(|| self.compare_elements(&a, &b, depth));
            if order != Ordering::Equal {
                return order;
            }
        }
    }

    /// Compares the values of two elements of equal rank.
    fn compare_elements(self, a: &RawElement<'_>, b: &RawElement<'_>, depth: usize) -> Ordering {
        match (a.value(), b.value()) {
            (Ok(a), Ok(b)) => self.compare_in_rank(a, b, depth),
            (a, b) => a.is_ok().cmp(&b.is_ok()),
        }
    }

    /// Compares owned values of equal rank.
    fn compare_bson_in_rank(self, a: &Bson, b: &Bson) -> Ordering {
        match (a, b) {
            (Bson::Document(a), Bson::Document(b)) => self.compare_owned_documents(a, b),
            (Bson::Array(a), Bson::Array(b)) => {
                for (a, b) in a.iter().zip(b) {
                    let order = self.compare_bson(a, b);
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Bson::JavaScriptCodeWithScope(a), Bson::JavaScriptCodeWithScope(b)) => a
                .code
                .as_bytes()
                .cmp(b.code.as_bytes())
                // The scope of code is never compared by a collation.
                .then_with(|| Self::SIMPLE.compare_owned_documents(&a.scope, &b.scope)),
            (Bson::DbPointer(a), Bson::DbPointer(b)) => {
                let (a, b) = (RawBson::DbPointer(a.clone()), RawBson::DbPointer(b.clone()));
                compare_db_pointers(a.as_raw_bson_ref(), b.as_raw_bson_ref())
            }
            (a, b) => match (scalar_ref(a), scalar_ref(b)) {
                (Some(a), Some(b)) => self.compare_in_rank(a, b, 0),
                // Values of equal rank are either both scalars or both of one of the types above.
                _ => Ordering::Equal,
            },
        }
    }

    fn compare_owned_documents(self, a: &Document, b: &Document) -> Ordering {
        for ((name_a, a), (name_b, b)) in a.iter().zip(b) {
            let order = canonical_rank(a.element_type())
                .cmp(&canonical_rank(b.element_type()))
                .then_with(|| name_a.as_bytes().cmp(name_b.as_bytes()))
                .then_with(|| self.compare_bson_in_rank(a, b));
            if order != Ordering::Equal {
                return order;
            }
        }
        a.len().cmp(&b.len())
    }
}

/// A value that holds no other as a borrowed one; `None` for documents, arrays, code with scope and the
/// deprecated pointers, whose parts cannot be borrowed.
pub(crate) fn scalar_ref(value: &Bson) -> Option<RawBsonRef<'_>> {
    Some(match value {
        Bson::Double(value) => RawBsonRef::Double(*value),
        Bson::String(value) => RawBsonRef::String(value),
        Bson::Boolean(value) => RawBsonRef::Boolean(*value),
        Bson::Null => RawBsonRef::Null,
        Bson::RegularExpression(value) => RawBsonRef::RegularExpression(bson::raw::RawRegexRef {
            pattern: &value.pattern,
            options: &value.options,
        }),
        Bson::JavaScriptCode(value) => RawBsonRef::JavaScriptCode(value),
        Bson::Int32(value) => RawBsonRef::Int32(*value),
        Bson::Int64(value) => RawBsonRef::Int64(*value),
        Bson::Timestamp(value) => RawBsonRef::Timestamp(*value),
        Bson::Binary(value) => RawBsonRef::from(value),
        Bson::ObjectId(value) => RawBsonRef::ObjectId(*value),
        Bson::DateTime(value) => RawBsonRef::DateTime(*value),
        Bson::Symbol(value) => RawBsonRef::Symbol(value),
        Bson::Decimal128(value) => RawBsonRef::Decimal128(*value),
        Bson::Undefined => RawBsonRef::Undefined,
        Bson::MaxKey => RawBsonRef::MaxKey,
        Bson::MinKey => RawBsonRef::MinKey,
        Bson::Document(_)
        | Bson::Array(_)
        | Bson::JavaScriptCodeWithScope(_)
        | Bson::DbPointer(_) => return None,
    })
}

/// The two parts of the deprecated pointer type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DbPointerParts {
    pub(crate) namespace: Vec<u8>,
    pub(crate) id: [u8; 12],
}

/// The parts of `value`, a `DbPointer`. The BSON library keeps them to itself, so they are read from
/// the value's serialized form; `None` for a value of another type.
pub(crate) fn db_pointer_parts(value: RawBsonRef<'_>) -> Option<DbPointerParts> {
    if value.element_type() != ElementType::DbPointer {
        return None;
    }
    let mut document = RawDocumentBuf::new();
    document.append(bson::cstr!(""), value);
    // length (4), type (1), empty name (1), namespace length (4), namespace, NUL, id (12), NUL.
    let body = document.as_bytes().get(10..)?;
    let namespace = body.get(..body.len().checked_sub(14)?)?;
    let id = body.get(namespace.len() + 1..)?.first_chunk::<12>()?;
    Some(DbPointerParts {
        namespace: namespace.to_vec(),
        id: *id,
    })
}

/// The deprecated pointer value with these parts. The BSON library builds one only from bytes.
pub(crate) fn db_pointer(namespace: &str, id: [u8; 12]) -> Option<RawBson> {
    // A type, an empty name, a string with its length, the id.
    let mut body = vec![0x0C, 0];
    body.extend(i32::try_from(namespace.len() + 1).ok()?.to_le_bytes());
    body.extend(namespace.as_bytes());
    body.push(0);
    body.extend(id);
    let mut bytes = i32::try_from(body.len() + 5).ok()?.to_le_bytes().to_vec();
    bytes.append(&mut body);
    bytes.push(0);
    let document = RawDocumentBuf::from_bytes(bytes).ok()?;
    let value = document.iter().next()?.ok()?.1;
    Some(value.into())
}

/// The length of binary data as MongoDB orders by it: that on the wire, where the deprecated subtype 2
/// repeats the length inside.
pub(crate) fn binary_len(subtype: BinarySubtype, bytes: &[u8]) -> usize {
    bytes.len()
        + if subtype == BinarySubtype::BinaryOld {
            4
        } else {
            0
        }
}

fn compare_db_pointers(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    let order_key = |value| {
        db_pointer_parts(value).map(|parts| (parts.namespace.len(), parts.namespace, parts.id))
    };
    order_key(a).cmp(&order_key(b))
}

/// The next element, or `None` at the end and at the first bytes that are not valid.
fn next_valid<'a>(elements: &mut bson::raw::RawIter<'a>) -> Option<RawElement<'a>> {
    elements.next()?.ok()
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
