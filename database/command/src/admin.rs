//! `listDatabases`.

use std::sync::Arc;

use bson::{RawDocumentBuf, doc};
use millrace_matcher::Matcher;
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::variables::Bindings;
use super::{CommandRequest, Database, Effects, reply_ok};

pub(super) fn list_databases(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "listDatabases",
        request.body,
        &["filter", "nameOnly", "authorizedDatabases"],
    )?;
    if request.database != "admin" {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "listDatabases may only be run against the admin database.",
        ));
    }
    let name_only = arguments.flag("nameOnly")?;
    let bindings = Bindings::system(operation, Collation::SIMPLE);
    let filter = match arguments.document("filter")? {
        Some(filter) => Some(Matcher::parse(filter, &bindings.scope)?),
        None => None,
    };
    let context = bindings.evaluation(operation);
    let mut total = 0;
    let mut list = Vec::new();
    let catalog = database.catalog_of(operation);
    for name in catalog.databases()? {
        let mut bytes = 0;
        for collection in catalog.collections(&name)? {
            bytes += super::statistics::storage_bytes(database, &collection)?;
        }
        let description = if name_only {
            doc! {"name": name}
        } else {
            doc! {"name": name, "sizeOnDisk": i64::try_from(bytes).unwrap_or(i64::MAX), "empty": bytes == 0}
        };
        let raw = RawDocumentBuf::try_from(&description)?;
        let wanted = match &filter {
            Some(filter) => filter.matches(&raw, &context)?,
            None => true,
        };
        if wanted {
            total += bytes;
            list.push(raw);
        }
    }
    reply_ok(reply, |writer| {
        writer.open_array("databases");
        for (position, description) in list.iter().enumerate() {
            writer.document(&position.to_string(), description);
        }
        writer.close();
        if !name_only {
            writer.int64("totalSize", i64::try_from(total).unwrap_or(i64::MAX));
            writer.int64(
                "totalSizeMb",
                i64::try_from(total >> 20).unwrap_or(i64::MAX),
            );
        }
        Ok(())
    })?;
    Ok(Effects::default())
}
