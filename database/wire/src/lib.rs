//! MongoDB's wire protocol as pure functions over byte buffers.
//!
//! # Purpose
//! This crate knows frames and nothing else: where a message ends, what is in it, how a reply is laid
//! out. It opens no socket and keeps no connection; a server, a client, a proxy and a simulator can
//! all use it.
//!
//! ```text
//!   bytes received                                         bytes to send
//!        | Decoder::frame      where does it end?               ^
//!        v                                                      | Frame::finish (length, flags,
//!   Message { Header, payload }                                 |   checksum), Frame::compress
//!        | Compressed::parse, inflate                           |
//!        v                                                      | the caller appends one document
//!   OpMsg / OpQuery: views into the received bytes              | Frame::begin_msg, begin_reply
//! ```
//!
//! # Trust
//! Every byte that is decoded may come from an attacker. A view ([`OpMsg`], [`OpQuery`]) is handed out
//! only after its documents were checked from end to end ([`validate`]): lengths, terminators,
//! element types, UTF-8, nesting. Failures are values of [`Error`]; nothing panics.
//!
//! # Limits
//! Messages are at most [`MESSAGE_LEN_MAX`] bytes long, documents [`DOCUMENT_LEN_MAX`] bytes, nesting
//! [`NESTING_DEPTH_MAX`] levels, and an OP_MSG carries at most [`SEQUENCES_MAX`] document sequences.
//!
//! # Threads and cost
//! All types are plain data. Decoding allocates nothing, except for [`Compressed::inflate`], whose
//! result has a length announced (and bounded) beforehand. Encoding appends to the caller's vector.
//!
//! # Example
//! ```
//! use millrace_wire::{Decoder, Frame, Message, MsgFlags, OpMsg, encode_msg};
//!
//! let mut bytes = Vec::new();
//! let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
//! encode_msg(&mut bytes, 7, MsgFlags::NONE, &ping, &[]);
//!
//! let length = Decoder::default().frame(&bytes)?.expect("the header is complete");
//! let message = Message::parse(&bytes[..length.get()])?;
//! let request = OpMsg::parse(&message)?;
//! assert_eq!(request.body, &*ping);
//!
//! let mut reply = Vec::new();
//! let frame = Frame::begin_msg(&mut reply, 1, request.header.request_id);
//! reply.extend_from_slice(bson::rawdoc! { "ok": 1.0 }.as_bytes());
//! frame.finish(&mut reply, MsgFlags::NONE);
//! # Ok::<(), millrace_wire::Error>(())
//! ```
//!
//! # Sources
//! MongoDB wire protocol and BSON specification (bsonspec.org, version 1.1); the reactions to malformed
//! input follow the server, release 8.0.

#![forbid(unsafe_code)]

mod compressed;
mod compressor;
mod decoder;
mod encoder;
mod error;
mod header;
mod op_msg;
mod op_query;
mod sequence;
pub mod validate;

pub use compressed::Compressed;
pub use compressor::Compressor;
pub use decoder::{Decoder, FrameLen};
pub use encoder::{Frame, encode_msg, encode_query};
pub use error::{Error, ErrorKind, Result};
pub use header::{HEADER_LEN, Header, Message, OpCode};
pub use op_msg::{MsgFlags, OpMsg, SEQUENCES_MAX};
pub use op_query::OpQuery;
pub use sequence::{Sequence, SequenceDocuments};

/// The longest message, header included, in bytes.
pub const MESSAGE_LEN_MAX: usize = 48_000_000;

/// The longest document, in bytes: what a user may store (16 MiB) and 16 KiB for what commands and
/// replies wrap around it.
pub const DOCUMENT_LEN_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// How deep documents and arrays may nest.
pub const NESTING_DEPTH_MAX: usize = 200;
