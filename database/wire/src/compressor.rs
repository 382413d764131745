//! The algorithms of OP_COMPRESSED.

use std::io::Read;

use crate::{Error, ErrorKind, Result};

/// A compression algorithm that the wire protocol knows, with its `compressorId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// Not compressed; used for tests.
    Noop,
    /// Snappy, raw format.
    Snappy,
    /// zlib (RFC 1950).
    Zlib,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compressor {
    /// The algorithms a server offers, the best first.
    pub const ALL: [Self; 3] = [Self::Snappy, Self::Zstd, Self::Zlib];

    /// The `compressorId` of an OP_COMPRESSED: 0 to 3.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// The algorithm with this number.
    ///
    /// # Errors
    /// [`ErrorKind::Compression`]
    pub fn from_number(number: u8) -> Result<Self> {
        match number {
            0 => Ok(Self::Noop),
            1 => Ok(Self::Snappy),
            2 => Ok(Self::Zlib),
            3 => Ok(Self::Zstd),
            other => Err(Error::new(
                ErrorKind::Compression,
                format!("Compression algorithm specified in message is not available: {other}"),
            )),
        }
    }

    /// The name used in the handshake.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// The algorithm with this name, if a server offers it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|compressor| compressor.name() == name)
    }

    /// Appends `bytes`, compressed.
    pub(crate) fn compress(self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Noop => out.extend_from_slice(bytes),
            Self::Snappy => {
                let compressed = snap::raw::Encoder::new()
                    .compress_vec(bytes)
                    .map_err(|error| failure(self, &error))?;
                out.extend_from_slice(&compressed);
            }
            Self::Zlib => {
                flate2::bufread::ZlibEncoder::new(bytes, flate2::Compression::default())
                    .read_to_end(out)
                    .map_err(|error| failure(self, &error))?;
            }
            Self::Zstd => {
                let compressed = zstd::bulk::compress(bytes, zstd::DEFAULT_COMPRESSION_LEVEL)
                    .map_err(|error| failure(self, &error))?;
                out.extend_from_slice(&compressed);
            }
        }
        Ok(())
    }

    /// Fills `out` with the decompressed `bytes`, which must be exactly as long as `out`.
    pub(crate) fn decompress(self, bytes: &[u8], out: &mut [u8]) -> Result<()> {
        let written = match self {
            Self::Noop if bytes.len() == out.len() => {
                out.copy_from_slice(bytes);
                bytes.len()
            }
            Self::Noop => bytes.len(),
            Self::Snappy => {
                let announced =
                    snap::raw::decompress_len(bytes).map_err(|error| failure(self, &error))?;
                if announced != out.len() {
                    return Err(wrong_length(self));
                }
                snap::raw::Decoder::new()
                    .decompress(bytes, out)
                    .map_err(|error| failure(self, &error))?
            }
            Self::Zlib => {
                let mut decoder = flate2::bufread::ZlibDecoder::new(bytes);
                decoder
                    .read_exact(out)
                    .map_err(|error| failure(self, &error))?;
                let rest = decoder
                    .read(&mut [0])
                    .map_err(|error| failure(self, &error))?;
                out.len() + rest
            }
            Self::Zstd => zstd::bulk::decompress_to_buffer(bytes, out)
                .map_err(|error| failure(self, &error))?,
        };
        if written != out.len() {
            return Err(wrong_length(self));
        }
        Ok(())
    }
}

fn failure(compressor: Compressor, error: &dyn std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Compression,
        format!("{}: {error}", compressor.name()),
    )
}

fn wrong_length(compressor: Compressor) -> Error {
    Error::new(
        ErrorKind::Compression,
        format!(
            "{}: the message has not the announced length",
            compressor.name()
        ),
    )
}
