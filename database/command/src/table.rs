//! Every command of the document layer.

use std::fmt;
use std::sync::Arc;

use millrace_value::{Operation, Result};

use super::privilege::Action::{
    CollMod, CollStats, CreateIndex, DbStats, DropCollection, DropDatabase, DropIndex, Find,
    ListCollections, ListDatabases, ListIndexes, Remove, Validate,
};
use super::privilege::ResourceKind::{Cluster, Collection, Database as OfDatabase, Namespace};
use super::privilege::{Need, Privilege, Requirement};
use super::spec::{CommandSpec, Cost, EndedWaits, OnSecondary, OperationKind};
use super::{
    CommandRequest, Database, Effects, admin, aggregate, bulk_write, count, cursor_commands,
    delete, distinct, explain, find, find_and_modify, indexes, insert, namespaces, required,
    statistics, update, validate,
};

/// The signature of every command.
type Handler = fn(&Arc<Database>, &CommandRequest<'_>, &Operation, &mut Vec<u8>) -> Result<Effects>;

/// A command of the document layer: its declaration and the code that runs it.
#[derive(Clone, Copy)]
pub struct Command {
    /// The declaration of the command, which dispatch reads before the command runs.
    pub spec: CommandSpec,
    run: Handler,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl Command {
    /// Runs the command and appends its reply, one BSON document, to `reply`. After an error, `reply`
    /// is as it was. The privileges of the principal are not compared here.
    ///
    /// # Errors
    /// The error that is the client's reply.
    pub fn run(
        &self,
        database: &Arc<Database>,
        request: &CommandRequest<'_>,
        operation: &Operation,
        reply: &mut Vec<u8>,
    ) -> Result<Effects> {
        let start = reply.len();
        let result = (self.run)(database, request, operation, reply);
        if result.is_err() {
            reply.truncate(start);
        }
        result
    }
}

/// The command of this name or alias.
pub(super) fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| {
        let spec = &command.spec;
        spec.name == name || spec.aliases.contains(&name)
    })
}

/// The privileges that a request of `explain` needs: those of the command that it explains.
fn of_explain<'a>(request: &CommandRequest<'a>) -> Vec<Privilege<'a>> {
    required::of_explain(request, |name| Some(command(name)?.spec.privileges))
}

const fn command_of(spec: CommandSpec, run: Handler) -> Command {
    Command { spec, run }
}

/// One action on the collection that the command names.
macro_rules! on_collection {
    ($action:ident) => {
        Requirement::All(&[Need::new($action, Collection)])
    };
}

/// One action on the database of the command.
macro_rules! on_database {
    ($action:ident) => {
        Requirement::All(&[Need::new($action, OfDatabase)])
    };
}

