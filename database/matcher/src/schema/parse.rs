//! Parsing of schemas.

use std::collections::BTreeSet;

use bson::{RawArray, RawBson, RawBsonRef, RawDocument};
use millrace_expression::regex::Regex;
use millrace_value::{Error, ErrorCode, Number, Result, TypeSet, element_type_alias};

use super::super::depth::check_depth;
use super::super::integer::natural;
use super::super::walk::elements;
use super::canonical::{canonical, sort_distinct};
use super::keywords::{Keywords, failed, mismatch};
use super::{Additional, Arrays, Bound, Dependency, Items, Numbers, Objects, Schema, Strings};

/// Parses a schema that lies `depth` levels below the outermost one.
pub(super) fn schema(schema: &RawDocument, depth: usize) -> Result<Schema> {
    check_depth(depth)?;
    let keywords = Keywords::collect(schema)?;
    for keyword in ["description", "title"] {
        if keywords
            .get(keyword)
            .is_some_and(|value| value.as_str().is_none())
        {
            return Err(mismatch(keyword, "must be of type string"));
        }
    }
    Ok(Schema {
        types: types(&keywords)?,
        values: keywords.get("enum").map(values).transpose()?,
        all_of: schemas(&keywords, "allOf", depth)?,
        any_of: schemas(&keywords, "anyOf", depth)?,
        one_of: schemas(&keywords, "oneOf", depth)?,
        not: not(&keywords, depth)?,
        numbers: numbers(&keywords)?,
        strings: strings(&keywords)?,
        arrays: arrays(&keywords, depth)?,
        objects: objects(&keywords, depth)?,
    })
}

fn type_name(value: RawBsonRef<'_>) -> &'static str {
    element_type_alias(value.element_type())
}

fn boxed(document: &RawDocument, depth: usize) -> Result<Box<Schema>> {
    schema(document, depth + 1).map(Box::new)
}

fn types(keywords: &Keywords<'_>) -> Result<Option<TypeSet>> {
    match (keywords.get("type"), keywords.get("bsonType")) {
        (Some(_), Some(_)) => Err(failed(
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        )),
        (Some(value), None) => type_set("type", value, json_type).map(Some),
        (None, Some(value)) => type_set("bsonType", value, bson_type).map(Some),
        (None, None) => Ok(None),
    }
}

fn type_set(
    keyword: &str,
    value: RawBsonRef<'_>,
    parse: fn(&str) -> Result<TypeSet>,
) -> Result<TypeSet> {
    let complaint = "must be either a string or an array of strings";
    match value {
        RawBsonRef::String(alias) => parse(alias),
        RawBsonRef::Array(aliases) => {
            let mut set = TypeSet::default();
            let mut seen = Vec::new();
            for alias in elements(aliases) {
                let RawBsonRef::String(alias) = alias? else {
                    return Err(mismatch(keyword, complaint));
                };
                if seen.contains(&alias) {
                    return Err(failed(format!(
                        "$jsonSchema keyword '{keyword}' has duplicate value: {alias}"
                    )));
                }
                seen.push(alias);
                set.extend(parse(alias)?);
            }
            if set.is_empty() {
                return Err(failed(format!(
                    "$jsonSchema keyword '{keyword}' must name at least one type"
                )));
            }
            Ok(set)
        }
        _ => Err(mismatch(keyword, complaint)),
    }
}

fn json_type(alias: &str) -> Result<TypeSet> {
    let bson_alias = match alias {
        "boolean" => "bool",
        "array" | "number" | "null" | "object" | "string" => alias,
        "integer" => {
            return Err(failed(
                "$jsonSchema type 'integer' is not currently supported.",
            ));
        }
        _ => "",
    };
    TypeSet::from_alias(bson_alias).ok_or_else(|| unknown_type(alias))
}

fn bson_type(alias: &str) -> Result<TypeSet> {
    TypeSet::from_alias(alias).ok_or_else(|| unknown_type(alias))
}

fn unknown_type(alias: &str) -> Error {
    Error::new(
        ErrorCode::BadValue,
        format!("Unknown type name alias: {alias}"),
    )
}

fn values(value: RawBsonRef<'_>) -> Result<Vec<RawBson>> {
    let values = elements(array("enum", value)?).map(|value| canonical(value?));
    let mut values = values.collect::<Result<Vec<_>>>()?;
    if values.is_empty() {
        return Err(failed(
            "$jsonSchema keyword 'enum' cannot be an empty array",
        ));
    }
    if !sort_distinct(&mut values) {
        return Err(failed(
            "$jsonSchema keyword 'enum' array cannot contain duplicate values.",
        ));
    }
    Ok(values)
}

fn array<'a>(keyword: &str, value: RawBsonRef<'a>) -> Result<&'a RawArray> {
    value.as_array().ok_or_else(|| {
        let found = type_name(value);
        mismatch(
            keyword,
            &format!("must be an array, but found an element of type {found}"),
        )
    })
}

