//! Every command that the server answers by itself.

use millrace_command::{
    Action, CommandSpec, Cost, Need, OnSecondary, Requirement, ResourceKind, StableApi,
};

use super::{
    Command, administration, fail_point, handshake, information, operations, parameters, sessions,
    status,
};

/// The reason for which commands of the handshake require nothing.
const HANDSHAKE: &str = "clients send it before they authenticate";

/// The reason for which commands about the caller's own session require no privilege.
const OWN_SESSION: &str = "it concerns the client's own sessions";

/// One action on the server as a whole.
macro_rules! on_cluster {
    ($action:ident) => {
        Requirement::All(&[Need::new(Action::$action, ResourceKind::Cluster)])
    };
}

/// One action on the server as a whole, which a client needs only for what others have begun. As long
/// as nothing derives that, every request needs it.
macro_rules! for_others {
    ($action:ident) => {
        Requirement::ByRequest {
            at_most: &[Need::new(Action::$action, ResourceKind::Cluster)],
            derive: None,
        }
    };
}

const fn admin(name: &'static str, privileges: Requirement, help: &'static str) -> CommandSpec {
    CommandSpec::admin(name, privileges, help)
}

/// The commands that the server answers itself, without the document layer.
pub static COMMANDS: &[Command] = &[
    Command::new(
        admin(
            "hello",
            Requirement::Nothing(HANDSHAKE),
            "the server's role and limits",
        )
        .stable_api(StableApi::Handshake { in_version_1: true }),
        handshake::hello,
    ),
    Command::new(
        admin(
            "isMaster",
            Requirement::Nothing(HANDSHAKE),
            "the server's role and limits, for old drivers",
        )
        .aliases(&["ismaster"])
        .stable_api(StableApi::Handshake {
            in_version_1: false,
        }),
        handshake::hello,
    ),
    Command::new(
        admin(
            "buildInfo",
            Requirement::Nothing("it describes the program, not the data"),
            "the version",
        )
        .aliases(&["buildinfo"]),
        information::build_info,
    ),
    Command::new(
        admin(
            "connectionStatus",
            Requirement::Nothing("it tells the client who it is"),
            "who is logged in here",
        ),
        information::connection_status,
    )
    .fields(&["showPrivileges"]),
    Command::new(
        admin(
            "features",
            Requirement::Authentication("it describes the program, not the data"),
            "features of this build",
        ),
        information::features,
    ),
    Command::new(
        admin(
            "getCmdLineOpts",
            on_cluster!(GetCmdLineOpts),
            "how the server was started",
        )
        .admin_only(),
        information::command_line,
    ),
    Command::new(
        admin("getLog", on_cluster!(GetLog), "the last lines of the log").admin_only(),
        information::log,
    ),
    Command::new(
        admin("hostInfo", on_cluster!(HostInfo), "the machine"),
        information::host_info,
    )
    .fields(&[]),
    Command::new(
        admin(
            "listCommands",
            Requirement::Nothing("it describes the program, not the data"),
            "all commands",
        ),
        information::list_commands,
    )
    .fields(&[]),
    Command::new(
        admin(
            "logout",
            Requirement::Nothing("it gives up what the client has"),
            "ends a login",
        ),
        information::nothing,
    )
    .fields(&[]),
    Command::new(
        admin(
            "ping",
            Requirement::Nothing(HANDSHAKE),
            "nothing: the server is there",
        )
        .api_version_1(),
        information::nothing,
    ),
    Command::new(
        admin(
            "usersInfo",
            Requirement::All(&[Need::new(Action::ViewUser, ResourceKind::Database)]),
            "the users: none",
        )
        .on_secondary(OnSecondary::OptIn),
        information::users,
    ),
    Command::new(
        admin(
            "whatsmyuri",
            Requirement::Nothing("it tells the client its own address"),
            "the client's address",
        ),
        information::own_address,
    )
    .fields(&[]),
    Command::new(
        admin(
            "replSetGetStatus",
            on_cluster!(ReplSetGetStatus),
            "the replica set",
        )
        .admin_only(),
        information::no_replication,
    ),
    Command::new(
        admin(
            "replSetGetConfig",
            on_cluster!(ReplSetGetConfig),
            "the replica set",
        )
        .admin_only(),
        information::no_replication,
    ),
    Command::new(
        admin(
            "serverStatus",
            on_cluster!(ServerStatus),
            "counters of the server",
        ),
        status::server_status,
    ),
    Command::new(
        admin(
            "getParameter",
            on_cluster!(GetParameter),
            "reads parameters",
        )
        .admin_only(),
        parameters::get,
    ),
    Command::new(
        admin(
            "setParameter",
            on_cluster!(SetParameter),
            "changes a parameter",
        )
        .admin_only(),
        parameters::set,
    ),
    Command::new(
        admin(
            "startSession",
            Requirement::Authentication(OWN_SESSION),
            "begins a logical session",
        ),
        sessions::start,
    )
    .fields(&[]),
    Command::new(
        admin(
            "refreshSessions",
            Requirement::Authentication(OWN_SESSION),
            "keeps logical sessions alive",
        )
        .api_version_1(),
        sessions::refresh,
    )
    .fields(&[]),
    Command::new(
        admin(
            "endSessions",
            Requirement::Authentication(OWN_SESSION),
            "ends logical sessions",
        )
        .api_version_1(),
        sessions::end,
    )
    .fields(&[]),
    Command::new(
        admin(
            "killSessions",
            for_others!(KillAnySession),
            "ends logical sessions",
        ),
        sessions::end,
    )
    .fields(&[]),
    Command::new(
        admin(
            "killAllSessions",
            on_cluster!(KillAnySession),
            "ends all logical sessions",
        ),
        sessions::end_all,
    )
    .fields(&[]),
    Command::new(
        admin(
            "killAllSessionsByPattern",
            on_cluster!(KillAnySession),
            "ends all logical sessions",
        ),
        sessions::end_all,
    )
    .fields(&[]),
    Command::new(transaction("commitTransaction"), sessions::no_transaction),
    Command::new(transaction("abortTransaction"), sessions::no_transaction),
    Command::new(
        admin("currentOp", for_others!(Inprog), "what is running")
            .admin_only()
            .cost(Cost::Blocking),
        operations::current_op,
    ),
    Command::new(
        admin("killOp", for_others!(Killop), "stops an operation").admin_only(),
        operations::kill_op,
    ),
    Command::new(
        admin("fsync", on_cluster!(Fsync), "syncs the log")
            .admin_only()
            .cost(Cost::Blocking),
        administration::fsync,
    ),
    Command::new(
        admin("fsyncUnlock", on_cluster!(Unlock), "ends a lock of fsync").admin_only(),
        administration::fsync_unlock,
    ),
    Command::new(
        admin("shutdown", on_cluster!(Shutdown), "stops the server").admin_only(),
        administration::shutdown,
    ),
    Command::new(
        admin(
            "configureFailPoint",
            Requirement::Nothing("only servers that are started for tests have it"),
            "makes commands fail, for tests",
        )
        .admin_only(),
        fail_point::configure,
    )
    .fields(&["mode", "data"]),
];

/// A command that ends a transaction.
const fn transaction(name: &'static str) -> CommandSpec {
    let privileges = Requirement::Authentication("it concerns the client's own transaction");
    admin(name, privileges, "ends a transaction")
        .admin_only()
        .on_secondary(OnSecondary::Never)
        .in_transactions()
        .api_version_1()
}
