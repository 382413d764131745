//! Fail points: commands fail on demand, so that drivers can be tested.
//!
//! `failCommand` fails commands by name; `maxTimeAlwaysTimeOut` and `maxTimeNeverTimeOut` decide about
//! the time limits that clients set. Only a server started with `enableTestCommands=1` has them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Result};

use crate::arguments::{integer, truthy, wrong_type};

/// The effects of an active fail point on a command; a field's default has no effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailAction {
    /// It waits before anything else happens.
    pub block: Option<Duration>,
    /// The connection is closed without a reply.
    pub close: bool,
    /// It is answered with this error instead of being run.
    pub error_code: Option<i32>,
    /// The fields added to the error's reply; `None` for none.
    pub error_details: Option<Document>,
    /// The `errorLabels` of the error's reply; may be empty.
    pub error_labels: Vec<String>,
    /// It is run, and this is added to its reply.
    pub write_concern_error: Option<Document>,
}

/// When a fail point takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Mode {
    #[default]
    Off,
    AlwaysOn,
    Times(u64),
    Skip(u64),
}

impl Mode {
    /// Reads the `mode` of `configureFailPoint`.
    ///
    /// # Errors
    /// The error of the reply.
    pub(crate) fn parse(value: Option<&Bson>) -> Result<Self> {
        let bad = |what: &str| Error::new(ErrorCode::BadValue, what.to_owned());
        match value {
            Some(Bson::String(text)) => match text.as_str() {
                "off" => Ok(Self::Off),
                "alwaysOn" => Ok(Self::AlwaysOn),
                other => Err(bad(&format!("unknown mode: {other}"))),
            },
            Some(Bson::Document(document)) => {
                let (name, value) = document
                    .iter()
                    .next()
                    .ok_or_else(|| bad("invalid mode object"))?;
                let number = integer(value)
                    .and_then(|number| u64::try_from(number).ok())
                    .ok_or_else(|| bad(&format!("'{name}' must be a non-negative number")))?;
                match name.as_str() {
                    "times" if number == 0 => Ok(Self::Off),
                    "times" => Ok(Self::Times(number)),
                    "skip" => Ok(Self::Skip(number)),
                    _ => Err(bad(
                        "'mode' must be one of 'off', 'alwaysOn', 'times', and 'skip'",
                    )),
                }
            }
            Some(_) => Err(bad("'mode' must be a string or JSON object")),
            None => Err(Error::new(
                ErrorCode::IDLFailedToParse,
                "BSON field 'configureFailPoint.mode' is missing but a required field",
            )),
        }
    }
}

/// Which commands fail, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    commands: Vec<String>,
    every_command: bool,
    application: Option<String>,
    namespace: Option<String>,
    action: FailAction,
}

impl Rule {
    /// Reads the `data` of `configureFailPoint` for `failCommand`.
    ///
    /// # Errors
    /// The error of the reply.
    pub(crate) fn parse(data: &Document) -> Result<Self> {
        let mut rule = Self::default();
        let mut block_ms = None;
        let mut blocks = false;
        for (name, value) in data {
            let text = || {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| wrong_type(name, value, "string"))
            };
            let number = || integer(value).ok_or_else(|| wrong_type(name, value, "number"));
            match name.as_str() {
                "failCommands" => rule.commands = texts(name, value)?,
                "failAllCommands" => rule.every_command = truthy(Some(value)),
                "appName" => rule.application = Some(text()?),
                "namespace" => rule.namespace = Some(text()?),
                "closeConnection" => rule.action.close = truthy(Some(value)),
                "errorCode" => {
                    rule.action.error_code =
                        i32::try_from(number()?).ok().filter(|code| *code != 0);
                }
                "errorExtraInfo" => rule.action.error_details = value.as_document().cloned(),
                "errorLabels" => rule.action.error_labels = texts(name, value)?,
                "writeConcernError" => {
                    let error = value.as_document().cloned();
                    rule.action.write_concern_error =
                        Some(error.ok_or_else(|| wrong_type(name, value, "object"))?);
                }
                "blockConnection" => blocks = truthy(Some(value)),
                "blockTimeMS" => block_ms = u64::try_from(number()?).ok(),
                // As in MongoDB other fields are allowed: each fail point reads those it knows.
                _ => {}
            }
        }
        if blocks {
            let ms = block_ms.ok_or_else(|| {
                Error::new(
                    ErrorCode::InvalidOptions,
                    "must specify 'blockTimeMS' when 'blockConnection' is true",
                )
            })?;
            rule.action.block = Some(Duration::from_millis(ms.min(u64::from(u32::MAX))));
        }
        Ok(rule)
    }
}

