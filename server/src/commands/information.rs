//! What the server and its machine are.

use bson::{Bson, DateTime, Document, doc};
use millrace_command::{CommandSpec, OnSecondary};
use millrace_value::{Error, ErrorCode, Result};

use super::handshake::USER_DOCUMENT_LEN_MAX;
use super::registry::Registry;
use super::server_info::ServerInfo;
use super::{Answer, CommandContext, count};
use crate::arguments::truthy;
use crate::log::RecentLines;
use crate::machine::Machine;

/// The release of MongoDB whose behaviour this is.
pub(crate) const COMPATIBLE_VERSION: &str = "8.0.0";

pub(super) fn nothing() -> Result<Answer> {
    Ok(Answer::Reply(Document::new()))
}

/// There is no authentication, so no user is signed in.
pub(super) fn users() -> Result<Answer> {
    Ok(Answer::Reply(doc! { "users": [] }))
}

pub(super) fn build_info() -> Result<Answer> {
    Ok(Answer::Reply(doc! {
        "version": COMPATIBLE_VERSION,
        "gitVersion": option_env!("MILLRACE_COMMIT").unwrap_or("unknown"),
        "modules": [],
        "allocator": "system",
        "javascriptEngine": "none",
        "sysInfo": "deprecated",
        "versionArray": [8, 0, 0, 0],
        "openssl": { "running": "disabled", "compiled": "disabled" },
        "buildEnvironment": {
            "target_arch": std::env::consts::ARCH,
            "target_os": std::env::consts::OS,
        },
        "bits": i32::try_from(usize::BITS).unwrap_or(64),
        "debug": cfg!(debug_assertions),
        "maxBsonObjectSize": USER_DOCUMENT_LEN_MAX,
        "storageEngines": ["rocksdb"],
        "millraceVersion": env!("CARGO_PKG_VERSION"),
    }))
}

pub(super) fn connection_status(context: &CommandContext<'_>) -> Result<Answer> {
    let mut info = doc! { "authenticatedUsers": [], "authenticatedUserRoles": [] };
    if truthy(context.arguments()?.get("showPrivileges")) {
        info.insert("authenticatedUserPrivileges", Bson::Array(Vec::new()));
    }
    let uuid = Bson::Binary(bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: context.session.uuid().to_vec(),
    });
    Ok(Answer::Reply(doc! { "uuid": uuid, "authInfo": info }))
}

pub(super) fn features(server: &ServerInfo) -> Result<Answer> {
    let machine = server.process_id.bytes();
    let number = i32::from_le_bytes([machine[4], machine[5], machine[6], 0]);
    Ok(Answer::Reply(doc! { "oidMachine": number }))
}

pub(super) fn command_line(server: &ServerInfo) -> Result<Answer> {
    Ok(Answer::Reply(server.command_line.clone()))
}

pub(super) fn log(context: &CommandContext<'_>, recent_lines: &RecentLines) -> Result<Answer> {
    let arguments = context.arguments()?;
    let value = arguments.get("getLog").cloned().unwrap_or(Bson::Null);
    let Bson::String(name) = &value else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            "Argument to getLog must be of type String",
        ));
    };
    match name.as_str() {
        "*" => Ok(Answer::Reply(
            doc! { "names": ["global", "startupWarnings"] },
        )),
        "global" => {
            let (lines, total) = recent_lines.snapshot();
            Ok(Answer::Reply(
                doc! { "totalLinesWritten": count(total), "log": lines },
            ))
        }
        // The server warns of nothing at its start that it has not also refused.
        "startupWarnings" => Ok(Answer::Reply(
            doc! { "totalLinesWritten": 0_i64, "log": [] },
        )),
        other => Err(Error::new(
            ErrorCode::OperationFailed,
            format!("No log named '{other}'"),
        )),
    }
}

pub(super) fn host_info(context: &CommandContext<'_>, server: &ServerInfo) -> Result<Answer> {
    let machine = Machine::read();
    Ok(Answer::Reply(doc! {
        "system": {
            "currentTime": DateTime::from_millis(context.operation.started_wall_ms()),
            "hostname": &server.host,
            "cpuAddrSize": i32::try_from(usize::BITS).unwrap_or(64),
            "memSizeMB": count(machine.memory_bytes >> 20),
            "memLimitMB": count(machine.memory_bytes >> 20),
            "numCores": i32::try_from(machine.cores).unwrap_or(i32::MAX),
            "numCoresAvailableToProcess": i32::try_from(machine.cores).unwrap_or(i32::MAX),
            "cpuArch": std::env::consts::ARCH,
            "numaEnabled": false,
        },
        "os": {
            "type": machine.os_type,
            "name": machine.os_name,
            "version": &machine.kernel,
        },
        "extra": {
            "versionString": machine.kernel_version,
            "kernelVersion": machine.kernel,
            "cpuString": machine.cpu,
            "pageSize": count(machine.page_bytes),
        },
    }))
}

/// The declarations in MongoDB's form; its fields and their order are those of MongoDB 8.0.
pub(super) fn list_commands(registry: &Registry) -> Result<Answer> {
    let mut commands = Document::new();
    for entry in registry.commands() {
        commands.insert(entry.name, describe(entry.spec));
    }
    Ok(Answer::Reply(doc! { "commands": commands }))
}

fn describe(spec: &CommandSpec) -> Document {
    let mut description = doc! {
        "help": spec.help,
        "requiresAuth": spec.privileges.needs_authentication(),
        "secondaryOk": spec.on_secondary == OnSecondary::Always,
        "adminOnly": spec.admin_only,
    };
    if spec.on_secondary == OnSecondary::OptIn {
        description.insert("secondaryOverrideOk", true);
    }
    description.insert("apiVersions", spec.stable_api.versions());
    // Nothing of version 1 is deprecated.
    description.insert("deprecatedApiVersions", Bson::Array(Vec::new()));
    description
}

pub(super) fn own_address(context: &CommandContext<'_>) -> Result<Answer> {
    Ok(Answer::Reply(doc! { "you": context.session.slot().peer() }))
}

pub(super) fn no_replication() -> Result<Answer> {
    Err(Error::new(
        ErrorCode::NoReplicationEnabled,
        "not running with --replSet",
    ))
}
