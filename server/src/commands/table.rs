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
        |context, server| handshake::hello(context, server.info.process_id),
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
        |context, server| handshake::hello(context, server.info.process_id),
    ),
    Command::new(
        admin(
            "buildInfo",
            Requirement::Nothing("it describes the program, not the data"),
            "the version",
        )
        .aliases(&["buildinfo"]),
        |_, _| information::build_info(),
    ),
    Command::new(
        admin(
            "connectionStatus",
            Requirement::Nothing("it tells the client who it is"),
            "who is logged in here",
        ),
        |context, _| information::connection_status(context),
    )
    .fields(&["showPrivileges"]),
    Command::new(
        admin(
            "features",
            Requirement::Authentication("it describes the program, not the data"),
            "features of this build",
        ),
        |_, server| information::features(server.info),
    ),
    Command::new(
        admin(
            "getCmdLineOpts",
            on_cluster!(GetCmdLineOpts),
            "how the server was started",
        )
        .admin_only(),
        |_, server| information::command_line(server.info),
    ),
    Command::new(
        admin("getLog", on_cluster!(GetLog), "the last lines of the log").admin_only(),
        |context, server| information::log(context, server.recent_lines),
    ),
    Command::new(
        admin("hostInfo", on_cluster!(HostInfo), "the machine"),
        |context, server| information::host_info(context, server.info),
    )
    .fields(&[]),
    Command::new(
        admin(
            "listCommands",
            Requirement::Nothing("it describes the program, not the data"),
            "all commands",
        ),
        |_, server| information::list_commands(server.registry),
    )
    .fields(&[]),
    Command::new(
        admin(
            "logout",
            Requirement::Nothing("it gives up what the client has"),
            "ends a login",
        ),
        |_, _| information::nothing(),
    )
    .fields(&[]),
    Command::new(
        admin(
            "ping",
            Requirement::Nothing(HANDSHAKE),
            "nothing: the server is there",
        )
        .api_version_1(),
        |_, _| information::nothing(),
    ),
    Command::new(
        admin(
            "usersInfo",
            Requirement::All(&[Need::new(Action::ViewUser, ResourceKind::Database)]),
            "the users: none",
        )
        .on_secondary(OnSecondary::OptIn),
        |_, _| information::users(),
    ),
    Command::new(
        admin(
            "whatsmyuri",
            Requirement::Nothing("it tells the client its own address"),
            "the client's address",
        ),
        |context, _| information::own_address(context),
    )
    .fields(&[]),
    Command::new(
        admin(
            "replSetGetStatus",
            on_cluster!(ReplSetGetStatus),
            "the replica set",
        )
        .admin_only(),
        |_, _| information::no_replication(),
    ),
    Command::new(
        admin(
            "replSetGetConfig",
            on_cluster!(ReplSetGetConfig),
            "the replica set",
        )
        .admin_only(),
        |_, _| information::no_replication(),
    ),
    Command::new(
        admin(
            "serverStatus",
            on_cluster!(ServerStatus),
            "counters of the server",
        ),
        |context, server| status::server_status(context, server.info, server.statistics),
    ),
    Command::new(
        admin(
            "getParameter",
            on_cluster!(GetParameter),
            "reads parameters",
        )
        .admin_only(),
        |context, server| parameters::get(context, server.parameters),
    ),
    Command::new(
        admin(
            "setParameter",
            on_cluster!(SetParameter),
            "changes a parameter",
        )
        .admin_only(),
        |context, server| parameters::set(context, server.parameters),
    ),
    Command::new(
        admin(
            "startSession",
            Requirement::Authentication(OWN_SESSION),
            "begins a logical session",
        ),
        |context, server| sessions::start(context, server.sessions),
    )
    .fields(&[]),
    Command::new(
        admin(
            "refreshSessions",
            Requirement::Authentication(OWN_SESSION),
            "keeps logical sessions alive",
        )
        .api_version_1(),
        |context, server| sessions::refresh(context, server.sessions),
    )
    .fields(&[]),
    Command::new(
        admin(
            "endSessions",
            Requirement::Authentication(OWN_SESSION),
            "ends logical sessions",
        )
        .api_version_1(),
        |context, server| sessions::end(context, server.sessions),
    )
    .fields(&[]),
    Command::new(
        admin(
            "killSessions",
            for_others!(KillAnySession),
            "ends logical sessions",
        ),
        |context, server| sessions::end(context, server.sessions),
    )
    .fields(&[]),
    Command::new(
        admin(
            "killAllSessions",
            on_cluster!(KillAnySession),
            "ends all logical sessions",
        ),
        |context, server| sessions::end_all(context, server.sessions),
    )
    .fields(&[]),
    Command::new(
        admin(
            "killAllSessionsByPattern",
            on_cluster!(KillAnySession),
            "ends all logical sessions",
        ),
        |context, server| sessions::end_all(context, server.sessions),
    )
    .fields(&[]),
    Command::new(transaction("commitTransaction"), |context, _| {
        sessions::no_transaction(context)
    }),
    Command::new(transaction("abortTransaction"), |context, _| {
        sessions::no_transaction(context)
    }),
    Command::new(
        admin("currentOp", for_others!(Inprog), "what is running")
            .admin_only()
            .cost(Cost::Blocking),
        |context, server| operations::current_op(context, server.documents),
    ),
    Command::new(
        admin("killOp", for_others!(Killop), "stops an operation").admin_only(),
        |context, server| operations::kill_op(context, server.operations),
    ),
    Command::new(
        admin("fsync", on_cluster!(Fsync), "syncs the log")
            .admin_only()
            .cost(Cost::Blocking),
        |context, server| administration::fsync(context, server.process),
    ),
    Command::new(
        admin("fsyncUnlock", on_cluster!(Unlock), "ends a lock of fsync").admin_only(),
        |_, _| administration::fsync_unlock(),
    ),
    Command::new(
        admin("shutdown", on_cluster!(Shutdown), "stops the server").admin_only(),
        |_, server| administration::shutdown(server.process),
    ),
    Command::new(
        admin(
            "configureFailPoint",
            Requirement::Nothing("only servers that are started for tests have it"),
            "makes commands fail, for tests",
        )
        .admin_only(),
        |context, server| fail_point::configure(context, server.fail_points),
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
