//! Codes of the C interface and the structure that explains one.

use std::error::Error as StdError;
use std::ffi::c_char;

use millrace_blobfs::ErrorKind;

/// What became of a call. The numbers are those of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// No file or directory has this name (`ENOENT`).
    NotFound = 1,
    /// A file or directory of this name exists (`EEXIST`).
    Exists = 2,
    /// A directory is needed, and this is a file.
    NotDirectory = 3,
    /// A file is needed, and this is a directory.
    IsDirectory = 4,
    /// The directory has entries (`ENOTEMPTY`).
    NotEmpty = 5,
    /// The path is malformed: too long, or with invalid characters.
    InvalidPath = 6,
    /// An argument is invalid, or a required pointer is null (`EINVAL`).
    Invalid = 7,
    /// The volume has no space left (`ENOSPC`).
    NoSpace = 8,
    /// The device or the file is locked by another holder (`EBUSY`).
    InUse = 9,
    /// The volume is mounted read-only (`EROFS`).
    ReadOnly = 10,
    /// An earlier write failed: nothing is acknowledged any more.
    Poisoned = 11,
    /// The device reported an I/O error (`EIO`).
    Io = 12,
    /// A checksum or an invariant of the format does not hold.
    Corruption = 13,
    /// The device holds no volume of this format.
    NotAVolume = 14,
    /// The volume was written by a later version.
    NewerFormat = 15,
    /// Memory for device transfers cannot be allocated or locked.
    Memory = 16,
    /// The device or the volume does not support the operation.
    Unsupported = 17,
    /// The library panicked; its message is on the standard error.
    Panic = 18,
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Exists => Self::Exists,
            ErrorKind::NotDirectory => Self::NotDirectory,
            ErrorKind::IsDirectory => Self::IsDirectory,
            ErrorKind::NotEmpty => Self::NotEmpty,
            ErrorKind::InvalidPath => Self::InvalidPath,
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::InUse => Self::InUse,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::Poisoned => Self::Poisoned,
            ErrorKind::Corruption => Self::Corruption,
            ErrorKind::NotAVolume => Self::NotAVolume,
            ErrorKind::NewerFormat => Self::NewerFormat,
            ErrorKind::Memory => Self::Memory,
            ErrorKind::Unsupported => Self::Unsupported,
            // A kind that the header does not know yet is a failure too.
            _ => Self::Io,
        }
    }
}

/// Why a call failed: a code, and a text with all causes.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A failure with the texts of `error` and of everything below it.
    pub(crate) fn caused(code: Code, error: &(dyn StdError + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self { code, message }
    }
}

impl From<millrace_blobfs::Error> for Failure {
    fn from(error: millrace_blobfs::Error) -> Self {
        Self::caused(error.kind().into(), &error)
    }
}

/// Bytes of a message, with the zero at its end.
const MESSAGE_BYTES: usize = 508;

/// C structure `millrace_blobfs_error`: code and text of a failed call, 512 bytes.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct CError {
    /// Code of the failure, one of [`Code`] other than [`Code::Ok`].
    pub code: i32,
    /// The text, ended by a zero byte.
    pub message: [c_char; MESSAGE_BYTES],
}

const _: () = assert!(size_of::<CError>() == 512);

impl CError {
    /// The structure for `failure`, its text cut between two characters if it is too long.
    pub(crate) fn new(failure: &Failure) -> Self {
        let mut end = failure.message.len().min(MESSAGE_BYTES - 1);
        while !failure.message.is_char_boundary(end) {
            end -= 1;
        }
        let mut message = [0; MESSAGE_BYTES];
        // A zero byte in the text would end it early.
        let bytes = failure.message.as_bytes()[..end].iter();
        for (to, &byte) in message.iter_mut().zip(bytes) {
            *to = c_char::from_ne_bytes([if byte == 0 { b'?' } else { byte }]);
        }
        Self {
            code: failure.code as i32,
            message,
        }
    }
}
