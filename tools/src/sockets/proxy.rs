//! `millrace sockets proxy`.

use std::io::Write;

use millrace_proxy::plane::{self, Command};

use super::place::Place;
use super::planes::Planes;
use super::{ProxyOptions, ToolError};

pub(super) fn run(options: &ProxyOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let place = Place::find(options.socket.as_deref())?;
    let socket = place
        .connect()?
        .offer(options.planes)
        .map_err(|error| ToolError::of_monitor(&error))?;
    let (data_plane, planes) = Planes::spawn(options.planes, &options.cpus)?;
    let shown = place.path.display();
    writeln!(out, "carrying for the monitor at {shown}")
        .and_then(|()| out.flush())
        .map_err(ToolError::output)?;
    let served = plane::serve(&socket, &data_plane);
    for plane in data_plane.planes() {
        plane.tell(Command::Stop);
    }
    planes.join();
    served.map_err(|error| ToolError::of_monitor(&error))
}
