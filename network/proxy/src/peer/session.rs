//! One stream between two monitors.

use std::error::Error;
use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::BODY_MAX;
use super::message::PeerMessage;

/// Bytes that may wait to go out.
pub const OUTPUT_MAX: usize = 1 << 20;

/// What two monitors have and nobody else: 32 bytes or more.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Who has dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This side.
    Dialled,
    /// The other one.
    Answers,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The first frame is none of this version.
    Greeting,
    /// A frame is longer than can be.
    Length,
    /// The peer has another secret, or somebody has changed what it said.
    Secret,
    /// A message that means nothing.
    Message,
    /// More waits to go out than may.
    Output,
}

/// This side of a stream.
pub struct Session {
    role: Role,
    secret: Secret,
    /// The body of this side's first frame.
    own: Vec<u8>,
    keys: Option<Keys>,
    peer: Option<String>,
    /// The peer has shown that it has the secret.
    is_proven: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// The keys of both directions, and how many frames each has had.
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
/// Before the name: magic, version, role, nonce, the name's length.
const BEFORE_NAME: usize = 6 + 2 + 1 + NONCE + 1;
const SECRET_MIN: usize = 32;

impl Secret {
    /// The secret of these bytes; none if they are fewer than 32.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= SECRET_MIN).then(|| Self(bytes.to_vec()))
    }
}

impl Session {
    /// A session that has its first frame to send. `nonce` is drawn for it alone; of a name the first 64 bytes count.
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

    /// Takes bytes that came, and appends the messages that are whole.
    ///
    /// # Errors
    /// The session is over. What was appended before counts.
    pub fn receive(&mut self, bytes: &[u8], messages: &mut Vec<PeerMessage>) -> Result<(), Breach> {
        self.input.extend(bytes);
        let mut at = 0;
        while let Some(whole) = self.frame(at)? {
            let body = self.input[at + 2..at + whole].to_vec();
            at += whole;
            match &mut self.keys {
                None => self.greeted(&body)?,
                Some(keys) => {
                    let (body, mac) = body.split_at(body.len() - MAC);
                    let expected = seal(&keys.incoming, keys.received, body);
                    expected.verify_slice(mac).map_err(|_| Breach::Secret)?;
                    keys.received += 1;
                    self.is_proven = true;
                    messages.push(PeerMessage::decode(body)?);
                }
            }
        }
        self.input.drain(..at);
        Ok(())
    }

    /// Says something. Nothing can be said before the peer's first frame has come.
    ///
    /// # Errors
    /// [`Breach::Output`] if the peer does not take what was said before.
    pub fn send(&mut self, message: &PeerMessage) -> Result<(), Breach> {
        let Some(keys) = &mut self.keys else {
            return Err(Breach::Greeting);
        };
        let mut body = Vec::new();
        message.encode(&mut body);
        let length = u16::try_from(body.len()).map_err(|_| Breach::Length)?;
        let mac = seal(&keys.outgoing, keys.sent, &body).finalize();
        keys.sent += 1;
        self.output.extend(length.to_le_bytes());
        self.output.extend(&body);
        self.output.extend(mac.into_bytes());
        if self.output.len() > OUTPUT_MAX {
            return Err(Breach::Output);
        }
        Ok(())
    }

    /// What is to go out.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// So many bytes of it have gone.
    pub fn sent(&mut self, count: usize) {
        self.output.drain(..count.min(self.output.len()));
    }

    /// The peer's name, once its first frame has come. It may be a lie until [`Session::is_proven`].
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Whether the peer has the secret.
    #[must_use]
    pub const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Who has dialled.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The length of the frame that begins there, if it is whole.
    fn frame(&self, at: usize) -> Result<Option<usize>, Breach> {
        let Some(length) = self.input[at..].first_chunk::<2>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*length));
        let (limit, mac) = match self.keys {
            None => (BEFORE_NAME + NAME_MAX, 0),
            Some(_) => (BODY_MAX, MAC),
        };
        if length > limit {
            return Err(Breach::Length);
        }
        let whole = 2 + length + mac;
        Ok((self.input.len() - at >= whole).then_some(whole))
    }

    fn greeted(&mut self, body: &[u8]) -> Result<(), Breach> {
        let (fixed, name) = body
            .split_first_chunk::<BEFORE_NAME>()
            .ok_or(Breach::Greeting)?;
        let role = u8::from(self.role == Role::Dialled);
        let is_sound = fixed[..6] == *MAGIC
            && fixed[6..8] == VERSION.to_le_bytes()
            && fixed[8] == role
            && usize::from(fixed[BEFORE_NAME - 1]) == name.len()
            && !name.is_empty();
        let name = std::str::from_utf8(name).map_err(|_| Breach::Greeting)?;
        if !is_sound {
            return Err(Breach::Greeting);
        }
        let (dialler, answerer) = match self.role {
            Role::Dialled => (self.own.as_slice(), body),
            Role::Answers => (body, self.own.as_slice()),
        };
        let key = |label: &[u8]| {
            let mut mac = keyed(&self.secret.0);
            for part in [label, dialler, answerer] {
                mac.update(&(part.len() as u64).to_le_bytes());
                mac.update(part);
            }
            mac.finalize().into_bytes().into()
        };
        let (from_dialler, from_answerer) = (key(b"from who dialled"), key(b"from who answers"));
        let (outgoing, incoming) = match self.role {
            Role::Dialled => (from_dialler, from_answerer),
            Role::Answers => (from_answerer, from_dialler),
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

/// The number of the host of a name.
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
    body.push(u8::from(role == Role::Answers));
    body.extend(nonce);
    body.push(u8::try_from(end).unwrap_or(0));
    body.extend(&name.as_bytes()[..end]);
    body
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of every length")
}

/// The check of a body at a place in the stream.
fn seal(key: &[u8], place: u64, body: &[u8]) -> Hmac<Sha256> {
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

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greeting => "its first frame is none of this version",
            Self::Length => "a frame is longer than can be",
            Self::Secret => "it has another secret",
            Self::Message => "it says what means nothing",
            Self::Output => "it does not take what it is told",
        })
    }
}

impl Error for Breach {}
