//! Names of the error codes that the document layer does not know.

use millrace_value::ErrorCode;

/// The name that an error reply has as `codeName`; `Location` and the number for a code without a
/// name.
#[must_use]
pub fn name(code: ErrorCode) -> String {
    let own = match code.number() {
        183 => "ClientMetadataMissingField",
        184 => "ClientMetadataAppNameTooLarge",
        185 => "ClientMetadataDocumentTooLarge",
        186 => "ClientMetadataCannotBeMutated",
        10107 => "NotWritablePrimary",
        189 => "PrimarySteppedDown",
        223 => "IllegalOpMsgFlag",
        233 => "TooManyDocumentSequences",
        261 => "TooManyLogicalSessions",
        262 => "ExceededTimeLimit",
        266 => "FailPointSetFailed",
        279 => "ClientDisconnect",
        288 => "ChecksumMismatch",
        322 => "APIVersionError",
        323 => "APIStrictError",
        352 => "UnsupportedOpQueryCommand",
        391 => "ReauthenticationRequired",
        9001 => "SocketException",
        13435 => "NotPrimaryNoSecondaryOk",
        13436 => "NotPrimaryOrSecondary",
        _ => return code.name(),
    };
    own.to_owned()
}
