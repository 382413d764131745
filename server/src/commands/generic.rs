//! The arguments that every command may carry, and their checks.

use bson::raw::RawBsonRef;
use bson::spec::BinarySubtype;
use bson::{Bson, RawDocument};
use millrace_command::StableApi;
use millrace_value::{Elements, Error, ErrorCode, Result};

use crate::arguments::{exact_integer, unknown_field, wrong_type};
use crate::write_concern::WriteConcern;

/// The generic arguments that [`GenericArguments`] parses.
const READ: &[&str] = &[
    "$db",
    "lsid",
    "txnNumber",
    "readConcern",
    "writeConcern",
    "maxTimeMS",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "autocommit",
    "startTransaction",
];

/// The arguments that every command accepts beside its own.
#[derive(Clone, Debug, Default)]
pub struct GenericArguments<'a> {
    /// The name of the database the command runs on (`$db`).
    pub database: &'a str,
    /// The 16 bytes of the session's UUID (`lsid.id`); `None` without a session.
    pub session: Option<&'a [u8]>,
    /// `maxTimeMS`; 0 and absent mean no limit.
    pub max_time_ms: Option<u64>,
    /// The write concern of the request, or the default one.
    pub write_concern: WriteConcern,
    /// Whether the request carried a `writeConcern`.
    pub has_write_concern: bool,
    transaction: Transaction,
    api: Api<'a>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Transaction {
    number: Option<i64>,
    autocommit: bool,
    start: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Api<'a> {
    version: Option<&'a str>,
    strict: bool,
    has_options: bool,
}

impl<'a> GenericArguments<'a> {
    /// The arguments of a command that carries none, for `database`.
    #[must_use]
    pub fn of_database(database: &'a str) -> Self {
        Self {
            database,
            ..Self::default()
        }
    }

    /// Reads them from a command.
    ///
    /// # Errors
    /// The error of the reply.
    pub fn parse(body: &'a RawDocument) -> Result<Self> {
        let mut arguments = Self::default();
        let mut database = None;
        for element in Elements::new(body) {
            let element = element?;
            // Most fields are none of these and need not be decoded.
            let Some(name) = READ.iter().find(|name| name.as_bytes() == element.name) else {
                continue;
            };
            let value = match (element.document(), element.string()) {
                (Some(document), _) => RawBsonRef::Document(document),
                (None, Some(text)) => RawBsonRef::String(text),
                (None, None) => body.get(name)?.unwrap_or(RawBsonRef::Null),
            };
            match (*name, value) {
                ("$db", RawBsonRef::String(text)) => database = Some(text),
                ("$db", other) => return Err(type_error("$db", other, "string")),
                ("lsid", value) => arguments.session = Some(session_id(value)?),
                ("txnNumber", RawBsonRef::Int64(number)) => {
                    arguments.transaction.number = Some(number);
                }
                ("txnNumber", other) => return Err(type_error("txnNumber", other, "long")),
                ("autocommit", RawBsonRef::Boolean(value)) => {
                    if value {
                        return Err(Error::new(
                            ErrorCode::InvalidOptions,
                            "Specifying autocommit=true is not allowed.",
                        ));
                    }
                    arguments.transaction.autocommit = true;
                }
                ("startTransaction", RawBsonRef::Boolean(value)) => {
                    arguments.transaction.start = value;
                }
                ("maxTimeMS", value) => arguments.max_time_ms = max_time(value)?,
                ("readConcern", value) => check_read_concern(value)?,
                ("writeConcern", value) => {
                    arguments.write_concern = WriteConcern::parse(value)?;
                    arguments.has_write_concern = true;
                }
                ("apiVersion", RawBsonRef::String(text)) => arguments.api.version = Some(text),
                ("apiVersion", other) => return Err(type_error("apiVersion", other, "string")),
                ("apiStrict", value) => {
                    arguments.api.has_options = true;
                    arguments.api.strict = value.as_bool().unwrap_or(false);
                }
                ("apiDeprecationErrors", _) => arguments.api.has_options = true,
                _ => {}
            }
        }
        arguments.database = database
            .ok_or_else(|| Error::location(40571, "OP_MSG requests require a $db argument"))?;
        check_database(arguments.database)?;
        Ok(arguments)
    }

    /// The checks that need the command: the spelling of its name and its membership in the Stable API.
    ///
    /// # Errors
    /// The error of the reply.
    pub fn check(&self, command: &str, stable_api: StableApi, api_required: bool) -> Result<()> {
        self.check_api(command, stable_api, api_required)?;
        self.check_transaction()
    }

