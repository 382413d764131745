//! The network layer through real sockets: order, parking, waiting, bad and slow clients, shutdown.

mod windows;

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::stage::{Client, PATIENCE, Said, Stage};
use bson::{Document, doc};
use millrace::memory::{Limits, Share};
use millrace::network::NetworkConfig;
use millrace_wire::{Compressed, Compressor, Frame, Message, MsgFlags, OpMsg};

fn holding(said: &Said) -> Option<()> {
    matches!(said, Said::Holding(_)).then_some(())
}

fn closed(said: &Said) -> Option<u64> {
    if let Said::Closed(id) = said {
        Some(*id)
    } else {
        None
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_whatever_they_are() {
    let stage = Stage::one_worker();
    stage.engine.hooks().permit_syncs(100);
    stage.puppet.release();
    let mut client = Client::connect(stage.address);
    let mut bytes = Vec::new();
    for number in 0..200 {
        let body = match number % 5 {
            0 => doc! { "write": 1 },
            1 => doc! { "hold": 1 },
            2 => doc! { "wait": 0 },
            3 => doc! { "writeLong": 1 },
            _ => doc! { "echo": number },
        };
        bytes.extend(client.message(MsgFlags::NONE, body));
    }
    client.write(&bytes);
    for number in 0..200 {
        let reply = client.receive();
        let expected = match number % 5 {
            0 | 3 => doc! { "parked": true },
            1 => doc! { "held": true },
            2 => doc! { "resumed": "timed out" },
            _ => doc! { "echo": number },
        };
        assert_eq!(reply, expected, "reply {number}");
    }
}

#[test]
fn requests_cut_anywhere_are_put_together() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    let mut bytes = client.message(MsgFlags::NONE, doc! { "echo": 1 });
    bytes.extend(client.message(MsgFlags::NONE, doc! { "echo": 2 }));
    for byte in &bytes {
        client.write(&[*byte]);
    }
    assert_eq!(client.receive(), doc! { "echo": 1 });
    assert_eq!(client.receive(), doc! { "echo": 2 });
    // Longer than any buffer, both ways.
    let long = "y".repeat(3_000_000);
    assert_eq!(client.call(doc! { "echo": &long }), doc! { "echo": &long });
}

#[test]
fn replies_wait_for_the_journal_and_one_sync_releases_many() {
    let stage = Stage::new(
        NetworkConfig {
            workers: 2,
            ..NetworkConfig::default()
        },
        Limits::default(),
    );
    let mut clients: Vec<_> = (0..16).map(|_| Client::connect(stage.address)).collect();
    for client in &mut clients {
        client.send(doc! { "write": 1 });
    }
    for _ in 0..16 {
        stage.expect(|said| matches!(said, Said::Parking(_)).then_some(()));
    }
    // Nothing may be answered yet; reads on other connections go on.
    let mut reader = Client::connect(stage.address);
    assert_eq!(reader.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    for client in &clients {
        client
            .stream
            .set_nonblocking(true)
            .expect("a socket can be non-blocking");
        let error = client
            .stream
            .peek(&mut [0])
            .expect_err("no reply before the sync");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        client
            .stream
            .set_nonblocking(false)
            .expect("a socket can be blocking");
    }
    // The first sync may have begun before the last write; the second covers everything.
    stage.engine.hooks().permit_syncs(2);
    for client in &mut clients {
        assert_eq!(client.receive(), doc! { "parked": true });
    }
    let counters = stage.journal.counters();
    assert!(counters.syncs <= 2, "{counters:?}");
}

#[test]
fn a_parked_reply_whose_time_is_over_says_so_and_others_wait_on() {
    let stage = Stage::one_worker();
    let mut patient = Client::connect(stage.address);
    patient.send(doc! { "write": 1 });
    let mut client = Client::connect(stage.address);
    let late = doc! { "parked": true, "late": true };
    assert_eq!(client.call(doc! { "writeWithin": 1 }), late);
    // The reply is put together anew, in the form that it had.
    for compressor in Compressor::ALL {
        let mut bytes = client.message(MsgFlags::NONE, doc! { "writeWithin": 0 });
        Frame::compress(&mut bytes, 0, compressor).expect("compression of our own message");
        client.write(&bytes);
        let bytes = client.receive_bytes().expect("the server answers");
        let message = Message::parse(&bytes).expect("a reply is well-formed");
        let compressed = Compressed::parse(&message).expect("the reply is compressed");
        let mut inflated = Vec::new();
        compressed.inflate(&mut inflated).expect("it is whole");
        let message = Message::parse(&inflated).expect("a reply is well-formed");
        let reply = OpMsg::parse(&message).expect("a reply is well-formed");
        assert_eq!(Document::try_from(reply.body).expect("it is BSON"), late);
    }
    // The connection goes on, and the sync releases what waits without a limit.
    client.send(doc! { "writeWithin": 3_600_000 });
    stage.engine.hooks().permit_syncs(10);
    assert_eq!(patient.receive(), doc! { "parked": true });
    assert_eq!(client.receive(), doc! { "parked": true });
}

#[test]
fn a_failed_sync_turns_every_parked_reply_into_an_error() {
    let stage = Stage::one_worker();
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(stage.address)).collect();
    for client in &mut clients {
        client.send(doc! { "write": 1 });
    }
    for _ in 0..4 {
        stage.expect(|said| matches!(said, Said::Parking(_)).then_some(()));
    }
    stage.engine.hooks().fail_syncs();
    for client in &mut clients {
        assert_eq!(client.receive(), doc! { "ok": 0, "errmsg": "not durable" });
        // Also what comes later is not acknowledged, and the connection lives.
        assert_eq!(
            client.call(doc! { "write": 1 }),
            doc! { "ok": 0, "errmsg": "not durable" }
        );
        assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    }
}

#[test]
fn waiting_requests_are_woken_by_their_ticket_alone() {
    let stage = Stage::one_worker();
    let mut first = Client::connect(stage.address);
    let mut second = Client::connect(stage.address);
    let waiting = |said: &Said| {
        if let Said::Waiting(_, t) = said {
            Some(*t)
        } else {
            None
        }
    };
    first.send(doc! { "wait": 3_600_000 });
    let ticket = stage.expect(waiting);
    second.send(doc! { "wait": 1 });
    stage.expect(waiting);
    assert_eq!(second.receive(), doc! { "resumed": "timed out" });
    stage.notifier.notify(ticket);
    assert_eq!(first.receive(), doc! { "resumed": "notified" });
    assert_eq!(first.call(doc! { "echo": 1 }), doc! { "echo": 1 });
}

#[test]
fn a_stream_of_replies_comes_by_itself() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    let bytes = client.message(MsgFlags::EXHAUST_ALLOWED, doc! { "stream": 5 });
    client.write(&bytes);
    for round in 0_i64..5 {
        assert_eq!(
            client.receive_flagged(),
            (doc! { "round": round }, round < 4)
        );
    }
    assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
}

