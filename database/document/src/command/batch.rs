//! What the commands that write batches of statements share.

use bson::RawDocument;
use bson::raw::RawBsonRef;

use super::CommandRequest;
use super::arguments::Arguments;
use crate::value::DocumentWriter;
use crate::{Error, ErrorCode, Result};

/// How many statements one command may hold.
const STATEMENTS_MAX: usize = 100_000;

/// The statements of a batch: from the message's document sequence of this name, or from the array in
/// the command document.
///
/// # Errors
/// When they are missing, none, too many, or no documents.
pub(crate) fn statements<'a>(
    request: &CommandRequest<'a>,
    arguments: &Arguments<'a>,
    name: &str,
) -> Result<Vec<&'a RawDocument>> {
    let sequence = request.sequences.iter().find(|(other, _)| *other == name);
    let statements = match (sequence, arguments.array(name)?) {
        (Some((_, documents)), None) => documents.clone(),
        (None, Some(array)) => {
            let mut documents = Vec::new();
            for (position, value) in array.into_iter().enumerate() {
                match value? {
                    RawBsonRef::Document(document) => documents.push(document),
                    _ => {
                        return Err(Error::new(
                            ErrorCode::TypeMismatch,
                            format!(
                                "BSON field '{}.{name}.{position}' is the wrong type, expected type 'object'",
                                request.name
                            ),
                        ));
                    }
                }
            }
            documents
        }
        (None, None) => return Err(arguments.missing(name)),
        (Some(_), Some(_)) => {
            return Err(Error::location(
                40413,
                format!("BSON field '{}.{name}' is a duplicate field", request.name),
            ));
        }
    };
    if statements.is_empty() || statements.len() > STATEMENTS_MAX {
        return Err(Error::new(
            ErrorCode::InvalidLength,
            format!(
                "Write batch sizes must be between 1 and {STATEMENTS_MAX}. Got {} operations.",
                statements.len()
            ),
        ));
    }
    Ok(statements)
}

/// The fields that tell a client of one failed statement.
pub(crate) fn write_error(
    writer: &mut DocumentWriter<'_>,
    index: usize,
    error: &Error,
) -> Result<()> {
    writer.count("index", index as u64);
    writer.int32("code", error.code().number());
    if let Some(details) = error.details() {
        for (name, value) in details {
            writer.value(name, value)?;
        }
    }
    writer.string("errmsg", error.message());
    Ok(())
}

/// The `writeErrors` array, if there were any.
pub(crate) fn write_errors(
    writer: &mut DocumentWriter<'_>,
    errors: &[(usize, Error)],
) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    writer.open_array("writeErrors");
    for (position, (index, error)) in errors.iter().enumerate() {
        writer.open_document(&position.to_string());
        write_error(writer, *index, error)?;
        writer.close();
    }
    writer.close();
    Ok(())
}
