//! A server that answers by bytes of unknown origin.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::{io, thread};

use millrace_memory::{Pages, Region, RegionOptions, base_page_size};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::connection::Connection;
use super::function::UserFunction;
use super::message::{Command, HEADER, Payload};
use crate::Function;

/// Bytes of registers that are handed over as a file.
const FILE_SIZE: u64 = 0x4000;

/// What has to be used up.
struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    /// The next byte; none at the end.
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The next bytes, as many as there are.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken.to_vec()
    }
}

/// Does all that a driver does with a server that answers by these bytes. Each answer begins with one that
/// says what it is: by the book (0), by the book with a file (1), a head by the book with the payload whose
/// length is the next byte (2, with a file 3), a refusal whose errno the next bytes say (4), or anything at
/// all, after which the server ends (5). So it does at the end of the bytes.
///
/// # Panics
/// If what the client makes of it breaks a rule.
pub fn served(bytes: &[u8]) {
    let Ok((ours, theirs)) = UnixStream::pair() else {
        return;
    };
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            // The client has hung up, or the bytes are at their end.
            let _ = serve(&theirs, &mut Input { rest: bytes });
            let _ = theirs.shutdown(Shutdown::Both);
        });
        // Any failure is an error result.
        let _ = drive(ours);
        // A scope does not wait until the thread's own memory is given back, which LeakSanitizer would take for lost.
        server.join().expect("a server does not panic");
    });
}

fn serve(mut stream: &UnixStream, input: &mut Input<'_>) -> io::Result<()> {
    loop {
        let mut head = [0; HEADER];
        stream.read_exact(&mut head)?;
        let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let size = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
        let mut payload = vec![0; (size as usize).saturating_sub(HEADER)];
        stream.read_exact(&mut payload)?;
        let Some(kind) = input.byte() else {
            return Ok(());
        };
        let (flags, errno, answer) = match kind % 6 {
            0 | 1 => (1, 0, by_the_book(half(2), &payload)),
            2 | 3 => {
                let length = input.byte().unwrap_or(0);
                (1, 0, input.bytes(length.into()))
            }
            4 => {
                let mut errno = [0; 4];
                for (place, byte) in errno.iter_mut().zip(input.bytes(4)) {
                    *place = byte;
                }
                (1 | 1 << 5, u32::from_ne_bytes(errno), Vec::new())
            }
            _ => {
                let noise = input.bytes(HEADER + 64);
                return send(stream, &noise, None);
            }
        };
        let size = u32::try_from(HEADER + answer.len()).unwrap_or(u32::MAX);
        let head = Payload::default().half(half(0)).half(half(2)).word(size);
        let message = head.word(flags).word(errno).raw(&answer);
        let file = match kind % 6 {
            1 | 3 => Some(file()?),
            _ => None,
        };
        send(stream, &message.bytes, file.as_ref())?;
    }
}

fn file() -> io::Result<OwnedFd> {
    let file = memfd_create("registers", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, FILE_SIZE)?;
    Ok(file)
}

fn send(stream: &UnixStream, bytes: &[u8], file: Option<&OwnedFd>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    let parts = [IoSlice::new(bytes)];
    sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Does what a driver does, up to the first failure.
fn drive(stream: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
    let function = UserFunction::new("exercise".to_owned(), Connection::over(stream)?)?;
    let function: &dyn Function = &function;
    // What follows is tried whatever came of what is before it: a refusal ends nothing.
    let _ = function.identity();
    let _ = function.set_bus_master(true);
    for index in 0..7 {
        let Ok(bar) = function.bar(index) else {
            continue;
        };
        assert!(bar.size() > 0 && bar.mapped() <= bar.size());
        for offset in [0, 4, 0x1000, bar.size().saturating_sub(8) & !7] {
            let _ = bar.load_long(offset);
            if let Ok(register) = bar.register(offset) {
                let _ = register.store_released(1);
                let _ = register.load();
            }
        }
        assert!(bar.register(bar.size()).is_err());
    }
    let event = file()?;
    let events = vec![event.as_fd(); usize::from(function.vectors().min(3))];
    if let Ok(taken) = function.set_vectors(&events) {
        assert_eq!(taken, events.len());
    }
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let region = Arc::new(Region::new(base_page_size(), &options)?);
    let _ = function.domain().map(&region);
    let _ = function.reset();
    let _ = function.set_vectors(&[]);
    Ok(())
}

/// What a server by the book answers to a command.
pub(super) fn by_the_book(command: u16, payload: &[u8]) -> Vec<u8> {
    let word = |at: usize| {
        let bytes = payload
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    let is = |asked: Command| command == asked as u16;
    if is(Command::Version) {
        let capabilities = b"{\"capabilities\":{}}\0";
        return Payload::default().half(0).half(1).raw(capabilities).bytes;
    }
    if is(Command::DeviceInfo) {
        return Payload::default().word(16).word(3).word(9).word(5).bytes;
    }
    if is(Command::RegionInfo) {
        // A sparse area.
        let area = Payload::default().half(1).half(1).word(0).word(1).word(0);
        let area = area.long(0).long(4096);
        let info = Payload::default().word(64).word(0xf).word(word(8)).word(32);
        return info.long(FILE_SIZE).long(0).raw(&area.bytes).bytes;
    }
    if is(Command::IrqInfo) {
        let info = Payload::default().word(16).word(1);
        return info.word(word(8)).word(9).bytes;
    }
    if is(Command::RegionRead) {
        let place = payload.get(..16).unwrap_or_default();
        // No more than a client asks for.
        let data = vec![0x5a; (word(12) as usize).min(1 << 20)];
        return Payload::default().raw(place).raw(&data).bytes;
    }
    if is(Command::RegionWrite) {
        return payload.get(..16).unwrap_or_default().to_vec();
    }
    Vec::new()
}
