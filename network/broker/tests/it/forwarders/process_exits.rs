//! Programs and forwarders that are killed at random points.

use millrace_broker::forwarder::{Command, Event};
use millrace_random::Random;
use millrace_stream::Side;
use millrace_stream::partition::SessionError;

use super::application::{Application, Outcome, pair};
use super::fixture::{Host, LINK, check, connect, drive, join, source, until};
use super::limits::run_to_the_end;

/// Kills some programs; the bytes of their peers are checked.
fn kill_some(mut applications: Vec<Option<Application>>, random: &mut Random) {
    let count = applications.len();
    let mut killed: Vec<Option<Application>> = (0..count).map(|_| None).collect();
    let mut draws = Random::new(random.number());
    drive(&mut applications, random, |applications| {
        let index = draws.index(count);
        // At most one of a pair.
        let is_first = killed[index ^ 1].is_none();
        if draws.chance(1, 40) && is_first {
            if let Some(dead) = applications[index].take() {
                killed[index] = Some(dead.into_killed());
            }
        }
        applications.iter().flatten().all(Application::is_done)
    });
    for index in 0..count {
        let Some(own) = &applications[index] else {
            continue;
        };
        let peer = applications[index ^ 1]
            .as_ref()
            .or(killed[index ^ 1].as_ref());
        let peer = peer.expect("it survives or was killed");
        check(own, peer, "beside deaths");
        match own.end {
            Some(Outcome::Finished) => {
                // All that the peer has sent, even if it was killed.
                assert_eq!(own.got.len(), peer.total_sent(), "{index}");
            }
            Some(Outcome::Reset(104)) => assert!(killed[index ^ 1].is_some(), "{index}"),
            other => panic!("{index}: {other:?}"),
        }
    }
}

#[test]
fn programs_are_killed_within_a_host() {
    for seed in 0..5 {
        let mut random = Random::new(100 + seed);
        let mut host = Host::new();
        let mut applications = Vec::new();
        for token in 0..40 {
            let ends =
                [Side::Connecting, Side::Accepting].map(|side| pair(side, source(&mut random)));
            let [(first, ours), (second, theirs)] = ends;
            applications.extend([Some(first), Some(second)]);
            let ends = Box::new([ours, theirs]);
            host.tell(token, Command::Loop { token, ends });
        }
        kill_some(applications, &mut random);
        until(std::slice::from_mut(&mut host), "they end", |host| {
            host.ended.len() == 40
        });
        assert_eq!(host.stop().1, 0, "seed {seed}: memory is given back");
    }
}

#[test]
fn programs_are_killed_between_hosts() {
    for seed in 0..5 {
        let mut random = Random::new(200 + seed);
        let mut hosts = [Host::new(), Host::new()];
        join(&mut hosts, 1, 5_000_000_000);
        let applications = connect(&mut hosts, 100, &mut random);
        kill_some(applications.into_iter().map(Some).collect(), &mut random);
        until(&mut hosts, "they end", |host| host.ended.len() == 100);
        for host in &mut hosts {
            assert_eq!(host.stop().1, 0, "seed {seed}: memory is given back");
        }
    }
}

/// A forwarder exits: its programs' wake-up fds hang up, and the others' connections are reset. No stream that was cut
/// short has an end.
#[test]
fn a_forwarder_exits() {
    for seed in 0..5 {
        let mut random = Random::new(300 + seed);
        let mut hosts = [Host::new(), Host::new()];
        let peer_link = join(&mut hosts, 1, 300_000_000);
        let applications = connect(&mut hosts, 40, &mut random);
        let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
        let mut left = random.below(60);
        let [stopped, live] = &mut hosts;
        drive(&mut applications, &mut random, |applications| {
            if left == 0 {
                stopped.stop();
            }
            left = left.checked_sub(1).unwrap_or(u64::MAX);
            live.take_events();
            applications.iter().flatten().all(Application::is_done)
        });
        if left < 1000 {
            stopped.stop();
        }
        for index in 0..applications.len() {
            let [own, peer] = [index, index ^ 1].map(|index| applications[index].as_ref());
            let (own, peer) = (own.expect("it survives"), peer.expect("it survives"));
            check(own, peer, "beside a dead forwarder");
            let is_whole = own.got.len() == peer.source.len() && peer.has_finished;
            match own.end {
                Some(Outcome::Finished) => assert!(is_whole, "seed {seed}: {index}"),
                Some(Outcome::HungUp) => assert_eq!(index % 2, 0, "seed {seed}"),
                Some(Outcome::Reset(104)) => assert_eq!(index % 2, 1, "seed {seed}"),
                other => panic!("seed {seed}: {index}: {other:?}"),
            }
        }
        until(std::slice::from_mut(live), "the event arrives", |host| {
            !host.lost.is_empty()
        });
        let lost = Event::Lost {
            link: LINK,
            loss: SessionError::HeartbeatTimeout,
        };
        assert_eq!(live.lost, [lost], "seed {seed}");
        until(std::slice::from_mut(live), "they end", |host| {
            host.ended.len() == 40
        });
        // The stopped host starts anew, and both connect again by the same wake-up fds.
        *stopped = Host::new();
        live.forget();
        peer_link.join_all(&mut hosts, 10 + seed, 5_000_000_000);
        let applications = connect(&mut hosts, 10, &mut random);
        let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
        run_to_the_end(&mut applications, &mut random);
        until(&mut hosts, "they end", |host| host.ended.len() == 10);
        for host in &mut hosts {
            assert_eq!(host.stop().1, 0, "seed {seed}: memory is given back");
        }
    }
}
