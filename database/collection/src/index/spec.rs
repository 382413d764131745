//! The specification of an index.

use std::sync::Arc;

use bson::{Bson, Document, RawDocument};
use millrace_value::{
    Collation, Error, ErrorCode, Number, Path, Result, document_text, type_alias, value_text,
};

use super::partial_filter::PartialFilter;
use super::spec_options::{
    check_fields, expire_after_seconds, flag, index_name, object, parse_collation, type_mismatch,
    version,
};

/// How many bytes a key pattern may have.
const KEY_PATTERN_BYTES_MAX: usize = 2048;
/// How many fields an index may have.
const FIELDS_MAX: usize = 32;
/// The name of the index on `_id`.
const ID_NAME: &str = "_id_";

/// The way a field is indexed: 1, -1 or `"hashed"` in the key pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// In the order of the values (1).
    Ascending,
    /// Against the order of the values.
    Descending,
    /// By a hash of the value ([`millrace_value::hashed::hashed_value`]).
    Hashed,
}

/// One field of an index's key pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexField {
    /// The path of the indexed field.
    pub path: Path,
    /// The order or hash that the field is indexed by.
    pub kind: FieldKind,
}

/// What an index is on, and its options. Made from MongoDB's index document by [`IndexSpec::parse`].
#[derive(Clone, Debug)]
pub struct IndexSpec {
    /// The name of the index, unique in its collection.
    pub name: String,
    /// The indexed fields, the most significant first; at least one.
    pub fields: Vec<IndexField>,
    /// Whether no two documents may have the same key.
    pub unique: bool,
    /// Whether documents that have none of the fields are left out.
    pub sparse: bool,
    /// Whether the planner must not use it.
    pub hidden: bool,
    /// Which documents are in it; all if `None`.
    pub partial_filter: Option<Document>,
    /// The rule by which its strings are ordered.
    pub collation: Collation,
    /// How many seconds after the indexed date a document is deleted.
    pub expire_after_seconds: Option<u64>,
    /// The specification as `listIndexes` shows it: version, key and name first, defaults left out.
    pub document: Document,
    /// `partial_filter`, parsed; shared because specifications are copied often.
    condition: Option<Arc<PartialFilter>>,
}

/// How two specifications on one collection get along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// They are the same index: there is nothing to create.
    Same,
    /// They are two indexes that can both exist.
    Different,
}

impl IndexSpec {
    /// The index on `_id` that every collection has.
    #[must_use]
    pub fn id() -> Self {
        let document = bson::doc! {"v": 2, "key": {"_id": 1}, "name": ID_NAME};
        let field = IndexField {
            path: Path::parse("_id"),
            kind: FieldKind::Ascending,
        };
        Self {
            name: ID_NAME.to_owned(),
            fields: vec![field],
            unique: true,
            sparse: false,
            hidden: false,
            partial_filter: None,
            // That of the collection, whose default is always the simple one.
            collation: Collation::SIMPLE,
            expire_after_seconds: None,
            document,
            condition: None,
        }
    }

