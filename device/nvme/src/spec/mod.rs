//! What the specification lays down: registers, commands, completions, data structures. Nothing here keeps
//! state or touches a device.

pub(crate) mod command;
pub(crate) mod completion;
pub mod identify;
pub mod log;
pub(crate) mod registers;
pub mod status;

/// Two bytes of a data structure.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

/// Four bytes of a data structure.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

/// Eight bytes of a data structure.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

/// Sixteen bytes of a data structure.
pub(crate) fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(array_at(bytes, offset))
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}

/// A field of text, padded by blanks: printable ASCII, anything else replaced.
pub(crate) fn text_at(bytes: &[u8], offset: usize, size: usize) -> String {
    let text: String = bytes[offset..offset + size]
        .iter()
        .map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            0 => ' ',
            _ => '?',
        })
        .collect();
    text.trim().to_owned()
}
