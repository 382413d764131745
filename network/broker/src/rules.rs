//! Rules for listening and connecting at user level.
//!
//! # Format
//! A TOML file with rules in order; the first that matches decides. A key that a rule omits matches everything.
//!
//! ```toml
//! [[rule]]
//! action = "direct"            # allow, deny, kernel, direct
//! direction = "connect"        # listen, connect
//! user = ["www-data", 1000]    # a name, a number, or a list of them
//! address = "10.0.0.0/8"       # an address or a network, or a list of them
//! ports = [80, "8000-8099"]    # a port, "FIRST-LAST", or a list of them
//! ```
//!
//! | action | listen | connect |
//! |---|---|---|
//! | `allow` | at user level | directly to the same user; to another by the kernel |
//! | `direct` | at user level | directly, also to another user: the two share memory |
//! | `kernel` | by the kernel alone | by the kernel |
//! | `deny` | by the kernel alone | refused with `EACCES` |
//!
//! The user is the listening or connecting one, the address and port are those listened at or connected to. A wildcard
//! address matches networks that contain it (`0.0.0.0/0`) only. Requests without a matching rule are allowed.
//!
//! Rules apply to the broker, not to the kernel's TCP: a program can run without the preload.

mod network;

use std::ops::{Range, RangeInclusive};

use millrace_stream::Address;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::network::Network;
use crate::{Error, ErrorKind, Result};

/// The direction of a request that rules decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A request to listen at an address.
    Listen,
    /// A request to connect to an address.
    Connect,
}

/// The decision of the rules on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is allowed, as without rules.
    Allow,
    /// The request is refused with an error.
    Deny,
    /// The request is left to the kernel.
    Kernel,
    /// Memory may be shared with another user.
    Direct,
}

/// An ordered list of rules, parsed from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// One rule; `None` matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    verdict: Verdict,
    direction: Option<Direction>,
    users: Option<Vec<u32>>,
    networks: Option<Vec<Network>>,
    ports: Option<Vec<RangeInclusive<u16>>>,
}

/// A function from a user name to its user id.
pub type Users<'a> = &'a dyn Fn(&str) -> Option<u32>;

impl Rules {
    /// Parses rules. `users` resolves user names.
    ///
    /// # Errors
    /// [`ErrorKind::Rules`] with the line of the mistake.
    pub fn parse(text: &str, users: Users<'_>) -> Result<Self> {
        let reader = Reader { text, users };
        let table = DeTable::parse(text).map_err(|error| {
            let message = error.message().to_owned();
            reader.error(error.span().unwrap_or(0..0), &message)
        })?;
        let mut rules = Vec::new();
        for (key, value) in table.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("rule", DeValue::Array(array)) => {
                    for entry in array.iter() {
                        rules.push(reader.rule(entry)?);
                    }
                }
                ("rule", _) => return Err(reader.error(value.span(), "rules begin with [[rule]]")),
                (other, _) => {
                    let message =
                        format!("`{other}` means nothing here; rules begin with [[rule]]");
                    return Err(reader.error(key.span(), &message));
                }
            }
        }
        Ok(Self { rules })
    }

    /// The decision on a user's request at an address.
    #[must_use]
    pub fn decide(&self, direction: Direction, user: u32, address: Address) -> Verdict {
        let address = address.canonical();
        let fits = |rule: &&Rule| {
            rule.direction.is_none_or(|only| only == direction)
                && holds(rule.users.as_deref(), |only| *only == user)
                && holds(rule.networks.as_deref(), |only| only.contains(address.ip()))
                && holds(rule.ports.as_deref(), |only| only.contains(&address.port()))
        };
        let first = self.rules.iter().find(fits);
        first.map_or(Verdict::Allow, |rule| rule.verdict)
    }

    /// Whether a rule allows users other than `owner`, so that they must be able to reach the broker.
    #[must_use]
    pub fn admit_others(&self, owner: u32) -> bool {
        self.rules.iter().any(|rule| {
            matches!(rule.verdict, Verdict::Allow | Verdict::Direct)
                && holds(rule.users.as_deref(), |only| *only != owner)
        })
    }
}

fn holds<T>(only: Option<&[T]>, fits: impl Fn(&T) -> bool) -> bool {
    only.is_none_or(|only| only.iter().any(fits))
}

