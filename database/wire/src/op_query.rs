//! OP_QUERY: the request of old drivers. What is left of it in MongoDB 8.0 is the first message of a
//! connection, `isMaster` or `hello` on `admin.$cmd`.
//!
//! ```text
//!   +-------+---------------------+--------------+----------------+-------+------------+
//!   | flags | fullCollectionName 0| numberToSkip | numberToReturn | query | [selector] |
//!   +-------+---------------------+--------------+----------------+-------+------------+
//! ```

use bson::RawDocument;

use crate::header::read_i32;
use crate::validate::validate_document;
use crate::{Error, ErrorKind, Header, Message, Result};

/// A view of an OP_QUERY. Its documents are checked.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'a> {
    /// The header of the message: its length and request numbers.
    pub header: Header,
    /// The flag bits, as they came.
    pub flags: i32,
    /// `database.collection`; commands go to the collection `$cmd`.
    pub namespace: &'a str,
    /// The number of documents to skip (`numberToSkip`), not checked.
    pub skip: i32,
    /// The number of documents to return (`numberToReturn`), as it came: 0 is the default, a
    /// negative number closes the cursor after the first batch.
    pub limit: i32,
    /// The query; for the collection `$cmd`, the command.
    pub query: &'a RawDocument,
    /// The projection of the results (`returnFieldsSelector`); `None` for whole documents.
    pub selector: Option<&'a RawDocument>,
}

impl<'a> OpQuery<'a> {
    /// Reads and checks an OP_QUERY.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] and the errors of documents.
    pub fn parse(message: &Message<'a>) -> Result<Self> {
        let payload = message.payload();
        let flags = read_i32(payload, 0).ok_or_else(|| Error::truncated("flags"))?;
        let rest = &payload[4..];
        let name_len = rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| Error::truncated("collection name"))?;
        let namespace = std::str::from_utf8(&rest[..name_len])
            .map_err(|_| Error::new(ErrorKind::InvalidBson, "the collection name is not UTF-8"))?;
        let rest = &rest[name_len + 1..];
        let (Some(skip), Some(limit)) = (read_i32(rest, 0), read_i32(rest, 4)) else {
            return Err(Error::truncated("numbers"));
        };
        let (query, rest) = validate_document(&rest[8..])?;
        let selector = if rest.is_empty() {
            None
        } else {
            let (selector, rest) = validate_document(rest)?;
            if !rest.is_empty() {
                return Err(Error::new(
                    ErrorKind::Truncated,
                    "message goes on after its last document",
                ));
            }
            Some(selector)
        };
        Ok(Self {
            header: message.header,
            flags,
            namespace,
            skip,
            limit,
            query,
            selector,
        })
    }

    /// The database of a command (`admin` of `admin.$cmd`), or `None` if this is no command.
    #[must_use]
    pub fn command_database(&self) -> Option<&'a str> {
        self.namespace.strip_suffix(".$cmd")
    }
}
