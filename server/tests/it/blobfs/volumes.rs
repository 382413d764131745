//! `mkfs`, `df`, `dump`.

use std::os::unix::fs::MetadataExt as _;

use serde_json::json;

use super::fixture::Fixture;

#[test]
fn mkfs_makes_a_file_and_a_volume_in_it() {
    let fixture = Fixture::new();
    let made = fixture.json("mkfs ./disk.img --size 32M --label mill --journal-size 1M");
    assert_eq!(made["is_new_file"], json!(true));
    assert_eq!(made["label"], json!("mill"));
    assert_eq!(made["device_bytes"], json!(32 << 20));
    let uuid = made["uuid"].as_str().expect("a text");
    assert_eq!(uuid.len(), 36);
    assert_eq!(&uuid[14..15], "4", "{uuid}");
    assert_eq!(fixture.read("disk.img").len(), 32 << 20);

    let space = fixture.json("df ./disk.img");
    let number = |key: &str| space[key].as_u64().expect(key);
    assert_eq!(space["free_bytes"], made["free_bytes"]);
    assert_eq!(
        (&space["label"], &space["uuid"]),
        (&json!("mill"), &json!(uuid))
    );
    let text = fixture.ok("df ./disk.img");
    assert!(text.contains("mill") && text.contains(uuid), "{text}");
    assert_eq!(
        number("used_bytes") + number("free_bytes"),
        number("total_bytes")
    );
    assert!(number("metadata_bytes") >= 1 << 20, "{space}");
    assert!(number("free_bytes") > 28 << 20, "{space}");
    assert_eq!(number("files_and_directories"), 0);

    assert_eq!(space["data_checksums"], false);
    let again = fixture.json("mkfs ./disk.img --size 32M --force");
    assert_eq!(again["is_new_file"], json!(false));
    assert_ne!(again["uuid"], made["uuid"]);
    assert!(
        fixture
            .ok("mkfs mem:64M")
            .starts_with("mem:64M: an empty volume\n")
    );
}

#[test]
fn mkfs_makes_a_volume_with_checksums_of_data() {
    let fixture = Fixture::new();
    let made = fixture.json("mkfs ./disk.img --size 32M --data-checksums");
    assert_eq!(made["data_checksums"], true);
    assert_eq!(fixture.json("df ./disk.img")["data_checksums"], true);
    let report = fixture.json("check ./disk.img --read-data");
    assert_eq!(
        (&report["data_checksums"], &report["is_sound"]),
        (&json!(true), &json!(true))
    );
    assert!(fixture.ok("df ./disk.img").contains("of metadata and data"));
    assert!(
        fixture
            .ok("dump ./disk.img")
            .contains("  data checksums  true\n")
    );
}

#[test]
fn mkfs_leaves_alone_what_holds_something() {
    let fixture = Fixture::new();
    let mut ext4 = vec![0; 16 << 20];
    ext4[1080..1082].copy_from_slice(b"\x53\xef");
    ext4[1120] = 0x40;
    let mut gpt = vec![0; 16 << 20];
    gpt[510..520].copy_from_slice(b"\x55\xaaEFI PART");
    let mut end = vec![0; 16 << 20];
    *end.last_mut().expect("it has bytes") = 1;
    let rows = [
        (ext4, "it holds an ext4 file system"),
        (gpt, "it holds partitions (GPT)"),
        (end, "it holds data of an unknown kind"),
    ];
    for (bytes, expected) in rows {
        fixture.write("disk.img", &bytes);
        let error = fixture.fails("mkfs ./disk.img", 1);
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("help: --force"), "{error}");
        assert!(fixture.read("disk.img") == bytes, "{expected}");
        let error = fixture.fails("ls ./disk.img", 1);
        assert!(error.contains("is it the right device?"), "{error}");
        fixture.ok("mkfs ./disk.img --force");
        let error = fixture.fails("mkfs ./disk.img", 1);
        assert!(
            error.contains("a volume of Millrace with 0 files"),
            "{error}"
        );
    }
}

