//! `distinct`.

use std::collections::HashSet;
use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Bson, RawArray, RawDocument, RawDocumentBuf};
use millrace_collection::Namespace;
use millrace_query::executor::{Executor, choose_plan};
use millrace_value::{Collation, Error, Operation, Path, Result};

use super::arguments::Arguments;
use super::query_arguments::{no_filter, parse_hint, plain_query};
use super::variables::Bindings;
use super::{CommandRequest, Database, Effects, reply_ok};

/// The fields of the command.
pub(super) const FIELDS: &[&str] = &["key", "query", "collation", "hint", "encryptionInformation"];

/// The largest reply, in bytes of values.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) fn distinct(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("distinct", request.body, FIELDS)?;
    let collation = arguments.collation()?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    let field = arguments
        .string("key")?
        .ok_or_else(|| arguments.missing("key"))?;
    let none = no_filter();
    let filter = arguments.document("query")?.unwrap_or(&none);
    let bindings = Bindings::system(operation, collation);
    let query = Arc::new(plain_query(
        filter,
        &bindings,
        None,
        parse_hint(&arguments)?,
    )?);
    let mut distinct = Distinct {
        path: Path::parse(field),
        collation,
        seen: HashSet::new(),
        values: Vec::new(),
        bytes: 0,
    };
    let view = database.read_view(operation);
    if let Some(collection) = database.catalog.at(view).find(&namespace)? {
        let planned = choose_plan(view, &collection, &query, operation)?;
        let mut executor = Executor::new(
            view.clone(),
            collection,
            query,
            planned.winning,
            bindings.variables,
        )?;
        while let Some(record) = executor.next(operation)? {
            distinct.add(&record.document)?;
        }
    } else if let Some(mut found) =
        super::views::open(database, &namespace, &query, None, &bindings, operation)?
    {
        while let Some(document) = found.stream.next(operation)? {
            operation.check()?;
            distinct.add(&RawDocumentBuf::try_from(&document)?)?;
        }
    }
    let mut values = distinct.values;
    values.sort_by(|a, b| collation.compare_bson(a, b));
    reply_ok(reply, |writer| {
        writer.open_array("values");
        for (position, value) in values.iter().enumerate() {
            writer.value(&position.to_string(), value)?;
        }
        writer.close();
        Ok(())
    })?;
    Ok(Effects::default())
}

/// The values at a path that were found so far.
struct Distinct {
    path: Path,
    collation: Collation,
    /// The equality keys of `values`.
    seen: HashSet<Vec<u8>>,
    values: Vec<Bson>,
    /// About how many bytes the values take.
    bytes: usize,
}

impl Distinct {
    /// Adds the values of a document.
    fn add(&mut self, document: &RawDocument) -> Result<()> {
        let Self {
            path,
            collation,
            seen,
            values,
            bytes,
        } = self;
        visit_values(document, path.components(), &mut |value| {
            let value = Bson::try_from(value)?;
            let key = collation.equality_key(&value);
            if !seen.contains(&key) {
                *bytes += key.len();
                seen.insert(key);
                values.push(value);
            }
            Ok(())
        })?;
        if *bytes > REPLY_BYTES_MAX {
            return Err(Error::location(17217, "distinct too big, 16mb cap"));
        }
        Ok(())
    }
}

/// Calls `visit` with every value at a path, with arrays on the way and at its end expanded.
fn visit_values(
    document: &RawDocument,
    components: &[Box<str>],
    visit: &mut dyn FnMut(RawBsonRef<'_>) -> Result<()>,
) -> Result<()> {
    let Some((first, rest)) = components.split_first() else {
        return Ok(());
    };
    match document.get(&**first)? {
        None => Ok(()),
        Some(RawBsonRef::Array(array)) => visit_array(array, rest, visit),
        Some(value) if rest.is_empty() => visit(value),
        Some(RawBsonRef::Document(nested)) => visit_values(nested, rest, visit),
        Some(_) => Ok(()),
    }
}

fn visit_array(
    array: &RawArray,
    rest: &[Box<str>],
    visit: &mut dyn FnMut(RawBsonRef<'_>) -> Result<()>,
) -> Result<()> {
    if let Some((first, after)) = rest.split_first() {
        if let Ok(position) = first.parse::<usize>() {
            match array.get(position)? {
                Some(RawBsonRef::Array(nested)) => visit_array(nested, after, visit)?,
                Some(value) if after.is_empty() => visit(value)?,
                Some(RawBsonRef::Document(nested)) => visit_values(nested, after, visit)?,
                _ => {}
            }
        }
    }
    for value in array {
        match value? {
            value if rest.is_empty() => visit(value)?,
            RawBsonRef::Document(nested) => visit_values(nested, rest, visit)?,
            _ => {}
        }
    }
    Ok(())
}
