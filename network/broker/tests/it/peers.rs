//! The protocol between the brokers of two hosts, and attacks on it.

use std::net::IpAddr;

use millrace_broker::peer::{
    ADDRESSES_MAX, OUTPUT_MAX, PeerMessage, ProtocolViolation, Role, Secret, Session, host_number,
};
use millrace_random::Random;
use millrace_stream::partition::{ConnectionId, ConnectionName, EndName, OpenReply};
use proptest::prelude::*;

fn secret(byte: u8) -> Secret {
    Secret::new(&[byte; 32]).expect("it is long enough")
}

fn pair(first: Secret, second: Secret) -> [Session; 2] {
    [
        Session::new(Role::Initiator, "left", first, [1; 32]),
        Session::new(Role::Responder, "right", second, [2; 32]),
    ]
}

/// Takes a session's output.
fn taken(session: &mut Session) -> Vec<u8> {
    let bytes = session.output().to_vec();
    session.sent(bytes.len());
    bytes
}

/// Delivers each session's output to the other.
fn exchange(sessions: &mut [Session; 2]) -> [Result<Vec<PeerMessage>, ProtocolViolation>; 2] {
    let said = [taken(&mut sessions[0]), taken(&mut sessions[1])];
    [1, 0].map(|from: usize| {
        let mut messages = Vec::new();
        sessions[1 - from].receive(&said[from], &mut messages)?;
        Ok(messages)
    })
}

fn greeted() -> [Session; 2] {
    let mut sessions = pair(secret(7), secret(7));
    for heard in exchange(&mut sessions) {
        assert_eq!(heard, Ok(Vec::new()));
    }
    sessions
}

fn connect() -> PeerMessage {
    let end = |text: &str| {
        let address = text.parse().expect("an address");
        EndName::new(host_number(text), address)
    };
    PeerMessage::Connect {
        token: 1 << 40,
        partition: 3,
        user: 1000,
        process: 77,
        opened: OpenReply {
            id: ConnectionId::from_number(9),
            credit: 4096,
        },
        name: ConnectionName {
            connecting: end("10.0.0.1:40000"),
            accepting: end("[fd00::2]:80"),
        },
    }
}

fn addresses(count: u32) -> Vec<IpAddr> {
    (0..count)
        .map(|low| IpAddr::from((0x0a00_0000 + low).to_be_bytes()))
        .collect()
}

#[test]
fn both_hear_what_the_other_says() {
    let mut sessions = greeted();
    assert_eq!(sessions[0].peer(), Some("right"));
    assert_eq!(sessions[1].peer(), Some("left"));
    assert!(!sessions[1].is_proven());
    let names = PeerMessage::Names {
        partitions: 4,
        window: 1 << 30,
        addresses: addresses(256),
    };
    let answers = [
        PeerMessage::Accept {
            token: 5,
            opened: OpenReply {
                id: ConnectionId::from_number(u32::MAX),
                credit: 0,
            },
        },
        PeerMessage::Refuse { token: 6, errno: 0 },
        PeerMessage::Beat,
    ];
    for message in [&names, &connect()] {
        sessions[0].send(message).expect("there is room");
    }
    for message in &answers {
        sessions[1].send(message).expect("there is room");
    }
    let [by_left, by_right] = exchange(&mut sessions);
    assert_eq!(by_right, Ok(vec![names, connect()]));
    assert_eq!(by_left, Ok(answers.to_vec()));
    assert!(sessions.iter().all(Session::is_proven));
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut sessions = greeted();
    sessions[0].send(&connect()).expect("there is room");
    sessions[0].send(&PeerMessage::Beat).expect("there is room");
    let mut messages = Vec::new();
    for byte in taken(&mut sessions[0]) {
        let heard = sessions[1].receive(&[byte], &mut messages);
        assert_eq!(heard, Ok(()));
    }
    assert_eq!(messages, [connect(), PeerMessage::Beat]);
}

#[test]
fn another_secret_says_nothing() {
    let mut sessions = pair(secret(7), secret(8));
    let _ = exchange(&mut sessions);
    sessions[0].send(&PeerMessage::Beat).expect("there is room");
    sessions[1].send(&PeerMessage::Beat).expect("there is room");
    for heard in exchange(&mut sessions) {
        assert_eq!(heard, Err(ProtocolViolation::Secret));
    }
    assert!(!sessions.iter().any(Session::is_proven));
}

