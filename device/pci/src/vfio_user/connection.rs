//! One socket, and one command at a time.

use std::io::{ErrorKind as IoErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

use super::message::{Command, HEADER, Header, Payload};
use crate::argument::Argument;
use crate::{Error, ErrorKind, Result, refused};

/// How long a server may take to answer, and from there on until what the answer carries has come whole.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Descriptors that one message may carry, here.
pub(super) const DESCRIPTORS_MAX: usize = 16;
/// Most bytes of one register or memory access, unless the server reports a lower limit.
const TRANSFER_MAX: usize = 1 << 20;
/// Bytes of the longest answer that moves nothing.
const ANSWER_MAX: usize = 64 << 10;
/// The numbers that Linux has for errors.
const ERRNOS: Range<i32> = 1..4096;
/// The version that is spoken.
const MAJOR: u16 = 0;
const MINOR: u16 = 1;

/// Payload and descriptors of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) payload: Argument,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// What the server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    descriptors: usize,
    transfer: usize,
}

/// A socket to a server, shared by all that belongs to a function.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Mutex<Socket>,
    limits: Limits,
}

impl Connection {
    /// Connects to the server that listens at `path` and greets it.
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let kind = match error.kind() {
                IoErrorKind::PermissionDenied => ErrorKind::Permission,
                _ => ErrorKind::NotFound,
            };
            let context = match kind {
                ErrorKind::Permission => format!("the socket {}", path.display()),
                _ => format!("no server listens at {}", path.display()),
            };
            Error::new(kind, context).caused_by(error)
        })?;
        Self::over(stream)
    }

    /// Greets the server at the other end.
    pub(super) fn over(stream: UnixStream) -> Result<Self> {
        Self::over_within(stream, ANSWER_TIMEOUT)
    }

    /// A connection with another timeout.
    pub(super) fn over_within(stream: UnixStream, timeout: Duration) -> Result<Self> {
        let timeout = Some(timeout);
        stream
            .set_read_timeout(timeout)
            .and_then(|()| stream.set_write_timeout(timeout))
            .map_err(|error| {
                Error::new(ErrorKind::Refused, "limiting the time for answers").caused_by(error)
            })?;
        let mut connection = Self {
            socket: Mutex::new(Socket {
                stream,
                next_id: 0,
                lost: false,
            }),
            limits: Limits {
                descriptors: 1,
                transfer: TRANSFER_MAX,
            },
        };
        connection.limits = connection.greet()?;
        Ok(connection)
    }

    fn greet(&self) -> Result<Limits> {
        let capabilities = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{DESCRIPTORS_MAX},\
             \"max_data_xfer_size\":{TRANSFER_MAX}}}}}\0"
        );
        let greeting = Payload::default()
            .half(MAJOR)
            .half(MINOR)
            .raw(capabilities.as_bytes());
        let answer = self.ask(Command::Version, &greeting, &[], "greeting the server")?;
        let bytes = answer.payload.bytes();
        let Some((version, capabilities)) = bytes.split_at_checked(4) else {
            return Err(Error::new(
                ErrorKind::Protocol,
                "a greeting without version",
            ));
        };
        let half = |at: usize| u16::from_ne_bytes([version[at], version[at + 1]]);
        if half(0) != MAJOR || half(2) > MINOR {
            let context = format!("the server speaks vfio-user {}.{}", half(0), half(2));
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        limits(capabilities)
    }

    /// How many descriptors one message may carry.
    pub(super) const fn descriptors_max(&self) -> usize {
        self.limits.descriptors
    }

    /// Sends a command; returns what the server answers.
    pub(super) fn ask(
        &self,
        command: Command,
        payload: &Payload,
        descriptors: &[BorrowedFd<'_>],
        attempted: &str,
    ) -> Result<Answer> {
        // A panic in the midst leaves it marked as lost.
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.ask(command, &payload.bytes, descriptors, attempted)
    }

    /// Reads registers or configuration space.
    pub(super) fn read(&self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut offset = offset;
        for bytes in bytes.chunks_mut(self.limits.transfer) {
            let count = count(bytes)?;
            let place = Payload::default().long(offset).word(region).word(count);
            let answer = self.ask(Command::RegionRead, &place, &[], "reading registers")?;
            let read = answer.payload.bytes();
            match read.split_at_checked(place.bytes.len()) {
                Some((_, data)) if data.len() == bytes.len() => bytes.copy_from_slice(data),
                _ => {
                    let context = format!("{} bytes where {count} were asked for", read.len());
                    return Err(Error::new(ErrorKind::Protocol, context));
                }
            }
            offset += u64::from(count);
        }
        Ok(())
    }

    /// Writes registers or configuration space.
    pub(super) fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut offset = offset;
        for bytes in bytes.chunks(self.limits.transfer) {
            let count = count(bytes)?;
            let place = Payload::default().long(offset).word(region).word(count);
            let payload = place.raw(bytes);
            let answer = self.ask(Command::RegionWrite, &payload, &[], "writing registers")?;
            if answer.payload.word(12) != Some(count) {
                let context = format!("not all of {count} bytes were written");
                return Err(Error::new(ErrorKind::Protocol, context));
            }
            offset += u64::from(count);
        }
        Ok(())
    }
}