    fn check_api(&self, command: &str, stable_api: StableApi, required: bool) -> Result<()> {
        let Some(version) = self.api.version else {
            if self.api.has_options {
                return Err(Error::location(
                    4_886_600,
                    "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
                ));
            }
            if required && !stable_api.is_handshake() {
                return Err(Error::location(
                    498_870,
                    "The apiVersion parameter is required, please configure your MongoClient's API \
                     version",
                ));
            }
            return Ok(());
        };
        if version != "1" {
            return Err(Error::location(322, "API version must be \"1\""));
        }
        if self.api.strict && stable_api == StableApi::Outside {
            return Err(Error::location(
                323,
                format!(
                    "Provided apiStrict:true, but the command {command} is not in API Version 1. \
                     Information on supported commands and migrations in API Version 1 can be found \
                     at https://dochub.mongodb.org/core/manual-versioned-api"
                ),
            ));
        }
        Ok(())
    }

    fn check_transaction(&self) -> Result<()> {
        let Transaction {
            number,
            autocommit,
            start,
        } = self.transaction;
        if number.is_none() {
            if autocommit {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "'autocommit' field requires a transaction number to also be specified",
                ));
            }
            if start {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "'startTransaction' field requires a transaction number to also be specified",
                ));
            }
            return Ok(());
        }
        if self.session.is_none() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "Transaction number requires a session ID to also be specified",
            ));
        }
        Err(Error::new(
            ErrorCode::IllegalOperation,
            "Transaction numbers are only allowed on a replica set member or mongos",
        ))
    }
}

fn type_error(path: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    match Bson::try_from(value) {
        Ok(value) => wrong_type(path, &value, expected),
        Err(error) => error.into(),
    }
}

/// MongoDB's rules for names of databases.
fn check_database(name: &str) -> Result<()> {
    const FORBIDDEN: &[char] = &['/', '\\', ' ', '"', '.', '\0'];
    let legal = (name == "$external" || !name.contains('$'))
        && !name.is_empty()
        && name.len() < 64
        && !name.contains(FORBIDDEN);
    if legal {
        Ok(())
    } else {
        Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid database name: '{name}'"),
        ))
    }
}

fn session_id(value: RawBsonRef<'_>) -> Result<&[u8]> {
    let RawBsonRef::Document(document) = value else {
        return Err(type_error("OperationSessionInfo.lsid", value, "object"));
    };
    let mut id = None;
    for element in document {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("id", RawBsonRef::Binary(binary))
                if binary.subtype == BinarySubtype::Uuid && binary.bytes.len() == 16 =>
            {
                id = Some(binary.bytes);
            }
            ("id", RawBsonRef::Binary(_)) => {
                return Err(Error::new(
                    ErrorCode::InvalidUUID,
                    "uuid must be a 16-byte binary field with UUID (4) subtype",
                ));
            }
            ("id", other) => {
                return Err(type_error("OperationSessionInfo.lsid.id", other, "binData"));
            }
            ("uid" | "txnNumber" | "txnUUID", _) => {}
            (other, _) => return Err(unknown_field("OperationSessionInfo.lsid", other)),
        }
    }
    id.ok_or_else(|| {
        Error::new(
            ErrorCode::IDLFailedToParse,
            "BSON field 'OperationSessionInfo.lsid.id' is missing but a required field",
        )
    })
}

fn max_time(value: RawBsonRef<'_>) -> Result<Option<u64>> {
    let number = match value {
        RawBsonRef::Int32(number) => i64::from(number),
        RawBsonRef::Int64(number) => number,
        RawBsonRef::Double(number) => exact_integer(number)
            .ok_or_else(|| Error::new(ErrorCode::BadValue, "maxTimeMS has non-integral value"))?,
        RawBsonRef::Null => return Ok(None),
        other => return Err(type_error("maxTimeMS", other, "number")),
    };
    if !(0..=i64::from(i32::MAX)).contains(&number) {
        return Err(Error::new(
            ErrorCode::BadValue,
            format!(
                "{number} value for maxTimeMS is out of range [0, {}]",
                i32::MAX
            ),
        ));
    }
    Ok(u64::try_from(number).ok().filter(|number| *number > 0))
}

