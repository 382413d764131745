//! Transfers without a failure.

use millrace_broker::forwarder::Command;
use millrace_random::Random;
use millrace_stream::Side;

use super::application::{Application, Outcome, pair};
use super::fixture::{Host, check, connect, drive, join, source, until};

/// All bytes arrive, and the end behind them.
pub(crate) fn run_to_the_end(applications: &mut [Option<Application>], random: &mut Random) {
    drive(applications, random, |applications| {
        applications.iter().flatten().all(Application::is_done)
    });
    for index in 0..applications.len() {
        let [own, peer] = [index, index ^ 1].map(|index| applications[index].as_ref());
        let (own, peer) = (own.expect("it survives"), peer.expect("it survives"));
        check(own, peer, "whole");
        assert_eq!(own.end, Some(Outcome::Finished), "{index}");
        assert_eq!(own.got.len(), peer.source.len(), "{index}");
    }
}

#[test]
fn within_a_host() {
    let mut random = Random::new(1);
    let mut host = Host::new();
    let mut applications = Vec::new();
    for token in 0..50 {
        let ends = [Side::Connecting, Side::Accepting].map(|side| pair(side, source(&mut random)));
        let [(mut first, ours), (mut second, theirs)] = ends;
        first.mark(&mut random);
        second.mark(&mut random);
        applications.extend([Some(first), Some(second)]);
        let ends = Box::new([ours, theirs]);
        host.tell(token, Command::Loop { token, ends });
    }
    run_to_the_end(&mut applications, &mut random);
    until(std::slice::from_mut(&mut host), "they end", |host| {
        host.ended.len() == 50
    });
    let (totals, connections) = host.stop();
    assert_eq!((totals.opened, totals.ended, connections), (50, 50, 0));
}

#[test]
fn between_hosts() {
    let mut random = Random::new(2);
    let mut hosts = [Host::new(), Host::new()];
    join(&mut hosts, 1, 5_000_000_000);
    let applications = connect(&mut hosts, 100, &mut random);
    let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
    run_to_the_end(&mut applications, &mut random);
    until(&mut hosts, "they end", |host| host.ended.len() == 100);
    let sent = |first: usize| -> u64 {
        let sources = applications.iter().flatten().skip(first).step_by(2);
        sources
            .map(|application| application.source.len() as u64)
            .sum()
    };
    let forwarded = [(sent(0), sent(1)), (sent(1), sent(0))];
    for (host, forwarded) in hosts.iter_mut().zip(forwarded) {
        host.tell(0, Command::Report);
        until(std::slice::from_mut(host), "it reports", |host| {
            host.report.is_some()
        });
        let (totals, connections) = host.stop();
        assert_eq!((totals.opened, totals.ended, connections), (100, 100, 0));
        assert_eq!((totals.resets, totals.violations), (0, 0));
        let report = host.report.expect("it has come");
        assert_eq!((report.forwarded, report.bytes), (forwarded, forwarded));
    }
}

/// Two forwarders on each host share the partitions of one window.
#[test]
fn between_hosts_by_several_partitions() {
    let mut random = Random::new(3);
    let mut hosts = [Host::with_forwarders(2), Host::with_forwarders(2)];
    join(&mut hosts, 1, 5_000_000_000);
    let applications = connect(&mut hosts, 60, &mut random);
    let mut applications: Vec<_> = applications.into_iter().map(Some).collect();
    run_to_the_end(&mut applications, &mut random);
    until(&mut hosts, "they end", |host| host.ended.len() == 60);
    for host in &mut hosts {
        let (totals, connections) = host.stop();
        assert_eq!((totals.ended, connections), (60, 0));
    }
}
