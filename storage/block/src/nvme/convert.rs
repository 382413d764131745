//! Conversion of requests, completions and errors between this crate and the driver.

use millrace_nvme::{CommandError, Data, Refusal, Status};

use crate::{Completion, Error, ErrorKind, Operation, Refused, Request};

/// An error of the controller as a whole.
pub(super) fn failure(context: impl Into<String>, error: millrace_nvme::Error) -> Error {
    use millrace_nvme::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::NotNvme | Kind::Unsupported => ErrorKind::Unsupported,
        Kind::NoNamespace => ErrorKind::NotFound,
        Kind::Invalid => ErrorKind::Invalid,
        Kind::Memory => ErrorKind::Memory,
        _ => ErrorKind::Device,
    };
    Error::new(kind, context).caused_by(error)
}

/// The driver's request for a validated request.
pub(super) fn request(request: Request) -> millrace_nvme::Request {
    use millrace_nvme::Operation as Driver;
    let (operation, blocks) = match request.operation {
        Operation::Read => (Driver::Read, 0),
        Operation::Write => (Driver::Write { fua: false }, 0),
        Operation::WriteThrough => (Driver::Write { fua: true }, 0),
        Operation::Flush => (Driver::Flush, 0),
        Operation::Deallocate(blocks) => (Driver::Deallocate, blocks),
        Operation::WriteZeroes(blocks) => {
            let operation = Driver::WriteZeroes {
                fua: false,
                deallocate: true,
            };
            (operation, blocks)
        }
    };
    millrace_nvme::Request {
        operation,
        lba: millrace_nvme::Lba(request.lba.0),
        blocks,
        data: request.buffer.map(Data::One),
        token: request.token,
    }
}

/// A refusal of the driver, with the original request.
pub(super) fn refused(operation: Operation, refused: millrace_nvme::Refused) -> Refused {
    let millrace_nvme::Refused { request, reason } = refused;
    let kind = match reason {
        Refusal::QueueFull => ErrorKind::Full,
        Refusal::Unsupported => ErrorKind::Unsupported,
        Refusal::ControllerFailed | Refusal::ForeignNamespace => ErrorKind::Device,
        _ => ErrorKind::Invalid,
    };
    Refused {
        request: Request {
            operation,
            lba: crate::Lba(request.lba.0),
            buffer: request.data.and_then(Data::into_buffer),
            token: request.token,
        },
        error: Error::new(kind, reason.to_string()),
    }
}

pub(super) fn completion(completion: millrace_nvme::Completion) -> Completion {
    Completion {
        token: completion.token,
        result: completion.result.map_err(command_failure),
        buffer: completion.data.and_then(Data::into_buffer),
    }
}

#[cold]
fn command_failure(error: CommandError) -> Error {
    let kind = match error {
        CommandError::Status(status) => status_kind(status),
        _ => ErrorKind::Device,
    };
    Error::new(kind, "an NVMe command failed").caused_by(error)
}

/// Error kind of a status code (NVM Express Base Specification 1.4, section 4.6.1).
const fn status_kind(status: Status) -> ErrorKind {
    match (status.kind(), status.code()) {
        // Write protected, read-only, access denied.
        (0, 0x20) | (1, 0x82) | (2, 0x86) => ErrorKind::Permission,
        (0, 0x81) => ErrorKind::NoSpace,
        (2, _) => ErrorKind::Medium,
        _ => ErrorKind::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_say_what_is_wrong() {
        for (kind, code, expected) in [
            (2, 0x80, ErrorKind::Medium),
            (2, 0x81, ErrorKind::Medium),
            (2, 0x86, ErrorKind::Permission),
            (0, 0x20, ErrorKind::Permission),
            (0, 0x81, ErrorKind::NoSpace),
            (0, 0x06, ErrorKind::Device),
            (7, 0x81, ErrorKind::Device),
        ] {
            // Do Not Retry changes nothing.
            let status = Status(1 << 14 | kind << 8 | code);
            assert_eq!(status_kind(status), expected, "{status}");
            let error = command_failure(CommandError::Status(status));
            assert_eq!(error.kind(), expected);
        }
        assert_eq!(
            command_failure(CommandError::Gone).kind(),
            ErrorKind::Device
        );
    }
}