#[test]
fn nothing_is_lost_by_options_that_make_no_volume() {
    let fixture = Fixture::with_volume();
    fixture.ok("mkdir ./disk.img /kept");
    let before = fixture.read("disk.img");
    let label = "x".repeat(65);
    let rows = [
        (
            "mkfs ./disk.img --force --size 64M",
            "with 32M bytes and not 64M",
        ),
        (
            "mkfs ./disk.img --force --journal-size 31M",
            "there can be no such volume",
        ),
        (
            &format!("mkfs ./disk.img --force --label {label}"),
            "a label has at most 64 bytes",
        ),
        ("mkfs mem:64M --size 64M", "--size 64M is for files"),
        ("mkfs ./new.img --size 64K", "too small"),
        ("mkfs ./new.img --size 5000", "a multiple of 4096"),
        ("mkfs ./new.img", "--size 10G"),
        ("mkfs ./none/new.img --size 1M", "could not be made"),
    ];
    for (line, expected) in rows {
        let error = fixture.fails(line, 1);
        assert!(error.contains(expected), "{line}: {error}");
        assert!(!fixture.path("new.img").exists(), "{line}");
    }
    assert!(fixture.read("disk.img") == before);
}

#[test]
fn dump_shows_names_and_places() {
    let fixture = Fixture::with_volume();
    fixture.write("secret", "what is in it");
    fixture.ok("cp ./disk.img secret :/renamed");
    let text = fixture.ok("dump ./disk.img");
    assert!(text.contains("\"renamed\""), "{text}");
    assert!(text.contains("13 bytes"), "{text}");
    assert!(!text.contains("what is in it"), "{text}");
    let dumped = fixture.json("dump ./disk.img");
    let file = &dumped["inodes"][0];
    assert_eq!(file["path"], json!("/renamed"));
    let extents = file["extents"].as_array().expect("a file has them");
    let run = |key: &str| extents[0][key].as_u64().expect(key);
    assert_eq!((extents.len(), run("length_bytes")), (1, 4096));
    let start = usize::try_from(run("device_offset_bytes")).expect("it is small");
    assert_eq!(&fixture.read("disk.img")[start..][..13], b"what is in it");
    assert_eq!(dumped["findings"], json!([]));
}

#[test]
fn looking_writes_nothing() {
    let fixture = Fixture::with_volume();
    fixture.write("tree/file", vec![7; 100_000]);
    fixture.ok("cp ./disk.img tree :/tree");
    let times = || {
        let metadata = std::fs::metadata(fixture.path("disk.img")).expect("it is there");
        (metadata.mtime(), metadata.mtime_nsec())
    };
    let before = (fixture.read("disk.img"), times());
    let lines = [
        "ls ./disk.img -lR",
        "stat ./disk.img /tree/file",
        "cat ./disk.img /tree/file --length 1",
        "df ./disk.img",
        "dump ./disk.img",
        "dump ./disk.img --json",
        "check ./disk.img",
        "check ./disk.img --read-data",
        "cp ./disk.img :/tree out",
    ];
    for line in lines {
        fixture.ok(line);
        assert!((fixture.read("disk.img"), times()) == before, "{line}");
    }
    for (line, code) in [("ls ./disk.img /none", 1), ("mkfs ./disk.img", 1)] {
        fixture.fails(line, code);
        assert!((fixture.read("disk.img"), times()) == before, "{line}");
    }
}

#[test]
fn trim_gives_back_what_is_free() {
    let fixture = Fixture::with_volume();
    let allocated = || {
        let metadata = std::fs::metadata(fixture.path("disk.img")).expect("it is there");
        metadata.blocks() * 512
    };
    fixture.write("tree/kept", vec![7; 3_000_000]);
    fixture.write("tree/removed", vec![8; 9_000_000]);
    fixture.ok("cp ./disk.img tree :/tree");
    fixture.ok("rm ./disk.img /tree/removed");
    assert!(allocated() >= 32 << 20);
    let trimmed = fixture.json("trim ./disk.img");
    let trimmed = trimmed["deallocated_bytes"].as_u64().expect("a number");
    let free = fixture.json("df ./disk.img")["free_bytes"].clone();
    let free = free.as_u64().expect("a number");
    // But for what is kept for the next checkpoint.
    assert!(
        trimmed <= free && free < trimmed + (1 << 20),
        "{trimmed} of {free}"
    );
    assert!(trimmed > 20 << 20 && allocated() <= (32 << 20) - trimmed + (64 << 10));
    assert_eq!(fixture.read("disk.img").len(), 32 << 20);
    assert_eq!(fixture.json("df ./disk.img")["free_bytes"], json!(free));
    assert_eq!(
        fixture.json("check ./disk.img --read-data")["findings"],
        json!([])
    );
    fixture.ok("cp ./disk.img :/tree/kept back");
    assert!(fixture.read("back") == vec![7; 3_000_000]);
    let text = fixture.ok("trim disk.img");
    assert!(text.contains("deallocated"), "{text}");
    // A server that has the volume open is not disturbed.
    let device = fixture.open();
    let error = fixture.fails("trim ./disk.img", 1);
    assert!(error.contains("is in use"), "{error}");
    drop(device);
}
