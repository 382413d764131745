//! Bytes that must never change: volumes that exist hold them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::checkpoint_image::large;
use super::superblock::sample;
use super::{key, middle_layout};
use crate::format::checkpoint_image::Image;
use crate::format::extent::Extents;
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::operation::Operations;
use crate::format::superblock::Superblock;
use crate::format::transaction::{HEADER_BYTES, Header, write_header};
use crate::format::{BlockTrailer, Extent, Operation};

/// Sixteen bytes a line; runs of lines of zeros are left out, the last line is the length.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, line) in bytes.chunks(16).enumerate() {
        if line.iter().all(|byte| *byte == 0) {
            continue;
        }
        write!(text, "{:06x} ", at * 16).unwrap();
        for byte in line {
            write!(text, " {byte:02x}").unwrap();
        }
        text.push('\n');
    }
    writeln!(text, "{:06x}", bytes.len()).unwrap();
    text
}

/// Compares with the file in `golden/`. With `MILLRACE_GOLDEN=write` writes it.
fn assert_golden(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    let text = dump(bytes);
    if std::env::var_os("MILLRACE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(golden == text, "{name} has changed, it is now:\n{text}");
}

/// One of each kind.
fn operations() -> Vec<Operation<'static>> {
    const EXTENTS: [Extent; 2] = [
        Extent {
            start: 0x0102_0304,
            units: 5,
        },
        Extent {
            start: 6,
            units: 0x0708_090a,
        },
    ];
    let (id, parent, modified) = (InodeId(0x11), InodeId::ROOT, Timestamp(0x1122_3344_5566));
    let extents = Extents::Listed(&EXTENTS);
    vec![
        Operation::Create {
            id,
            kind: Kind::File,
            parent,
            name: "000001.log",
            modified,
        },
        Operation::Create {
            id: InodeId(0x12),
            kind: Kind::Directory,
            parent,
            name: "é",
            modified,
        },
        Operation::Link {
            id,
            parent,
            name: "link",
        },
        Operation::Unlink {
            parent,
            name: "old",
        },
        Operation::Rename {
            from: (parent, "CURRENT.tmp"),
            to: (InodeId(0x12), "CURRENT"),
        },
        Operation::Extend {
            id,
            size: 0x1_0000_0001,
            extents,
            modified,
        },
        Operation::Data {
            id,
            offset: 0x1_0000_0000,
            bytes: b"bytes",
            extents,
            modified,
        },
        Operation::Truncate {
            id,
            size: 3,
            modified,
        },
        Operation::SetModified { id, modified },
    ]
}

#[test]
fn superblock() {
    let bytes = sample().encode().unwrap();
    assert_golden("superblock.golden", &bytes);
    assert_eq!(Superblock::decode(&bytes).unwrap(), sample());
    assert_eq!(sample().layout, middle_layout());
}

#[test]
fn superblock_with_data_checksums() {
    let mut superblock = sample();
    superblock.layout = superblock.layout.with_data_checksums(true);
    let bytes = superblock.encode().unwrap();
    assert_golden("superblock_data_checksums.golden", &bytes);
    assert_eq!(Superblock::decode(&bytes).unwrap(), superblock);
}

#[test]
fn block_with_checksum() {
    let data = middle_layout().with_data_checksums(true).file_data();
    let trailer = BlockTrailer::new(data, key(), InodeId(0x1122_3344_5566_7788), 7).unwrap();
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(5000).collect();
    assert_golden("block.golden", &trailer.encode_blocks(&bytes));
}

#[test]
fn transaction() {
    let mut buffer = vec![0; HEADER_BYTES];
    for operation in operations() {
        operation.encode(&mut buffer);
    }
    let payload_bytes = buffer.len() - HEADER_BYTES;
    buffer.resize(1024, 0);
    write_header(&mut buffer, payload_bytes, key(), 0x0a0b, 0x0c0d_0e0f);
    assert_golden("transaction.golden", &buffer);
    let header = Header::open(&buffer, key(), 0x0a0b, 0x0c0d_0e0f, 1024).unwrap();
    let payload = header.verify(&buffer, key()).unwrap();
    let decoded: Vec<_> = Operations::new(payload).map(Result::unwrap).collect();
    assert_eq!(decoded, operations());
}

#[test]
fn checkpoint() {
    let image = Image::new(&large(10), key(), 99);
    assert_golden("checkpoint.golden", image.bytes());
    assert_eq!(image.checksum(), 295_861_519);
}