#[test]
fn a_secret_is_long() {
    assert!(Secret::new(&[1; 31]).is_none());
    assert_eq!(format!("{:?}", secret(1)), "Secret");
}

#[test]
fn nothing_can_be_said_again() {
    let mut sessions = greeted();
    sessions[0].send(&PeerMessage::Beat).expect("there is room");
    let said = taken(&mut sessions[0]);
    let mut messages = Vec::new();
    assert_eq!(sessions[1].receive(&said, &mut messages), Ok(()));
    let again = sessions[1].receive(&said, &mut messages);
    assert_eq!(again, Err(ProtocolViolation::Secret));
}

#[test]
fn nothing_can_be_sent_back() {
    let mut sessions = greeted();
    sessions[0].send(&PeerMessage::Beat).expect("there is room");
    let said = taken(&mut sessions[0]);
    let back = sessions[0].receive(&said, &mut Vec::new());
    assert_eq!(back, Err(ProtocolViolation::Secret));
    // A reflected first frame is of the same role.
    let mut session = Session::new(Role::Initiator, "left", secret(7), [1; 32]);
    let own = taken(&mut session);
    assert_eq!(
        session.receive(&own, &mut Vec::new()),
        Err(ProtocolViolation::Greeting)
    );
}

#[test]
fn what_was_recorded_is_worth_nothing_in_another_session() {
    let mut sessions = pair(secret(7), secret(7));
    let greeting = taken(&mut sessions[0]);
    let mut ignored = Vec::new();
    sessions[1]
        .receive(&greeting, &mut ignored)
        .expect("it is one");
    let answer = taken(&mut sessions[1]);
    sessions[0]
        .receive(&answer, &mut ignored)
        .expect("it is one");
    sessions[0].send(&PeerMessage::Beat).expect("there is room");
    let proof = taken(&mut sessions[0]);
    // Another connection with another nonce.
    let mut other = Session::new(Role::Responder, "right", secret(7), [3; 32]);
    other.receive(&greeting, &mut ignored).expect("it is one");
    assert_eq!(
        other.receive(&proof, &mut ignored),
        Err(ProtocolViolation::Secret)
    );
}

#[test]
fn what_waits_is_bounded() {
    let mut sessions = greeted();
    let names = PeerMessage::Names {
        partitions: 1,
        window: 0,
        addresses: addresses(300),
    };
    let mut sent = Ok(());
    let mut count = 0;
    while sent.is_ok() {
        sent = sessions[0].send(&names);
        count += 1;
        assert!(
            count < OUTPUT_MAX / (ADDRESSES_MAX * 17) + 2,
            "more waits than may"
        );
    }
    assert_eq!(sent, Err(ProtocolViolation::Output));
}

#[test]
fn frames_are_bounded() {
    let mut unauthenticated = Session::new(Role::Responder, "right", secret(7), [2; 32]);
    let long = [0xff; 2];
    assert_eq!(
        unauthenticated.receive(&long, &mut Vec::new()),
        Err(ProtocolViolation::Length)
    );
    let mut sessions = greeted();
    assert_eq!(
        sessions[1].receive(&long, &mut Vec::new()),
        Err(ProtocolViolation::Length)
    );
}

#[test]
fn one_changed_bit_is_noticed() {
    let seed = 11;
    let mut random = Random::new(seed);
    for _ in 0..200 {
        let mut sessions = greeted();
        sessions[0].send(&connect()).expect("there is room");
        let mut said = taken(&mut sessions[0]);
        let at = random.index(said.len());
        said[at] ^= 1 << random.below(8);
        let mut messages = Vec::new();
        let heard = sessions[1].receive(&said, &mut messages);
        assert_eq!(
            messages,
            [],
            "seed {seed}: a message that was changed at byte {at}"
        );
        // A length that grew leaves an incomplete frame.
        assert!(heard.is_err() || at < 2, "seed {seed}: byte {at}");
    }
}

proptest! {
    #[test]
    fn unauthenticated_messages_are_rejected(chunks in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..300), 0..8
    )) {
        let mut session = Session::new(Role::Responder, "right", secret(7), [2; 32]);
        let mut messages = Vec::new();
        for chunk in chunks {
            if session.receive(&chunk, &mut messages).is_err() {
                break;
            }
        }
        prop_assert!(messages.is_empty());
        prop_assert!(!session.is_proven());
    }

    #[test]
    fn bytes_are_messages_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = PeerMessage::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
