//! The session of one connection between two brokers.

use std::error::Error;
use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::BODY_MAX;
use super::message::PeerMessage;

/// The most bytes of output that wait for the peer.
pub const OUTPUT_MAX: usize = 1 << 20;

/// The secret that two brokers share: 32 bytes or more.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// The side of a session: initiator or responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that opened the TCP connection.
    Initiator,
    /// The side that accepted the TCP connection.
    Responder,
}

/// The protocol violation that ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolViolation {
    /// The first frame is not a greeting of this version.
    Greeting,
    /// A frame exceeds the length limit.
    Length,
    /// A MAC is wrong: the peer has another secret, or a frame was changed on the way.
    Secret,
    /// A message is malformed or has trailing bytes.
    Message,
    /// The peer does not read: more than [`OUTPUT_MAX`] bytes wait.
    Output,
}

/// One side of a connection between two brokers.
pub struct Session {
    role: Role,
    secret: Secret,
    /// The body of this side's first frame.
    own: Vec<u8>,
    keys: Option<Keys>,
    peer: Option<String>,
    /// Whether the peer has authenticated.
    is_proven: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// The keys of both directions, and the frames sent and received.
struct Keys {
    outgoing: [u8; MAC],
    incoming: [u8; MAC],
    sent: u64,
    received: u64,
}

const MAGIC: &[u8; 6] = b"MRPEER";
const VERSION: u16 = 1;
const NONCE: usize = 32;
const MAC: usize = 32;
const NAME_MAX: usize = 64;
/// Bytes before the name: magic, version, role, nonce, and the name's length.
const BEFORE_NAME: usize = 6 + 2 + 1 + NONCE + 1;
const SECRET_MIN: usize = 32;

impl Secret {
    /// A secret from at least 32 bytes; `None` if there are fewer.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= SECRET_MIN).then(|| Self(bytes.to_vec()))
    }
}

impl Session {
    /// A session with its first frame as output. `nonce` must be random and fresh; a name is cut to its first 64 bytes.
    #[must_use]
    pub fn new(role: Role, name: &str, secret: Secret, nonce: [u8; NONCE]) -> Self {
        let own = greeting(role, name, &nonce);
        let mut output = Vec::new();
        output.extend(u16::try_from(own.len()).unwrap_or(0).to_le_bytes());
        output.extend(&own);
        Self {
            role,
            secret,
            own,
            keys: None,
            peer: None,
            is_proven: false,
            input: Vec::new(),
            output,
        }
    }