/// On a standalone server there is one history: local, available and majority are the same.
fn check_read_concern(value: RawBsonRef<'_>) -> Result<()> {
    let RawBsonRef::Document(document) = value else {
        return Err(type_error("readConcern", value, "object"));
    };
    for element in document {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("level", RawBsonRef::String("local" | "available" | "majority")) => {}
            ("level", RawBsonRef::String(level @ ("linearizable" | "snapshot"))) => {
                return Err(Error::new(
                    ErrorCode::NotAReplicaSet,
                    format!(
                        "node needs to be a replica set member to use readConcern: {{ level: \
                         \"{level}\" }}"
                    ),
                ));
            }
            ("level", RawBsonRef::String(level)) => {
                return Err(Error::new(
                    ErrorCode::BadValue,
                    format!(
                        "Enumeration value '{level}' for field 'readConcern.level' is not a valid \
                         value."
                    ),
                ));
            }
            ("level", other) => return Err(type_error("readConcern.level", other, "string")),
            ("provenance", _) => {}
            ("afterClusterTime" | "atClusterTime" | "afterOpTime", _) => {
                return Err(Error::new(
                    ErrorCode::IllegalOperation,
                    format!("Cannot specify {name} readConcern without replication enabled"),
                ));
            }
            (other, _) => return Err(unknown_field("readConcern", other)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bson::{Document, RawDocumentBuf, doc};

    use super::*;

    fn code(command: &str, extra: Document) -> i32 {
        let mut body = doc! { command: 1, "$db": "test" };
        body.extend(extra);
        let raw = RawDocumentBuf::try_from(body).expect("the command is small");
        GenericArguments::parse(&raw)
            .and_then(|arguments| arguments.check(command, StableApi::Version1, false))
            .map_or_else(|error| error.code().number(), |()| 0)
    }

    fn lsid() -> Bson {
        let id = bson::Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![1; 16],
        };
        Bson::Document(doc! { "id": id })
    }

    #[test]
    fn the_arguments_of_a_usual_command_pass() {
        let extra = doc! {
            "lsid": lsid(), "maxTimeMS": 5.0, "readConcern": { "level": "majority" },
            "writeConcern": { "w": "majority", "j": true, "wtimeout": 100 }, "comment": "c",
            "apiVersion": "1", "apiStrict": true, "$readPreference": { "mode": "primary" },
        };
        assert_eq!(code("find", extra), 0);
    }

    #[test]
    fn each_bad_argument_has_its_code() {
        let short = bson::Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![1; 15],
        };
        let cases = [
            (40571, Document::new(), "no $db"),
            (73, doc! { "$db": "a.b" }, "database with a dot"),
            (73, doc! { "$db": "" }, "empty database"),
            (14, doc! { "$db": 1 }, "database of another type"),
            (
                20,
                doc! { "lsid": lsid(), "txnNumber": 1_i64 },
                "retryable write",
            ),
            (
                72,
                doc! { "txnNumber": 1_i64 },
                "transaction without a session",
            ),
            (
                72,
                doc! { "lsid": lsid(), "autocommit": false },
                "autocommit alone",
            ),
            (
                72,
                doc! { "startTransaction": true },
                "startTransaction alone",
            ),
            (207, doc! { "lsid": { "id": short } }, "short UUID"),
            (40414, doc! { "lsid": {} }, "session without an id"),
            (2, doc! { "maxTimeMS": -1 }, "negative time"),
            (2, doc! { "maxTimeMS": 1.5 }, "half a millisecond"),
            (14, doc! { "maxTimeMS": "1" }, "time of another type"),
            (2, doc! { "readConcern": { "level": "x" } }, "unknown level"),
            (
                123,
                doc! { "readConcern": { "level": "snapshot" } },
                "snapshot",
            ),
            (40415, doc! { "readConcern": { "x": 1 } }, "unknown field"),
            (322, doc! { "apiVersion": "2" }, "unknown API version"),
            (4_886_600, doc! { "apiStrict": true }, "apiStrict alone"),
            (
                323,
                doc! { "apiVersion": "1", "apiStrict": true },
                "command outside of the API",
            ),
        ];
        for (expected, extra, what) in cases {
            let mut body = doc! { "serverStatus": 1 };
            if expected != 40571 && !extra.contains_key("$db") {
                body.insert("$db", "test");
            }
            body.extend(extra);
            let raw = RawDocumentBuf::try_from(body).expect("the command is small");
            let error = GenericArguments::parse(&raw)
                .and_then(|arguments| arguments.check("serverStatus", StableApi::Outside, false))
                .expect_err(what);
            assert_eq!(error.code().number(), expected, "{what}: {error}");
        }
    }
}