fn schemas(keywords: &Keywords<'_>, keyword: &str, depth: usize) -> Result<Vec<Schema>> {
    let Some(value) = keywords.get(keyword) else {
        return Ok(Vec::new());
    };
    let RawBsonRef::Array(array) = value else {
        return Err(mismatch(keyword, "must be an array"));
    };
    if array.is_empty() {
        return Err(Error::new(
            ErrorCode::BadValue,
            format!("$jsonSchema keyword '{keyword}' must be a non-empty array"),
        ));
    }
    let parse = |item: bson::error::Result<RawBsonRef<'_>>| match item? {
        RawBsonRef::Document(document) => schema(document, depth + 2),
        other => {
            let found = type_name(other);
            let complaint =
                format!("must be an array of objects, but found an element of type {found}");
            Err(mismatch(keyword, &complaint))
        }
    };
    elements(array).map(parse).collect()
}

fn not(keywords: &Keywords<'_>, depth: usize) -> Result<Option<Box<Schema>>> {
    match keywords.get("not") {
        None => Ok(None),
        Some(RawBsonRef::Document(document)) => boxed(document, depth).map(Some),
        Some(other) => {
            let found = type_name(other);
            let complaint = format!("must be an object, but found an element of type {found}");
            Err(mismatch("not", &complaint))
        }
    }
}

fn numbers(keywords: &Keywords<'_>) -> Result<Numbers> {
    let multiple_of = number(keywords, "multipleOf")?;
    if multiple_of.is_some_and(|number| number.is_negative() || number.is_zero()) {
        return Err(failed(
            "$jsonSchema keyword 'multipleOf' must have a positive value",
        ));
    }
    Ok(Numbers {
        minimum: bound(keywords, "minimum", "exclusiveMinimum")?,
        maximum: bound(keywords, "maximum", "exclusiveMaximum")?,
        multiple_of,
    })
}

fn number(keywords: &Keywords<'_>, keyword: &str) -> Result<Option<Number>> {
    let parse =
        |value| Number::from_raw(value).ok_or_else(|| mismatch(keyword, "must be a number"));
    keywords.get(keyword).map(parse).transpose()
}

fn bound(keywords: &Keywords<'_>, keyword: &str, exclusive: &str) -> Result<Option<Bound>> {
    let is_exclusive = flag(keywords, exclusive)?;
    match number(keywords, keyword)? {
        Some(number) => {
            let value = RawBson::try_from(number.to_bson())?;
            Ok(Some(Bound {
                value,
                exclusive: is_exclusive.unwrap_or(false),
            }))
        }
        None if is_exclusive.is_some() => Err(failed(format!(
            "$jsonSchema keyword '{keyword}' must be a present if {exclusive} is present"
        ))),
        None => Ok(None),
    }
}

fn flag(keywords: &Keywords<'_>, keyword: &str) -> Result<Option<bool>> {
    let parse = |value: RawBsonRef<'_>| {
        value
            .as_bool()
            .ok_or_else(|| mismatch(keyword, "must be a boolean"))
    };
    keywords.get(keyword).map(parse).transpose()
}

fn length(keywords: &Keywords<'_>, keyword: &str) -> Result<Option<u64>> {
    keywords
        .get(keyword)
        .map(|value| natural(keyword, value).map_err(failed))
        .transpose()
}

fn strings(keywords: &Keywords<'_>) -> Result<Strings> {
    let pattern = match keywords.get("pattern") {
        None => None,
        Some(RawBsonRef::String(pattern)) => Some(Regex::compile(pattern, "")?),
        Some(_) => return Err(mismatch("pattern", "must be a string")),
    };
    Ok(Strings {
        length_min: length(keywords, "minLength")?,
        length_max: length(keywords, "maxLength")?,
        pattern,
    })
}

fn arrays(keywords: &Keywords<'_>, depth: usize) -> Result<Arrays> {
    let items = match keywords.get("items") {
        None => Items::Any,
        Some(RawBsonRef::Document(document)) => Items::Each(boxed(document, depth)?),
        Some(RawBsonRef::Array(listed)) => {
            let parse = |item: bson::error::Result<RawBsonRef<'_>>| match item? {
                RawBsonRef::Document(document) => schema(document, depth + 2),
                other => Err(mismatch(
                    "items",
                    &format!(
                        "requires that each element of the array is an object, but found a {}",
                        type_name(other)
                    ),
                )),
            };
            Items::Listed(elements(listed).map(parse).collect::<Result<_>>()?)
        }
        Some(other) => {
            let found = type_name(other);
            let complaint = format!("must be an array or an object, not {found}");
            return Err(mismatch("items", &complaint));
        }
    };
    let additional = additional(keywords, "additionalItems", depth, |found| {
        format!("must be either an object or a boolean, but got a {found}")
    })?;
    Ok(Arrays {
        items_min: length(keywords, "minItems")?,
        items_max: length(keywords, "maxItems")?,
        unique: flag(keywords, "uniqueItems")?.unwrap_or(false),
        items,
        additional,
    })
}

