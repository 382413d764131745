//! `cp`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::json;

use super::fixture::{Fixture, bytes};

/// What is below a folder: files with their bytes, directories without.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

fn tree(top: &Path) -> Tree {
    fn add(top: &Path, folder: &Path, tree: &mut Tree) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let below = path.strip_prefix(top).expect("it is below");
            let name = below.to_str().expect("UTF-8").to_owned();
            if path.is_dir() {
                tree.insert(name, None);
                add(top, &path, tree);
            } else {
                tree.insert(name, Some(fs::read(&path).expect("a file")));
            }
        }
    }
    let mut found = Tree::new();
    add(top, top, &mut found);
    found
}

#[test]
fn a_tree_goes_in_and_out() {
    let fixture = Fixture::with_volume();
    fixture.write("data/deep/er/still/leaf", "leaf");
    fixture.write("data/größe 1", "with a space");
    fixture.write("data/empty", "");
    for count in [1, 511, 4095, 4096, 4097, 1 << 20, 3_000_001] {
        fixture.write(&format!("data/sizes/{count}"), bytes(count, 0));
    }
    fs::create_dir(fixture.path("data/hollow")).expect("the folder is ours");
    let time = UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    let file = fs::File::options()
        .write(true)
        .open(fixture.path("data/empty"));
    file.and_then(|file| file.set_modified(time))
        .expect("the file is ours");

    let copied = fixture.json("cp ./disk.img data :/backup");
    assert_eq!(
        (&copied["files"], &copied["directories"]),
        (&json!(10), &json!(6))
    );
    assert_eq!(
        copied["bytes"],
        json!(4 + 12 + 12_800 + (1 << 20) + 3_000_001)
    );
    fixture.ok("cp ./disk.img :/backup out");
    assert!(tree(&fixture.path("out")) == tree(&fixture.path("data")));
    let out = fs::metadata(fixture.path("out/empty")).expect("it is there");
    assert_eq!(out.modified().expect("a time"), time);
    assert_eq!(out.mode() & 0o777, 0o600);
    let folder = fs::metadata(fixture.path("out/deep")).expect("it is there");
    assert_eq!(folder.mode() & 0o777, 0o700);

    fixture.ok("cp ./disk.img :/backup/sizes :/copy");
    fixture.ok("cp ./disk.img :/copy again");
    assert!(tree(&fixture.path("again")) == tree(&fixture.path("data/sizes")));
    fixture.ok("check ./disk.img --read-data");
}

#[test]
fn a_directory_that_is_there_takes_copies_in() {
    let fixture = Fixture::with_volume();
    fixture.write("data/x", "x");
    fixture.write("y", "y");
    fixture.ok("mkdir ./disk.img /to");
    fixture.ok("cp ./disk.img data y :/to");
    assert_eq!(fixture.ok("ls ./disk.img /to -R"), "data/\ndata/x\ny\n");
    fixture.ok("cp ./disk.img data/. :/to");
    assert_eq!(fixture.ok("ls ./disk.img /to -R"), "data/\ndata/x\nx\ny\n");
    fs::create_dir(fixture.path("out")).expect("the folder is ours");
    fixture.ok("cp ./disk.img :/to/data :/to/y out");
    assert_eq!(
        tree(&fixture.path("out")).keys().collect::<Vec<_>>(),
        ["data", "data/x", "y"]
    );
    fixture.ok("cp ./disk.img :/ all");
    assert_eq!(tree(&fixture.path("all")).len(), 5);
    symlink("out", fixture.path("link")).expect("the folder is ours");
    fixture.ok("cp ./disk.img :/to/x link");
    assert_eq!(fixture.read("out/x"), b"x");
}

#[test]
fn files_in_the_way_are_replaced_only_by_force() {
    let fixture = Fixture::with_volume();
    fixture.write("data/one", "new");
    fixture.write("data/two", "two");
    fixture.write("old", "old");
    fixture.ok("mkdir ./disk.img /data");
    fixture.ok("cp ./disk.img old :/data/one");
    let error = fixture.fails("cp ./disk.img data :/", 1);
    assert!(
        error.contains("there is a file :/data/one already"),
        "{error}"
    );
    assert_eq!(
        fixture.ok("ls ./disk.img /data"),
        "one\n",
        "nothing was copied"
    );
    fixture.ok("cp ./disk.img data :/ --force");
    assert_eq!(fixture.ok("cat ./disk.img /data/one"), "new");
    let error = fixture.fails("cp ./disk.img :/data/one old", 1);
    assert!(error.contains("there is a file old already"), "{error}");
    assert_eq!(fixture.read("old"), b"old");
    fixture.ok("cp ./disk.img :/data/one old --force");
    assert_eq!(fixture.read("old"), b"new");

    // A directory is never replaced by a file, nor a file by a directory.
    fixture.ok("mkdir ./disk.img /two /two/old");
    for line in [
        "cp ./disk.img old :/two --force",
        "cp ./disk.img data :/data/one --force",
    ] {
        let error = fixture.fails(line, 1);
        assert!(error.contains("in the way"), "{line}: {error}");
    }
}

