//! Where the monitor listens.

use std::env;
use std::path::{Path, PathBuf};

use millrace_proxy::client::Client;
use millrace_stream::control::{SOCKET_VARIABLE, socket_path};

use super::{ErrorKind, ToolError};

/// A path, and whether its folder is the monitor's own, to be made and kept by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) own_folder: bool,
}

impl Place {
    /// Connects to the monitor that listens there. At the user's own path that is the user's own one, or root's: whoever
    /// listens gets the program's sockets.
    pub(super) fn connect(&self) -> Result<Client, ToolError> {
        let client =
            Client::connect(&self.path).map_err(|error| ToolError::of_monitor(&error))?;
        let own = rustix::process::geteuid().as_raw();
        let is_trusted = |owner: u32| owner == 0 || owner == own;
        if !self.own_folder || client.owner().is_some_and(is_trusted) {
            return Ok(client);
        }
        let context = format!("the monitor at {} is another user's", self.path.display());
        Err(ToolError::new(ErrorKind::Monitor, context)
            .advise("name another place by --socket, or remove it"))
    }

    /// The path that is asked for, else that of the environment, else the user's.
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
            let context = format!("{} is no path", named.display());
            ToolError::new(ErrorKind::Usage, context).caused_by(error)
        })?;
        Ok(Self {
            path,
            own_folder: false,
        })
    }
}
