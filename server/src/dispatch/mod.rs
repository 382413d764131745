//! From a message to the command that answers it, and back.
//!
//! ```text
//!   message -> command's name -> fail point -> worker or executor thread
//!           -> generic arguments -> privileges -> operation begins -> server command or document layer
//!           -> reply or error -> metrics -> outcome (now, when durable, when there is data)
//! ```

mod inspect;
mod reply;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bson::RawDocument;
use millrace_command::{CommandRequest, Cost, Effects, OperationKind, WriteConcernSupport};
use millrace_engine::CommitSeq;
use millrace_value::{Environment, Error, ErrorCode, Operation, Result, operation};
use millrace_wire::{MsgFlags, OpCode, OpMsg, OpQuery};

use crate::commands::generic::GenericArguments;
use crate::commands::registry::{Entry, Handler};
use crate::commands::{Answer, Command, CommandContext};
use crate::logical_sessions::SessionId;
use crate::network::{ConnectionId, ConnectionInfo, Outcome, ReplyBuffer, Request, Service};
use crate::operations::Begun;
use crate::session::Session;
use crate::state::ServerState;
use crate::write_concern::WriteConcern;
use inspect::{application_of, command_name, has_open_cursor, namespace_of, sequences, statements};
use reply::{add_write_concern_error, append, injected_error, refuse, write_error};
use waiting::after_wait;

/// Commands that took at least this long are logged.
const SLOW: Duration = Duration::from_millis(100);

/// How often the registry of sessions is told that a session is in use.
const SESSION_TOUCH_INTERVAL: Duration = Duration::from_secs(60);

/// The code of a command that came as OP_QUERY and may not.
const UNSUPPORTED_OP_QUERY: i32 = 352;

/// Where a command is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Worker,
    Executor,
}

/// What a command has come to.
enum Done {
    /// The reply is written.
    Replied {
        written: Option<CommitSeq>,
        concern: WriteConcern,
    },
    /// The same, and another reply follows by itself.
    RepliedWithMore,
    /// It is to be asked again.
    Wait(Outcome),
}

/// The service behind the network: parses requests, runs commands, writes replies.
#[derive(Debug)]
pub struct Dispatcher {
    state: Arc<ServerState>,
}

impl Dispatcher {
    /// A dispatcher to all commands of the server's registry.
    #[must_use]
    pub const fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    fn serve(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
        place: Place,
    ) -> Outcome {
        match request.message.op_code {
            OpCode::Msg => match OpMsg::parse(&request.message) {
                Ok(message) => self.serve_message(session, request, &message, reply, place),
                Err(error) => refuse(reply, &error),
            },
            OpCode::Query => match OpQuery::parse(&request.message) {
                Ok(query) => self.serve_query(session, request, &query, reply),
                Err(error) => refuse(reply, &error),
            },
            OpCode::Reply | OpCode::Compressed => Outcome::Close,
        }
    }

    fn serve_message(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        message: &OpMsg<'_>,
        reply: &mut ReplyBuffer<'_>,
        place: Place,
    ) -> Outcome {
        if message.flags.contains(MsgFlags::CHECKSUM_PRESENT) {
            reply.set_flags(MsgFlags::CHECKSUM_PRESENT);
        }
        let silent = message.flags.contains(MsgFlags::MORE_TO_COME);
        let name = command_name(message.body);
        let Some(entry) = self.state.commands.find(name) else {
            self.state
                .metrics
                .record_unknown(ErrorCode::CommandNotFound.number());
            let error = Error::new(
                ErrorCode::CommandNotFound,
                format!("no such command: '{name}'"),
            );
            write_error(reply, &error, &[]);
            return if silent {
                Outcome::NoReply
            } else {
                Outcome::Done
            };
        };
        let sequences = sequences(message);
        let principal = session.principal().clone();
        let command = CommandRequest {
            database: "",
            name: entry.name,
            body: message.body,
            sequences: &sequences,
            session: None,
            principal: &principal,
        };
        if place == Place::Worker {
            if let Some(outcome) = self.before(session, request, &command, entry, reply) {
                return outcome;
            }
        }
        let result = self.run(session, request, message, entry, command, reply);
        self.after(session, request, entry, silent, result, reply)
    }

    /// What happens on the worker before a command runs: the fail point, and the choice of the place.
    fn before(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        command: &CommandRequest<'_>,
        entry: &Entry,
        reply: &mut ReplyBuffer<'_>,
    ) -> Option<Outcome> {
        if let Some((namespace, ticket)) = session.waiting.take() {
            self.state.waiters.forget(&namespace, ticket);
        }
        let namespace = || namespace_of(command.body, entry.name);
        if let Some(outcome) = self.fail(session, request, command.body, entry, namespace, reply) {
            return Some(outcome);
        }
        let blocks = entry.spec.classify(command) == Cost::Blocking;
        blocks.then_some(Outcome::Offload)
    }

