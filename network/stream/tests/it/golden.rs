//! The bytes of every message, and decoding of arbitrary bytes without a panic.

use millrace_stream::Address;
use millrace_stream::control::{
    ControlError, Lease, Link, Message, Mode, PACKET, Packet, socket_path,
};
use proptest::prelude::*;

/// The bytes before the zeros.
fn head(packet: Packet) -> Vec<u8> {
    let bytes = packet.encode();
    let used = bytes.iter().rposition(|&byte| byte != 0);
    bytes[..used.map_or(0, |last| last + 1)].to_vec()
}

fn address(text: &str) -> Address {
    let parsed: std::net::SocketAddr = text.parse().expect("an address");
    parsed.into()
}

fn with(message: Message) -> Packet {
    Packet {
        serial: 0x0403_0201,
        message,
    }
}

fn link() -> Link {
    Link {
        mode: Mode::Direct,
        ring_lines: 4096,
        local: address("127.0.0.1:32768"),
        peer: address("[::1]:80"),
    }
}

#[test]
fn messages_without_fields() {
    assert_eq!(head(with(Message::Hello)), [1, 0, 2, 0, 1, 2, 3, 4]);
    assert_eq!(head(with(Message::Listening)), [4, 0, 2, 0, 1, 2, 3, 4]);
    assert_eq!(head(with(Message::Kernel)), [8, 0, 2, 0, 1, 2, 3, 4]);
    assert_eq!(head(with(Message::Status)), [10, 0, 2, 0, 1, 2, 3, 4]);
    assert_eq!(head(with(Message::Top)), [11, 0, 2, 0, 1, 2, 3, 4]);
}

#[test]
fn messages_with_numbers() {
    let welcome = Message::Welcome {
        ring_lines: 4096,
        spin_us_max: 50,
    };
    assert_eq!(
        head(with(welcome)),
        [2, 0, 2, 0, 1, 2, 3, 4, 0, 16, 0, 0, 50]
    );
    let listen = Message::Listen { backlog: 511 };
    assert_eq!(head(with(listen)), [3, 0, 2, 0, 1, 2, 3, 4, 255, 1]);
    let refused = Message::Refused { errno: 13 };
    assert_eq!(head(with(refused)), [5, 0, 2, 0, 1, 2, 3, 4, 13]);
    let forwarders = Message::OfferForwarders { count: 2 };
    assert_eq!(head(with(forwarders)), [13, 0, 2, 0, 1, 2, 3, 4, 2]);
    let report = Message::Report { length: 1 << 32 };
    assert_eq!(head(with(report)), [12, 0, 2, 0, 1, 2, 3, 4, 0, 0, 0, 0, 1]);
}

#[test]
fn messages_with_addresses() {
    let connect = Message::Connect {
        no_wait: true,
        wants_lease: true,
        local: address("0.0.0.0:0"),
        peer: address("[fe80::1%3]:8080"),
    };
    assert_eq!(
        head(with(connect)),
        [
            6, 0, 2, 0, 1, 2, 3, 4, 3, 0, 0, 0, 0, 0, 0, 0, // flags
            2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // local
            10, 0, 0x90, 0x1f, 3, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
        ]
    );
    assert_eq!(
        head(with(Message::Connected(link()))),
        [
            7, 0, 2, 0, 1, 2, 3, 4, 0, 1, 0, 0, 0, 16, 0, 0, // side, mode, lines
            2, 0, 0, 0x80, 0, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            10, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
        ]
    );
    let incoming = Message::Incoming {
        link: Link {
            mode: Mode::Forwarded,
            ..link()
        },
        user: 1000,
        process: 77,
    };
    assert_eq!(
        head(with(incoming)),
        [
            9, 0, 2, 0, 1, 2, 3, 4, 1, 2, 0, 0, 0, 16, 0, 0, // side, mode, lines
            2, 0, 0, 0x80, 0, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            10, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
            0xe8, 3, 0, 0, 77
        ]
    );
}

fn lease() -> Lease {
    Lease {
        ring_lines: 4096,
        mapped: true,
        local: address("127.0.0.1:32768"),
        peer: address("[::1]:80"),
        ports: 128,
        lasts_us: 10_000,
    }
}

#[test]
fn a_lease() {
    assert_eq!(
        head(with(Message::Lease(lease()))),
        [
            14, 0, 2, 0, 1, 2, 3, 4, 1, 0, 128, 0, 0, 16, 0, 0, // mapped, ports, lines
            2, 0, 0, 0x80, 0, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            10, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
            0x10, 0x27
        ]
    );
    let refused = |lease: Lease| Packet::decode(&with(Message::Lease(lease)).encode());
    let (local, last) = (address("127.0.0.1:0"), address("127.0.0.1:65535"));
    for wrong in [
        Lease {
            ports: 0,
            ..lease()
        },
        Lease { local, ..lease() },
        Lease {
            local: last,
            ..lease()
        },
    ] {
        assert_eq!(refused(wrong), Err(ControlError::Field("ports")));
    }
    let all = Lease {
        local: last,
        ports: 1,
        ..lease()
    };
    assert_eq!(refused(all), Ok(with(Message::Lease(all))));
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(Packet::decode(&[0; 127]), Err(ControlError::Length(127)));
    assert_eq!(Packet::decode(&[]), Err(ControlError::Length(0)));
    let change = |packet: Packet, offset: usize, byte: u8| {
        let mut bytes = packet.encode();
        bytes[offset] = byte;
        Packet::decode(&bytes)
    };
    let hello = with(Message::Hello);
    let (version, serial) = (3, 0x0403_0201);
    assert_eq!(
        change(hello, 2, 3),
        Err(ControlError::Version { version, serial })
    );
    assert_eq!(change(hello, 0, 15), Err(ControlError::Kind(15)));
    assert_eq!(change(hello, 0, 0), Err(ControlError::Kind(0)));
    assert_eq!(change(hello, 8, 1), Err(ControlError::Field("zeros")));
    let connected = with(Message::Connected(link()));
    assert_eq!(change(connected, 8, 1), Err(ControlError::Field("side")));
    assert_eq!(change(connected, 9, 0), Err(ControlError::Field("mode")));
    assert_eq!(
        change(connected, 16, 3),
        Err(ControlError::Field("address"))
    );
    assert_eq!(
        change(connected, 39, 3),
        Err(ControlError::Field("address"))
    );
    let refused = with(Message::Refused { errno: 1 });
    assert_eq!(change(refused, 8, 0), Err(ControlError::Field("errno")));
}

