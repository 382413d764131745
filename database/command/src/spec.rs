//! The facts about a command that hold before it is run.
//!
//! A [`CommandSpec`] is the single declaration of a command: the document layer declares its own, the
//! server those that it answers by itself, both in this form.

use millrace_value::{Error, ErrorCode, Result};

use super::CommandRequest;
use super::privilege::Requirement;

/// The place where a request may run, by the time it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A bounded, small number of documents: it runs on the worker of its connection.
    Inline,
    /// It may scan, sort or sync: it runs on a thread of the pool.
    Blocking,
}

/// The rule by which the cost of a request is found.
#[derive(Clone, Copy, Debug)]
pub enum CostRule {
    /// The same for every request.
    Always(Cost),
    /// Found from the shape of the request by this function, which must be cheap.
    ByRequest(fn(&CommandRequest<'_>) -> Cost),
}

/// The access of a command to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads documents or the catalog and never changes them.
    Read,
    /// It may change documents or the catalog.
    Write,
    /// It reads or changes the state of the server, its connections and sessions; no documents.
    Admin,
}

/// The behaviour of a command on a secondary of a replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSecondary {
    /// Refused: only the primary runs it.
    Never,
    /// Run if the client's read preference allows it.
    OptIn,
    /// Always run.
    Always,
}

/// The treatment of `writeConcern` in a command's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcernSupport {
    /// The reply waits until the write concern is met.
    Honoured,
    /// A request that carries one is refused.
    Refused,
    /// A request may carry one; it has no effect because the command writes nothing durable.
    Ignored,
}

/// A level of `readConcern`: how current and how durable the data must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadConcernLevel {
    /// `local`
    Local,
    /// `available`
    Available,
    /// `majority`
    Majority,
    /// `linearizable`
    Linearizable,
    /// `snapshot`
    Snapshot,
}

impl ReadConcernLevel {
    /// The levels that one server without replicas can serve; they are the same there.
    pub const STANDALONE: &'static [Self] = &[Self::Local, Self::Available, Self::Majority];

    /// The name of the level, as `readConcern.level` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Available => "available",
            Self::Majority => "majority",
            Self::Linearizable => "linearizable",
            Self::Snapshot => "snapshot",
        }
    }
}

/// The treatment of `readConcern` in a command's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadConcernSupport {
    /// The command reads at any of these levels.
    Levels(&'static [ReadConcernLevel]),
    /// A request may carry one that a server without replicas can serve; it has no effect.
    Ignored,
}

/// The membership in the Stable API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StableApi {
    /// Part of version 1. No command of version 1 is deprecated.
    Version1,
    /// Part of no version: refused under `apiStrict`.
    Outside,
    /// Served whatever API parameters the client sends or the server requires: the first command on a
    /// connection. `in_version_1` says whether it is also part of version 1.
    Handshake {
        /// Whether the command is part of version 1.
        in_version_1: bool,
    },
}

impl StableApi {
    /// The versions that the command is part of, as `listCommands` prints them.
    #[must_use]
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Version1 | Self::Handshake { in_version_1: true } => &["1"],
            Self::Outside
            | Self::Handshake {
                in_version_1: false,
            } => &[],
        }
    }

    /// Whether the command is the first on a connection.
    #[must_use]
    pub const fn is_handshake(self) -> bool {
        matches!(self, Self::Handshake { .. })
    }
}

/// The counter of `opcounters` that a command adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `insert`: by the number of documents inserted.
    Insert,
    /// `query`: once a command.
    Query,
    /// `update`: by the number of statements.
    Update,
    /// `delete`: by the number of statements.
    Delete,
    /// `getmore`: once a command.
    GetMore,
    /// `command`: once a command.
    Command,
}

impl OperationKind {
    /// All kinds, in the order of `serverStatus`.
    pub const ALL: [Self; 6] = [
        Self::Insert,
        Self::Query,
        Self::Update,
        Self::Delete,
        Self::GetMore,
        Self::Command,
    ];

    /// The name of the counter in `opcounters` of `serverStatus`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Query => "query",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::GetMore => "getmore",
            Self::Command => "command",
        }
    }
}

/// The waits of tailable cursors that a command ends without a commit: commits end them by their observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedWaits {
    /// None.
    Nothing,
    /// Those on the collection that the command names.
    OfCollection,
}

