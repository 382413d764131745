//! The endpoint of monitoring: /metrics, /livez, /readyz over HTTP/1.1, on loopback.
//!
//! One thread serves one request at a time. A client has two seconds for its request and two for
//! taking the reply, and may send 8 KiB: no client can block the endpoint or exhaust its memory.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Statistics, write_metrics};
use crate::clock::Clock;

/// How long a client may take to send its request, and to take the reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a request may be, in bytes.
const REQUEST_LEN_MAX: usize = 8 * 1024;

/// How many headers a request may have.
const HEADERS_MAX: usize = 64;

/// The thread that serves the endpoint.
#[derive(Debug)]
pub struct MetricsServer {
    port: u16,
    stopping: Arc<AtomicBool>,
    ready: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on a loopback port; 0 takes any that is free.
    ///
    /// # Errors
    /// When the port is taken, or there is no thread.
    pub fn start(
        port: u16,
        statistics: Arc<dyn Statistics>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let stopping = Arc::new(AtomicBool::new(false));
        let ready = Arc::new(AtomicBool::new(false));
        let (stop, is_ready) = (Arc::clone(&stopping), Arc::clone(&ready));
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client that fails gets nothing; the next one is not affected.
                    let _ =
                        stream.and_then(|stream| serve(stream, &*statistics, &*clock, &is_ready));
                }
            })?;
        Ok(Self {
            port,
            stopping,
            ready,
            thread: Some(thread),
        })
    }

    /// The TCP port on the loopback interface that metrics are served on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Says whether the server takes requests: the answer of /readyz.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::SeqCst);
    }

    /// Ends the thread and waits until it has ended.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // The thread waits for a client: be one.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    mut stream: TcpStream,
    statistics: &dyn Statistics,
    clock: &dyn Clock,
    ready: &AtomicBool,
) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(path) = read_path(&mut stream, clock)? else {
        return respond(&mut stream, "400 Bad Request", "bad request\n");
    };
    match path.as_str() {
        "/metrics" => {
            let mut text = String::with_capacity(16 * 1024);
            write_metrics(statistics, &mut text);
            respond(&mut stream, "200 OK", &text)
        }
        "/livez" => respond(&mut stream, "200 OK", "ok\n"),
        "/readyz" if statistics.has_failed() => respond(
            &mut stream,
            "503 Service Unavailable",
            "the storage engine has failed\n",
        ),
        "/readyz" if ready.load(Ordering::SeqCst) => respond(&mut stream, "200 OK", "ok\n"),
        "/readyz" => respond(&mut stream, "503 Service Unavailable", "not ready\n"),
        _ => respond(&mut stream, "404 Not Found", "not found\n"),
    }
}

/// The path of a GET request, or `None` if it is no such request.
fn read_path(stream: &mut TcpStream, clock: &dyn Clock) -> io::Result<Option<String>> {
    let deadline = clock.now() + PATIENCE;
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        match parse(&request) {
            Parsed::Get(path) => return Ok(Some(path)),
            Parsed::Other => return Ok(None),
            Parsed::Partial => {}
        }
        let left = deadline.saturating_sub(clock.now());
        if left.is_zero() || request.len() > REQUEST_LEN_MAX {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Ok(None),
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
}

/// What the bytes received so far are.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    /// A GET request for this path.
    Get(String),
    /// The beginning of a request.
    Partial,
    /// No HTTP, or a request that is not served.
    Other,
}

fn parse(request: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    match (head.parse(request), head.method, head.path) {
        (Ok(httparse::Status::Complete(_)), Some("GET"), Some(path)) => {
            Parsed::Get(path.to_owned())
        }
        (Ok(httparse::Status::Partial), ..) => Parsed::Partial,
        _ => Parsed::Other,
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_get_requests_have_a_path() {
        let path = || Parsed::Get("/metrics".to_owned());
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert_eq!(parse(request), path());
        assert_eq!(parse(b"GET /metrics HTTP/1.0\r\n\r\n"), path());
        for len in 0..request.len() {
            assert_eq!(parse(&request[..len]), Parsed::Partial, "{len} bytes");
        }
        let header = "X: 1\r\n".repeat(HEADERS_MAX + 1);
        for other in [
            "POST /metrics HTTP/1.1\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "\u{16}\u{3}\u{1}",
            &format!("GET /metrics HTTP/1.1\r\n{header}\r\n"),
        ] {
            assert_eq!(parse(other.as_bytes()), Parsed::Other, "{other:?}");
        }
    }
}
