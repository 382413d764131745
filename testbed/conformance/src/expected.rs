//! What a machine is known to have, and what was found.

use std::collections::BTreeMap;

use crate::failure::{Failure, Result, ensure};

/// What was found on a machine, by name. Values are words that can stand on a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    found: BTreeMap<&'static str, String>,
}

impl Facts {
    /// Records `value` as the finding with this name; it replaces an earlier one.
    pub fn insert(&mut self, name: &'static str, value: impl Into<String>) {
        self.found.insert(name, value.into());
    }
}

/// What a machine must have, by the names of [`Facts`]: a driver that does not see what is there tests less, and
/// passes. What is not named may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    wanted: BTreeMap<String, String>,
}

impl Expected {
    /// Adds one, said as `NAME=VALUE`.
    ///
    /// # Errors
    /// If it is said otherwise.
    pub fn add(&mut self, word: &str) -> Result<()> {
        let said = word.split_once('=');
        let (name, value) = said.ok_or_else(|| Failure::new(format!("not NAME=VALUE: {word}")))?;
        self.wanted.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Takes one out: what it must be, if that was said.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.wanted.remove(name)
    }

    /// Fails at the first difference of what was found so far.
    ///
    /// # Errors
    /// The difference.
    pub fn check_found(&self, facts: &Facts) -> Result<()> {
        for (name, wanted) in &self.wanted {
            if let Some(found) = facts.found.get(name.as_str()) {
                ensure(found == wanted, || {
                    format!("{name} is {found}, must be {wanted}")
                })?;
            }
        }
        Ok(())
    }

    /// Fails at the first difference, or if something is expected that was not looked for.
    ///
    /// # Errors
    /// The difference.
    pub fn check(&self, facts: &Facts) -> Result<()> {
        self.check_found(facts)?;
        let mut names = self.wanted.keys();
        let unknown = names.find(|name| !facts.found.contains_key(name.as_str()));
        ensure(unknown.is_none(), || {
            format!(
                "nobody has looked for {}",
                unknown.map_or("", String::as_str)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_found_as_expected_passes() -> Result<()> {
        let mut facts = Facts::default();
        facts.insert("vectors", "9");
        facts.insert("page", "4096");
        let expected = |words: &[&str]| {
            let mut expected = Expected::default();
            words.iter().try_for_each(|word| expected.add(word))?;
            expected.check_found(&facts)?;
            expected.check(&facts)
        };
        expected(&[])?;
        expected(&["vectors=9", "page=4096"])?;
        for wrong in ["vectors=8", "page=", "vector=9", "page"] {
            assert!(expected(&["vectors=9", wrong]).is_err(), "{wrong}");
        }
        Ok(())
    }
}
