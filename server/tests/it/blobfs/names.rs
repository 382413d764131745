//! `ls`, `stat`, `cat`, `mkdir`, `mv`, `rm`.

use serde_json::{Value, json};

use super::fixture::{Fixture, bytes};

/// `/a/b/c.txt` with 5 bytes, `/a/empty`, `/z`.
fn populated() -> Fixture {
    let fixture = Fixture::with_volume();
    fixture.write("a/b/c.txt", "12345");
    fixture.write("a/empty", "");
    fixture.write("z", "z");
    fixture.ok("cp ./disk.img a z :/");
    fixture
}

fn paths(list: &Value) -> Vec<&str> {
    let rows = list.as_array().expect("a list").iter();
    rows.map(|row| row["path"].as_str().expect("a path"))
        .collect()
}

#[test]
fn ls_lists_files_and_directories() {
    let fixture = populated();
    assert_eq!(fixture.ok("ls ./disk.img"), "a/\nz\n");
    assert_eq!(
        fixture.ok("ls ./disk.img -R"),
        "a/\na/b/\na/b/c.txt\na/empty\nz\n"
    );
    assert_eq!(fixture.ok("ls ./disk.img :a -R"), "b/\nb/c.txt\nempty\n");
    assert_eq!(fixture.ok("ls ./disk.img /a/b/../b/c.txt"), "c.txt\n");
    let long = fixture.ok("ls ./disk.img /a -lR");
    let rows: Vec<Vec<&str>> = long
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["KIND", "NAMES", "BYTES", "MODIFIED", "(UTC)", "NAME"]
    );
    assert_eq!(
        (rows[1][0], rows[1][2], rows[1][5]),
        ("directory", "-", "b/")
    );
    assert_eq!(
        (rows[2][0], rows[2][2], rows[2][5]),
        ("file", "5", "b/c.txt")
    );
    let list = fixture.json("ls ./disk.img -R");
    assert_eq!(paths(&list), ["/a", "/a/b", "/a/b/c.txt", "/a/empty", "/z"]);
    assert_eq!(list[0]["entries"], json!(2));
    assert_eq!(list[2]["size_bytes"], json!(5));
    let file = fixture.json("ls ./disk.img /z");
    assert_eq!(paths(&file), ["/z"]);
}

#[test]
fn names_that_act_on_a_terminal_are_escaped() {
    let fixture = Fixture::with_volume();
    fixture.write("name", "x");
    let name = ":/a\u{1b}[2J\nb";
    let output = fixture.run_all(&["cp", "./disk.img", "name", name]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fixture.ok("ls ./disk.img"), "a\\u{1b}[2J\\nb\n");
    assert_eq!(fixture.json("ls ./disk.img")[0]["path"], json!(&name[1..]));
}

#[test]
fn stat_tells_what_is_known() {
    let fixture = populated();
    let status = fixture.json("stat ./disk.img /a/b/c.txt /a /");
    assert_eq!(paths(&status), ["/a/b/c.txt", "/a", "/"]);
    assert_eq!(status[0]["kind"], json!("file"));
    assert_eq!(status[0]["names"], json!(1));
    assert_eq!(status[0]["allocated_bytes"], json!(4096));
    assert_eq!(status[2]["kind"], json!("directory"));
    assert_eq!(status[2]["size_bytes"], json!(null));
    let text = fixture.ok("stat ./disk.img /a/b/c.txt");
    assert!(text.starts_with("/a/b/c.txt\n  kind "), "{text}");
    assert!(text.contains("5 bytes"), "{text}");
}

#[test]
fn cat_writes_all_or_a_part() {
    let fixture = Fixture::with_volume();
    let bytes = bytes(2_500_000, 0);
    fixture.write("file", &bytes);
    fixture.ok("cp ./disk.img file :/file");
    let cat = |options: &str| {
        let output = fixture.run(&format!("cat ./disk.img /file {options}"));
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    assert!(cat("") == bytes);
    assert!(cat("--offset 1000001") == bytes[1_000_001..]);
    assert!(cat("--offset 1K --length 1M") == bytes[1024..1024 + (1 << 20)]);
    assert!(cat("--length 0").is_empty());
    assert!(cat("--offset 2500000").is_empty());
    let error = fixture.fails("cat ./disk.img /file --offset 2500001", 1);
    assert!(error.contains("has 2500000 bytes"), "{error}");
}

#[test]
fn directories_are_made() {
    let fixture = Fixture::with_volume();
    assert_eq!(
        fixture.ok("mkdir ./disk.img /a /a/b"),
        "made 2 directories\n"
    );
    let error = fixture.fails("mkdir ./disk.img /x/y", 1);
    assert!(error.contains("--parents"), "{error}");
    let made = fixture.json("mkdir ./disk.img /x/y/z /a/b -p");
    assert_eq!(made["directories"], json!(3));
    let error = fixture.fails("mkdir ./disk.img /a", 1);
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(
        fixture.ok("ls ./disk.img -R"),
        "a/\na/b/\nx/\nx/y/\nx/y/z/\n"
    );
}

#[test]
fn files_and_directories_are_moved() {
    let fixture = populated();
    assert_eq!(fixture.ok("mv ./disk.img /z /a"), "/z is now /a/z\n");
    assert_eq!(fixture.json("mv ./disk.img /a/b /c")["to"], json!("/c"));
    let error = fixture.fails("mv ./disk.img /a/z /c/c.txt", 1);
    assert!(
        error.contains("there is a file /c/c.txt already"),
        "{error}"
    );
    fixture.ok("mv ./disk.img /a/z /c/c.txt --force");
    assert_eq!(fixture.ok("cat ./disk.img /c/c.txt"), "z");
    assert_eq!(fixture.ok("ls ./disk.img -R"), "a/\na/empty\nc/\nc/c.txt\n");
    let rows = [
        ("mv ./disk.img / /x", "the root directory"),
        ("mv ./disk.img /a /a/x", "into itself"),
        ("mv ./disk.img /none /x", "/none"),
        ("mv ./disk.img /a/empty /none/x", "/none"),
    ];
    for (line, expected) in rows {
        let error = fixture.fails(line, 1);
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn what_is_removed_is_gone_and_a_slip_costs_nothing() {
    let fixture = populated();
    let rows = [
        ("rm ./disk.img /z /none", "/none"),
        ("rm ./disk.img /z / -r", "the root directory"),
        ("rm ./disk.img /a", "--recursive removes it"),
    ];
    for (line, expected) in rows {
        let error = fixture.fails(line, 1);
        assert!(error.contains(expected), "{line}: {error}");
    }
    let removed = fixture.json("rm ./disk.img /a /a/b /z -r");
    assert_eq!(removed, json!({ "files": 3, "directories": 2 }));
    assert_eq!(fixture.ok("ls ./disk.img -R"), "");
    assert_eq!(
        fixture.json("df ./disk.img")["files_and_directories"],
        json!(0)
    );
}
