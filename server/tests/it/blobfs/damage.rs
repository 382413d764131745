//! `check`, and the other commands on a volume that is not as it should be.

use std::sync::Arc;

use millrace_blobfs::{MountOptions, OpenOptions, Timestamp, Volume};
use serde_json::json;

use super::fixture::{Fixture, parse};

/// Where the first superblock begins and how long it is.
const SUPERBLOCK_BYTES: usize = 4096;

/// A volume that nobody unmounted, with a file that was synced.
fn cut_off() -> Fixture {
    let fixture = Fixture::with_volume();
    let volume = Volume::mount(
        fixture.open(),
        MountOptions::new(Arc::new(|| Timestamp(1_000))),
    )
    .expect("mkfs made it");
    let create = OpenOptions {
        create: true,
        ..OpenOptions::default()
    };
    let file = volume.open("/synced", &create).expect("there is room");
    file.append(b"acknowledged").expect("there is room");
    file.sync().expect("the disk works");
    // What a disk has when the power goes.
    fixture.write("cut.img", fixture.read("disk.img"));
    drop(file);
    drop(volume);
    fixture
}

#[test]
fn a_volume_that_was_cut_off_is_read_as_it_is() {
    let fixture = cut_off();
    let before = fixture.read("cut.img");
    assert_eq!(fixture.ok("cat ./cut.img /synced"), "acknowledged");
    let checked = fixture.json("check ./cut.img");
    assert_eq!(checked["is_sound"], json!(true));
    assert_eq!(checked["is_clean_unmount"], json!(false));
    assert!(
        checked["transactions_to_replay"].as_u64() > Some(0),
        "{checked}"
    );
    assert!(fixture.read("cut.img") == before);

    fixture.ok("mkdir ./cut.img /new");
    let checked = fixture.json("check ./cut.img");
    assert_eq!(checked["is_clean_unmount"], json!(true));
    assert_eq!(checked["transactions_to_replay"], json!(0));
    assert_eq!(fixture.ok("cat ./cut.img /synced"), "acknowledged");
}

#[test]
fn check_ends_as_other_checkers_do() {
    let fixture = Fixture::with_volume();
    fixture.write("file", vec![3; 10_000]);
    fixture.ok("cp ./disk.img file :/file");
    let text = fixture.ends_with("check ./disk.img", 0);
    assert!(text.starts_with("file:./disk.img: sound\n"), "{text}");

    let mut bytes = fixture.read("disk.img");
    bytes[..SUPERBLOCK_BYTES].fill(0);
    fixture.write("disk.img", &bytes);
    let text = fixture.ends_with("check ./disk.img", 4);
    assert!(text.starts_with("file:./disk.img: damaged\n"), "{text}");
    assert!(
        text.contains("superblock: the first cannot be used"),
        "{text}"
    );
    assert!(
        text.ends_with("--repair keeps what can be read\n"),
        "{text}"
    );
    let checked = parse(&fixture.ends_with("check ./disk.img --json", 4));
    assert_eq!(checked["findings"][0]["severity"], json!("damage"));
    assert_eq!(checked["left"], json!(null));
    assert!(
        fixture.read("disk.img") == bytes,
        "nothing was asked to be mended"
    );

    let text = fixture.ends_with("check ./disk.img --repair --read-data", 1);
    assert!(text.starts_with("file:./disk.img: mended"), "{text}");
    let text = fixture.ends_with("check ./disk.img --repair", 0);
    assert!(text.starts_with("file:./disk.img: sound\n"), "{text}");
    assert_eq!(fixture.run("cat ./disk.img /file").stdout, vec![3; 10_000]);
}

#[test]
fn what_is_no_volume_cannot_be_checked() {
    let fixture = Fixture::new();
    fixture.write("disk.img", vec![1; 4 << 20]);
    for line in ["check ./disk.img", "check ./disk.img --repair"] {
        let error = fixture.fails(line, 8);
        assert!(error.contains("is it the right device?"), "{error}");
    }
    assert!(fixture.read("disk.img") == vec![1; 4 << 20]);
}

#[test]
fn a_damaged_volume_can_be_looked_into() {
    let fixture = Fixture::with_volume();
    fixture.write("file", "still here");
    fixture.ok("cp ./disk.img file :/file");
    let mut bytes = fixture.read("disk.img");
    let end = bytes.len() - SUPERBLOCK_BYTES;
    bytes[end..].fill(0xee);
    fixture.write("disk.img", &bytes);
    assert_eq!(fixture.ok("cat ./disk.img /file"), "still here");
    assert!(fixture.ok("dump ./disk.img").contains("\nfindings\n"));
    let dumped = fixture.json("dump ./disk.img");
    assert_eq!(dumped["findings"][0]["area"], json!("superblock"));
    assert_eq!(dumped["inodes"][0]["path"], json!("/file"));
    let error = fixture.fails("mkfs ./disk.img", 1);
    assert!(
        error.contains("a volume of Millrace with 1 file"),
        "{error}"
    );
}
