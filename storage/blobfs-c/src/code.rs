//! Codes of the C interface and the structure that explains one.

use std::error::Error as StdError;
use std::ffi::c_char;

use millrace_blobfs::ErrorKind;

/// What became of a call. The numbers are those of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// It was done.
    Ok = 0,
    /// There is no file or directory of this name.
    NotFound = 1,
    /// There is one already.
    Exists = 2,
    /// A directory is needed, and this is a file.
    NotDirectory = 3,
    /// A file is needed, and this is a directory.
    IsDirectory = 4,
    /// The directory has entries.
    NotEmpty = 5,
    /// The path cannot name a file.
    InvalidPath = 6,
    /// What was asked makes no sense, or a pointer is null that must not be.
    Invalid = 7,
    /// The volume is full.
    NoSpace = 8,
    /// Somebody else has the device, or a lock on a file.
    InUse = 9,
    /// The volume is for reading alone.
    ReadOnly = 10,
    /// A write failed before.
    Poisoned = 11,
    /// The device failed.
    Io = 12,
    /// What the device holds is not what was written.
    Corruption = 13,
    /// The device holds no volume.
    NotAVolume = 14,
    /// The volume was written by a later version.
    NewerFormat = 15,
    /// Memory for the device could not be had.
    Memory = 16,
    /// The device, or the volume, cannot do it.
    Unsupported = 17,
    /// The library failed.
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
            // A kind that the header does not know yet is a failure all the same.
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

/// `millrace_blobfs_error`.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct CError {
    /// The code.
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