#[test]
fn every_round_of_a_stream_begins_when_the_one_before_is_over() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    let bytes = client.message(MsgFlags::EXHAUST_ALLOWED, doc! { "streamSlowly": 3 });
    client.write(&bytes);
    let round = |said: &Said| match said {
        Said::Round { began, until } => Some((*began, *until)),
        _ => None,
    };
    let rounds: Vec<_> = (0..3).map(|_| stage.expect(round)).collect();
    for pair in rounds.windows(2) {
        let ((_, over), (began, _)) = (pair[0], pair[1]);
        assert!(began >= over, "the wait before counts for this round");
    }
    for round in 0_i64..3 {
        assert_eq!(
            client.receive_flagged(),
            (doc! { "round": round }, round < 2)
        );
    }
}

#[test]
fn requests_without_a_reply_get_none() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    client.send(doc! { "none": 1 });
    assert_eq!(client.call(doc! { "echo": 2 }), doc! { "echo": 2 });
    client.send(doc! { "close": 1 });
    client.expect_end();
}

#[test]
fn compressed_requests_get_compressed_replies() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    let text = "z".repeat(100_000);
    for compressor in Compressor::ALL {
        let mut bytes = client.message(MsgFlags::NONE, doc! { "echo": &text });
        Frame::compress(&mut bytes, 0, compressor).expect("compression of our own message");
        client.write(&bytes);
        let reply = client.receive_bytes().expect("the server answers");
        assert!(reply.len() < text.len() / 10);
        let message = Message::parse(&reply).expect("a reply is well-formed");
        let compressed = Compressed::parse(&message).expect("the reply is compressed");
        assert_eq!(compressed.compressor(), compressor);
    }
    // While it is offloaded, the decompressed request stays alive.
    stage.puppet.release();
    let mut bytes = client.message(MsgFlags::NONE, doc! { "hold": 1 });
    Frame::compress(&mut bytes, 0, Compressor::Zstd).expect("compression of our own message");
    client.write(&bytes);
    client.receive_bytes().expect("the server answers");
    assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
}