    /// Takes received bytes, and appends the complete messages.
    ///
    /// # Errors
    /// The [`ProtocolViolation`] that ends the session. Messages appended before it are valid.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        messages: &mut Vec<PeerMessage>,
    ) -> Result<(), ProtocolViolation> {
        self.input.extend(bytes);
        let mut at = 0;
        while let Some(whole) = self.frame(at)? {
            let body = self.input[at + 2..at + whole].to_vec();
            at += whole;
            match &mut self.keys {
                None => self.receive_greeting(&body)?,
                Some(keys) => {
                    let (body, mac) = body.split_at(body.len() - MAC);
                    let expected = frame_mac(&keys.incoming, keys.received, body);
                    expected
                        .verify_slice(mac)
                        .map_err(|_| ProtocolViolation::Secret)?;
                    keys.received += 1;
                    self.is_proven = true;
                    messages.push(PeerMessage::decode(body)?);
                }
            }
        }
        self.input.drain(..at);
        Ok(())
    }

    /// Queues a message. The peer's first frame must have arrived.
    ///
    /// # Errors
    /// [`ProtocolViolation::Output`] if the peer does not read earlier output.
    pub fn send(&mut self, message: &PeerMessage) -> Result<(), ProtocolViolation> {
        let Some(keys) = &mut self.keys else {
            return Err(ProtocolViolation::Greeting);
        };
        let mut body = Vec::new();
        message.encode(&mut body);
        let length = u16::try_from(body.len()).map_err(|_| ProtocolViolation::Length)?;
        let mac = frame_mac(&keys.outgoing, keys.sent, &body).finalize();
        keys.sent += 1;
        self.output.extend(length.to_le_bytes());
        self.output.extend(&body);
        self.output.extend(mac.into_bytes());
        if self.output.len() > OUTPUT_MAX {
            return Err(ProtocolViolation::Output);
        }
        Ok(())
    }

    /// The output that waits to be sent.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes `count` sent bytes from the output.
    pub fn sent(&mut self, count: usize) {
        self.output.drain(..count.min(self.output.len()));
    }

    /// The peer's name from its first frame. It is unauthenticated until [`Session::is_proven`].
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Whether the peer has authenticated by the secret.
    #[must_use]
    pub const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The side that this session has: initiator or responder.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The length of the frame at `at`, if it is complete.
    fn frame(&self, at: usize) -> Result<Option<usize>, ProtocolViolation> {
        let Some(length) = self.input[at..].first_chunk::<2>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*length));
        let (limit, mac) = match self.keys {
            None => (BEFORE_NAME + NAME_MAX, 0),
            Some(_) => (BODY_MAX, MAC),
        };
        if length > limit {
            return Err(ProtocolViolation::Length);
        }
        let whole = 2 + length + mac;
        Ok((self.input.len() - at >= whole).then_some(whole))
    }

    fn receive_greeting(&mut self, body: &[u8]) -> Result<(), ProtocolViolation> {
        let (fixed, name) = body
            .split_first_chunk::<BEFORE_NAME>()
            .ok_or(ProtocolViolation::Greeting)?;
        let role = u8::from(self.role == Role::Initiator);
        let is_sound = fixed[..6] == *MAGIC
            && fixed[6..8] == VERSION.to_le_bytes()
            && fixed[8] == role
            && usize::from(fixed[BEFORE_NAME - 1]) == name.len()
            && !name.is_empty();
        let name = std::str::from_utf8(name).map_err(|_| ProtocolViolation::Greeting)?;
        if !is_sound {
            return Err(ProtocolViolation::Greeting);
        }
        let (initiator, responder) = match self.role {
            Role::Initiator => (self.own.as_slice(), body),
            Role::Responder => (body, self.own.as_slice()),
        };
        let key = |label: &[u8]| {
            let mut mac = keyed(&self.secret.0);
            for part in [label, initiator, responder] {
                mac.update(&(part.len() as u64).to_le_bytes());
                mac.update(part);
            }
            mac.finalize().into_bytes().into()
        };
        let (from_initiator, from_responder) = (key(b"from who dialled"), key(b"from who answers"));
        let (outgoing, incoming) = match self.role {
            Role::Initiator => (from_initiator, from_responder),
            Role::Responder => (from_responder, from_initiator),
        };
        self.keys = Some(Keys {
            outgoing,
            incoming,
            sent: 0,
            received: 0,
        });
        self.peer = Some(name.to_owned());
        Ok(())
    }
}

/// The number of the host with a name.
#[must_use]
pub fn host_number(name: &str) -> u128 {
    let digest = Sha256::new()
        .chain_update(b"millrace host")
        .chain_update(name.as_bytes())
        .finalize();
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    u128::from_le_bytes(first)
}

fn greeting(role: Role, name: &str, nonce: &[u8; NONCE]) -> Vec<u8> {
    let mut end = name.len().min(NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut body = MAGIC.to_vec();
    body.extend(VERSION.to_le_bytes());
    body.push(u8::from(role == Role::Responder));
    body.extend(nonce);
    body.push(u8::try_from(end).unwrap_or(0));
    body.extend(&name.as_bytes()[..end]);
    body
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of every length")
}

/// The MAC of a body at a sequence number.
fn frame_mac(key: &[u8], place: u64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed(key);
    mac.update(&place.to_le_bytes());
    mac.update(&(body.len() as u64).to_le_bytes());
    mac.update(body);
    mac
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("role", &self.role)
            .field("peer", &self.peer)
            .field("is_proven", &self.is_proven)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ProtocolViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greeting => "unsupported protocol version, or not a peer greeting",
            Self::Length => "protocol error: frame longer than 8,192 bytes",
            Self::Secret => "authentication failed: the peer has another secret",
            Self::Message => "protocol error: malformed message",
            Self::Output => "the peer does not read: more than 1 MiB of output waits",
        })
    }
}

impl Error for ProtocolViolation {}
