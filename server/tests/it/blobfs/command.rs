//! What all commands have in common.

use std::sync::Arc;
use std::thread;

use millrace_nvme_model::{Options, Service, Stepper};
use serde_json::json;

use super::fixture::{Fixture, bytes};

#[test]
fn every_command_helps_with_examples() {
    let fixture = Fixture::new();
    let commands = "mkfs check ls stat cat cp mv rm mkdir df trim dump";
    for command in commands.split_whitespace() {
        let text = fixture.ok(&format!("{command} --help"));
        assert!(text.contains("Examples:\n  millrace blobfs "), "{text}");
        assert!(command == "cat" || text.contains("--json"), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fixture = Fixture::with_volume();
    fixture.write("data", "x");
    let rows = [
        ("ls", 2, "<SPEC>"),
        ("ls disk.img:1", 2, "begins with file:"),
        ("ls mem", 2, "write mem: and which one"),
        ("ls floppy:0", 2, "there are no devices of kind \"floppy\""),
        ("mkfs ./new.img --size 10Q", 2, "not a number of bytes"),
        ("cp ./disk.img :/a", 2, "PATH"),
        ("cat ./disk.img :", 2, "the root directory is /"),
        ("ls ./none.img", 1, "mkfs file:./none.img --size 10G`"),
        ("ls mem:16M", 1, "memory is empty each time"),
        ("ls ./data", 1, "could not be opened"),
        ("ls nvme:ffff:ff:1f.7", 1, "`millrace nvme list`"),
        ("ls vfio-user:./none.sock", 1, "start the process"),
        ("ls ./disk.img /none", 1, "ls file:./disk.img -R` lists"),
        ("cat ./disk.img /", 1, "is a directory"),
        ("check ./none.img", 8, "could not be opened"),
    ];
    for (line, code, expected) in rows {
        let error = fixture.fails(line, code);
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn a_volume_is_one_process_s_at_a_time() {
    let fixture = Fixture::with_volume();
    let device = fixture.open();
    let rows = [
        ("ls ./disk.img", 1),
        ("mkdir ./disk.img /a", 1),
        ("mkfs ./disk.img --force", 1),
        ("check ./disk.img", 8),
    ];
    for (line, code) in rows {
        let error = fixture.fails(line, code);
        assert!(error.contains("is in use"), "{line}: {error}");
        assert!(error.contains("`fuser -v ./disk.img`"), "{line}: {error}");
    }
    drop(device);
    fixture.ok("ls ./disk.img");
    // Without a '/' it is the same file.
    fixture.ok("ls disk.img");
}

#[test]
fn an_nvme_device_serves_as_a_file_does() {
    let fixture = Fixture::new();
    let socket = fixture.path("ctrl.sock");
    let service = Service::bind(Options::default(), &socket).expect("a new socket");
    let service = Arc::new(service);
    let _stepper = Stepper::new(service.controller());
    let serving = Arc::clone(&service);
    // It waits for a client that never comes when the test has ended.
    thread::spawn(move || while serving.serve_client().is_ok() {});

    let bytes = bytes(3_000_001, 0);
    fixture.write("tree/big", &bytes);
    fixture.write("tree/small", "small");
    let spec = format!("vfio-user:{}", socket.display());
    let made = fixture.json(&format!("mkfs {spec} --label model"));
    assert_eq!(made["device_bytes"], json!(64 << 20));
    fixture.ok(&format!("cp {spec} tree :/"));
    assert_eq!(fixture.ok(&format!("cat {spec} /tree/small")), "small");
    fixture.ok(&format!("cp {spec} :/tree back"));
    assert!(fixture.read("back/big") == bytes);
    let checked = fixture.json(&format!("check {spec} --read-data"));
    assert_eq!(
        (&checked["label"], &checked["is_sound"]),
        (&json!("model"), &json!(true))
    );
    let trimmed = fixture.json(&format!("trim {spec}"));
    assert!(
        trimmed["deallocated_bytes"].as_u64() > Some(32 << 20),
        "{trimmed}"
    );
    fixture.ok(&format!("check {spec} --read-data"));
    let error = fixture.fails(&format!("mkfs {spec}"), 1);
    assert!(
        error.contains("a volume of Millrace with 3 files"),
        "{error}"
    );
    assert_eq!(service.controller().violations(), []);
    assert_eq!(service.controller().dma_faults(), []);
}
