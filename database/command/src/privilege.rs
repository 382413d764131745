//! Privileges that commands require, and the principals that hold them.
//!
//! The names of actions and resources are MongoDB's. A command declares a [`Requirement`]; the server
//! compares it with the [`Principal`] of the request before the command runs.

use std::fmt::Debug;
use std::sync::Arc;

use super::CommandRequest;

macro_rules! actions {
    ($($variant:ident $name:literal,)*) => {
        /// An action that a privilege permits, named as in MongoDB 8.0.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $(#[doc = concat!("The action `", $name, "` of MongoDB.")] $variant,)*
        }

        impl Action {
            /// MongoDB's name of the action, as roles list it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

actions! {
    BypassDocumentValidation "bypassDocumentValidation",
    CollMod "collMod",
    CollStats "collStats",
    ConvertToCapped "convertToCapped",
    CreateCollection "createCollection",
    CreateIndex "createIndex",
    DbStats "dbStats",
    DropCollection "dropCollection",
    DropDatabase "dropDatabase",
    DropIndex "dropIndex",
    Find "find",
    Fsync "fsync",
    GetCmdLineOpts "getCmdLineOpts",
    GetLog "getLog",
    GetParameter "getParameter",
    HostInfo "hostInfo",
    IndexStats "indexStats",
    Inprog "inprog",
    Insert "insert",
    KillAnyCursor "killAnyCursor",
    KillAnySession "killAnySession",
    Killop "killop",
    ListCollections "listCollections",
    ListDatabases "listDatabases",
    ListIndexes "listIndexes",
    ListSessions "listSessions",
    Remove "remove",
    RenameCollectionSameDb "renameCollectionSameDB",
    ReplSetGetConfig "replSetGetConfig",
    ReplSetGetStatus "replSetGetStatus",
    ServerStatus "serverStatus",
    SetParameter "setParameter",
    Shutdown "shutdown",
    Unlock "unlock",
    Update "update",
    Validate "validate",
    ViewUser "viewUser",
}

/// The place in a request from which the resource of a privilege is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// The collection of the request's database that the command's first field names (`getMore`: its
    /// field `collection`). The database, if no collection is named.
    Collection,
    /// The collection that the command's first field names together with its database.
    Namespace,
    /// The database of the request.
    Database,
    /// The server as a whole.
    Cluster,
    /// Every collection of every database.
    Any,
}

impl ResourceKind {
    /// A word for the kind, as the documentation prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Collection | Self::Namespace => "collection",
            Self::Database => "database",
            Self::Cluster => "cluster",
            Self::Any => "any",
        }
    }

    /// The resource of this kind that `request` names.
    #[must_use]
    pub fn of_request<'a>(self, request: &CommandRequest<'a>) -> Resource<'a> {
        let database = request.database;
        let named = || request.body.get_str(request.name).ok();
        match self {
            Self::Collection => {
                let collection = named().or_else(|| request.body.get_str("collection").ok());
                collection.map_or(Resource::Database(database), |collection| {
                    Resource::Collection {
                        database,
                        collection,
                    }
                })
            }
            Self::Namespace => match named().and_then(|name| name.split_once('.')) {
                Some((database, collection)) => Resource::Collection {
                    database,
                    collection,
                },
                None => Resource::Any,
            },
            Self::Database => Resource::Database(database),
            Self::Cluster => Resource::Cluster,
            Self::Any => Resource::Any,
        }
    }
}

/// A resource that an action applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// One collection.
    Collection {
        /// The name of the database.
        database: &'a str,
        /// The name of the collection within the database.
        collection: &'a str,
    },
    /// All collections of the database of this name.
    Database(&'a str),
    /// The server as a whole.
    Cluster,
    /// Every collection of every database.
    Any,
}

/// An action that is permitted on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege<'a> {
    /// The action that is permitted on the resource.
    pub action: Action,
    /// The resource that the action applies to.
    pub resource: Resource<'a>,
}

/// A privilege that a command declares: the resource is read from each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The action that the command performs.
    pub action: Action,
    /// The resource that the action applies to.
    pub on: ResourceKind,
}

impl Need {
    /// The privilege to do `action` on the resource of kind `on`.
    #[must_use]
    pub const fn new(action: Action, on: ResourceKind) -> Self {
        Self { action, on }
    }

    /// The privilege that `request` needs: this action on the resource that the request names.
    #[must_use]
    pub fn of_request<'a>(&self, request: &CommandRequest<'a>) -> Privilege<'a> {
        Privilege {
            action: self.action,
            resource: self.on.of_request(request),
        }
    }
}

/// A function that derives the privileges of one request; they are among those that its command
/// declares.
pub type DerivePrivileges = for<'a> fn(&CommandRequest<'a>) -> Vec<Privilege<'a>>;

