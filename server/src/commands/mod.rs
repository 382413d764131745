//! The commands that the server answers by itself: about connections, sessions, parameters, what is
//! running and how it fares. Commands on documents go to the document layer.
//!
//! One file holds one family; [`COMMANDS`] declares them all, and the [`registry`] joins them with those
//! of the document layer.
//!
//! No command knows the server as a whole. A handler takes the [context](CommandContext) of its request and those
//! [parts](ServerParts) of the server that it needs: data that it shows, or a trait with what it may do.

mod administration;
pub mod compatibility;
mod fail_point;
pub mod generic;
mod handshake;
mod information;
mod operations;
mod parameters;
pub mod registry;
mod server_info;
mod server_parts;
mod sessions;
mod status;
mod table;

use std::time::Duration;

use bson::{Bson, Document, RawDocument};
use millrace_command::{CommandSpec, is_generic};
use millrace_value::{Error, ErrorCode, Operation, Result};
use millrace_wire::MsgFlags;

use crate::arguments::unknown_field;
use crate::network::Resumed;
use crate::session::Session;
use generic::GenericArguments;

pub use administration::ProcessControl;
pub use operations::OperationControl;
pub use server_info::ServerInfo;
pub use server_parts::ServerParts;
pub use sessions::SessionControl;
pub use table::COMMANDS;

/// A command that is being answered: the request, and what belongs to its connection.
#[derive(Debug)]
pub struct CommandContext<'a> {
    /// The state of the connection that sent the command.
    pub session: &'a mut Session,
    /// The running operation, which other connections may kill.
    pub operation: &'a Operation,
    /// The name of the command, in its first spelling.
    pub name: &'static str,
    /// The command document, all generic arguments included.
    pub body: &'a RawDocument,
    /// The arguments that every command accepts, parsed.
    pub generic: &'a GenericArguments<'a>,
    /// The flag bits of the request's OP_MSG.
    pub flags: MsgFlags,
    /// The state that the command left when it waited; `None` the first time.
    pub resumed: Option<Resumed>,
    /// The number of replies the request has had; above 0 only for streamed replies.
    pub round: u32,
}

impl CommandContext<'_> {
    /// The command as a document with its own fields only, the command's first.
    ///
    /// # Errors
    /// When it is not BSON.
    pub fn arguments(&self) -> Result<Document> {
        let all = Document::try_from(self.body)?;
        Ok(all
            .into_iter()
            .filter(|(name, _)| !is_generic(name))
            .collect())
    }
}

/// The answer of a command's handler, when the command succeeded.
#[derive(Debug)]
pub enum Answer {
    /// The reply, without `ok`.
    Reply(Document),
    /// The reply, after which another one follows by itself.
    ReplyAndMore(Document),
    /// Ask again at this monotonic time.
    Wait(Duration),
}

/// The code of a command, bound to the parts of the server that it needs.
type Handler = fn(&mut CommandContext<'_>, ServerParts<'_>) -> Result<Answer>;

/// A command of the server: its declaration and the code that answers it.
#[derive(Clone, Copy)]
pub struct Command {
    /// The declaration of the command, which the registry lists.
    pub spec: CommandSpec,
    run: Handler,
    /// The fields it has beside its own name; `None` if it takes any.
    fields: Option<&'static [&'static str]>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl Command {
    const fn new(spec: CommandSpec, run: Handler) -> Self {
        Self {
            spec,
            run,
            fields: None,
        }
    }

    const fn fields(self, fields: &'static [&'static str]) -> Self {
        Self {
            fields: Some(fields),
            ..self
        }
    }

    /// Checks what is common to all commands and runs the handler.
    ///
    /// # Errors
    /// The error of the reply.
    pub fn run(&self, context: &mut CommandContext<'_>, server: ServerParts<'_>) -> Result<Answer> {
        if self.spec.admin_only && context.generic.database != "admin" {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!(
                    "{} may only be run against the admin database.",
                    context.name
                ),
            ));
        }
        if let Some(fields) = self.fields {
            for element in context.body.iter_elements().flatten().skip(1) {
                let name = element.key().as_str();
                if !fields.contains(&name) && !is_generic(name) {
                    return Err(unknown_field(context.name, name));
                }
            }
        }
        (self.run)(context, server)
    }
}

/// A count for a reply: 64 bits, as most counters have.
pub(crate) fn count(number: u64) -> Bson {
    Bson::Int64(i64::try_from(number).unwrap_or(i64::MAX))
}
