//! Programs that break the protocol or stop, windows without wake-up fds, and several forwarders.

use millrace_broker::forwarder::{Command, ForwarderPool, ForwarderSettings};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::{ConnectionName, EndName};

use super::application::{Application, Outcome, pair};
use super::fixture::{Host, PeerLink, connect, drive, join, source, until};

/// A program that stores garbage, or writes to its wake-up fd, loses its own connection and no other.
#[test]
fn a_violation_resets_the_connection() {
    for by_bell in [false, true] {
        let mut random = Random::new(5);
        let mut hosts = [Host::new(), Host::new()];
        join(&mut hosts, 1, 5_000_000_000);
        let applications = connect(&mut hosts, 10, &mut random);
        let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
        // More than can be in flight, so that none ends before.
        for application in applications.iter_mut().flatten().take(2) {
            application.source = vec![1; 500_000];
        }
        let bad = applications[0].as_mut().expect("it survives");
        if by_bell {
            bad.write_garbage();
        } else {
            bad.smear();
        }
        drive(&mut applications, &mut random, |applications| {
            applications.iter().flatten().all(Application::is_done)
        });
        for (index, application) in applications.iter().flatten().enumerate() {
            let expected = if index < 2 {
                Outcome::Reset(104)
            } else {
                Outcome::Finished
            };
            assert_eq!(
                application.end,
                Some(expected),
                "{index}, by its wakeup: {by_bell}"
            );
        }
        for host in &mut hosts {
            until(std::slice::from_mut(host), "they end", |host| {
                host.ended.len() == 10
            });
            assert_eq!(host.stop().1, 0);
        }
    }
}

/// A finished program that does not read and breaks the protocol: its buffers are released, and its peer is reset.
#[test]
fn a_violation_behind_the_end_resets_the_connection() {
    for (by_bell, is_far) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut random = Random::new(10);
        let mut hosts = [Host::new(), Host::new()];
        join(&mut hosts, 1, 5_000_000_000);
        let mut applications = if is_far {
            connect(&mut hosts, 1, &mut random)
        } else {
            let ends = [Side::Connecting, Side::Accepting].map(|side| pair(side, Vec::new()));
            let [(first, ours), (second, theirs)] = ends;
            let ends = Box::new([ours, theirs]);
            hosts[0].tell(0, Command::Loop { token: 0, ends });
            vec![first, second]
        };
        let mut peer = applications.pop().expect("there are two");
        let mut bad = applications.pop().expect("there are two");
        for application in [&mut bad, &mut peer] {
            application.urgent.clear();
            application.source = Vec::new();
        }
        peer.source = vec![1; 500_000];
        bad.send_all();
        let mut peers = [Some(peer)];
        let (mut is_good, mut sent, mut looks) = (true, 0, 0);
        drive(&mut peers, &mut random, |peers| {
            let peer = peers[0].as_ref().expect("it survives");
            // Its rings and its buffer are full when nothing moves any more.
            looks = if sent == peer.total_sent() {
                looks + 1
            } else {
                0
            };
            sent = peer.total_sent();
            if is_good && looks > 20 && peer.has_seen_the_end() {
                is_good = false;
                if by_bell {
                    bad.write_garbage();
                } else {
                    bad.give_too_much();
                }
            }
            peer.is_done()
        });
        let [Some(peer)] = &peers else {
            panic!("it survives");
        };
        let errno = peer.reset();
        let how = format!("by its wakeup: {by_bell}, far: {is_far}");
        assert!(matches!(errno, Some(32 | 104)), "{how}: {errno:?}");
        let hosts = if is_far {
            &mut hosts[..]
        } else {
            &mut hosts[..1]
        };
        until(hosts, &how, |host| host.ended.len() == 1);
        for host in hosts {
            assert_eq!(host.stop().1, 0, "{how}");
        }
    }
}