/// The privileges that a command requires.
#[derive(Clone, Copy, Debug)]
pub enum Requirement {
    /// None, not even an authenticated client; the text is the reason.
    Nothing(&'static str),
    /// An authenticated client, which needs no privilege; the text is the reason.
    Authentication(&'static str),
    /// All of these privileges, for every request.
    All(&'static [Need]),
    /// Privileges that depend on the request.
    ByRequest {
        /// The privileges that some request needs.
        at_most: &'static [Need],
        /// The function that derives the privileges of one request. Without it every request needs all
        /// of `at_most`.
        derive: Option<DerivePrivileges>,
    },
}

impl Requirement {
    /// Whether only authenticated clients may run the command.
    #[must_use]
    pub const fn needs_authentication(&self) -> bool {
        !matches!(self, Self::Nothing(_))
    }

    /// The privileges that requests may need; none if none needs any.
    #[must_use]
    pub const fn needs(&self) -> &'static [Need] {
        match *self {
            Self::Nothing(_) | Self::Authentication(_) => &[],
            Self::All(needs) | Self::ByRequest { at_most: needs, .. } => needs,
        }
    }

    /// The privileges that `request` needs, all of them; none if the command is open to every
    /// client.
    #[must_use]
    pub fn of_request<'a>(&self, request: &CommandRequest<'a>) -> Vec<Privilege<'a>> {
        if let Self::ByRequest {
            derive: Some(derive),
            ..
        } = self
        {
            return derive(request);
        }
        let needs = self.needs().iter();
        needs.map(|need| need.of_request(request)).collect()
    }

    /// Whether the principal of `request` may run it. A principal without limits is not compared.
    #[must_use]
    pub fn is_met(&self, request: &CommandRequest<'_>) -> bool {
        let principal = request.principal;
        if principal.is_unrestricted() || !self.needs_authentication() {
            return true;
        }
        principal.is_authenticated()
            && self
                .of_request(request)
                .iter()
                .all(|privilege| principal.is_allowed(privilege))
    }
}

/// The privileges that a principal has been granted.
pub trait Grants: Debug + Send + Sync {
    /// Whether the client has proved its identity.
    fn is_authenticated(&self) -> bool;

    /// Whether the grants include `privilege`.
    fn allows(&self, privilege: &Privilege<'_>) -> bool;
}

/// The identity that a client acts as.
///
/// Without authentication every client is [`Principal::EVERYBODY`], which is allowed everything.
#[derive(Clone, Debug, Default)]
pub struct Principal {
    /// The limits; `None` for a principal that has none.
    grants: Option<Arc<dyn Grants>>,
}

impl Principal {
    /// The principal that every client is while there is no authentication: it is allowed everything.
    pub const EVERYBODY: Self = Self { grants: None };

    /// A principal that is allowed what `grants` include.
    #[must_use]
    pub const fn with_grants(grants: Arc<dyn Grants>) -> Self {
        Self {
            grants: Some(grants),
        }
    }

    /// Whether the principal is allowed everything, so that no privilege need be derived.
    #[must_use]
    pub const fn is_unrestricted(&self) -> bool {
        self.grants.is_none()
    }

    /// Whether the client has proved its identity, or need not.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        let grants = self.grants.as_ref();
        grants.is_none_or(|grants| grants.is_authenticated())
    }

    /// Whether the principal has `privilege`; true without authentication.
    #[must_use]
    pub fn is_allowed(&self, privilege: &Privilege<'_>) -> bool {
        let grants = self.grants.as_ref();
        grants.is_none_or(|grants| grants.allows(privilege))
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    fn resource(kind: ResourceKind, name: &str, body: &RawDocumentBuf) -> String {
        let request = CommandRequest {
            database: "d",
            name,
            body,
            sequences: &[],
            session: None,
            principal: &Principal::EVERYBODY,
        };
        match kind.of_request(&request) {
            Resource::Collection {
                database,
                collection,
            } => format!("{database}/{collection}"),
            Resource::Database(database) => format!("{database}/"),
            Resource::Cluster => "cluster".to_owned(),
            Resource::Any => "any".to_owned(),
        }
    }

    #[test]
    fn resources_are_read_from_the_request() {
        use ResourceKind::{Any, Cluster, Collection, Database, Namespace};
        let find = rawdoc! { "find": "c.x" };
        assert_eq!(resource(Collection, "find", &find), "d/c.x");
        assert_eq!(resource(Database, "find", &find), "d/");
        assert_eq!(resource(Cluster, "find", &find), "cluster");
        assert_eq!(resource(Any, "find", &find), "any");
        let get_more = rawdoc! { "getMore": 5_i64, "collection": "c" };
        assert_eq!(resource(Collection, "getMore", &get_more), "d/c");
        let aggregate = rawdoc! { "aggregate": 1 };
        assert_eq!(resource(Collection, "aggregate", &aggregate), "d/");
        let size = rawdoc! { "dataSize": "a.b.c" };
        assert_eq!(resource(Namespace, "dataSize", &size), "a/b.c");
        let nowhere = rawdoc! { "dataSize": "a" };
        assert_eq!(resource(Namespace, "dataSize", &nowhere), "any");
    }
}
