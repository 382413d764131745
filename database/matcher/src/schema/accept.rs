//! Deciding whether a value conforms to a schema.

use bson::{RawArray, RawBsonRef, RawDocument};
use millrace_value::{Collation, Number, Result};

use super::super::comparison::{Comparison, compare};
use super::super::walk::field;
use super::canonical::{all_differ, canonical, order};
use super::{Additional, Arrays, Dependency, Items, Numbers, Objects, Schema, Strings};

/// Whether `value` conforms. The recursion is as deep as the schema.
pub(super) fn accepts(schema: &Schema, value: RawBsonRef<'_>) -> Result<bool> {
    if schema
        .types
        .is_some_and(|types| !types.contains(value.element_type()))
    {
        return Ok(false);
    }
    if let Some(values) = &schema.values {
        let value = canonical(value)?;
        if values
            .binary_search_by(|allowed| order(allowed, &value))
            .is_err()
        {
            return Ok(false);
        }
    }
    let conforms = match value {
        RawBsonRef::String(text) => accepts_string(&schema.strings, text)?,
        RawBsonRef::Array(array) => accepts_array(&schema.arrays, array)?,
        RawBsonRef::Document(document) => accepts_object(&schema.objects, document)?,
        value => accepts_number(&schema.numbers, value),
    };
    Ok(conforms && accepts_combinations(schema, value)?)
}

fn accepts_combinations(schema: &Schema, value: RawBsonRef<'_>) -> Result<bool> {
    for part in &schema.all_of {
        if !accepts(part, value)? {
            return Ok(false);
        }
    }
    if !schema.any_of.is_empty() && count_up_to(&schema.any_of, value, 1)? == 0 {
        return Ok(false);
    }
    if !schema.one_of.is_empty() && count_up_to(&schema.one_of, value, 2)? != 1 {
        return Ok(false);
    }
    match &schema.not {
        Some(schema) => Ok(!accepts(schema, value)?),
        None => Ok(true),
    }
}

/// How many of `schemas` accept `value`; stops counting at `limit`.
fn count_up_to(schemas: &[Schema], value: RawBsonRef<'_>, limit: usize) -> Result<usize> {
    let mut count = 0;
    for schema in schemas {
        if accepts(schema, value)? {
            count += 1;
        }
        if count == limit {
            break;
        }
    }
    Ok(count)
}

/// Accepts everything that is no number, too. Numbers need no collation.
fn accepts_number(numbers: &Numbers, value: RawBsonRef<'_>) -> bool {
    let Some(number) = Number::from_raw(value) else {
        return true;
    };
    let above = numbers.minimum.as_ref().is_none_or(|bound| {
        let relation = if bound.exclusive {
            Comparison::Greater
        } else {
            Comparison::GreaterOrEqual
        };
        compare(relation, Some(value), &bound.value, Collation::SIMPLE)
    });
    let below = numbers.maximum.as_ref().is_none_or(|bound| {
        let relation = if bound.exclusive {
            Comparison::Less
        } else {
            Comparison::LessOrEqual
        };
        compare(relation, Some(value), &bound.value, Collation::SIMPLE)
    });
    // Decimals make 0.3 a multiple of 0.1.
    let multiple = numbers.multiple_of.is_none_or(|divisor| {
        let decimal = |number: Number| Number::Decimal(number.as_decimal());
        decimal(number)
            .remainder(decimal(divisor))
            .is_some_and(Number::is_zero)
    });
    above && below && multiple
}

fn within(count: u64, min: Option<u64>, max: Option<u64>) -> bool {
    min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max)
}

fn count<T>(iterator: impl Iterator<Item = T>) -> u64 {
    iterator.fold(0, |count, _| count + 1)
}

fn accepts_string(strings: &Strings, text: &str) -> Result<bool> {
    let has_limit = strings.length_min.is_some() || strings.length_max.is_some();
    if has_limit && !within(count(text.chars()), strings.length_min, strings.length_max) {
        return Ok(false);
    }
    strings
        .pattern
        .as_ref()
        .map_or(Ok(true), |pattern| pattern.is_match(text))
}

