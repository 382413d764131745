//! The echo of the protocol: the network layer with canned replies, for benchmarks.
//!
//! It frames messages and sends replies like the server, but reads nothing of a request except the
//! first letters of its command's name. Its throughput is the upper bound for every service that uses
//! this protocol over this network layer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use millrace_engine::MemoryEngine;
use millrace_wire::OpCode;

use crate::clock::{Clock, SystemClock};
use crate::journal::Journal;
use crate::memory::{Limits, MemoryBudget};
use crate::network::{
    ConnectionId, ConnectionInfo, Counters, Network, NetworkConfig, NetworkContext, Notifier,
    Outcome, ReplyBuffer, Request, Service, TcpListener,
};
use crate::settings::EchoOptions;

/// Where the name of the first field of an OP_MSG starts: flags, kind, length, type of the element.
const NAME_OFFSET: usize = 4 + 1 + 4 + 1;

/// A service that answers every command with a canned reply.
#[derive(Debug)]
pub struct Echo {
    hello: RawDocumentBuf,
    find: RawDocumentBuf,
    write: RawDocumentBuf,
    other: RawDocumentBuf,
}

impl Echo {
    /// An echo whose `find` returns one document of about `reply_len` bytes, in ten fields.
    #[must_use]
    pub fn new(reply_len: usize) -> Self {
        let mut record = rawdoc! { "_id": "user6284781860667377211" };
        for field in 0..10 {
            let name = bson::raw::CString::try_from(format!("field{field}"))
                .expect("the name has no zero byte");
            record.append(name, "x".repeat(reply_len / 10));
        }
        let hello = rawdoc! {
            "helloOk": true,
            "ismaster": true,
            "isWritablePrimary": true,
            "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "connectionId": 1,
            "minWireVersion": 0,
            "maxWireVersion": 25,
            "readOnly": false,
            "ok": 1.0,
        };
        Self {
            hello,
            find: rawdoc! {
                "cursor": { "firstBatch": [record], "id": 0_i64, "ns": "ycsb.usertable" },
                "ok": 1.0,
            },
            write: rawdoc! { "n": 1, "nModified": 1, "ok": 1.0 },
            other: rawdoc! { "ok": 1.0 },
        }
    }

    /// Serves until the process is killed or `stop` returns.
    ///
    /// # Errors
    /// When the port is taken, or there are no threads.
    pub fn serve(options: EchoOptions, stop: impl FnOnce()) -> io::Result<()> {
        let listener = TcpListener::bind(([127, 0, 0, 1], options.port).into())?;
        let mut config = NetworkConfig::default();
        if let Some(workers) = options.worker_threads {
            config.workers = workers;
        }
        let engine = Arc::new(MemoryEngine::new());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let network = Network::start(
            vec![Box::new(listener)],
            Arc::new(Self::new(options.reply_size)),
            config,
            NetworkContext {
                clock: Arc::clone(&clock),
                journal: Journal::new(engine, Duration::ZERO, clock),
                budget: MemoryBudget::new(Limits::default()),
                notifier: Notifier::new(),
                counters: Arc::new(Counters::default()),
            },
        )?;
        stop();
        network.stop();
        Ok(())
    }

    fn reply(&self, request: &Request<'_>) -> &RawDocumentBuf {
        if request.message.op_code == OpCode::Query {
            return &self.hello;
        }
        let name = request
            .message
            .payload()
            .get(NAME_OFFSET..)
            .unwrap_or_default();
        match name {
            [b'f', b'i', b'n', b'd', 0, ..] => &self.find,
            [b'i', b'n', ..] | [b'u', b'p', ..] | [b'd', b'e', ..] => &self.write,
            [b'h', b'e', ..] | [b'i', b's', ..] => &self.hello,
            _ => &self.other,
        }
    }
}

impl Service for Echo {
    type Session = ();

    fn open(&self, _: &ConnectionInfo) {}

    fn call(&self, (): &mut (), request: &Request<'_>, reply: &mut ReplyBuffer<'_>) -> Outcome {
        reply
            .document()
            .extend_from_slice(self.reply(request).as_bytes());
        Outcome::Done
    }

    fn call_blocking(
        &self,
        session: &mut (),
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        self.call(session, request, reply)
    }

    fn durability_failed(&self, _: &mut ReplyBuffer<'_>) {}

    fn acknowledgement_timed_out(&self, (): &mut (), _: &mut ReplyBuffer<'_>) {}

    fn panicked(&self, _: &mut ReplyBuffer<'_>) {}

    fn disconnected(&self, _: ConnectionId) {}

    fn interrupt_all(&self) {}

    fn close(&self, (): ()) {}
}
