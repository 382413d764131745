//! The driver on a model in another process, behind a socket.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use millrace_nvme::SystemHost;
use millrace_nvme_model::Service;
use millrace_pci::vfio_user;

use super::driver::{Driven, Reads, StopOnDrop, check_records, model_options, step_until};
use super::{Outcome, Side, Span};

/// Says to a child that it is the server, and where.
pub(crate) const SOCKET: &str = "MILLRACE_NVME_READS_SOCKET";

/// Serves one client. Ends when the parent process closes the standard input.
pub(crate) fn serve(socket: &Path) -> Outcome<()> {
    let service = Service::bind(model_options(true), socket)?;
    let model = service.controller();
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        process::exit(1);
    });
    println!("serving");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| step_until(&stop, &model));
        let _stop = StopOnDrop(&stop);
        service.serve_client()
    })?;
    check_records(&model)
}

/// This program again, as the server.
#[derive(Debug)]
struct Server {
    child: Child,
    input: Option<ChildStdin>,
}

impl Server {
    fn start(socket: &Path) -> Outcome<Self> {
        let mut child = Command::new(env::current_exe()?)
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the server has no output")?;
        let server = Self { child, input };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim_end() == "serving" {
            return Ok(server);
        }
        Err("the server has not started".into())
    }

    /// Waits for its end, which comes when the client has left.
    fn end(mut self) -> Outcome<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the server failed: {status}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        // If it has ended already this says how.
        let _ = self.child.wait();
    }
}

/// The driver here, the controller in a child.
#[derive(Debug)]
pub(crate) struct Served;

impl Served {
    pub(crate) const NAME: &str = "vfio-user";
}

impl Side for Served {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn medium(&self) -> String {
        "no medium: completions without data; the controller is a process".to_owned()
    }

    fn run(&mut self, depth: u16) -> Outcome<Span> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("socket");
        let server = Server::start(&socket)?;
        let host = Arc::new(SystemHost::new(Instant::now()));
        let driven = Driven::open(vfio_user::connect(&socket)?, host)?;
        let span = Reads::new(&driven, depth)?.round(false)?;
        drop(driven);
        server.end()?;
        Ok(span)
    }
}