    /// What the fail point does in place of the command, or before it.
    fn fail(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        body: &RawDocument,
        entry: &Entry,
        namespace: impl FnOnce() -> String,
        reply: &mut ReplyBuffer<'_>,
    ) -> Option<Outcome> {
        if request.resumed.is_none() && session.fail.is_none() {
            // The first hello itself says which application it comes from.
            let application = session.application().or_else(|| application_of(body));
            let mut action = self
                .state
                .fail_points
                .apply(entry.name, application, namespace);
            let block = action.as_mut().and_then(|action| action.block.take());
            session.fail = action;
            if let Some(block) = block {
                session.held_back = true;
                return Some(Outcome::Wait {
                    until: self.state.environment.monotonic() + block,
                    ticket: None,
                });
            }
        }
        let action = session.fail.as_ref()?;
        if action.close {
            return Some(Outcome::Close);
        }
        let error = injected_error(action)?;
        let labels = session.fail.take().map(|action| action.error_labels);
        let code = error.code().number();
        let now = self.state.environment.monotonic();
        let latency = now.saturating_sub(request.began);
        self.state
            .metrics
            .record(&entry.metrics, latency, Some(code));
        write_error(reply, &error, &labels.unwrap_or_default());
        Some(Outcome::Done)
    }

    /// Runs a command and writes its reply; an error is still to be written.
    fn run(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        message: &OpMsg<'_>,
        entry: &Entry,
        command: CommandRequest<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Result<Done> {
        let generic = GenericArguments::parse(message.body)?;
        let api_required = self.state.parameters.flag("requireApiVersion");
        generic.check(entry.name, entry.spec.stable_api, api_required)?;
        let command = CommandRequest {
            database: generic.database,
            session: generic.session,
            ..command
        };
        entry.spec.authorize(&command)?;
        // A request that waited goes on as the operation that it was.
        let waited = session.operation.take();
        let resumed = waited.is_some();
        let begun = match waited {
            Some(begun) => begun,
            None => self.begin(session, request, entry, &generic, message.body)?,
        };
        let environment: Arc<dyn Environment> = self.state.environment.clone();
        let operation = Operation::new(
            environment,
            Arc::clone(begun.interrupt()),
            operation::Limits::default(),
        );
        match entry.handler {
            Handler::Server(command) => {
                let mut context = CommandContext {
                    session,
                    operation: &operation,
                    name: entry.name,
                    body: message.body,
                    generic: &generic,
                    flags: message.flags,
                    resumed: request.resumed,
                    round: request.round,
                };
                let answer = command.run(&mut context, self.state.parts())?;
                Ok(finish_answer(answer, reply))
            }
            Handler::Documents(handler) => {
                let command = (handler, &command);
                let result = self.run_documents(
                    session, request, message, command, &generic, &operation, reply,
                );
                if let Ok(Done::Wait(_)) = result {
                    session.operation = Some(begun);
                }
                result.map_err(|error| if resumed { after_wait(error) } else { error })
            }
        }
    }

    /// Begins the operation of a request that is served for the first time.
    fn begin(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        entry: &Entry,
        generic: &GenericArguments<'_>,
        body: &RawDocument,
    ) -> Result<Begun> {
        self.touch_session(session, generic)?;
        let operations = &self.state.operations;
        let kind = entry.spec.counted_as;
        let begun = operations.begin(
            session.slot(),
            (entry.name, kind),
            generic.database,
            body.as_bytes(),
            request.began,
        )?;
        // That of a getMore says how long it may wait for data.
        let limit = generic
            .max_time_ms
            .filter(|_| kind != OperationKind::GetMore);
        let limit = self
            .state
            .fail_points
            .time_limit(limit.map(Duration::from_millis))?;
        if let Some(limit) = limit {
            let deadline = request.began.saturating_add(limit);
            begun.interrupt().set_deadline(Some(deadline));
        }
        Ok(begun)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, used together once"
    )]
    fn run_documents(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        message: &OpMsg<'_>,
        (handler, command): (&millrace_command::Command, &CommandRequest<'_>),
        generic: &GenericArguments<'_>,
        operation: &Operation,
        reply: &mut ReplyBuffer<'_>,
    ) -> Result<Done> {
        let spec = &handler.spec;
        if generic.has_write_concern && spec.write_concern == WriteConcernSupport::Refused {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "Command does not support writeConcern",
            ));
        }
        let endings = self.state.waiters.endings();
        let database = &self.state.documents;
        let result = handler.run(database, command, operation, reply.document());
        self.end_waits(command, spec.ends_waits);
        let effects = result?;
        if let Some(outcome) = self.await_data(session, request, generic, &effects, endings) {
            return Ok(Done::Wait(outcome));
        }
        self.count(message, spec.counted_as, &effects);
        if let Some(error) = session
            .fail
            .take()
            .and_then(|fail| fail.write_concern_error)
        {
            add_write_concern_error(reply, error)?;
        }
        let streams = message.flags.contains(MsgFlags::EXHAUST_ALLOWED)
            && spec.counted_as == OperationKind::GetMore
            && has_open_cursor(reply.written());
        if streams {
            return Ok(Done::RepliedWithMore);
        }
        Ok(Done::Replied {
            written: effects.written,
            concern: generic.write_concern,
        })
    }

    fn touch_session(&self, session: &mut Session, generic: &GenericArguments<'_>) -> Result<()> {
        let Some(id) = generic.session.and_then(SessionId::from_bytes) else {
            return Ok(());
        };
        let now = self.state.environment.monotonic();
        let fresh = session.last_session.is_some_and(|(last, told)| {
            last == id && now.saturating_sub(told) < SESSION_TOUCH_INTERVAL
        });
        if !fresh {
            self.state.sessions.touch(id, now)?;
            session.last_session = Some((id, now));
        }
        Ok(())
    }

    fn count(&self, message: &OpMsg<'_>, kind: OperationKind, effects: &Effects) {
        let metrics = &self.state.metrics;
        metrics.count_documents(effects.counts);
        let operations = match kind {
            OperationKind::Insert => effects.counts.inserted,
            OperationKind::Update => statements(message, "updates"),
            OperationKind::Delete => statements(message, "deletes"),
            _ => 1,
        };
        metrics.count_operations(kind, operations);
    }

    /// Writes the error if there is one, counts, and says what is to become of the reply.
    fn after(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        entry: &Entry,
        silent: bool,
        result: Result<Done>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        let now = self.state.environment.monotonic();
        let mut code = None;
        let outcome = match result {
            Ok(Done::Wait(outcome)) => return outcome,
            Ok(Done::RepliedWithMore) => {
                reply.set_flags(MsgFlags::MORE_TO_COME);
                Outcome::Done
            }
            Ok(Done::Replied { written, concern }) => {
                self.acknowledge(session, written, concern, now)
            }
            Err(error) => {
                code = Some(error.code().number());
                let labels = session
                    .fail
                    .take()
                    .map(|fail| fail.error_labels)
                    .unwrap_or_default();
                write_error(reply, &error, &labels);
                Outcome::Done
            }
        };
        session.fail = None;
        let latency = now.saturating_sub(request.began);
        self.state.metrics.record(&entry.metrics, latency, code);
        if let Handler::Server(_) = entry.handler {
            self.state
                .metrics
                .count_operations(entry.spec.counted_as, 1);
        }
        if latency >= SLOW && request.resumed.is_none() && !self.state.settings.quiet {
            tracing::info!(
                target: "COMMAND",
                id = 51_803_u32,
                command = entry.name,
                connectionId = session.id().0,
                durationMillis = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
                errCode = code.unwrap_or(0),
                "Slow query"
            );
        }
        if entry.spec.stable_api.is_handshake() {
            reply.do_not_compress();
        }
        if silent { Outcome::NoReply } else { outcome }
    }

    /// Says what the finished reply of a write waits for; `now` is monotonic.
    fn acknowledge(
        &self,
        session: &mut Session,
        written: Option<CommitSeq>,
        concern: WriteConcern,
        now: Duration,
    ) -> Outcome {
        let syncs_every_write = self.state.journal.syncs_every_write();
        let wanted = written
            .and_then(|commit_seq| concern.acknowledgement(commit_seq, syncs_every_write, now));
        session.write_concern = concern;
        wanted.map_or(Outcome::Done, Outcome::Acknowledge)
    }

    /// OP_QUERY: the first message of old drivers, `hello` or `isMaster` on a `$cmd` collection.
    fn serve_query(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        query: &OpQuery<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        let wrapped = query.query.get_document("$query").ok();
        let body = wrapped.unwrap_or(query.query);
        let name = command_name(body);
        let entry = self
            .state
            .commands
            .find(name)
            .filter(|entry| entry.spec.stable_api.is_handshake())
            .filter(|_| query.command_database().is_some());
        let Some(
            entry @ Entry {
                handler: Handler::Server(command),
                ..
            },
        ) = entry
        else {
            let error = Error::location(
                UNSUPPORTED_OP_QUERY,
                format!(
                    "Unsupported OP_QUERY command: {name}. The client driver may require an upgrade. \
                     For more details see https://dochub.mongodb.org/core/legacy-opcode-removal"
                ),
            );
            write_error(reply, &error, &[]);
            return Outcome::Done;
        };
        if let Some(outcome) = self.fail(session, request, body, entry, String::new, reply) {
            return outcome;
        }
        let result = self.run_query(session, request, body, entry, command, reply);
        self.after(session, request, entry, false, result, reply)
    }

    fn run_query(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        body: &RawDocument,
        entry: &Entry,
        command: &Command,
        reply: &mut ReplyBuffer<'_>,
    ) -> Result<Done> {
        let generic = GenericArguments::of_database("admin");
        let (name, kind) = (entry.name, entry.spec.counted_as);
        let begun = self.state.operations.begin(
            session.slot(),
            (name, kind),
            "admin",
            body.as_bytes(),
            request.began,
        )?;
        let environment: Arc<dyn Environment> = self.state.environment.clone();
        let interrupt = Arc::clone(begun.interrupt());
        let operation = Operation::new(environment, interrupt, operation::Limits::default());
        let mut context = CommandContext {
            session,
            operation: &operation,
            name,
            body,
            generic: &generic,
            flags: MsgFlags::NONE,
            resumed: request.resumed,
            round: request.round,
        };
        let answer = command.run(&mut context, self.state.parts())?;
        Ok(finish_answer(answer, reply))
    }
}