    /// Parses an index document: `{key: {a: 1, b: -1}, name: "a_1_b_-1", unique: true, ...}`. Without a
    /// name it gets MongoDB's default one. Any specification on `{_id: 1}` is that of [`IndexSpec::id`].
    ///
    /// # Errors
    /// Those of MongoDB: `FailedToParse` without a key, `TypeMismatch` for a field of the wrong type,
    /// `InvalidIndexSpecificationOption` for an unknown one, `CannotCreateIndex` for a key pattern or
    /// an option that cannot be, and for kinds of indexes that are not supported.
    pub fn parse(document: &Document) -> Result<Self> {
        let key = match document.get("key") {
            Some(Bson::Document(key)) => key,
            Some(other) => return Err(type_mismatch("key", "an object", other)),
            None => {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "The 'key' field is a required property of an index specification",
                ));
            }
        };
        let on_id = is_id_pattern(key);
        check_fields(document, on_id)?;
        let fields = parse_key(key)?;
        let name = index_name(document, key)?;
        let version = version(document)?;
        if on_id {
            return Self::parse_id(document, key);
        }
        let unique = flag(document, "unique")?;
        let sparse = flag(document, "sparse")?;
        let hidden = flag(document, "hidden")?;
        let partial_filter = object(document, "partialFilterExpression")?.cloned();
        let collation = parse_collation(object(document, "collation")?)?;
        let condition = partial_filter
            .as_ref()
            .map(|filter| PartialFilter::parse(filter, collation))
            .transpose()?
            .map(Arc::new);
        let expire_after_seconds = expire_after_seconds(document)?;
        let mut spec = Self {
            name,
            fields,
            unique,
            sparse,
            hidden,
            partial_filter,
            collation,
            expire_after_seconds,
            document: Document::new(),
            condition,
        };
        spec.check_combination(document)?;
        spec.document = spec.normalized(document, key, version);
        Ok(spec)
    }

    fn parse_id(document: &Document, key: &Document) -> Result<Self> {
        if flag(document, "hidden")? {
            return Err(Error::new(ErrorCode::BadValue, "can't hide _id index"));
        }
        if key
            .get("_id")
            .and_then(Number::from_bson)
            .is_some_and(Number::is_negative)
        {
            return Err(Error::new(
                ErrorCode::BadValue,
                format!(
                    "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
                    document_text(key)
                ),
            ));
        }
        Ok(Self::id())
    }

    /// Options that exclude each other.
    fn check_combination(&self, document: &Document) -> Result<()> {
        let cannot = |message: String| Err(Error::new(ErrorCode::CannotCreateIndex, message));
        let hashed = self
            .fields
            .iter()
            .filter(|field| field.kind == FieldKind::Hashed)
            .count();
        if hashed > 1 {
            return Err(Error::location(
                31303,
                format!(
                    "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {}",
                    document.get("key").map(value_text).unwrap_or_default()
                ),
            ));
        }
        if hashed > 0 && self.unique {
            return Err(Error::location(
                16764,
                "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
            ));
        }
        if self.sparse && self.partial_filter.is_some() {
            return cannot(
                "cannot mix \"partialFilterExpression\" and \"sparse\" options".to_owned(),
            );
        }
        if self.expire_after_seconds.is_some() && self.fields.len() > 1 {
            return cannot(format!(
                "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: {}",
                document_text(document)
            ));
        }
        Ok(())
    }

    /// The document that `listIndexes` shows and the catalog keeps.
    fn normalized(&self, document: &Document, key: &Document, version: i32) -> Document {
        let mut normalized = bson::doc! {"v": version, "key": key.clone(), "name": &self.name};
        for (field, value) in document {
            let value = match field.as_str() {
                // These are at the front already, or say nothing that lasts.
                "v" | "key" | "name" | "ns" | "dropDups" | "originalSpec" => continue,
                "hidden" if !self.hidden => continue,
                "collation" => continue,
                "unique" => Bson::Boolean(self.unique),
                "sparse" => Bson::Boolean(self.sparse),
                "hidden" => Bson::Boolean(true),
                "background" | "prepareUnique" => {
                    Bson::Boolean(flag(document, field).unwrap_or(false))
                }
                "expireAfterSeconds" => {
                    let seconds = self
                        .expire_after_seconds
                        .and_then(|s| i32::try_from(s).ok());
                    Bson::Int32(seconds.unwrap_or(i32::MAX))
                }
                _ => value.clone(),
            };
            normalized.insert(field.clone(), value);
        }
        normalized
    }

    /// Whether the index has keys for `document`, as far as its filter says.
    ///
    /// # Errors
    /// `InvalidBSON`.
    pub(super) fn holds(&self, document: &RawDocument) -> Result<bool> {
        self.condition
            .as_ref()
            .map_or(Ok(true), |condition| condition.holds(document))
    }

    /// Whether `other`, which is to be created, is this index, or can exist beside it. Indexes on the same
    /// key may do so if they differ in `unique`, `sparse` or filter, and in name.
    ///
    /// # Errors
    /// `IndexKeySpecsConflict` (86) if a different index has the name, `IndexOptionsConflict` (85) if the
    /// same index has another name or other options.
    pub fn compatibility(&self, other: &Self) -> Result<Compatibility> {
        let same_index = self.has_signature_of(other);
        let same_options = self.has_options_of(other);
        let texts = || {
            format!(
                "Requested index: {}, existing index: {}",
                document_text(&other.document),
                document_text(&self.document)
            )
        };
        let conflict = |message: String| Err(Error::new(ErrorCode::IndexOptionsConflict, message));
        match (self.name == other.name, same_index, same_options) {
            (true, true, true) => Ok(Compatibility::Same),
            (false, false, _) => Ok(Compatibility::Different),
            (true, false, _) => Err(Error::new(
                ErrorCode::IndexKeySpecsConflict,
                format!(
                    "An existing index has the same name as the requested index. When index names are not \
                     specified, they are auto generated and can cause conflicts. Please refer to our \
                     documentation. {}",
                    texts()
                ),
            )),
            (true, true, false) => conflict(format!(
                "An equivalent index already exists with the same name but different options. {}",
                texts()
            )),
            (false, true, true) => conflict(format!(
                "Index already exists with a different name: {}",
                self.name
            )),
            (false, true, false) => conflict(format!(
                "An equivalent index already exists with a different name and options. {}",
                texts()
            )),
        }
    }

    /// Whether both are the same index but for its name and minor options.
    fn has_signature_of(&self, other: &Self) -> bool {
        let same = |name: &str| {
            let (a, b) = (self.document.get(name), other.document.get(name));
            match (a, b) {
                // Specifications are compared as they are written.
                (Some(a), Some(b)) => Collation::SIMPLE.compare_bson(a, b).is_eq(),
                (a, b) => a.is_none() && b.is_none(),
            }
        };
        self.unique == other.unique
            && self.sparse == other.sparse
            && self.collation == other.collation
            && same("key")
            && same("partialFilterExpression")
    }

    /// Whether the minor options are the same. Whether it is hidden or was built in the background
    /// does not count.
    fn has_options_of(&self, other: &Self) -> bool {
        fn minor(document: &Document) -> Vec<(&String, &Bson)> {
            const ELSEWHERE: [&str; 8] = [
                "v",
                "key",
                "name",
                "unique",
                "sparse",
                "hidden",
                "background",
                "partialFilterExpression",
            ];
            let mut options: Vec<_> = document
                .iter()
                .filter(|(name, _)| !ELSEWHERE.contains(&name.as_str()))
                .collect();
            options.sort_by_key(|(name, _)| name.as_str());
            options
        }
        let (mine, others) = (minor(&self.document), minor(&other.document));
        mine.len() == others.len()
            && mine
                .iter()
                .zip(&others)
                .all(|((a, x), (b, y))| a == b && Collation::SIMPLE.compare_bson(x, y).is_eq())
    }
}

