//! What the commands that write batches of statements share.

use bson::RawDocument;
use bson::raw::RawBsonRef;
use millrace_value::{DocumentWriter, Error, ErrorCode, Result};

use super::CommandRequest;
use super::arguments::Arguments;

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
    let mut count = 0;
    let statements = match (sequence, arguments.array(name)?) {
        (Some((_, documents)), None) => {
            count = documents.len();
            documents.clone()
        }
        (None, Some(array)) => {
            let mut documents = Vec::new();
            for (position, value) in array.into_iter().enumerate() {
                count += 1;
                match value? {
                    RawBsonRef::Document(_) if count > STATEMENTS_MAX => {}
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
    if count == 0 || count > STATEMENTS_MAX {
        return Err(Error::new(
            ErrorCode::InvalidLength,
            format!(
                "Write batch sizes must be between 1 and {STATEMENTS_MAX}. Got {count} operations."
            ),
        ));
    }
    Ok(statements)
}

/// From how many bytes and how many errors on the texts of further ones are left out, as MongoDB does,
/// and from how many bytes on their details are, too: the failures of 100,000 statements have to fit into
/// one message.
const TEXTS_BYTES_MAX: usize = 1024 * 1024;
const TEXTS_COUNT_MIN: usize = 2;
const DETAILS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Writes the fields that describe one failed statement; `written` is what earlier ones took.
fn write_error(
    writer: &mut DocumentWriter<'_>,
    index: usize,
    error: &Error,
    position: usize,
    written: usize,
) -> Result<()> {
    writer.count("index", index as u64);
    writer.int32("code", error.code().number());
    let details = error.details();
    if let Some(details) = details.filter(|_| written <= DETAILS_BYTES_MAX) {
        for (name, value) in details {
            writer.value(name, value)?;
        }
    }
    let brief = written > TEXTS_BYTES_MAX && position >= TEXTS_COUNT_MIN;
    writer.string("errmsg", if brief { "" } else { error.message() });
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
    let start = writer.bytes();
    for (position, (index, error)) in errors.iter().enumerate() {
        let written = writer.bytes() - start;
        writer.open_document(&position.to_string());
        write_error(writer, *index, error, position, written)?;
        writer.close();
    }
    writer.close();
    Ok(())
}