impl Service for Dispatcher {
    type Session = Session;

    fn open(&self, connection: &ConnectionInfo) -> Session {
        let slot = self.state.operations.open(connection.id, &connection.peer);
        if !self.state.settings.quiet {
            tracing::info!(
                target: "NETWORK",
                id = 22_943_u32,
                remote = connection.peer,
                connectionId = connection.id.0,
                connectionCount = self.state.counters.open.load(Ordering::Relaxed),
                "Connection accepted"
            );
        }
        Session::new(slot, SessionId::random(&*self.state.environment))
    }

    fn call(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        if std::mem::take(&mut session.held_back) {
            let request = Request {
                resumed: None,
                ..*request
            };
            return self.serve(session, &request, reply, Place::Worker);
        }
        self.serve(session, request, reply, Place::Worker)
    }

    fn call_blocking(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        self.serve(session, request, reply, Place::Executor)
    }

    fn durability_failed(&self, reply: &mut ReplyBuffer<'_>) {
        let error = Error::new(
            ErrorCode::InternalError,
            "the write could not be made durable: the storage engine has failed",
        );
        write_error(reply, &error, &[]);
    }

    fn acknowledgement_timed_out(&self, session: &mut Session, reply: &mut ReplyBuffer<'_>) {
        let error = session.write_concern.timeout_error();
        if let Err(error) = add_write_concern_error(reply, error) {
            write_error(reply, &error, &[]);
        }
    }