fn count(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len())
        .map_err(|error| Error::new(ErrorKind::OutOfRange, "a transfer").caused_by(error))
}

/// Decodes a server's limits; missing ones have the protocol's defaults.
fn limits(capabilities: &[u8]) -> Result<Limits> {
    let mut limits = Limits {
        descriptors: 1,
        transfer: TRANSFER_MAX,
    };
    let text = capabilities.split(|byte| *byte == 0).next();
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(limits);
    };
    let read: serde_json::Value = serde_json::from_slice(text).map_err(|error| {
        Error::new(ErrorKind::Protocol, "capabilities are not JSON").caused_by(error)
    })?;
    let number = |name: &str| {
        let number = read.get("capabilities")?.get(name)?.as_u64()?;
        usize::try_from(number).ok().filter(|number| *number > 0)
    };
    if let Some(descriptors) = number("max_msg_fds") {
        limits.descriptors = descriptors.min(DESCRIPTORS_MAX);
    }
    if let Some(transfer) = number("max_data_xfer_size") {
        limits.transfer = transfer.min(TRANSFER_MAX);
    }
    Ok(limits)
}

/// The socket itself.
#[derive(Debug)]
struct Socket {
    stream: UnixStream,
    next_id: u16,
    /// Where the next answer begins is not known any more.
    lost: bool,
}

