//! `writeConcern`, as a server without replicas honours it.

use std::time::Duration;

use bson::raw::RawBsonRef;
use bson::{Document, doc};
use millrace_engine::CommitSeq;
use millrace_value::{Error, ErrorCode, Result};

use crate::acknowledgement::{Acknowledgement, Level};
use crate::arguments::{exact_integer, unknown_field};
use crate::error_names;

/// The largest `w` that is a number of members at all.
const W_MAX: i64 = 50;

/// How far a write must have come when it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// `w: 0`: it is not waited for at all.
    pub unacknowledged: bool,
    /// `w: "majority"`: it must be durable on a majority of the members, whatever the server's default.
    pub majority: bool,
    /// `j: true`: its log record must be synced, whatever the server's default.
    pub journaled: bool,
    /// `wtimeout` in milliseconds; zero for none, below zero for a time that is over already.
    pub timeout_ms: i64,
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
                "w" => match check_w(value)? {
                    Members::None => concern.unacknowledged = true,
                    Members::One => concern.unacknowledged = false,
                    Members::Majority => concern.majority = true,
                },
                "j" => concern.journaled = flag("j", value)?,
                "fsync" => fsync = flag("fsync", value)?,
                "wtimeout" | "wtimeoutMS" => {
                    concern.timeout_ms =
                        number(value).ok_or_else(|| failed("wtimeout must be a number"))?;
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

    /// The level that a write must have reached, on a server that syncs every write or not.
    #[must_use]
    pub const fn level(&self, syncs_every_write: bool) -> Level {
        if self.unacknowledged {
            Level::Visible
        } else if self.majority {
            Level::Majority
        } else if self.journaled || syncs_every_write {
            Level::Durable
        } else {
            Level::Visible
        }
    }

    /// What a write of this concern waits for when its last commit, at `commit_seq`, is done at the monotonic time
    /// `now`; `None` if it is acknowledged at once. As in MongoDB, only the wait for other members has a time limit.
    #[must_use]
    pub fn acknowledgement(
        &self,
        commit_seq: CommitSeq,
        syncs_every_write: bool,
        now: Duration,
    ) -> Option<Acknowledgement> {
        let level = self.level(syncs_every_write);
        let is_limited = level == Level::Majority && self.timeout_ms != 0;
        let timeout = Duration::from_millis(u64::try_from(self.timeout_ms).unwrap_or(0));
        (level > Level::Visible).then_some(Acknowledgement {
            commit_seq,
            level,
            until: is_limited.then_some(now.saturating_add(timeout)),
        })
    }

    /// The `writeConcernError` of a write that was applied and has not reached its level within `wtimeout`.
    #[must_use]
    pub fn timeout_error(&self) -> Document {
        let mut concern = if self.majority {
            doc! { "w": "majority" }
        } else {
            doc! { "w": 1 }
        };
        if self.journaled {
            concern.insert("j", true);
        }
        concern.insert("wtimeout", self.timeout_ms);
        concern.insert("provenance", "clientSupplied");
        doc! {
            "code": ErrorCode::WriteConcernTimeout.number(),
            "codeName": error_names::name(ErrorCode::WriteConcernTimeout),
            "errmsg": "waiting for replication timed out",
            "errInfo": { "wtimeout": true, "writeConcern": concern },
        }
    }
}

/// The members that a `w` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    None,
    One,
    Majority,
}

/// Checks `w`.
fn check_w(value: RawBsonRef<'_>) -> Result<Members> {
    match value {
        RawBsonRef::String("majority") => Ok(Members::Majority),
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
            Some(0) => Ok(Members::None),
            Some(1) => Ok(Members::One),
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

    fn waits_for(raw: &bson::RawDocument, syncs_every_write: bool) -> Option<Acknowledgement> {
        let concern = WriteConcern::parse(RawBsonRef::Document(raw)).expect("it is legal");
        concern.acknowledgement(CommitSeq::new(7), syncs_every_write, Duration::from_secs(1))
    }

    #[test]
    fn the_level_follows_from_w_and_j_and_the_servers_default() {
        let levels = |raw: bson::RawDocumentBuf| {
            [true, false].map(|syncs| waits_for(&raw, syncs).map(|waits| waits.level))
        };
        let (durable, majority) = (Some(Level::Durable), Some(Level::Majority));
        assert_eq!(levels(rawdoc! {}), [durable, None]);
        assert_eq!(levels(rawdoc! { "w": 1 }), [durable, None]);
        assert_eq!(levels(rawdoc! { "j": true }), [durable, durable]);
        assert_eq!(levels(rawdoc! { "w": 0, "j": true }), [None, None]);
        assert_eq!(levels(rawdoc! { "w": "majority" }), [majority, majority]);
    }

    #[test]
    fn only_the_wait_for_a_majority_has_a_time_limit() {
        let until = |raw: bson::RawDocumentBuf| waits_for(&raw, true).and_then(|waits| waits.until);
        let at = |ms| Some(Duration::from_millis(ms));
        assert_eq!(until(rawdoc! { "w": "majority", "wtimeout": 5 }), at(1_005));
        assert_eq!(
            until(rawdoc! { "w": "majority", "wtimeout": -5 }),
            at(1_000)
        );
        assert_eq!(until(rawdoc! { "w": "majority", "wtimeout": 0 }), None);
        assert_eq!(until(rawdoc! { "w": "majority" }), None);
        assert_eq!(until(rawdoc! { "w": 1, "j": true, "wtimeout": 5 }), None);
        let longest = until(rawdoc! { "w": "majority", "wtimeout": i64::MAX });
        assert!(longest.is_some(), "it does not overflow");
    }

    #[test]
    fn the_error_of_a_timeout_is_mongodbs() {
        let raw = rawdoc! { "w": "majority", "j": true, "wtimeout": 5 };
        let concern = WriteConcern::parse(RawBsonRef::Document(&raw)).expect("it is legal");
        let concern_echoed = doc! {
            "w": "majority", "j": true, "wtimeout": 5_i64, "provenance": "clientSupplied",
        };
        let expected = doc! {
            "code": 64,
            "codeName": "WriteConcernTimeout",
            "errmsg": "waiting for replication timed out",
            "errInfo": { "wtimeout": true, "writeConcern": concern_echoed },
        };
        assert_eq!(concern.timeout_error(), expected);
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
