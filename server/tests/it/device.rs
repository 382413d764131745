//! The server on a device: what it acknowledged is there after it was killed, and devices that it cannot use are
//! refused with advice.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use futures_util::TryStreamExt;
use millrace_block::FileDevice;
use millrace_nvme_model::{Options, Service, Stepper};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection, IndexModel};

use crate::support::Server;

const DEVICE_BYTES: u64 = 256 << 20;
/// How often the server is killed.
const KILLS: u64 = 5;
const WRITERS: [i64; 3] = [0, 1, 2];

/// A blank device in a file, and how it is named.
fn device(folder: &Path) -> String {
    let path = folder.join("disk.img");
    FileDevice::create(&path, DEVICE_BYTES).expect("the folder is ours");
    format!("file:{}", path.display())
}

fn start(spec: &str) -> Server {
    Server::start(&["--device", spec, "--format", "--cacheSizeGB", "0.02"])
}

async fn mills(server: &Server) -> Collection<Document> {
    let client = Client::with_uri_str(server.uri()).await;
    client
        .expect("the URI is well-formed")
        .database("device")
        .collection("mills")
}

/// Inserts documents of a writer from `next` on until the server is gone; returns the first that was not
/// acknowledged.
async fn write(
    mills: Collection<Document>,
    writer: i64,
    mut next: i64,
    told: Arc<AtomicU64>,
) -> i64 {
    loop {
        let document = doc! {"_id": {"w": writer, "n": next}, "w": writer, "pad": "x".repeat(2000)};
        if mills.insert_one(document).await.is_err() {
            return next;
        }
        next += 1;
        told.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_are_there_after_kills() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = device(folder.path());
    let mut server = start(&spec);
    let index = IndexModel::builder().keys(doc! {"w": 1}).build();
    mills(&server)
        .await
        .create_index(index)
        .await
        .expect("an index");
    let mut next = [0; WRITERS.len()];
    for kill in 1..=KILLS {
        let told = Arc::new(AtomicU64::new(0));
        let collection = mills(&server).await;
        let writers: Vec<_> = WRITERS
            .into_iter()
            .zip(next)
            .map(|(writer, next)| {
                tokio::spawn(write(collection.clone(), writer, next, Arc::clone(&told)))
            })
            .collect();
        while told.load(Ordering::Relaxed) < 40 * kill {
            tokio::task::yield_now().await;
        }
        // Without warning, in the middle of writes.
        drop(server);
        for (next, writer) in next.iter_mut().zip(writers) {
            *next = writer.await.expect("a writer ends");
        }
        server = start(&spec);
        let collection = mills(&server).await;
        for (writer, next) in (0..).zip(&mut next) {
            let found = collection
                .find(doc! {"w": writer})
                .await
                .expect("it is read");
            let found: Vec<Document> = found.try_collect().await.expect("it is read");
            let count = i64::try_from(found.len()).expect("few documents");
            // The one that was under way may be there.
            assert!(
                (*next..=*next + 1).contains(&count),
                "kill {kill}: {count} of {next}"
            );
            *next = count;
        }
        let valid = Client::with_uri_str(server.uri())
            .await
            .expect("the URI is well-formed");
        let valid = valid
            .database("device")
            .run_command(doc! {"validate": "mills"})
            .await;
        let valid = valid.expect("it is validated");
        assert!(valid.get_bool("valid").expect("it says so"), "{valid}");
    }
}

#[tokio::test]
async fn a_server_tells_what_its_volume_did() {
    let server = Server::start(&["--device", "mem:64M", "--format"]);
    mills(&server)
        .await
        .insert_one(doc! {"_id": 1})
        .await
        .expect("inserted");
    let client = Client::with_uri_str(server.uri())
        .await
        .expect("the URI is well-formed");
    let status = client
        .database("admin")
        .run_command(doc! {"serverStatus": 1})
        .await;
    let status = status.expect("it has a status");
    let engine = status.get_document("rocksdb").expect("it has an engine");
    assert!(
        engine.get_i64("blobfs_syncs_total").expect("a number") > 0,
        "{engine}"
    );
    assert!(
        engine.get_i64("blobfs_free_bytes").expect("a number") > 0,
        "{engine}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_driven_by_the_server_keeps_what_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("ctrl.sock");
    let service = Service::bind(Options::default(), &socket).expect("a new socket");
    let service = Arc::new(service);
    let _stepper = Stepper::new(service.controller());
    thread::spawn(move || {
        // What the medium holds outlives the clients; a killed one breaks its connection.
        loop {
            let _ = service.serve_client();
        }
    });
    let spec = format!("vfio-user:{}", socket.display());
    for round in 0..3 {
        let server = start(&spec);
        let mills = mills(&server).await;
        let count = mills.count_documents(doc! {}).await.expect("counted");
        assert_eq!(count, 50 * round);
        for number in 0..50 {
            let id = i64::try_from(50 * round + number).expect("few documents");
            let inserted = mills
                .insert_one(doc! {"_id": id, "pad": "x".repeat(5000)})
                .await;
            inserted.expect("inserted");
        }
        // Killed.
        drop(server);
    }
}

/// What a server says that does not start.
fn refusal(spec: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--port", "0", "--device", spec])
        .output()
        .expect("the binary starts");
    assert!(!output.status.success(), "it serves {spec}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_be_used_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = device(folder.path());
    let blank = refusal(&spec);
    assert!(
        blank.contains("blobfs mkfs") && blank.contains("--format"),
        "{blank}"
    );
    let foreign = folder.path().join("foreign.img");
    let contents = b"somebody's".repeat(1 << 18);
    fs::write(&foreign, &contents).expect("the folder is ours");
    let text = refusal(&format!("file:{}", foreign.display()));
    assert!(text.contains("something else"), "{text}");
    assert!(fs::read(&foreign).expect("it is there") == contents);
    let missing = refusal(&format!("file:{}/none", folder.path().display()));
    assert!(missing.contains("could not be opened"), "{missing}");
    let wrong = refusal("floppy:0");
    assert!(wrong.contains("--device floppy:0"), "{wrong}");
    // A server that runs keeps others away from its device, and its kill does not.
    let server = start(&spec);
    let busy = refusal(&spec);
    assert!(busy.contains("in use"), "{busy}");
    drop(server);
    drop(start(&spec));
}