#[test]
fn what_cannot_be_copied_is_said_before() {
    let fixture = Fixture::with_volume();
    fixture.write("data/file", "x");
    fixture.write("other/file", "y");
    symlink("file", fixture.path("data/link")).expect("the folder is ours");
    fixture.ok("mkdir ./disk.img /d");
    let rows = [
        ("cp ./disk.img data :/new", "is a symbolic link"),
        ("cp ./disk.img none :/new", "there is no none"),
        ("cp ./disk.img :/none out", "there is no :/none"),
        ("cp ./disk.img data other", "are both the host's"),
        (
            "cp ./disk.img data/file :/a/b",
            "mkdir file:./disk.img /a --parents`",
        ),
        ("cp ./disk.img :/d none/out", "`mkdir -p none`"),
        (
            "cp ./disk.img data/file other/file :/new",
            "is no directory",
        ),
        (
            "cp ./disk.img data/file other/file :/d",
            "is not the only one",
        ),
        ("cp ./disk.img :/ :/d", "into itself"),
        ("cp ./disk.img :/d :/d", "into itself"),
    ];
    for (line, expected) in rows {
        let error = fixture.fails(line, 1);
        assert!(error.contains(expected), "{line}: {error}");
        assert_eq!(fixture.ok("ls ./disk.img -R"), "d/\n", "{line}");
    }
    let copied = fixture.json("cp ./disk.img data :/new --skip-special");
    assert_eq!(copied["skipped"], json!(["data/link, a symbolic link"]));
    assert_eq!(fixture.ok("ls ./disk.img /new"), "file\n");

    fs::remove_file(fixture.path("data/link")).expect("the folder is ours");
    let name = Path::new(OsStr::from_bytes(b"data/\xff"));
    fs::write(fixture.path("").join(name), "x").expect("the folder is ours");
    let error = fixture.fails("cp ./disk.img data :/newer", 1);
    assert!(error.contains("no UTF-8"), "{error}");
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let fixture = Fixture::with_volume();
    fixture.write("data/small", "small");
    fixture.write("data/vast", vec![5; 40 << 20]);
    let error = fixture.fails("cp ./disk.img data :/data", 1);
    assert!(error.contains("has no room"), "{error}");
    assert_eq!(fixture.ok("ls ./disk.img -R"), "");

    // To the last block: each copy takes half of what is left, until one does not fit.
    fixture.write("part", vec![9; 3 << 20]);
    let mut copies = 0;
    let error = loop {
        let output = fixture.run(&format!("cp ./disk.img part :/part{copies}"));
        if !output.status.success() {
            break String::from_utf8_lossy(&output.stderr).into_owned();
        }
        copies += 1;
    };
    assert!((8..11).contains(&copies), "{copies}");
    assert!(error.contains("blobfs rm`"), "{error}");
    fixture.ok("check ./disk.img --read-data");
    fixture.ok("rm ./disk.img /part0");
    fixture.ok("cp ./disk.img part :/again");
    let rest = fixture.json("ls ./disk.img");
    assert_eq!(rest.as_array().map(Vec::len), Some(copies), "{rest}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_back_as_it_was(
        files in prop::collection::vec(
            (
                prop::collection::vec("[a-c]", 0..3),
                "[x-z]{1,2}",
                prop_oneof![0..20_usize, 4090..4100_usize, 0..300_000_usize],
            ),
            1..12,
        ),
        seed in 0..251_usize,
    ) {
        let fixture = Fixture::with_volume();
        fs::create_dir(fixture.path("data")).expect("the folder is ours");
        for (index, (folders, name, count)) in files.iter().enumerate() {
            let path = format!("data/{}/{name}", folders.join("/"));
            fixture.write(&path, bytes(*count, index + seed));
        }
        fixture.ok("cp ./disk.img data :/in");
        fixture.ok("cp ./disk.img :/in out");
        prop_assert!(tree(&fixture.path("out")) == tree(&fixture.path("data")));
        let data: u64 = tree(&fixture.path("data")).values().flatten().map(|bytes| bytes.len() as u64).sum();
        let listed = fixture.json("ls ./disk.img /in -R");
        let sizes = listed.as_array().expect("a list").iter();
        prop_assert_eq!(sizes.filter_map(|row| row["size_bytes"].as_u64()).sum::<u64>(), data);
        fixture.ok("check ./disk.img --read-data");
    }
}
