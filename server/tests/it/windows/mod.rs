//! Clients that come through windows: a broker, and a stream that waits.

mod broker;

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use millrace_stream::sockets::{Channel, Interest, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use broker::Broker;

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream whose calls wait.
#[derive(Debug)]
pub(crate) struct Through {
    pub(crate) stream: Stream,
    /// The client is alive as long as it has this.
    _channel: Channel,
}

impl Through {
    /// Connects by the broker that listens at `path`.
    pub(crate) fn connect(path: &Path, address: SocketAddr) -> Self {
        let mut channel = Channel::open(path).expect("the broker is there");
        let stream = channel
            .connect(address)
            .expect("the broker answers")
            .expect("the server has announced its socket");
        Self {
            stream,
            _channel: channel,
        }
    }

    fn wait(&mut self, interest: Interest) -> io::Result<()> {
        if self.stream.arm(interest) {
            return Ok(());
        }
        let patience = Timespec::try_from(PATIENCE).expect("it is short");
        let mut watched = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN)];
        if poll(&mut watched, Some(&patience))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.drain_wakeups();
        Ok(())
    }
}

impl Read for Through {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.receive(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(Interest {
                    readable: true,
                    writable: false,
                })?,
                other => return other,
            }
        }
    }
}

impl Write for Through {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.send(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(Interest {
                    readable: false,
                    writable: true,
                })?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