/// Programs that never read keep their granted room and their rings, and the others end.
#[test]
fn a_stalled_program_delays_no_other() {
    let mut random = Random::new(6);
    let mut hosts = [Host::new(), Host::new()];
    join(&mut hosts, 1, 5_000_000_000);
    let applications = connect(&mut hosts, 40, &mut random);
    let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
    let mut stopped = Vec::new();
    for application in applications.iter_mut().take(20).skip(1).step_by(2) {
        stopped.push(application.take());
    }
    drive(&mut applications, &mut random, |applications| {
        applications
            .iter()
            .flatten()
            .skip(10)
            .all(Application::is_done)
    });
    for application in applications.iter().flatten().skip(10) {
        assert_eq!(application.end, Some(Outcome::Finished));
    }
    // Both rings, the room, the sender's ring, and a slice.
    for application in applications.iter().flatten().take(10) {
        let kept = 2 * 256 * 64 + 16_384 + 16_384;
        assert!(
            application.total_sent() <= kept,
            "{}",
            application.total_sent()
        );
    }
    assert_eq!(stopped.len(), 10);
    for host in &mut hosts {
        until(std::slice::from_mut(host), "they end", |host| {
            host.ended.len() == 30
        });
        assert_eq!(host.stop().1, 10);
    }
}

/// Without notifications, forwarders poll.
#[test]
fn without_bells() {
    let mut random = Random::new(7);
    let mut hosts = [Host::new(), Host::new()];
    PeerLink::new(1, false).join_all(&mut hosts, 1, 5_000_000_000);
    let applications = connect(&mut hosts, 5, &mut random);
    let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
    drive(&mut applications, &mut random, |applications| {
        applications.iter().flatten().all(Application::is_done)
    });
    let is_whole = |application: &Application| application.end == Some(Outcome::Finished);
    assert!(applications.iter().flatten().all(is_whole));
    for host in &mut hosts {
        host.stop();
    }
}

/// A connection that was cancelled before it was established leaves nothing behind.
#[test]
fn what_was_given_up_is_over() {
    let mut random = Random::new(8);
    let mut hosts = [Host::new(), Host::new()];
    join(&mut hosts, 1, 5_000_000_000);
    let mut kept = super::fixture::open(&mut hosts, 8, &mut random);
    for host in &hosts {
        for token in 0..8 {
            host.tell(token, Command::Close { token, errno: 111 });
        }
    }
    for host in &mut hosts {
        until(std::slice::from_mut(host), "they end", |host| {
            host.ended.len() == 8
        });
    }
    for application in &mut kept {
        application.step(&mut random);
        assert_eq!(application.end, Some(Outcome::Reset(111)));
    }
    for host in &mut hosts {
        assert_eq!(host.stop().1, 0);
    }
}

/// A new connection goes to the less loaded of two forwarders.
#[test]
fn forwarders_are_balanced() {
    let (pool, forwarders) =
        ForwarderPool::new(4, ForwarderSettings::default()).expect("forwarders");
    let mut random = Random::new(9);
    let mut counts = [0_u32; 4];
    let mut kept = Vec::new();
    let mut forwarders: Vec<_> = forwarders.into_iter().collect();
    for token in 0..400_u16 {
        let end = |host, port| EndName::new(host, ([127, 0, 0, 1], port).into());
        let name = ConnectionName {
            connecting: end(1, 1000 + token),
            accepting: end(2, 80),
        };
        let place = pool.choose_partition(&name, 4);
        counts[usize::from(place)] += 1;
        let ends = [Side::Connecting, Side::Accepting].map(|side| pair(side, source(&mut random)));
        let [(first, ours), (second, theirs)] = ends;
        kept.push([first, second]);
        let ends = Box::new([ours, theirs]);
        let token = u64::from(token);
        assert!(pool.forwarder(place).send(Command::Loop { token, ends }));
        forwarders[usize::from(place)].poll(0);
        if kept.len() > 100 {
            // In portions, as descriptors are limited.
            break;
        }
    }
    let (most, least) = (counts.iter().max(), counts.iter().min());
    let spread = most.zip(least).map(|(most, least)| most - least);
    assert!(spread.is_some_and(|spread| spread <= 8), "{counts:?}");
    let loads: u64 = pool
        .forwarders()
        .iter()
        .map(|forwarder| forwarder.load())
        .sum();
    assert_eq!(loads, kept.len() as u64);
}