fn accepts_array(arrays: &Arrays, array: &RawArray) -> Result<bool> {
    let has_limit = arrays.items_min.is_some() || arrays.items_max.is_some();
    if has_limit
        && !within(
            count(array.iter_elements()),
            arrays.items_min,
            arrays.items_max,
        )
    {
        return Ok(false);
    }
    if arrays.unique && !all_differ(array)? {
        return Ok(false);
    }
    let listed = match &arrays.items {
        Items::Any => return Ok(true),
        Items::Each(schema) => {
            for item in array {
                if !accepts(schema, item?)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Items::Listed(listed) => listed,
    };
    for (index, item) in array.into_iter().enumerate() {
        let conforms = match listed.get(index) {
            Some(schema) => accepts(schema, item?)?,
            None => accepts_additional(&arrays.additional, item?)?,
        };
        if !conforms {
            return Ok(false);
        }
    }
    Ok(true)
}

fn accepts_additional(additional: &Additional, value: RawBsonRef<'_>) -> Result<bool> {
    match additional {
        Additional::Allowed => Ok(true),
        Additional::Forbidden => Ok(false),
        Additional::Schema(schema) => accepts(schema, value),
    }
}

fn accepts_object(objects: &Objects, document: &RawDocument) -> Result<bool> {
    let has_limit = objects.count_min.is_some() || objects.count_max.is_some();
    if has_limit
        && !within(
            count(document.iter_elements()),
            objects.count_min,
            objects.count_max,
        )
    {
        return Ok(false);
    }
    for name in &objects.required {
        if property(document, name)?.is_none() {
            return Ok(false);
        }
    }
    for (name, schema) in &objects.properties {
        if let Some(value) = property(document, name)? {
            if !accepts(schema, value)? {
                return Ok(false);
            }
        }
    }
    Ok(accepts_other_properties(objects, document)? && accepts_dependencies(objects, document)?)
}

/// Checks `patternProperties` and `additionalProperties`.
fn accepts_other_properties(objects: &Objects, document: &RawDocument) -> Result<bool> {
    if objects.pattern_properties.is_empty() && matches!(objects.additional, Additional::Allowed) {
        return Ok(true);
    }
    for element in document.iter_elements() {
        let element = element?;
        let name = element.key().as_str();
        let mut is_named = objects.properties.iter().any(|(known, _)| **known == *name);
        for (pattern, schema) in &objects.pattern_properties {
            if pattern.is_match(name)? {
                is_named = true;
                if !accepts(schema, element.value()?)? {
                    return Ok(false);
                }
            }
        }
        if !is_named && !accepts_additional(&objects.additional, element.value()?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn accepts_dependencies(objects: &Objects, document: &RawDocument) -> Result<bool> {
    for (name, dependency) in &objects.dependencies {
        if property(document, name)?.is_none() {
            continue;
        }
        match dependency {
            Dependency::Properties(names) => {
                for name in names {
                    if property(document, name)?.is_none() {
                        return Ok(false);
                    }
                }
            }
            Dependency::Schema(schema) => {
                if !accepts(schema, RawBsonRef::Document(document))? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// The value of a property. As MongoDB takes names for paths, a name with dots may also lead into
/// embedded documents.
fn property<'d>(document: &'d RawDocument, name: &str) -> Result<Option<RawBsonRef<'d>>> {
    if let Some(value) = field(document, name)? {
        return Ok(Some(value));
    }
    let (mut current, mut rest) = (document, name);
    while let Some((first, after)) = rest.split_once('.') {
        match field(current, first)? {
            Some(RawBsonRef::Document(inner)) => (current, rest) = (inner, after),
            _ => return Ok(None),
        }
    }
    if rest.len() == name.len() {
        Ok(None)
    } else {
        field(current, rest)
    }
}