/// Whether `key` is the pattern of the index on `_id`.
fn is_id_pattern(key: &Document) -> bool {
    let unit = |value| {
        matches!(
            Number::from_bson(value).and_then(Number::as_i64_exact),
            Some(1 | -1)
        )
    };
    key.len() == 1 && key.get("_id").is_some_and(unit)
}

fn parse_key(key: &Document) -> Result<Vec<IndexField>> {
    let cannot = |message: &str| Err(Error::new(ErrorCode::CannotCreateIndex, message));
    if key.is_empty() {
        return cannot("Index keys cannot be empty.");
    }
    let bytes = key.iter().map(|(name, _)| name.len() + 10).sum::<usize>();
    if bytes > KEY_PATTERN_BYTES_MAX {
        return cannot("Index key pattern too large.");
    }
    if key.len() > FIELDS_MAX {
        return Err(Error::location(
            13103,
            format!("too many compound keys: an index has at most {FIELDS_MAX} fields"),
        ));
    }
    key.iter()
        .map(|(name, value)| {
            let kind = parse_kind(value)?;
            Ok(IndexField {
                path: parse_path(name)?,
                kind,
            })
        })
        .collect()
}

fn parse_kind(value: &Bson) -> Result<FieldKind> {
    let cannot = |message: String| Err(Error::new(ErrorCode::CannotCreateIndex, message));
    if let Some(number) = Number::from_bson(value) {
        return match number {
            number if number.is_nan() => {
                cannot("Values in the index key pattern cannot be NaN.".to_owned())
            }
            number if number.is_zero() => {
                cannot("Values in the index key pattern cannot be 0.".to_owned())
            }
            number if number.is_negative() => Ok(FieldKind::Descending),
            _ => Ok(FieldKind::Ascending),
        };
    }
    match value {
        Bson::String(kind) => match kind.as_str() {
            "hashed" => Ok(FieldKind::Hashed),
            "text" | "2d" | "2dsphere" | "2dsphere_bucket" | "geoHaystack" | "wildcard"
            | "columnstore" => cannot(format!("indexes of type '{kind}' are not supported")),
            _ => cannot(format!("Unknown index plugin '{kind}'")),
        },
        other => cannot(format!(
            "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, and \
             strings are allowed.",
            type_alias(other)
        )),
    }
}

fn parse_path(name: &str) -> Result<Path> {
    let cannot = |message: &str| Err(Error::new(ErrorCode::CannotCreateIndex, message));
    if name.is_empty() {
        return cannot("Index keys cannot be an empty field.");
    }
    if name == "$**" || name.ends_with(".$**") {
        return cannot("wildcard indexes are not supported");
    }
    let path = Path::parse(name);
    for (place, component) in path.components().iter().enumerate() {
        if component.is_empty() {
            return cannot("Index keys cannot contain an empty field.");
        }
        // The parts of a DBRef are named so.
        let reference = place > 0 && matches!(&**component, "$id" | "$ref" | "$db");
        if component.starts_with('$') && !reference {
            return cannot("Index key contains an illegal field name: field name starts with '$'.");
        }
    }
    Ok(path)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
