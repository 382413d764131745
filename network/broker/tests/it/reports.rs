//! The broker's reports, its path, and its exit when unused.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::fixture::{Running, connect, listen, listener, local, slab, user};
use millrace_broker::ErrorKind;
use millrace_broker::broker::{Broker, prepare_folder};
use millrace_broker::client::{Client, accept};
use millrace_broker::registry::Settings;
use millrace_stream::control::Message;
use millrace_stream::slab::Totals;
use rustix::io::pwrite;
use serde_json::Value;

fn ask(running: &Running, what: Message) -> Value {
    // A client without HELLO is not a process.
    let mut client = Client::connect(&running.path()).expect("it listens");
    let text = client.report(what).expect("an answer");
    serde_json::from_str(&text).expect("JSON")
}

fn counting(totals: &Totals) -> OwnedFd {
    let file = slab();
    let header = totals.header(std::process::id());
    assert_eq!(pwrite(&file, &header, 0), Ok(header.len()));
    file
}

#[test]
fn sums_never_go_back() {
    let running = Running::new(Settings::default());
    let mut first = Client::connect(&running.path()).expect("it listens");
    let totals = Totals {
        sent: 100,
        notifications: 7,
        ..Totals::default()
    };
    first.hello(counting(&totals)).expect("it lets us in");
    let mut second = Client::connect(&running.path()).expect("it listens");
    second.hello(counting(&totals)).expect("it lets us in");
    let top = ask(&running, Message::Top);
    assert_eq!(top["totals"]["bytes_sent"], 200);
    assert_eq!(top["processes"][0]["process"], std::process::id());
    assert_eq!(top["processes"][0]["notifications"], 7);
    assert_eq!(top["processes"].as_array().map(Vec::len), Some(2));
    drop(first);
    // The disconnect of the first precedes this request.
    let status = ask(&running, Message::Status);
    assert_eq!(status["totals"]["bytes_sent"], 200);
    assert_eq!(status["totals"]["notifications"], 14);
    assert_eq!(status["processes"], 1);
}

#[test]
fn listeners_and_requests_are_reported() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 5);
    let mut program = running.process();
    user(connect(&mut program, local(&tcp)));
    accept(&channel).expect("it is there");
    let status = ask(&running, Message::Status);
    let listener = &status["listeners"][0];
    assert_eq!(listener["address"], local(&tcp).to_string());
    assert_eq!(listener["backlog"], 5);
    assert_eq!(listener["accepted"], 1);
    assert_eq!(status["requests"]["connects"], 1);
    assert_eq!(status["requests"]["connected"], 1);
    assert_eq!(status["totals"]["bytes_sent"], 0);
}

#[test]
fn what_is_no_slab_counts_nothing_and_what_is_no_memory_is_refused() {
    let running = Running::new(Settings::default());
    let mut odd = Client::connect(&running.path()).expect("it listens");
    let file = slab();
    assert_eq!(pwrite(&file, b"something else", 0), Ok(14));
    odd.hello(file).expect("it lets us in");
    let top = ask(&running, Message::Top);
    assert_eq!(top["processes"][0]["bytes_sent"], 0);
    for path in ["/dev/zero", "/proc/self/maps"] {
        let mut odd = Client::connect(&running.path()).expect("it listens");
        let file = std::fs::File::open(path).expect("it is there");
        let error = odd.hello(file).expect_err("a read of it may do anything");
        assert_eq!(error.kind(), ErrorKind::Refused, "{path}");
    }
}

#[test]
fn an_unused_broker_exits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sockets");
    let mut broker = Broker::bind(&path, Settings::default()).expect("nobody listens");
    let (wanted, parent) = UnixStream::pair().expect("a pair");
    let (stop, _never) = UnixStream::pair().expect("a pair");
    let thread = std::thread::spawn(move || broker.run_while_used(stop, parent));

    let mut server = Client::connect(&path).expect("it listens");
    server.hello(slab()).expect("it lets us in");
    drop(wanted);
    let tcp = listener("127.0.0.1:0");
    let channel = listen(&mut server, &tcp, 5);
    drop(server);
    let mut program = Client::connect(&path).expect("it still listens");
    program.hello(slab()).expect("it lets us in");
    user(connect(&mut program, local(&tcp)));
    drop(program);
    assert!(!thread.is_finished(), "there is a listener");
    drop(channel);
    thread.join().expect("no panic").expect("no error");
    let error = Client::connect(&path).expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::NotRunning);
}

fn mode(path: &Path) -> u32 {
    let status = std::fs::metadata(path).expect("it is there");
    status.permissions().mode() & 0o777
}

#[test]
fn folders_that_others_may_change_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own");
    prepare_folder(&own, false).expect("it can be made");
    assert_eq!(mode(&own), 0o700);
    prepare_folder(&own, true).expect("it is ours");
    assert_eq!(mode(&own), 0o711);
    prepare_folder(&own, false).expect("it is ours");
    assert_eq!(mode(&own), 0o700);

    let refused = |path: &Path| {
        let error = prepare_folder(path, false).expect_err("it cannot be trusted");
        assert_eq!(error.kind(), ErrorKind::Unsafe, "{error}");
    };
    let link = folder.path().join("link");
    symlink(&own, &link).expect("a link");
    refused(&link);
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    refused(&file);
    for open in [0o777, 0o770, 0o755] {
        let permissions = std::fs::Permissions::from_mode(open);
        std::fs::set_permissions(&own, permissions).expect("it is ours");
        refused(&own);
    }
    let permissions = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&own, permissions).expect("it is ours");
    let error = Broker::bind(&own.join("sockets"), Settings::default()).expect_err("no trust");
    assert_eq!(error.kind(), ErrorKind::Unsafe);
}

#[test]
fn the_socket_is_for_its_user_alone() {
    let running = Running::new(Settings::default());
    assert_eq!(mode(&running.path()), 0o600);
}