#[test]
fn each_user_has_a_path() {
    let path = |user, runtime: Option<&str>| {
        let path = socket_path(user, runtime.map(std::path::Path::new));
        path.display().to_string()
    };
    assert_eq!(path(0, Some("/run/user/0")), "/run/millrace/sockets");
    assert_eq!(path(7, Some("/run/user/7")), "/run/user/7/millrace/sockets");
    assert_eq!(path(7, Some("relative")), "/tmp/millrace-7/sockets");
    assert_eq!(path(7, None), "/tmp/millrace-7/sockets");
}

#[test]
fn addresses_of_both_families_become_each_other() {
    let plain = address("10.1.2.3:99");
    assert_eq!(plain.mapped(), address("[::ffff:10.1.2.3]:99"));
    assert!(plain.mapped().is_mapped() && !plain.is_mapped());
    assert_eq!(plain.mapped().canonical(), plain);
    let link_local = address("[fe80::1%7]:1");
    assert_eq!(
        (link_local.canonical(), link_local.scope()),
        (link_local, 7)
    );
    assert_eq!(
        std::net::SocketAddr::from(link_local).to_string(),
        "[fe80::1%7]:1"
    );
}

fn any_address() -> impl Strategy<Value = Address> {
    let v4 = (any::<u32>(), any::<u16>())
        .prop_map(|(ip, port)| Address::new(std::net::Ipv4Addr::from(ip).into(), port));
    let v6 = (any::<u128>(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| {
        std::net::SocketAddr::from(std::net::SocketAddrV6::new(ip.into(), port, 0, scope)).into()
    });
    prop_oneof![v4, v6]
}

fn any_link() -> impl Strategy<Value = Link> {
    let mode = prop_oneof![Just(Mode::Direct), Just(Mode::Forwarded)];
    (mode, any::<u32>(), any_address(), any_address()).prop_map(
        |(mode, ring_lines, local, peer)| Link {
            mode,
            ring_lines,
            local,
            peer,
        },
    )
}

fn any_lease() -> impl Strategy<Value = Lease> {
    let numbers = (any::<u32>(), any::<bool>(), any::<u32>(), 1..=200_u16);
    (numbers, any_address(), any_address()).prop_map(
        |((ring_lines, mapped, lasts_us, ports), local, peer)| Lease {
            ring_lines,
            mapped,
            local: local.with_port(local.port().clamp(1, 65_000)),
            peer,
            ports,
            lasts_us,
        },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        Just(Message::Hello),
        Just(Message::Listening),
        Just(Message::Kernel),
        Just(Message::Status),
        Just(Message::Top),
        (any::<u32>(), any::<u32>()).prop_map(|(ring_lines, spin_us_max)| Message::Welcome {
            ring_lines,
            spin_us_max
        }),
        any::<u32>().prop_map(|backlog| Message::Listen { backlog }),
        (1..=4095_u32).prop_map(|errno| Message::Refused { errno }),
        any::<u64>().prop_map(|length| Message::Report { length }),
        (1..=u16::MAX).prop_map(|count| Message::OfferForwarders { count }),
        (any::<bool>(), any::<bool>(), any_address(), any_address()).prop_map(
            |(no_wait, wants_lease, local, peer)| Message::Connect {
                no_wait,
                wants_lease,
                local,
                peer,
            }
        ),
        any_lease().prop_map(Message::Lease),
        any_link().prop_map(Message::Connected),
        (any_link(), any::<u32>(), any::<u32>()).prop_map(|(link, user, process)| {
            Message::Incoming {
                link,
                user,
                process,
            }
        }),
    ]
}

proptest! {
    #[test]
    fn every_message_comes_back(serial: u32, message in any_message()) {
        let packet = Packet { serial, message };
        prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
    }

    #[test]
    fn any_bytes_decode_to_an_error_or_to_what_encodes_to_them(
        mut bytes in prop::collection::vec(any::<u8>(), PACKET),
        kind in 0..16_u8,
        zeros in 0..PACKET,
    ) {
        bytes[..4].copy_from_slice(&[kind, 0, 1, 0]);
        bytes[zeros.max(4)..].fill(0);
        if let Ok(packet) = Packet::decode(&bytes) {
            prop_assert_eq!(&packet.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn one_byte_wrong_never_panics(
        message in any_message(), offset in 0..PACKET, byte: u8, length in 0..=PACKET,
    ) {
        let mut bytes = Packet { serial: 1, message }.encode();
        bytes[offset] = byte;
        if let Ok(packet) = Packet::decode(&bytes) {
            prop_assert_eq!(packet.encode(), bytes);
        }
        prop_assert_eq!(Packet::decode(&bytes[..length]).is_ok() && length < PACKET, false);
    }
}
