//! A volume that an earlier build wrote: it must be readable for ever.
//!
//! With `MILLRACE_GOLDEN=write` the file is written anew, which only a new version of the format justifies.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_blobfs::{
    CheckOptions, FormatOptions, MountOptions, OpenOptions, Timestamp, Volume, check, dump,
};
use millrace_block::{Device, Image, MemoryDevice};

const BYTES: u64 = 1 << 20;
const CREATE: OpenOptions = OpenOptions {
    create: true,
    create_new: false,
    truncate: false,
};

fn path(data_checksums: bool) -> PathBuf {
    let name = if data_checksums {
        "volume_data_checksums.golden"
    } else {
        "volume.golden"
    };
    [env!("CARGO_MANIFEST_DIR"), "golden", name]
        .iter()
        .collect()
}

fn mount_options(read_only: bool) -> MountOptions {
    MountOptions {
        read_only,
        arena_bytes: 1 << 20,
        ..MountOptions::new(Arc::new(|| Timestamp(1_700_000_000_000)))
    }
}

/// A file of more than a unit, most of it zeros.
fn table() -> Vec<u8> {
    let mut bytes = vec![0; 5000];
    bytes[4090..4100].copy_from_slice(b"in between");
    bytes[4990..].copy_from_slice(b"at the end");
    bytes
}

/// What is in the volume.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("/db/000002.sst", table()),
        ("/db/CURRENT", b"MANIFEST-000001\n".to_vec()),
        ("/db/Größe", Vec::new()),
        (
            "/db/log/000003.log",
            b"first record, second record".to_vec(),
        ),
        ("/link", table()),
    ]
}

/// Makes the volume; the device is as a power cut after the last sync would leave it.
fn made(data_checksums: bool) -> Image {
    let device = Arc::new(MemoryDevice::new(BYTES, 512).expect("a good geometry"));
    let shared: Arc<dyn Device> = device.clone();
    let options = FormatOptions {
        label: "golden".to_owned(),
        data_checksums,
        ..FormatOptions::new(*b"golden volume 01", Timestamp(1_700_000_000_000))
    };
    Volume::format(&shared, &options).expect("the device is good");
    let volume =
        Volume::mount(Arc::clone(&shared), mount_options(false)).expect("the device is good");
    volume.create_dir("/db").expect("the device is good");
    volume.create_dir("/db/log").expect("the device is good");
    let write = |path: &str, bytes: &[u8]| {
        let file = volume.open(path, &CREATE).expect("the device is good");
        file.append(bytes).expect("the device is good");
        file.sync().expect("the device is good");
    };
    write("/db/000002.sst", &table());
    write("/db/temporary", b"MANIFEST-000001\n");
    write("/db/Größe", b"");
    volume.unmount().expect("the device is good");
    drop(volume);
    let volume = Volume::mount(shared, mount_options(false)).expect("the device is good");
    let file = volume
        .open("/db/log/000003.log", &CREATE)
        .expect("the device is good");
    file.append(b"first record, ").expect("the device is good");
    file.sync().expect("the device is good");
    volume
        .rename("/db/temporary", "/db/CURRENT")
        .expect("the device is good");
    volume
        .link("/db/000002.sst", "/link")
        .expect("the device is good");
    file.append(b"second record").expect("the device is good");
    file.sync().expect("the device is good");
    volume.sync().expect("the device is good");
    let image = device.image();
    drop(file);
    image
}

/// Sixteen bytes a line; lines of zeros are left out.
fn to_text(image: &Image) -> String {
    let mut text = String::new();
    for offset in (0..BYTES).step_by(16) {
        let mut line = [0; 16];
        image.read(offset, &mut line);
        if line != [0; 16] {
            text.push_str(&format!("{offset:06x} "));
            for byte in line {
                text.push_str(&format!(" {byte:02x}"));
            }
            text.push('\n');
        }
    }
    text
}

fn from_text(text: &str) -> Image {
    let mut image = Image::new(BYTES);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let offset = u64::from_str_radix(words.next().expect("an offset"), 16).expect("a number");
        let bytes: Vec<u8> = words
            .map(|word| u8::from_str_radix(word, 16).expect("a byte"))
            .collect();
        image.write(offset, &bytes);
    }
    image
}

#[test]
fn an_old_volume_can_be_read() {
    for data_checksums in [false, true] {
        let path = path(data_checksums);
        if std::env::var_os("MILLRACE_GOLDEN").is_some_and(|value| value == "write") {
            fs::write(&path, to_text(&made(data_checksums))).unwrap();
        }
        let image = from_text(&fs::read_to_string(path).unwrap());
        let geometry = MemoryDevice::geometry_of(BYTES, 512);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::on(image, geometry).unwrap());

        let mut text = Vec::new();
        dump(&device, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let options = CheckOptions {
            repair: false,
            read_data: true,
        };
        let report = check(&device, options, &mut |_| {}).unwrap();
        assert_eq!(report.findings, [], "{text}");
        assert_eq!((report.label.as_str(), report.files), ("golden", 4));
        assert!(report.transactions > 0, "the journal is read too");
        assert_eq!(report.data_checksums, data_checksums);

        // For reading, then for writing, which does what the journal says.
        for read_only in [true, false, true] {
            let volume = Volume::mount(Arc::clone(&device), mount_options(read_only)).unwrap();
            for (path, expected) in contents() {
                let file = volume.open(path, &OpenOptions::default()).unwrap();
                let mut bytes = vec![0; expected.len() + 1];
                let len = file.read_at(0, &mut bytes).unwrap();
                assert_eq!(&bytes[..len], expected, "{path}");
            }
            assert_eq!(volume.read_dir("/db").unwrap().len(), 4);
            assert_eq!(volume.status("/link").unwrap().links, 2);
        }
    }
}