/// The declaration of a command: everything that the server must know of it besides the code that
/// runs it.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// The name, spelled as clients must spell it.
    pub name: &'static str,
    /// Older spellings that clients may use as well.
    pub aliases: &'static [&'static str],
    /// A line of help, as `listCommands` prints it.
    pub help: &'static str,
    /// The access to the data that the command's requests may make.
    pub access: Access,
    /// The privileges that the command requires.
    pub privileges: Requirement,
    /// The rule by which the cost of a request is determined.
    pub cost: CostRule,
    /// Whether it may be run on the database `admin` only.
    pub admin_only: bool,
    /// The behaviour of the command on secondaries.
    pub on_secondary: OnSecondary,
    /// Whether it is allowed within a transaction.
    pub in_transactions: bool,
    /// The membership of the command in the Stable API.
    pub stable_api: StableApi,
    /// The treatment of `writeConcern` in the command's requests.
    pub write_concern: WriteConcernSupport,
    /// The treatment of `readConcern` in the command's requests.
    pub read_concern: ReadConcernSupport,
    /// The counter of `opcounters` that it adds to.
    pub counted_as: OperationKind,
    /// The waits of tailable cursors that it ends.
    pub ends_waits: EndedWaits,
}

impl CommandSpec {
    /// A command that reads documents: Blocking, and allowed on secondaries if the client says so.
    #[must_use]
    pub const fn read(name: &'static str, privileges: Requirement, help: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            help,
            access: Access::Read,
            privileges,
            cost: CostRule::Always(Cost::Blocking),
            admin_only: false,
            on_secondary: OnSecondary::OptIn,
            in_transactions: false,
            stable_api: StableApi::Outside,
            write_concern: WriteConcernSupport::Refused,
            read_concern: ReadConcernSupport::Ignored,
            counted_as: OperationKind::Command,
            ends_waits: EndedWaits::Nothing,
        }
    }

    /// A command that may write documents: Blocking, on the primary only.
    #[must_use]
    pub const fn write(name: &'static str, privileges: Requirement, help: &'static str) -> Self {
        Self {
            access: Access::Write,
            on_secondary: OnSecondary::Never,
            write_concern: WriteConcernSupport::Honoured,
            ..Self::read(name, privileges, help)
        }
    }

    /// A command about the server itself: Inline, on every member of a replica set.
    #[must_use]
    pub const fn admin(name: &'static str, privileges: Requirement, help: &'static str) -> Self {
        Self {
            access: Access::Admin,
            cost: CostRule::Always(Cost::Inline),
            on_secondary: OnSecondary::Always,
            write_concern: WriteConcernSupport::Ignored,
            ..Self::read(name, privileges, help)
        }
    }

    /// The same command, which has these older spellings too.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// The same command, each of whose requests has this cost.
    #[must_use]
    pub const fn cost(self, cost: Cost) -> Self {
        Self {
            cost: CostRule::Always(cost),
            ..self
        }
    }

    /// The same command; the function finds the cost of a request.
    #[must_use]
    pub const fn classified(self, classify: fn(&CommandRequest<'_>) -> Cost) -> Self {
        Self {
            cost: CostRule::ByRequest(classify),
            ..self
        }
    }

    /// The same command, for the database `admin` only.
    #[must_use]
    pub const fn admin_only(self) -> Self {
        Self {
            admin_only: true,
            ..self
        }
    }

    /// The same command with this behaviour on secondaries.
    #[must_use]
    pub const fn on_secondary(self, on_secondary: OnSecondary) -> Self {
        Self {
            on_secondary,
            ..self
        }
    }

    /// The same command, allowed within a transaction.
    #[must_use]
    pub const fn in_transactions(self) -> Self {
        Self {
            in_transactions: true,
            ..self
        }
    }

    /// The same command with this membership in the Stable API.
    #[must_use]
    pub const fn stable_api(self, stable_api: StableApi) -> Self {
        Self { stable_api, ..self }
    }

    /// The same command as part of version 1 of the Stable API.
    #[must_use]
    pub const fn api_version_1(self) -> Self {
        self.stable_api(StableApi::Version1)
    }

    /// The same command, which reads at any level of `readConcern` that one server can serve.
    #[must_use]
    pub const fn reads_at_levels(self) -> Self {
        Self {
            read_concern: ReadConcernSupport::Levels(ReadConcernLevel::STANDALONE),
            ..self
        }
    }

    /// The same command, counted as `kind`.
    #[must_use]
    pub const fn counted_as(self, kind: OperationKind) -> Self {
        Self {
            counted_as: kind,
            ..self
        }
    }

    /// The same command, which ends these waits.
    #[must_use]
    pub const fn ends_waits(self, ends_waits: EndedWaits) -> Self {
        Self { ends_waits, ..self }
    }

    /// All spellings: the name, then the aliases.
    pub fn spellings(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The cost of a request. Cheap: it looks at the shape of the command alone.
    #[must_use]
    pub fn classify(&self, request: &CommandRequest<'_>) -> Cost {
        match self.cost {
            CostRule::Always(cost) => cost,
            CostRule::ByRequest(classify) => classify(request),
        }
    }

    /// Checks that the principal of `request` has the privileges that the command requires.
    ///
    /// # Errors
    /// `Unauthorized` when it lacks any of them.
    pub fn authorize(&self, request: &CommandRequest<'_>) -> Result<()> {
        if self.privileges.is_met(request) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Unauthorized,
            format!(
                "not authorized on {} to execute command {}",
                request.database, request.name
            ),
        ))
    }
}
