//! The parameters of the server: `getParameter` reads them, `setParameter` changes some.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use bson::{Bson, doc};
use millrace_value::{Error, ErrorCode, Result};

use crate::arguments::{integer, truthy};

/// When a parameter can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settable {
    pub(crate) at_startup: bool,
    pub(crate) at_runtime: bool,
}

const FIXED: Settable = Settable {
    at_startup: false,
    at_runtime: false,
};
const STARTUP: Settable = Settable {
    at_startup: true,
    at_runtime: false,
};
const ALWAYS: Settable = Settable {
    at_startup: true,
    at_runtime: true,
};

/// A parameter's value, and when it can be set.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) value: Bson,
    pub(crate) settable: Settable,
}

/// The server parameters of `getParameter` and `setParameter`, and their values.
#[derive(Debug)]
pub struct Parameters {
    values: RwLock<BTreeMap<&'static str, Parameter>>,
}

impl Default for Parameters {
    fn default() -> Self {
        let fixed = |value: Bson| Parameter {
            value,
            settable: FIXED,
        };
        let values = BTreeMap::from([
            ("authenticationMechanisms", fixed(Bson::Array(Vec::new()))),
            (
                "enableTestCommands",
                Parameter {
                    value: Bson::from(false),
                    settable: STARTUP,
                },
            ),
            (
                "featureCompatibilityVersion",
                fixed(Bson::from(doc! { "version": "8.0" })),
            ),
            (
                "internalQueryMaxBlockingSortMemoryUsageBytes",
                fixed(Bson::Int32(100 << 20)),
            ),
            ("localLogicalSessionTimeoutMinutes", fixed(Bson::Int32(30))),
            ("maxBSONDepth", fixed(Bson::Int32(200))),
            (
                "requireApiVersion",
                Parameter {
                    value: Bson::from(false),
                    settable: ALWAYS,
                },
            ),
            (
                "ttlMonitorEnabled",
                Parameter {
                    value: Bson::from(true),
                    settable: ALWAYS,
                },
            ),
            (
                "ttlMonitorSleepSecs",
                Parameter {
                    value: Bson::Int32(60),
                    settable: ALWAYS,
                },
            ),
        ]);
        Self {
            values: RwLock::new(values),
        }
    }
}

impl Parameters {
    /// Sets a parameter from the command line or the configuration file.
    ///
    /// # Errors
    /// When there is none of this name that can be set at startup, or the text is no value for it.
    pub fn set_at_startup(&self, name: &str, text: &str) -> Result<()> {
        let value = match text {
            "true" => Bson::Boolean(true),
            "false" => Bson::Boolean(false),
            text => text.parse().map_or_else(|_| Bson::from(text), Bson::Int64),
        };
        self.set(name, &value, |settable| settable.at_startup)
            .map(drop)
    }

    /// Sets a parameter by `setParameter`, and returns its value before.
    ///
    /// # Errors
    /// When there is none of this name that can be set at runtime, or `value` is no value for it.
    pub fn set_at_runtime(&self, name: &str, value: &Bson) -> Result<Bson> {
        self.set(name, value, |settable| settable.at_runtime)
    }

    /// The value of a boolean parameter; false if there is none.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        truthy(self.value(name).as_ref())
    }

    /// The value of a parameter that is a number; 0 if there is none.
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        self.value(name).as_ref().and_then(integer).unwrap_or(0)
    }

    fn value(&self, name: &str) -> Option<Bson> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values.get(name).map(|parameter| parameter.value.clone())
    }

    /// Sets a parameter and returns its value before.
    fn set(
        &self,
        name: &str,
        value: &Bson,
        settable: impl FnOnce(Settable) -> bool,
    ) -> Result<Bson> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let parameter = values.get_mut(name).ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidOptions,
                format!(
                    "attempted to set unrecognized parameter [{name}], use help:true to see options "
                ),
            )
        })?;
        if !settable(parameter.settable) {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                format!("not allowed to change [{name}] now"),
            ));
        }
        let value = convert(name, &parameter.value, value)?;
        Ok(std::mem::replace(&mut parameter.value, value))
    }

    /// All parameters by their names.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, Parameter> {
        self.values
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// `value` with the type of the parameter's value before.
fn convert(name: &str, before: &Bson, value: &Bson) -> Result<Bson> {
    let bad = || {
        Error::new(
            ErrorCode::BadValue,
            format!("Invalid value for parameter {name}: {value}"),
        )
    };
    match before {
        Bson::Boolean(_) => match value {
            Bson::Boolean(flag) => Ok(Bson::Boolean(*flag)),
            number => match integer(number) {
                Some(number @ (0 | 1)) => Ok(Bson::Boolean(number == 1)),
                _ => Err(bad()),
            },
        },
        Bson::Int32(_) => integer(value)
            .and_then(|number| i32::try_from(number).ok())
            .filter(|number| *number > 0)
            .map(Bson::Int32)
            .ok_or_else(bad),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_type() {
        let parameters = Parameters::default();
        parameters
            .set_at_startup("enableTestCommands", "1")
            .expect("it is legal");
        assert!(parameters.flag("enableTestCommands"));
        parameters
            .set_at_startup("ttlMonitorSleepSecs", "5")
            .expect("it is legal");
        assert_eq!(parameters.number("ttlMonitorSleepSecs"), 5);
        for (name, text) in [
            ("enableTestCommands", "2"),
            ("ttlMonitorSleepSecs", "soon"),
            ("ttlMonitorSleepSecs", "-1"),
            ("maxBSONDepth", "1"),
            ("nothing", "1"),
        ] {
            assert!(
                parameters.set_at_startup(name, text).is_err(),
                "{name}={text}"
            );
        }
    }
}