/// A fail point's mode and how often it took effect.
#[derive(Debug, Default)]
struct Switch {
    mode: Mode,
    entered: u64,
}

impl Switch {
    /// Whether it takes effect now. Counts as one of its times.
    fn enter(&mut self) -> bool {
        let enters = match &mut self.mode {
            Mode::Off => false,
            Mode::AlwaysOn | Mode::Skip(0) => true,
            Mode::Times(times) => {
                *times -= 1;
                if *times == 0 {
                    self.mode = Mode::Off;
                }
                true
            }
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
        };
        self.entered += u64::from(enters);
        enters
    }
}

#[derive(Debug, Default)]
struct State {
    fail_command: Switch,
    rule: Rule,
    always_time_out: Switch,
    never_time_out: Switch,
}

/// The fail points. See the [module's page](self).
#[derive(Debug, Default)]
pub struct FailPoints {
    /// Whether any mode is not `Off`: read for every command, so it is kept outside of the lock.
    active: AtomicBool,
    state: Mutex<State>,
}

impl FailPoints {
    /// What is to happen to a command on `namespace` (`database.collection`) of an application. Counts
    /// as one of its times.
    pub fn apply(
        &self,
        command: &str,
        application: Option<&str>,
        namespace: impl FnOnce() -> String,
    ) -> Option<FailAction> {
        if !self.active.load(Ordering::Relaxed) || command == "configureFailPoint" {
            return None;
        }
        let mut state = self.lock();
        let rule = &state.rule;
        // Commands with an old name (isMaster, findAndModify) have it as MongoDB's alias, in lower case.
        let fits = (rule.every_command
            || rule
                .commands
                .iter()
                .any(|name| name.eq_ignore_ascii_case(command)))
            && rule
                .application
                .as_deref()
                .is_none_or(|wanted| Some(wanted) == application)
            && rule
                .namespace
                .as_ref()
                .is_none_or(|wanted| *wanted == namespace());
        if !fits {
            return None;
        }
        if !state.fail_command.enter() {
            return None;
        }
        self.note(&state);
        Some(state.rule.action.clone())
    }

    /// The time limit of an operation whose client has set `limit`.
    ///
    /// # Errors
    /// `MaxTimeMSExpired`, at once, when limits are to time out.
    pub fn time_limit(&self, limit: Option<Duration>) -> Result<Option<Duration>> {
        if limit.is_none() || !self.active.load(Ordering::Relaxed) {
            return Ok(limit);
        }
        let mut state = self.lock();
        let (timed_out, unlimited) = (state.always_time_out.enter(), state.never_time_out.enter());
        self.note(&state);
        if timed_out {
            return Err(Error::new(
                ErrorCode::MaxTimeMSExpired,
                "operation exceeded time limit",
            ));
        }
        Ok(limit.filter(|_| !unlimited))
    }

