//! The options of a server that is reached by user-level sockets.

use std::path::PathBuf;

use millrace_stream::control::{SOCKET_VARIABLE, socket_path};

use super::{ServeOptions, SettingsError};

/// The path of the broker's socket; `None` unless user-level sockets are enabled.
///
/// # Errors
/// None: a build without user-level sockets has another function of this name, which refuses their options.
pub(super) fn broker_path(options: &ServeOptions) -> Result<Option<PathBuf>, SettingsError> {
    let Some(named) = options.sockets.clone() else {
        return Ok(None);
    };
    let variable = |name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let of_user = || {
        let user = rustix::process::geteuid().as_raw();
        socket_path(user, variable("XDG_RUNTIME_DIR").as_deref())
    };
    let path = named
        .or_else(|| options.sockets_broker.clone())
        .or_else(|| variable(SOCKET_VARIABLE))
        .unwrap_or_else(of_user);
    Ok(Some(path))
}