fn additional(
    keywords: &Keywords<'_>,
    keyword: &str,
    depth: usize,
    complaint: impl Fn(&str) -> String,
) -> Result<Additional> {
    Ok(match keywords.get(keyword) {
        None | Some(RawBsonRef::Boolean(true)) => Additional::Allowed,
        Some(RawBsonRef::Boolean(false)) => Additional::Forbidden,
        Some(RawBsonRef::Document(document)) => Additional::Schema(boxed(document, depth)?),
        Some(other) => return Err(mismatch(keyword, &complaint(type_name(other)))),
    })
}

fn objects(keywords: &Keywords<'_>, depth: usize) -> Result<Objects> {
    let mut properties = Vec::new();
    for (name, value) in fields(keywords, "properties")? {
        let RawBsonRef::Document(document) = value else {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!("Nested schema for $jsonSchema property '{name}' must be an object"),
            ));
        };
        properties.push((name, schema(document, depth + 2)?));
    }
    let mut pattern_properties = Vec::new();
    for (name, value) in fields(keywords, "patternProperties")? {
        let RawBsonRef::Document(document) = value else {
            let complaint = format!("has property '{name}' which is not an object");
            return Err(mismatch("patternProperties", &complaint));
        };
        pattern_properties.push((Regex::compile(&name, "")?, schema(document, depth + 2)?));
    }
    let mut dependencies = Vec::new();
    for (name, value) in fields(keywords, "dependencies")? {
        let dependency = dependency(&name, value, depth)?;
        dependencies.push((name, dependency));
    }
    Ok(Objects {
        required: keywords
            .get("required")
            .map_or_else(|| Ok(Vec::new()), required)?,
        properties,
        pattern_properties,
        additional: additional(keywords, "additionalProperties", depth, |_| {
            "must be an object or a boolean".to_owned()
        })?,
        count_min: length(keywords, "minProperties")?,
        count_max: length(keywords, "maxProperties")?,
        dependencies,
    })
}

/// The fields of a keyword that is an object.
fn fields<'a>(keywords: &Keywords<'a>, keyword: &str) -> Result<Vec<(Box<str>, RawBsonRef<'a>)>> {
    let document = match keywords.get(keyword) {
        None => return Ok(Vec::new()),
        Some(RawBsonRef::Document(document)) => document,
        Some(_) => return Err(mismatch(keyword, "must be an object")),
    };
    let mut fields = Vec::new();
    for element in document.iter_elements() {
        let element = element?;
        fields.push((Box::from(element.key().as_str()), element.value()?));
    }
    Ok(fields)
}

fn required(value: RawBsonRef<'_>) -> Result<Vec<Box<str>>> {
    let mut names = BTreeSet::new();
    for name in elements(array("required", value)?) {
        let name = name?;
        let RawBsonRef::String(name) = name else {
            let found = type_name(name);
            return Err(mismatch(
                "required",
                &format!("must be an array of strings, but found an element of type: {found}"),
            ));
        };
        if !names.insert(Box::from(name)) {
            return Err(failed(
                "$jsonSchema keyword 'required' array cannot contain duplicate values",
            ));
        }
    }
    if names.is_empty() {
        return Err(failed(
            "$jsonSchema keyword 'required' cannot be an empty array",
        ));
    }
    Ok(names.into_iter().collect())
}

fn dependency(name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Dependency> {
    let array = match value {
        RawBsonRef::Document(document) => {
            return boxed(document, depth + 1).map(Dependency::Schema);
        }
        RawBsonRef::Array(array) => array,
        _ => {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "property '{name}' in $jsonSchema keyword 'dependencies' must be either an \
                     object or an array"
                ),
            ));
        }
    };
    let mut names = BTreeSet::new();
    for item in elements(array) {
        let item = item?;
        let RawBsonRef::String(property) = item else {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "array '{name}' in $jsonSchema keyword 'dependencies' can only contain \
                     strings, but found element of type: {}",
                    type_name(item)
                ),
            ));
        };
        if !names.insert(Box::from(property)) {
            return Err(failed(format!(
                "array '{name}' in $jsonSchema keyword 'dependencies' contains duplicate element: \
                 {property}"
            )));
        }
    }
    if names.is_empty() {
        return Err(failed(format!(
            "property '{name}' in $jsonSchema keyword 'dependencies' cannot be an empty array"
        )));
    }
    Ok(Dependency::Properties(names.into_iter().collect()))
}