impl Socket {
    fn ask(
        &mut self,
        command: Command,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
        attempted: &str,
    ) -> Result<Answer> {
        if self.lost {
            let context = format!("{attempted}: the connection has ended");
            return Err(Error::new(ErrorKind::Gone, context));
        }
        let header = Header::command(self.next_id, command, payload.len())?;
        self.next_id = self.next_id.wrapping_add(1);
        self.lost = true;
        let asked = self.ask_once(&header, payload, descriptors, attempted);
        if self.lost {
            // The server must stop using memory that can no longer be unmapped. A socket that is closed already has the
            // same effect.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        asked
    }

    fn ask_once(
        &mut self,
        header: &Header,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
        attempted: &str,
    ) -> Result<Answer> {
        self.send(header, payload, descriptors)
            .map_err(|errno| gone(errno, attempted))?;
        let answered = self.receive(header, payload.len());
        let (head, answer) = answered.map_err(|error| {
            let context = format!("{attempted}: the connection ends");
            Error::new(error.kind(), context).caused_by(error)
        })?;
        self.lost = false;
        match head.refusal() {
            None => Ok(answer),
            Some(number) => Err(refusal(number, attempted)),
        }
    }

    fn send(
        &mut self,
        header: &Header,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        let head = header.to_bytes();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        let carried =
            descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        if !carried {
            return Err(Errno::INVAL);
        }
        let parts = [IoSlice::new(&head), IoSlice::new(payload)];
        let sent =
            retry_on_intr(|| sendmsg(&self.stream, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
        // The descriptors have left with the first byte; what the socket had no room for comes after.
        let rest: Vec<u8> = head.iter().chain(payload).skip(sent).copied().collect();
        let mut rest = &rest[..];
        while !rest.is_empty() {
            let flags = SendFlags::NOSIGNAL;
            let sent = retry_on_intr(|| rustix::net::send(&self.stream, rest, flags))?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        self.stream.flush().map_err(|_| Errno::IO)
    }

    /// Receives the answer to `sent`.
    fn receive(&mut self, sent: &Header, sent_payload: usize) -> Result<(Header, Answer)> {
        let mut head = [0; HEADER];
        let mut descriptors = Vec::new();
        let received = retry_on_intr(|| {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut room);
            let mut parts = [IoSliceMut::new(&mut head)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
            let received = recvmsg(&self.stream, &mut parts, &mut ancillary, flags);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            received.map(|received| received.bytes)
        });
        check_whole(received, HEADER)?;
        let head = Header::from_bytes(head);
        // An answer may repeat what was sent, and move as much as one may.
        let payload_max = ANSWER_MAX.max(sent_payload).max(TRANSFER_MAX) + ANSWER_MAX;
        let size = head.check_answer(sent, payload_max)?;
        let mut payload = vec![0; size];
        if size > 0 {
            let flags = RecvFlags::WAITALL;
            let received = retry_on_intr(|| recv(&self.stream, &mut payload[..], flags));
            check_whole(received.map(|(_, received)| received), size)?;
        }
        let answer = Answer {
            payload: Argument::from(payload),
            descriptors,
        };
        Ok((head, answer))
    }
}

/// The error for what a server refuses with this errno. There may be none that is so called.
fn refusal(number: u32, attempted: &str) -> Error {
    match i32::try_from(number) {
        Ok(number) if ERRNOS.contains(&number) => {
            refused(Errno::from_raw_os_error(number), attempted)
        }
        _ => Error::new(ErrorKind::Refused, format!("{attempted}, errno {number}")),
    }
}

/// Checks that one receive has brought all: the time limit is that of one receive, and a server that sends
/// byte after byte would never come to it by several.
fn check_whole(received: rustix::io::Result<usize>, size: usize) -> Result<()> {
    match received {
        Ok(received) if received == size => Ok(()),
        Ok(0) => Err(gone(Errno::PIPE, "receiving")),
        Ok(received) => {
            let context = format!("an answer that breaks off after {received} bytes of {size}");
            Err(Error::new(ErrorKind::Gone, context))
        }
        Err(errno) => Err(gone(errno, "receiving")),
    }
}

/// The error for a socket that fails.
fn gone(errno: Errno, attempted: &str) -> Error {
    let context = match errno {
        // The error of a socket whose timeout has expired.
        Errno::AGAIN => format!("{attempted}: no answer within {ANSWER_TIMEOUT:?}"),
        _ => format!("{attempted}: the server has ended"),
    };
    Error::new(ErrorKind::Gone, context).caused_by(errno)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_are_those_of_the_server_and_no_more_than_ours() {
        let read =
            |text: &str| limits(text.as_bytes()).map(|read| (read.descriptors, read.transfer));
        let rows = [
            ("", (1, TRANSFER_MAX)),
            ("\0", (1, TRANSFER_MAX)),
            ("{}\0", (1, TRANSFER_MAX)),
            (
                "{\"capabilities\":{\"max_msg_fds\":8}}\0",
                (8, TRANSFER_MAX),
            ),
            ("{\"capabilities\":{\"max_msg_fds\":0}}", (1, TRANSFER_MAX)),
            (
                "{\"capabilities\":{\"max_msg_fds\":999,\"max_data_xfer_size\":4096}}",
                (DESCRIPTORS_MAX, 4096),
            ),
            ("{\"capabilities\":[1]}", (1, TRANSFER_MAX)),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text).ok(), Some(expected), "{text:?}");
        }
        let error = read("{\0").expect_err("it is no JSON");
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    proptest! {
        #[test]
        fn any_capabilities_are_limits_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(limits) = limits(&bytes) {
                prop_assert!((1..=DESCRIPTORS_MAX).contains(&limits.descriptors));
            }
        }
    }
}