#[test]
fn malformed_frames_end_the_connection_after_the_replies_before_them() {
    let stage = Stage::one_worker();
    let bad: [&[u8]; 4] = [
        &[0; 16],
        &[0xFF; 64],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &[
            20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xD1, 0x07, 0, 0, 1, 2, 3, 4,
        ],
    ];
    for bytes in bad {
        let mut client = Client::connect(stage.address);
        let mut all = client.message(MsgFlags::NONE, doc! { "echo": 7 });
        all.extend_from_slice(bytes);
        client.write(&all);
        assert_eq!(client.receive(), doc! { "echo": 7 });
        client.expect_end();
    }
    // A frame whose content is wrong is the service's matter.
    let mut client = Client::connect(stage.address);
    let mut bytes = client.message(MsgFlags::NONE, doc! { "echo": 7 });
    bytes[20] = 9;
    client.write(&bytes);
    assert_eq!(client.receive(), doc! { "ok": 0, "code": 40432 });
}

#[test]
fn a_panic_costs_one_connection() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    let mut other = Client::connect(stage.address);
    assert_eq!(
        client.call(doc! { "panic": 1 }),
        doc! { "ok": 0, "errmsg": "panicked" }
    );
    client.expect_end();
    assert_eq!(other.call(doc! { "echo": 1 }), doc! { "echo": 1 });
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let config = NetworkConfig {
        workers: 1,
        ..NetworkConfig::default()
    };
    let stage = Stage::new(config, Limits::default());
    let mut slow = Client::connect(stage.address);
    slow.stream
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    // Large enough that a few hundred of them fill every buffer on the way.
    let padded = doc! { "big": 100_000, "padding": "p".repeat(20_000) };
    let request = slow.message(MsgFlags::NONE, padded);
    // Requests are sent until the server's receive window is full: it has stopped reading.
    let mut sent = 0_usize;
    let mut requests = 0_u64;
    'sending: loop {
        let mut rest = &request[..];
        while !rest.is_empty() {
            match std::io::Write::write(&mut slow.stream, rest) {
                Ok(count) => {
                    rest = &rest[count..];
                    sent += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Full for now; full for good once the server has served what it will serve.
                    let mut other = Client::connect(stage.address);
                    let before = stage.counters.requests.load(Ordering::Relaxed);
                    assert_eq!(other.call(doc! { "echo": 1 }), doc! { "echo": 1 });
                    if stage.counters.requests.load(Ordering::Relaxed) == before + 1 {
                        break 'sending;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        requests += 1;
    }
    assert!(sent > 0 && requests > 0);
    // What the server holds is the replies to one buffer of requests at most, whatever was sent.
    let served = stage.counters.requests.load(Ordering::Relaxed);
    assert!(
        served < requests,
        "{served} of {requests} requests were served without being read"
    );
    let held = stage.budget.gauge(Share::Messages).used;
    assert!(
        held < 2_000_000,
        "{held} bytes are held for a client that does not read"
    );

    // The client reads: everything comes.
    slow.stream
        .set_nonblocking(false)
        .expect("a socket can be blocking");
    let expected = doc! { "big": "x".repeat(100_000) };
    for _ in 0..requests {
        assert_eq!(slow.receive(), expected);
    }
}

#[test]
fn half_a_message_is_not_waited_for_for_ever() {
    let config = NetworkConfig {
        workers: 1,
        receive_time_max: Duration::from_millis(10),
        ..NetworkConfig::default()
    };
    let stage = Stage::new(config, Limits::default());
    let mut idle = Client::connect(stage.address);
    let mut half = Client::connect(stage.address);
    let bytes = half.message(MsgFlags::NONE, doc! { "echo": 1 });
    half.write(&bytes[..bytes.len() - 1]);
    half.expect_end();
    assert_eq!(stage.counters.timed_out.load(Ordering::Relaxed), 1);
    assert_eq!(
        idle.call(doc! { "echo": 1 }),
        doc! { "echo": 1 },
        "an idle one may stay"
    );
}

#[test]
fn half_received_messages_stay_within_the_budget() {
    let limit = 1_000_000;
    let config = NetworkConfig {
        workers: 1,
        receive_time_max: Duration::from_millis(200),
        ..NetworkConfig::default()
    };
    let stage = Stage::new(
        config,
        Limits {
            messages: limit,
            ..Limits::default()
        },
    );
    // Each of them announces 40 MB and sends what the server takes, together far above the limit.
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(stage.address)).collect();
    for client in &mut clients {
        let mut bytes = client.message(MsgFlags::NONE, doc! { "echo": 1 });
        bytes[..4].copy_from_slice(&40_000_000_i32.to_le_bytes());
        bytes.resize(400_000, 0);
        client
            .stream
            .set_nonblocking(true)
            .expect("a socket can be non-blocking");
        let _ = std::io::Write::write(&mut client.stream, &bytes);
        client
            .stream
            .set_nonblocking(false)
            .expect("a socket can be blocking");
        assert!(stage.budget.gauge(Share::Messages).used <= limit);
    }
    for mut client in clients {
        client.expect_end();
    }
    // After the deadline the memory is there for others.
    let mut client = Client::connect(stage.address);
    assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
}

#[test]
fn idle_connections_hold_no_buffers() {
    let stage = Stage::one_worker();
    let mut clients: Vec<_> = (0..200).map(|_| Client::connect(stage.address)).collect();
    for client in &mut clients {
        assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    }
    assert_eq!(stage.open_connections(), 200);
    let used = stage.budget.gauge(Share::Messages).used;
    assert!(
        used <= 4 * 16 * 1024,
        "{used} bytes are held for idle connections"
    );
}

#[test]
fn connections_above_the_limit_are_closed_at_once() {
    let config = NetworkConfig {
        workers: 2,
        connections_max: 3,
        ..NetworkConfig::default()
    };
    let stage = Stage::new(config, Limits::default());
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(stage.address)).collect();
    for client in &mut clients {
        assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    }
    Client::connect(stage.address).expect_end();
    assert_eq!(stage.counters.rejected.load(Ordering::Relaxed), 1);
    drop(clients.pop());
    stage.expect(closed);
    let mut again = Client::connect(stage.address);
    assert_eq!(again.call(doc! { "echo": 1 }), doc! { "echo": 1 });
}