    fn panicked(&self, reply: &mut ReplyBuffer<'_>) {
        tracing::error!(target: "COMMAND", id = 23_305_u32, "Serving a request panicked");
        let error = Error::new(
            ErrorCode::InternalError,
            "the server failed to serve the request",
        );
        write_error(reply, &error, &[]);
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.state.operations.disconnected(connection);
    }

    fn interrupt_all(&self) {
        self.state.operations.stop();
        self.state.waiters.ended(|_| true);
    }

    fn close(&self, session: Session) {
        if let Some((namespace, ticket)) = &session.waiting {
            self.state.waiters.forget(namespace, *ticket);
        }
        self.state.operations.close(session.id());
        if !self.state.settings.quiet {
            tracing::info!(
                target: "NETWORK",
                id = 22_944_u32,
                remote = session.slot().peer(),
                connectionId = session.id().0,
                connectionCount = self.state.counters.open.load(Ordering::Relaxed),
                "Connection ended"
            );
        }
    }
}

/// Writes what a command of the server answers.
fn finish_answer(answer: Answer, reply: &mut ReplyBuffer<'_>) -> Done {
    let (mut document, done) = match answer {
        Answer::Wait(until) => {
            return Done::Wait(Outcome::Wait {
                until,
                ticket: None,
            });
        }
        Answer::Reply(document) => (
            document,
            Done::Replied {
                written: None,
                concern: WriteConcern::default(),
            },
        ),
        Answer::ReplyAndMore(document) => (document, Done::RepliedWithMore),
    };
    document.insert("ok", 1.0);
    append(reply, &document);
    done
}