/// Every command of the document layer, by name.
pub(super) static COMMANDS: &[Command] = &[
    command_of(
        CommandSpec::write(
            "aggregate",
            required::AGGREGATE,
            "runs a pipeline of stages",
        )
        .on_secondary(OnSecondary::OptIn)
        .in_transactions()
        .api_version_1()
        .reads_at_levels(),
        aggregate::aggregate,
    ),
    command_of(
        CommandSpec::write(
            "bulkWrite",
            required::BULK_WRITE,
            "inserts, updates and deletes in several collections",
        )
        .admin_only()
        .in_transactions()
        .api_version_1(),
        bulk_write::bulk_write,
    ),
    command_of(
        CommandSpec::write(
            "collMod",
            on_collection!(CollMod),
            "changes options of a collection, an index or a view",
        )
        .api_version_1(),
        namespaces::coll_mod,
    ),
    command_of(
        CommandSpec::read(
            "collStats",
            on_collection!(CollStats),
            "sizes of a collection",
        )
        .on_secondary(OnSecondary::Always),
        statistics::coll_stats,
    ),
    command_of(
        CommandSpec::read("count", on_collection!(Find), "counts documents")
            .api_version_1()
            .reads_at_levels(),
        count::count,
    ),
    command_of(
        CommandSpec::write("create", required::CREATE, "creates a collection or a view")
            .in_transactions()
            .api_version_1(),
        namespaces::create,
    ),
    command_of(
        CommandSpec::write(
            "createIndexes",
            on_collection!(CreateIndex),
            "builds indexes",
        )
        .in_transactions()
        .api_version_1(),
        indexes::create_indexes,
    ),
    command_of(
        CommandSpec::read(
            "dataSize",
            Requirement::All(&[Need::new(Find, Namespace)]),
            "size of the documents of a collection",
        )
        .on_secondary(OnSecondary::Always),
        statistics::data_size,
    ),
    command_of(
        CommandSpec::read("dbStats", on_database!(DbStats), "sizes of a database")
            .on_secondary(OnSecondary::Always),
        statistics::db_stats,
    ),
    command_of(
        CommandSpec::write("delete", on_collection!(Remove), "deletes documents")
            .classified(delete::classify)
            .in_transactions()
            .api_version_1()
            .counted_as(OperationKind::Delete),
        delete::delete,
    ),
    command_of(
        CommandSpec::read(
            "distinct",
            on_collection!(Find),
            "distinct values of a field",
        )
        .in_transactions()
        .reads_at_levels(),
        distinct::distinct,
    ),
    command_of(
        CommandSpec::write("drop", on_collection!(DropCollection), "drops a collection")
            .api_version_1(),
        namespaces::drop_collection,
    ),
    command_of(
        CommandSpec::write(
            "dropDatabase",
            on_database!(DropDatabase),
            "drops a database",
        )
        .api_version_1(),
        namespaces::drop_database,
    ),
    command_of(
        CommandSpec::write("dropIndexes", on_collection!(DropIndex), "drops indexes")
            .api_version_1(),
        indexes::drop_indexes,
    ),
    command_of(
        CommandSpec::read(
            "explain",
            required::explain(of_explain),
            "the plan of another command",
        )
        .api_version_1(),
        explain::explain,
    ),
    command_of(
        CommandSpec::read("find", on_collection!(Find), "finds documents")
            .classified(find::classify)
            .in_transactions()
            .api_version_1()
            .reads_at_levels()
            .counted_as(OperationKind::Query),
        find::find,
    ),
    command_of(
        CommandSpec::write(
            "findAndModify",
            required::FIND_AND_MODIFY,
            "changes or deletes one document and returns it",
        )
        .aliases(&["findandmodify"])
        .classified(find_and_modify::classify)
        .in_transactions()
        .api_version_1(),
        find_and_modify::find_and_modify,
    ),
    command_of(
        CommandSpec::read(
            "getMore",
            on_collection!(Find),
            "the next batch of a cursor",
        )
        .on_secondary(OnSecondary::Always)
        .in_transactions()
        .api_version_1()
        .counted_as(OperationKind::GetMore),
        cursor_commands::get_more,
    ),
    command_of(
        CommandSpec::write("insert", required::INSERT, "inserts documents")
            .classified(insert::classify)
            .in_transactions()
            .api_version_1()
            .counted_as(OperationKind::Insert),
        insert::insert,
    ),
    command_of(
        CommandSpec::read("killCursors", required::KILL_CURSORS, "closes cursors")
            .cost(Cost::Inline)
            .on_secondary(OnSecondary::Always)
            .in_transactions()
            .api_version_1()
            .ends_waits(EndedWaits::OfCollection),
        cursor_commands::kill_cursors,
    ),
    command_of(
        CommandSpec::read(
            "listCollections",
            on_database!(ListCollections),
            "the collections and views of a database",
        )
        .api_version_1(),
        namespaces::list_collections,
    ),
    command_of(
        CommandSpec::read(
            "listDatabases",
            Requirement::All(&[Need::new(ListDatabases, Cluster)]),
            "the databases",
        )
        .admin_only()
        .api_version_1(),
        admin::list_databases,
    ),
    command_of(
        CommandSpec::read(
            "listIndexes",
            on_collection!(ListIndexes),
            "the indexes of a collection",
        )
        .api_version_1(),
        indexes::list_indexes,
    ),
    command_of(
        CommandSpec::write(
            "renameCollection",
            required::RENAME_COLLECTION,
            "renames a collection",
        )
        .admin_only(),
        namespaces::rename_collection,
    ),
    command_of(
        CommandSpec::write("update", required::UPDATE, "updates documents")
            .classified(update::classify)
            .in_transactions()
            .api_version_1()
            .counted_as(OperationKind::Update),
        update::update,
    ),
    command_of(
        CommandSpec::read(
            "validate",
            on_collection!(Validate),
            "compares documents, indexes and counters of a collection",
        )
        .on_secondary(OnSecondary::Always),
        validate::validate,
    ),
];