#[test]
fn the_request_of_a_client_that_left_is_interrupted() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    client.send(doc! { "hold": 1 });
    stage.expect(holding);
    drop(client);
    // `disconnected` releases the request; then the session is given back.
    stage.expect(|said| matches!(said, Said::Disconnected(_)).then_some(()));
    stage.expect(closed);
}

#[test]
fn a_parked_reply_reaches_a_client_that_has_finished_sending() {
    let stage = Stage::one_worker();
    let mut client = Client::connect(stage.address);
    client.send(doc! { "write": 1 });
    stage.expect(|said| matches!(said, Said::Parking(_)).then_some(()));
    client.finish_sending();
    stage.engine.hooks().permit_syncs(1);
    assert_eq!(client.receive(), doc! { "parked": true });
    client.expect_end();
}

#[test]
fn shutdown_answers_what_runs_and_closes_what_is_idle() {
    let mut stage = Stage::one_worker();
    let mut idle = Client::connect(stage.address);
    assert_eq!(idle.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    let mut running = Client::connect(stage.address);
    running.send(doc! { "hold": 1 });
    stage.expect(holding);
    let mut writing = Client::connect(stage.address);
    writing.send(doc! { "write": 1 });
    stage.expect(|said| matches!(said, Said::Parking(_)).then_some(()));
    let mut waiting = Client::connect(stage.address);
    waiting.send(doc! { "wait": 3_600_000 });
    stage.expect(|said| matches!(said, Said::Waiting(..)).then_some(()));

    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| stage.network.stop());
        stage.expect(|said| (*said == Said::Interrupted).then_some(()));
        idle.expect_end();
        assert_eq!(waiting.receive(), doc! { "resumed": "notified" });
        waiting.expect_end();
        stage.puppet.release();
        stage.engine.hooks().permit_syncs(1);
        assert_eq!(running.receive(), doc! { "held": true });
        assert_eq!(writing.receive(), doc! { "parked": true });
        running.expect_end();
        writing.expect_end();
        stopping.join().expect("stopping does not panic");
    });
    assert_eq!(stage.open_connections(), 0);
    let refused = std::net::TcpStream::connect_timeout(&stage.address, PATIENCE);
    assert!(refused.is_err(), "nobody listens any more");
    stage.stop();
}
