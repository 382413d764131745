//! The path of the broker's socket.

use std::env;
use std::path::{Path, PathBuf};

use millrace_broker::client::Client;
use millrace_stream::control::{SOCKET_VARIABLE, socket_path};

use crate::{ErrorKind, ToolError};

/// The path of a broker's socket, and whether the broker creates its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SocketPath {
    pub(super) path: PathBuf,
    pub(super) own_folder: bool,
}

impl SocketPath {
    /// Connects to the broker at the path. At the default path the broker must be this user's or root's, as it receives
    /// the program's sockets.
    pub(super) fn connect(&self) -> Result<Client, ToolError> {
        let client = Client::connect(&self.path).map_err(|error| ToolError::of_broker(&error))?;
        let own = rustix::process::geteuid().as_raw();
        let is_trusted = |owner: u32| owner == 0 || owner == own;
        if !self.own_folder || client.owner().is_some_and(is_trusted) {
            return Ok(client);
        }
        let context = format!(
            "the broker at {} belongs to another user, neither root nor this one",
            self.path.display()
        );
        Err(ToolError::new(ErrorKind::Broker, context)
            .advise("name another path by --socket, or remove the socket"))
    }

    /// The path from the options, else from the environment, else the user's default.
    pub(super) fn find(asked: Option<&Path>) -> Result<Self, ToolError> {
        let named = asked.map(Path::to_owned).or_else(|| {
            let named = env::var_os(SOCKET_VARIABLE).filter(|named| !named.is_empty());
            named.map(PathBuf::from)
        });
        let Some(named) = named else {
            let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
            let user = rustix::process::geteuid().as_raw();
            let path = socket_path(user, runtime.as_deref());
            return Ok(Self {
                path,
                own_folder: true,
            });
        };
        let path = std::path::absolute(&named).map_err(|error| {
            let context = format!("{} is not a valid path", named.display());
            ToolError::new(ErrorKind::Usage, context).caused_by(error)
        })?;
        Ok(Self {
            path,
            own_folder: false,
        })
    }
}
