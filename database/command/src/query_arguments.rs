//! The arguments of a query that several commands have alike: its filter, sort and hint.

use bson::raw::RawBsonRef;
use bson::{Document, RawDocument, RawDocumentBuf};
use millrace_matcher::Matcher;
use millrace_query::planner::{Hint, Query};
use millrace_value::{Error, ErrorCode, Number, Result};

use super::arguments::Arguments;
use super::variables::Bindings;
use super::{empty_document, is_empty};

/// The hint of a command: an index by its name or its keys, or a direction of scan.
///
/// # Errors
/// `FailedToParse` when it is neither a string nor a document.
pub(crate) fn parse_hint(arguments: &Arguments<'_>) -> Result<Option<Hint>> {
    match arguments.get("hint") {
        None => Ok(None),
        Some(RawBsonRef::String(name)) => Ok(Some(Hint::Name(name.to_owned()))),
        Some(RawBsonRef::Document(keys)) if is_empty(keys) => Ok(None),
        Some(RawBsonRef::Document(keys)) => {
            if let Some(direction) = keys.get("$natural")? {
                let backward =
                    Number::from_raw(direction).is_some_and(|number| number.as_f64() < 0.0);
                return Ok(Some(Hint::Natural(if backward { -1 } else { 1 })));
            }
            Ok(Some(Hint::Keys(keys.try_into()?)))
        }
        Some(_) => Err(Error::new(
            ErrorCode::FailedToParse,
            "Hint must be a string or an object",
        )),
    }
}

/// The query of a filter, with a sort and a hint if there are any.
///
/// # Errors
/// Those of parsing the filter.
pub(crate) fn plain_query(
    filter: &RawDocument,
    bindings: &Bindings,
    sort: Option<Document>,
    hint: Option<Hint>,
) -> Result<Query> {
    Ok(Query {
        filter: Matcher::parse(filter, &bindings.scope)?,
        filter_document: filter.to_owned(),
        sort,
        skip: 0,
        limit: None,
        hint,
        min: None,
        max: None,
        projection: None,
        return_key: false,
        show_record_id: false,
        allow_disk_use: true,
        tailable: false,
    })
}

/// The filter that matches everything.
pub(crate) fn no_filter() -> RawDocumentBuf {
    empty_document()
}