    /// Sets the mode of the fail point of this name, and the rule if it has one; returns how often it
    /// was entered before.
    pub(crate) fn configure(&self, name: &str, mode: Mode, rule: Rule) -> Result<u64> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let switch = match name {
            "failCommand" => {
                state.rule = rule;
                &mut state.fail_command
            }
            "maxTimeAlwaysTimeOut" => &mut state.always_time_out,
            "maxTimeNeverTimeOut" => &mut state.never_time_out,
            _ => return Err(Error::location(266, format!("{name} not found"))),
        };
        switch.mode = mode;
        let entered = switch.entered;
        self.note(state);
        Ok(entered)
    }

    /// Copies to the atomics whether any fail point is active, so that commands need not take the lock.
    fn note(&self, state: &State) {
        let switches = [
            &state.fail_command,
            &state.always_time_out,
            &state.never_time_out,
        ];
        let active = switches.iter().any(|switch| switch.mode != Mode::Off);
        self.active.store(active, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn texts(name: &str, value: &Bson) -> Result<Vec<String>> {
    let Bson::Array(items) = value else {
        return Err(wrong_type(name, value, "array"));
    };
    let text = |item: &Bson| {
        item.as_str()
            .map(str::to_owned)
            .ok_or_else(|| wrong_type(name, item, "string"))
    };
    items.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn point(mode: Mode, data: &Document) -> FailPoints {
        let point = FailPoints::default();
        let rule = Rule::parse(data).expect("the rule is legal");
        configured(&point, mode, rule);
        point
    }

    fn configured(point: &FailPoints, mode: Mode, rule: Rule) -> u64 {
        let entered = point.configure("failCommand", mode, rule);
        entered.expect("there is such a fail point")
    }

    fn hits(
        point: &FailPoints,
        command: &str,
        application: Option<&str>,
        count: usize,
    ) -> Vec<bool> {
        let hit = |_| {
            point
                .apply(command, application, || "db.c".to_owned())
                .is_some()
        };
        (0..count).map(hit).collect()
    }

    #[test]
    fn modes_count_only_what_fits() {
        let data = doc! { "failCommands": ["find"], "errorCode": 7 };
        let times = point(Mode::Times(2), &data);
        assert_eq!(hits(&times, "insert", None, 3), [false; 3]);
        assert_eq!(hits(&times, "find", None, 3), [true, true, false]);
        let skip = point(Mode::Skip(2), &data);
        assert_eq!(hits(&skip, "find", None, 4), [false, false, true, true]);
        let always = point(Mode::AlwaysOn, &data);
        assert_eq!(hits(&always, "find", None, 3), [true; 3]);
        assert_eq!(configured(&always, Mode::Off, Rule::default()), 3);
        assert_eq!(hits(&always, "find", None, 1), [false]);
    }

    #[test]
    fn rules_know_old_names_of_commands() {
        let point = point(Mode::AlwaysOn, &doc! { "failCommands": ["isMaster"] });
        assert_eq!(hits(&point, "ismaster", None, 1), [true]);
        assert_eq!(hits(&point, "hello", None, 1), [false]);
    }

    #[test]
    fn rules_may_have_fields_of_other_fail_points() {
        assert!(Rule::parse(&doc! { "shouldCheckForInterrupt": true }).is_ok());
    }

    #[test]
    fn rules_may_name_an_application_and_a_namespace() {
        let data = doc! { "failCommands": ["find"], "appName": "a", "closeConnection": true };
        let point = point(Mode::AlwaysOn, &data);
        assert_eq!(hits(&point, "find", None, 1), [false]);
        assert_eq!(hits(&point, "find", Some("a"), 1), [true]);
        let rule = Rule::parse(&doc! { "failCommands": ["find"], "namespace": "db.d" });
        configured(&point, Mode::AlwaysOn, rule.expect("the rule is legal"));
        assert_eq!(hits(&point, "find", Some("a"), 1), [false]);
    }

    #[test]
    fn time_limits_pass_as_configured() {
        let points = FailPoints::default();
        let set = |name: &str, mode| {
            let entered = points.configure(name, mode, Rule::default());
            entered.map_err(|e| (e.code().number(), e.message().to_owned()))
        };
        let limit = Some(Duration::from_secs(60));
        let pass = || points.time_limit(limit).map_err(|e| e.code());
        assert_eq!(pass(), Ok(limit));
        assert_eq!(set("maxTimeAlwaysTimeOut", Mode::Times(1)), Ok(0));
        let unlimited = points.time_limit(None).map_err(|e| e.code());
        assert_eq!(unlimited, Ok(None), "nobody has set a limit");
        assert_eq!(pass(), Err(ErrorCode::MaxTimeMSExpired));
        assert_eq!(pass(), Ok(limit), "once only");
        assert_eq!(set("maxTimeNeverTimeOut", Mode::AlwaysOn), Ok(0));
        assert_eq!(pass(), Ok(None));
        assert_eq!(set("maxTimeAlwaysTimeOut", Mode::AlwaysOn), Ok(1));
        assert_eq!(
            pass(),
            Err(ErrorCode::MaxTimeMSExpired),
            "the stronger of both"
        );
        assert_eq!(set("maxTimeAlwaysTimeOut", Mode::Off), Ok(2));
        assert_eq!(set("maxTimeNeverTimeOut", Mode::Off), Ok(2));
        assert_eq!(pass(), Ok(limit));
        let unknown = Err((266, "maxTime not found".to_owned()));
        assert_eq!(set("maxTime", Mode::Off), unknown);
    }

    #[test]
    fn bad_configurations_are_errors() {
        let code = |data: Document| Rule::parse(&data).expect_err("illegal").code().number();
        assert_eq!(code(doc! { "failCommands": "find" }), 14);
        assert_eq!(code(doc! { "failCommands": [1] }), 14);
        assert_eq!(code(doc! { "blockConnection": true }), 72);
        assert!(Mode::parse(Some(&Bson::from(doc! { "times": -1 }))).is_err());
        assert!(Mode::parse(Some(&Bson::from("sometimes"))).is_err());
        assert!(Mode::parse(None).is_err());
    }
}
