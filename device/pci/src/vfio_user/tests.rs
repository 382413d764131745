//! The client against a server that breaks the protocol.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::connection::Connection;
use super::exercise::by_the_book;
use super::function::UserFunction;
use super::message::{Command, HEADER, Payload};
use crate::{ErrorKind, Function};

/// How an answer is spoiled.
#[derive(Clone, Debug)]
enum Fault {
    /// One byte is another.
    Byte(usize, u8),
    /// It breaks off, and the server is gone.
    Cut(usize),
    /// It answers another command, and the server goes on.
    Wrong,
    /// It is bytes without sense.
    Noise(Vec<u8>),
    /// It says that the server refuses, and why.
    Refusal(u32),
}

/// A server that serves a plain function by the book, but for one answer.
struct Server {
    stream: UnixStream,
    /// Which answer is spoiled, the first being 0.
    number: usize,
    fault: Fault,
}

impl Server {
    /// Serves until the client hangs up, or one answer after the fault.
    fn run(&mut self) -> std::io::Result<()> {
        for number in 0.. {
            let mut head = [0; HEADER];
            self.stream.read_exact(&mut head)?;
            let word = |at: usize| {
                u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let mut payload = vec![0; (word(4) as usize).saturating_sub(HEADER)];
            self.stream.read_exact(&mut payload)?;
            let command = u16::from_ne_bytes([head[2], head[3]]);
            let answer = by_the_book(command, &payload);
            let mut bytes = head[..4].to_vec();
            let size = u32::try_from(HEADER + answer.len()).expect("answers are short");
            bytes.extend(Payload::default().word(size).word(1).word(0).bytes);
            bytes.extend(answer);
            let spoiled = number == self.number;
            match &self.fault {
                Fault::Byte(place, byte) if spoiled => {
                    let place = place % bytes.len();
                    bytes[place] = *byte;
                }
                Fault::Wrong if spoiled => bytes[0] = !bytes[0],
                Fault::Cut(length) if spoiled => bytes.truncate(length % bytes.len()),
                Fault::Noise(noise) if spoiled => bytes.clone_from(noise),
                Fault::Refusal(errno) if spoiled => {
                    bytes.truncate(4);
                    let size = u32::try_from(HEADER).expect("it is 16");
                    bytes.extend(
                        Payload::default()
                            .word(size)
                            .word(1 | 1 << 5)
                            .word(*errno)
                            .bytes,
                    );
                }
                _ => {}
            }
            self.stream.write_all(&bytes)?;
            if spoiled && !matches!(self.fault, Fault::Refusal(_) | Fault::Wrong) {
                // Whatever is still waited for does not come.
                return self.stream.shutdown(std::net::Shutdown::Both);
            }
        }
        Ok(())
    }
}

/// Does what a driver does, and reports the first failure.
fn drive(number: usize, fault: Fault) -> Result<(), ErrorKind> {
    let (ours, theirs) = UnixStream::pair().expect("two descriptors are left");
    let mut server = Server {
        stream: theirs,
        number,
        fault,
    };
    let serving = thread::spawn(move || server.run());
    let driven = || -> crate::Result<()> {
        let function = UserFunction::new("test".to_owned(), Connection::over(ours)?)?;
        let mut config = [0; 64];
        function.read_config(0, &mut config)?;
        function.write_config(4, &config[..2])?;
        let bar = function.bar(0)?;
        bar.load_long(0)?;
        bar.register(0x14)?.store_released(1)?;
        function.set_vectors(&[])?;
        function.reset()
    };
    let driven = driven().map_err(|error| error.kind());
    // The function is gone by now, and with it the socket.
    let _ = serving.join().expect("the server does not panic");
    driven
}

/// How many answers a driver gets when nothing goes wrong. Each region is asked for twice.
const ANSWERS: usize = 22;

#[test]
fn a_server_by_the_book_serves_a_function() {
    assert_eq!(drive(usize::MAX, Fault::Cut(0)), Ok(()));
}

#[test]
fn a_refusal_is_told_and_nothing_more() {
    for number in 0..ANSWERS {
        let rows = [
            (0, ErrorKind::Refused),
            (16, ErrorKind::InUse),
            (1, ErrorKind::Permission),
            (u32::MAX, ErrorKind::Refused),
        ];
        for (errno, kind) in rows {
            assert_eq!(
                drive(number, Fault::Refusal(errno)),
                Err(kind),
                "answer {number}"
            );
        }
    }
}

#[test]
fn a_server_that_ends_is_gone() {
    for number in 0..ANSWERS {
        assert_eq!(
            drive(number, Fault::Cut(0)),
            Err(ErrorKind::Gone),
            "answer {number}"
        );
    }
}

#[test]
fn an_answer_byte_by_byte_comes_to_the_time_limit() {
    const LIMIT: Duration = Duration::from_millis(200);
    const PAUSE: Duration = Duration::from_millis(10);
    /// At one byte a pause this is far longer than the limit.
    const SIZE: usize = 60_000;
    let (ours, mut theirs) = UnixStream::pair().expect("two descriptors are left");
    let serving = thread::spawn(move || -> std::io::Result<usize> {
        let mut head = [0; HEADER];
        theirs.read_exact(&mut head)?;
        let mut bytes = head[..4].to_vec();
        let size = u32::try_from(HEADER + SIZE).expect("it is short");
        bytes.extend(Payload::default().word(size).word(1).word(0).bytes);
        theirs.write_all(&bytes)?;
        // Reading is how it waits, and how it sees that the client has hung up.
        theirs.set_read_timeout(Some(PAUSE))?;
        for sent in 0..SIZE {
            let mut rest = [0; 256];
            let read = theirs.read(&mut rest);
            if read.is_ok_and(|read| read == 0) || theirs.write_all(&[0]).is_err() {
                return Ok(sent);
            }
        }
        Ok(SIZE)
    });
    // It is held until the server has ended: only a shutdown ends the connection.
    let kept = ours.try_clone().expect("a descriptor is left");
    let error = Connection::over_within(ours, LIMIT).expect_err("it takes too long");
    assert_eq!(error.kind(), ErrorKind::Gone);
    let sent = serving.join().expect("the server does not panic");
    assert!(sent.is_ok_and(|sent| sent < SIZE));
    drop(kept);
}

#[test]
fn a_lost_connection_is_shut_down() {
    let (ours, theirs) = UnixStream::pair().expect("two descriptors are left");
    let mut server = Server {
        stream: theirs.try_clone().expect("a descriptor is left"),
        number: 1,
        fault: Fault::Wrong,
    };
    let serving = thread::spawn(move || server.run());
    let connection = Connection::over(ours).expect("the greeting is by the book");
    let answer = connection.ask(Command::Reset, &Payload::default(), &[], "a reset");
    let error = answer.expect_err("it answers another command");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    // The connection is still there, and the server sees its end nevertheless.
    let served = serving.join().expect("the server does not panic");
    assert!(served.is_err());
    drop((connection, theirs));
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => (0_usize..90, any::<u8>()).prop_map(|(place, byte)| Fault::Byte(place, byte)),
        1 => (0_usize..90).prop_map(Fault::Cut),
        1 => proptest::collection::vec(any::<u8>(), 0..90).prop_map(Fault::Noise),
        1 => any::<u32>().prop_map(Fault::Refusal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes, there is an end, and it is an error.
    #[test]
    fn any_answer_is_understood_or_an_error(number in 0..ANSWERS, fault in faults()) {
        let refused = matches!(fault, Fault::Refusal(_));
        let driven = drive(number, fault);
        prop_assert!(!refused || driven.is_err());
        // After a spoiled answer the server is gone: only the last one may pass.
        prop_assert!(driven.is_err() || number + 1 >= ANSWERS);
    }
}
