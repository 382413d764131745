//! `insert`.

use std::sync::Arc;

use millrace_collection::{InsertOptions, Namespace, insert_documents};
use millrace_value::{Operation, Result};

use super::arguments::Arguments;
use super::batch::{statements, write_errors};
use super::{CommandRequest, Cost, Counts, Database, Effects, reply_ok};

/// At how many bytes an insertion is no longer a point operation.
const POINT_BYTES: usize = 128 * 1024;

pub(super) fn classify(request: &CommandRequest<'_>) -> Cost {
    let sequences = request
        .sequences
        .iter()
        .flat_map(|(_, documents)| documents);
    let bytes: usize = sequences.map(|document| document.as_bytes().len()).sum();
    if bytes + request.body.as_bytes().len() > POINT_BYTES {
        Cost::Blocking
    } else {
        Cost::Inline
    }
}

pub(super) fn insert(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "insert",
        request.body,
        &[
            "documents",
            "ordered",
            "bypassDocumentValidation",
            "bypassEmptyTsReplacement",
            "encryptionInformation",
        ],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    check_writable(&namespace)?;
    let documents = statements(request, &arguments, "documents")?;
    let outcome = insert_documents(
        &database.catalog,
        &namespace,
        &documents,
        InsertOptions {
            ordered: arguments.boolean("ordered")?.unwrap_or(true),
            bypass_validation: arguments.flag("bypassDocumentValidation")?,
            keep_zero_timestamps: arguments.flag("bypassEmptyTsReplacement")?,
        },
        operation,
    )?;
    reply_ok(reply, |writer| {
        writer.count("n", outcome.inserted);
        write_errors(writer, &outcome.errors)
    })?;
    let counts = Counts {
        inserted: outcome.inserted,
        ..Counts::default()
    };
    Ok(Effects {
        counts,
        ..Effects::written(outcome.commit_seq)
    })
}

/// Refuses collections that the server keeps for itself.
pub(crate) fn check_writable(namespace: &Namespace) -> Result<()> {
    let collection = namespace.collection();
    if collection.starts_with("system.") && !matches!(collection, "system.js" | "system.users") {
        return Err(millrace_value::Error::new(
            millrace_value::ErrorCode::InvalidNamespace,
            format!("cannot write to {namespace}"),
        ));
    }
    Ok(())
}
