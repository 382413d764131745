//! The command `millrace sockets forwarder`.

use std::io::Write;

use millrace_broker::forwarder::{self, Command};

use super::ForwarderOptions;
use super::forwarder_threads::ForwarderThreads;
use super::socket_path::SocketPath;
use crate::ToolError;

pub(super) fn run(options: &ForwarderOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let socket_path = SocketPath::find(options.socket.as_deref())?;
    let socket = socket_path
        .connect()?
        .offer_forwarders(options.forwarders)
        .map_err(|error| ToolError::of_broker(&error))?;
    let (pool, forwarders) = ForwarderThreads::spawn(options.forwarders, &options.cpus)?;
    let shown = socket_path.path.display();
    writeln!(out, "forwarding for the broker at {shown}")
        .and_then(|()| out.flush())
        .map_err(ToolError::output)?;
    let served = forwarder::serve(&socket, &pool);
    for forwarder in pool.forwarders() {
        forwarder.send(Command::Stop);
    }
    forwarders.join();
    served.map_err(|error| ToolError::of_broker(&error))
}
