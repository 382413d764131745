//! Errors as clients see them: MongoDB's code, its name, a message.

use bson::Document;
use millrace_engine::ErrorKind;

/// A result of the document layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($name:ident = $number:literal,)*) => {
        /// MongoDB's error codes (`src/mongo/base/error_codes.yml`), as far as they are used here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = concat!("Code ", stringify!($number), ".")] $name,)*
            /// A code that has no name (`Location12345`).
            Location(i32),
        }

        impl ErrorCode {
            /// The number sent as `code` in an error reply.
            #[must_use]
            pub const fn number(self) -> i32 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Location(number) => number,
                }
            }

            /// The code with this number; [`ErrorCode::Location`] for a number without a name.
            #[must_use]
            pub const fn from_number(number: i32) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Location(other),
                }
            }

            /// The name sent as `codeName` in an error reply.
            #[must_use]
            pub fn name(self) -> String {
                match self {
                    $(Self::$name => stringify!($name).to_owned(),)*
                    Self::Location(number) => format!("Location{number}"),
                }
            }
        }
    };
}

codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    GraphContainsCycle = 5,
    HostUnreachable = 6,
    HostNotFound = 7,
    UnknownError = 8,
    FailedToParse = 9,
    UserNotFound = 11,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    IllegalOperation = 20,
    LockBusy = 46,
    NetworkTimeout = 89,
    AlreadyInitialized = 23,
    LockTimeout = 24,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    NonExistentPath = 29,
    InvalidPath = 30,
    RoleNotFound = 31,
    CannotBackfillArray = 34,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    UserDataInconsistent = 45,
    MaxTimeMSExpired = 50,
    InvalidRoleModification = 49,
    ManualInterventionRequired = 51,
    DollarPrefixedFieldName = 52,
    InvalidIdField = 53,
    NotSingleValueField = 54,
    InvalidDBRef = 55,
    EmptyFieldName = 56,
    DottedFieldName = 57,
    CommandNotFound = 59,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    AuthSchemaIncompatible = 69,
    ShardNotFound = 70,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    WriteConcernTimeout = 64,
    NoReplicationEnabled = 76,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    UnsatisfiableWriteConcern = 100,
    DocumentValidationFailure = 121,
    OperationFailed = 96,
    InvalidUUID = 207,
    NotAReplicaSet = 123,
    CommandNotSupported = 115,
    CommandFailed = 125,
    WriteConflict = 112,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidViewDefinition = 182,
    CappedPositionLost = 136,
    NamespaceExists = 48,
    CursorInUse = 143,
    CursorKilled = 237,
    QueryPlanKilled = 175,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    ExceededMemoryLimit = 146,
    InvalidPipelineOperator = 168,
    CannotImplicitlyCreateCollection = 227,
    FailedToSatisfyReadPreference = 133,
    NoQueryExecutionPlans = 291,
    InvalidIndexSpecificationOption = 197,
    UnknownReplWriteConcern = 79,
    ObjectIsBusy = 314,
    ViewDepthLimitExceeded = 165,
    CollectionUUIDMismatch = 361,
    CannotBuildIndexKeys = 201,
    CannotIndexParallelArrays = 171,
    IndexBuildAborted = 276,
    NotImplemented = 238,
    TransactionTooOld = 225,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    NoSuchSession = 206,
    OperationNotSupportedInTransaction = 263,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    ShutdownInProgress = 91,
    OutOfDiskSpace = 14031,
    BSONObjectTooLarge = 10334,
    AmbiguousIndexKeyPattern = 181,
    DuplicateKey = 11000,
    KeyTooLong = 17280,
    InvalidBSON = 22,
    BackgroundOperationInProgressForNamespace = 12587,
    MergeStageNoMatchingDocument = 13113,
    ConversionFailure = 241,
    MaxSubPipelineDepthExceeded = 232,
    InvalidRegex = 51091,
    RetryChangeStream = 234,
    ChangeStreamHistoryLost = 286,
    IDLUnknownField = 40415,
    IDLFailedToParse = 40414,
}

/// A failure as a client sees it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: ErrorCode,
    message: String,
    details: Option<Box<Document>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A failure with `code` and a message for the client.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: None,
            source: None,
        }
    }

    /// A failure with a code that has no name.
    pub fn location(number: i32, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::from_number(number), message)
    }

    /// Adds fields that go into the reply beside `code` and `errmsg` (`keyPattern`, `errInfo`, ...).
    #[must_use]
    pub fn with_details(mut self, details: Document) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Adds the failure that caused this one; it is for the log, not for the client.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts `context` and a colon before the message.
    #[must_use]
    pub fn context(mut self, context: &str) -> Self {
        self.message = format!("{context} :: caused by :: {}", self.message);
        self
    }

    /// The error code, as MongoDB defines it.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// The message sent as `errmsg`, without the name of the code.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The fields that the reply has besides code and message (`keyPattern`, ...); `None` for most
    /// errors.
    #[must_use]
    pub fn details(&self) -> Option<&Document> {
        self.details.as_deref()
    }
}

impl From<millrace_engine::Error> for Error {
    fn from(error: millrace_engine::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Conflict => ErrorCode::WriteConflict,
            ErrorKind::TooLarge => ErrorCode::BSONObjectTooLarge,
            ErrorKind::NoSpace => ErrorCode::OutOfDiskSpace,
            ErrorKind::InvalidArgument => ErrorCode::BadValue,
            _ => ErrorCode::InternalError,
        };
        Self::new(code, format!("the storage engine failed: {error}")).with_source(error)
    }
}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        Self::new(ErrorCode::InvalidBSON, format!("invalid BSON: {error}")).with_source(error)
    }
}