/// The text that is parsed.
struct Reader<'a> {
    text: &'a str,
    users: Users<'a>,
}

impl Reader<'_> {
    fn error(&self, span: Range<usize>, message: &str) -> Error {
        let before = self.text.as_bytes().iter().take(span.start);
        let line = before.filter(|&&byte| byte == b'\n').count() + 1;
        Error::new(ErrorKind::Rules, format!("line {line}: {message}"))
    }

    fn rule(&self, entry: &Spanned<DeValue<'_>>) -> Result<Rule> {
        let DeValue::Table(table) = entry.get_ref() else {
            return Err(self.error(entry.span(), "rules begin with [[rule]]"));
        };
        let mut verdict = None;
        let mut rule = Rule {
            verdict: Verdict::Allow,
            direction: None,
            users: None,
            networks: None,
            ports: None,
        };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "action" => verdict = Some(self.verdict(value)?),
                "direction" => rule.direction = Some(self.direction(value)?),
                "user" => rule.users = Some(self.list(value, Self::user)?),
                "address" => rule.networks = Some(self.list(value, Self::network)?),
                "ports" | "port" => rule.ports = Some(self.list(value, Self::ports)?),
                other => {
                    let message = format!(
                        "`{other}` means nothing here; a rule has action, direction, user, address, ports"
                    );
                    return Err(self.error(key.span(), &message));
                }
            }
        }
        let missing = || {
            self.error(
                entry.span(),
                "a rule has an action: allow, deny, kernel or direct",
            )
        };
        rule.verdict = verdict.ok_or_else(missing)?;
        Ok(rule)
    }

    fn verdict(&self, value: &Spanned<DeValue<'_>>) -> Result<Verdict> {
        match value.get_ref().as_str() {
            Some("allow") => Ok(Verdict::Allow),
            Some("deny") => Ok(Verdict::Deny),
            Some("kernel") => Ok(Verdict::Kernel),
            Some("direct") => Ok(Verdict::Direct),
            _ => Err(self.error(value.span(), "an action is allow, deny, kernel or direct")),
        }
    }

    fn direction(&self, value: &Spanned<DeValue<'_>>) -> Result<Direction> {
        match value.get_ref().as_str() {
            Some("listen") => Ok(Direction::Listen),
            Some("connect") => Ok(Direction::Connect),
            _ => Err(self.error(value.span(), "a direction is listen or connect")),
        }
    }

    /// A single value, or a list of values.
    fn list<T>(
        &self,
        value: &Spanned<DeValue<'_>>,
        read: impl Fn(&Self, &Spanned<DeValue<'_>>) -> Result<T>,
    ) -> Result<Vec<T>> {
        match value.get_ref() {
            DeValue::Array(array) => array.iter().map(|one| read(self, one)).collect(),
            _ => Ok(vec![read(self, value)?]),
        }
    }

    fn user(&self, value: &Spanned<DeValue<'_>>) -> Result<u32> {
        if let Some(number) = integer::<u32>(value.get_ref()) {
            return Ok(number);
        }
        let Some(name) = value.get_ref().as_str() else {
            return Err(self.error(value.span(), "a user is a name or a number"));
        };
        let unknown = || self.error(value.span(), &format!("there is no user `{name}`"));
        (self.users)(name).ok_or_else(unknown)
    }

    fn network(&self, value: &Spanned<DeValue<'_>>) -> Result<Network> {
        let text = value.get_ref().as_str().unwrap_or_default();
        let wrong = |error: Error| self.error(value.span(), &error.to_string());
        text.parse().map_err(wrong)
    }

    fn ports(&self, value: &Spanned<DeValue<'_>>) -> Result<RangeInclusive<u16>> {
        if let Some(port) = integer::<u16>(value.get_ref()) {
            return Ok(port..=port);
        }
        let parse = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let wrong = || self.error(value.span(), "a port is below 65536, or `FIRST-LAST`");
        value.get_ref().as_str().and_then(parse).ok_or_else(wrong)
    }
}

fn integer<T: TryFrom<u64>>(value: &DeValue<'_>) -> Option<T> {
    let DeValue::Integer(integer) = value else {
        return None;
    };
    let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    T::try_from(number).ok()
}

#[cfg(test)]
mod tests;
