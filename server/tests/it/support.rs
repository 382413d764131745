//! A server for a test: the binary, on a free port, with its data in a folder of its own.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A running server; it is stopped and its folder removed when this is dropped.
pub(crate) struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Server {
    /// Starts the server with further options and waits until it says that it accepts connections. Its data is in
    /// a folder of its own, unless the options name a device.
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = TempDir::with_prefix("millrace-").expect("a temporary folder");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let place = if options.contains(&"--device") {
            Vec::new()
        } else {
            vec![OsStr::new("--dbpath"), folder.path().as_os_str()]
        };
        let mut process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--port", &port.to_string()])
            .args(options)
            .args(place)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = process.stdout.take().expect("standard output is piped");
        let mut lines = BufReader::new(output).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|l| l.contains("Waiting for connections"));
        assert!(ready, "the server ended instead of waiting for connections");
        // The log goes on; somebody must read it.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            port,
            _folder: folder,
        }
    }

    /// Where clients connect to.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The folder goes next: there is nothing to close cleanly.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
