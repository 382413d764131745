//! The registry: every command, wherever it is answered.
//!
//! It is made once, at start, from the declarations of the server and of the document layer. Dispatching,
//! `listCommands`, the counters by command and the documentation all read it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use millrace_command::{CommandSpec, Database};

use super::{COMMANDS, Command};
use crate::metrics::CommandMetrics;

/// The code that answers a command.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// A command of the server itself.
    Server(&'static Command),
    /// A command of the document layer.
    Documents(&'static millrace_command::Command),
}

impl Handler {
    /// The declaration of the command that the handler runs.
    #[must_use]
    pub const fn spec(self) -> &'static CommandSpec {
        match self {
            Self::Server(command) => &command.spec,
            Self::Documents(command) => &command.spec,
        }
    }
}

/// A command under one of its spellings.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The spelling: the command's name or one of its aliases.
    pub name: &'static str,
    /// The declaration of the command, shared by its spellings.
    pub spec: &'static CommandSpec,
    /// The handler that answers the command, the server's or the document layer's.
    pub handler: Handler,
    /// The counters, which all spellings of a command share.
    pub metrics: Arc<CommandMetrics>,
}

/// Every command by its spellings. See the [module's page](self).
#[derive(Debug)]
pub struct Registry {
    by_spelling: HashMap<&'static str, Entry>,
    /// The names without the aliases, sorted.
    names: Vec<&'static str>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The registry of all commands of the server and the document layer.
    #[must_use]
    pub fn new() -> Self {
        let own = COMMANDS.iter().map(Handler::Server);
        let documents = Database::commands().iter().map(Handler::Documents);
        Self::of(own.chain(documents))
    }

    /// The registry of these commands.
    ///
    /// # Panics
    /// When two of them have the same spelling: which of them would run is undefined.
    fn of(handlers: impl IntoIterator<Item = Handler>) -> Self {
        let mut by_spelling = HashMap::new();
        let mut names = Vec::new();
        for handler in handlers {
            let spec = handler.spec();
            let metrics = Arc::<CommandMetrics>::default();
            names.push(spec.name);
            for name in spec.spellings() {
                let entry = Entry {
                    name,
                    spec,
                    handler,
                    metrics: Arc::clone(&metrics),
                };
                let other = by_spelling.insert(name, entry);
                assert!(other.is_none(), "the command {name} is declared twice");
            }
        }
        names.sort_unstable();
        Self { by_spelling, names }
    }

    /// The command with this spelling of its name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.by_spelling.get(name)
    }

    /// Every command once, ordered by name.
    pub fn commands(&self) -> impl Iterator<Item = &Entry> {
        self.names
            .iter()
            .filter_map(|name| self.by_spelling.get(name))
    }
}
