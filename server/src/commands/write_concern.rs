//! `writeConcern`, as a server without replicas honours it.

use bson::raw::RawBsonRef;
use millrace_document::{Error, ErrorCode, Result};

use super::{exact_integer, unknown_field};

/// The largest `w` that is a number of members at all.
const W_MAX: i64 = 50;

/// How far a write must have come when it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// `w: 0`: it is not waited for at all.
    pub unacknowledged: bool,
    /// `j: true`: its log record must be synced, whatever the server's default.
    pub journaled: bool,
}

impl WriteConcern {
    /// Reads and checks a `writeConcern`.
    ///
    /// # Errors
    /// One that makes no sense, or that takes more than one server.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Document(document) = value else {
            return Err(failed("writeConcern must be an object"));
        };
        let mut concern = Self::default();
        let mut fsync = false;
        for element in document {
            let (name, value) = element?;
            match name.as_str() {
                "w" => concern.unacknowledged = check_w(value)?,
                "j" => concern.journaled = flag("j", value)?,
                "fsync" => fsync = flag("fsync", value)?,
                "wtimeout" | "wtimeoutMS" => {
                    if number(value).is_none() {
                        return Err(failed("wtimeout must be a number"));
                    }
                }
                "wElectionId" | "wOpTime" | "getLastError" | "getlasterror" | "provenance" => {}
                other => return Err(unknown_field("writeConcern", other)),
            }
        }
        if fsync && concern.journaled {
            return Err(failed("fsync and j options cannot be used together"));
        }
        concern.journaled |= fsync;
        Ok(concern)
    }
}

/// Checks `w` and returns whether it is 0.
fn check_w(value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::String("majority") => Ok(false),
        RawBsonRef::String(mode) => Err(Error::new(
            ErrorCode::BadValue,
            format!(
                "cannot use non-majority 'w' mode \"{mode}\" when a host is not a member of a \
                 replica set"
            ),
        )),
        RawBsonRef::Document(_) => Err(Error::new(
            ErrorCode::BadValue,
            "cannot use tags in 'w' when a host is not a member of a replica set",
        )),
        value => match number(value) {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            Some(w) if (2..=W_MAX).contains(&w) => Err(Error::new(
                ErrorCode::BadValue,
                "cannot use 'w' > 1 when a host is not replicated",
            )),
            Some(w) => Err(failed(&format!(
                "w has to be a non-negative number and not greater than {W_MAX}; found: {w}"
            ))),
            None => Err(failed("w has to be a number, string, or object")),
        },
    }
}

fn number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(number) => exact_integer(number),
        _ => None,
    }
}

fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::Boolean(value) => Ok(value),
        RawBsonRef::Null => Ok(false),
        value => number(value)
            .map(|number| number != 0)
            .ok_or_else(|| failed(&format!("{name} must be numeric or a boolean value"))),
    }
}

fn failed(message: &str) -> Error {
    Error::new(ErrorCode::FailedToParse, message)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn what_one_server_can_do_is_accepted() {
        let parse = |raw: bson::RawDocumentBuf| {
            let concern = WriteConcern::parse(RawBsonRef::Document(&raw)).expect("it is legal");
            (concern.unacknowledged, concern.journaled)
        };
        assert_eq!(parse(rawdoc! {}), (false, false));
        assert_eq!(parse(rawdoc! { "w": 0 }), (true, false));
        assert_eq!(parse(rawdoc! { "w": 1.0, "j": true }), (false, true));
        assert_eq!(
            parse(rawdoc! { "w": "majority", "wtimeout": 5 }),
            (false, false)
        );
        assert_eq!(parse(rawdoc! { "fsync": true }), (false, true));
    }

    #[test]
    fn what_it_cannot_do_is_an_error() {
        let code = |raw: bson::RawDocumentBuf| {
            let error = WriteConcern::parse(RawBsonRef::Document(&raw)).expect_err("it is illegal");
            error.code().number()
        };
        assert_eq!(code(rawdoc! { "w": 2 }), 2);
        assert_eq!(code(rawdoc! { "w": "dc" }), 2);
        assert_eq!(code(rawdoc! { "w": { "dc": 1 } }), 2);
        assert_eq!(code(rawdoc! { "w": 51 }), 9);
        assert_eq!(code(rawdoc! { "w": -1 }), 9);
        assert_eq!(code(rawdoc! { "w": null }), 9);
        assert_eq!(code(rawdoc! { "j": "yes" }), 9);
        assert_eq!(code(rawdoc! { "fsync": true, "j": true }), 9);
        assert_eq!(code(rawdoc! { "x": 1 }), 40415);
    }
}
