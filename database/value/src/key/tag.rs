//! The first byte of each encoded value. Their order is the order of the types.

/// Ends documents and arrays; below every tag.
pub(super) const END: u8 = 0x00;

pub(super) const MIN_KEY: u8 = 0x0A;
pub(super) const UNDEFINED: u8 = 0x0F;
pub(super) const NULL: u8 = 0x14;

pub(super) const NAN: u8 = 0x20;
/// Numbers of -2^63 and below.
pub(super) const NEGATIVE_LARGE: u8 = 0x21;
/// Negative numbers with an integer part of one byte; each further byte is one tag less.
pub(super) const NEGATIVE_WHOLE: u8 = 0x29;
pub(super) const NEGATIVE_FRACTION: u8 = 0x2A;
pub(super) const ZERO: u8 = 0x2B;
pub(super) const POSITIVE_FRACTION: u8 = 0x2C;
/// Positive numbers with an integer part of one byte; each further byte is one tag more.
pub(super) const POSITIVE_WHOLE: u8 = 0x2D;
/// Numbers of 2^63 and above.
pub(super) const POSITIVE_LARGE: u8 = 0x35;

pub(super) const STRING: u8 = 0x40;
pub(super) const DOCUMENT: u8 = 0x48;
pub(super) const ARRAY: u8 = 0x50;
pub(super) const BINARY: u8 = 0x58;
pub(super) const OBJECT_ID: u8 = 0x60;
pub(super) const FALSE: u8 = 0x68;
pub(super) const TRUE: u8 = 0x69;
pub(super) const DATE: u8 = 0x70;
pub(super) const TIMESTAMP: u8 = 0x78;
pub(super) const REGEX: u8 = 0x80;
pub(super) const DB_POINTER: u8 = 0x88;
pub(super) const CODE: u8 = 0x90;
pub(super) const CODE_WITH_SCOPE: u8 = 0x98;
pub(super) const MAX_KEY: u8 = 0xF0;

/// Stands for a NUL inside a text, after the NUL.
pub(super) const TEXT_NUL: u8 = 0xFF;
/// Ends a text, after a NUL.
pub(super) const TEXT_END: u8 = 0x01;

// The tags of numbers with an integer part of up to 8 bytes meet their neighbours.
const _: () = assert!(NEGATIVE_WHOLE - 7 == NEGATIVE_LARGE + 1);
const _: () = assert!(POSITIVE_WHOLE + 7 == POSITIVE_LARGE - 1);
