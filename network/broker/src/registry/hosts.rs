//! The registry's part in connections with other hosts.

use std::collections::HashMap;
use std::net::IpAddr;

use millrace_stream::Address;
use millrace_stream::control::{Link, Message, Mode};
use rustix::io::Errno;

use super::{Action, ClientId, ConnectRequest, ListenerId, Registry, destination, reply};
use crate::rules::{Direction, Verdict};

/// The addresses of the reachable hosts.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    by_address: HashMap<IpAddr, u128>,
}

/// The reason for refusing a connection with another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The kernel's TCP may try.
    Kernel,
    /// The connect fails with this errno.
    Errno(Errno),
}

impl Hosts {
    pub(super) fn of(&self, ip: IpAddr) -> Option<u128> {
        self.by_address.get(&ip).copied()
    }
}

impl Registry {
    /// Records whether forwarders are attached.
    pub const fn set_forwarders(&mut self, has_forwarders: bool) {
        self.has_forwarders = has_forwarders;
    }

    /// Whether forwarders are attached.
    #[must_use]
    pub const fn has_forwarders(&self) -> bool {
        self.has_forwarders
    }

    /// Records that a host is reachable at these addresses. Returns the addresses that belong to another host already.
    pub fn host_up(&mut self, host: u128, addresses: &[IpAddr]) -> Vec<IpAddr> {
        self.host_down(host);
        let mut taken = Vec::new();
        for address in addresses {
            if *self.hosts.by_address.entry(*address).or_insert(host) != host {
                taken.push(*address);
            }
        }
        taken
    }

    /// Records that a host is unreachable. Its addresses go back to the kernel's TCP.
    pub fn host_down(&mut self, host: u128) {
        self.hosts.by_address.retain(|_, other| *other != host);
    }

    /// The connection with another host from the connecting process's view.
    pub(crate) fn link_across(&mut self, request: ConnectRequest, source: IpAddr) -> Link {
        let local = self.local(request, source);
        let peer = destination(request.peer);
        let mapped = request.peer.is_mapped();
        Link {
            mode: Mode::Forwarded,
            ring_lines: self.settings.ring_lines,
            local: if mapped { local.mapped() } else { local },
            peer: if mapped { peer.mapped() } else { peer },
        }
    }

    /// The listener for a connection from another host's user, and the connection from its view.
    pub(crate) fn accept_across(
        &mut self,
        user: u32,
        from: Address,
        to: Address,
    ) -> Result<(ListenerId, Link), Refusal> {
        let to = to.canonical();
        let rules = &self.settings.rules;
        match rules.decide(Direction::Connect, user, to) {
            Verdict::Deny => return Err(Refusal::Errno(Errno::ACCESS)),
            Verdict::Kernel => return Err(Refusal::Kernel),
            Verdict::Allow | Verdict::Direct => {}
        }
        let id = self.listeners.choose(to).ok_or(Refusal::Kernel)?;
        let listener = self.listeners.get_mut(id).ok_or(Refusal::Kernel)?;
        if listener.full {
            return Err(Refusal::Kernel);
        }
        let mapped = listener.proof.address.ip().is_ipv6();
        let link = Link {
            mode: Mode::Forwarded,
            ring_lines: self.settings.ring_lines,
            local: if mapped { to.mapped() } else { to },
            peer: if mapped { from.mapped() } else { from },
        };
        Ok((id, link))
    }

    /// Counts a connection that a listener got from another host.
    pub(crate) fn accepted_across(&mut self, listener: ListenerId, has_room: bool) {
        self.counters.connections += 1;
        self.counters.across.1 += 1;
        if let Some(found) = self.listeners.get_mut(listener) {
            found.accepted += 1;
            found.full = !has_room;
        }
    }

    /// Counts a connection that a process of this host got.
    pub(crate) const fn connected_across(&mut self) {
        self.counters.connections += 1;
        self.counters.across.0 += 1;
    }

    /// Answers a process whose connection to another host failed.
    pub(crate) fn refused_across(
        &mut self,
        client: ClientId,
        serial: u32,
        refusal: Refusal,
        actions: &mut Vec<Action>,
    ) {
        match refusal {
            Refusal::Kernel => {
                self.counters.kernel += 1;
                reply(client, serial, Message::Kernel, actions);
            }
            Refusal::Errno(errno) => self.refuse(client, serial, errno, actions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Credentials, Event, Settings};

    /// The answer to a connect to a port of 192.0.2.1, and whether a host is asked.
    fn answer(registry: &mut Registry, port: u16) -> (Option<Message>, bool) {
        let credentials = Credentials {
            user: 7,
            process: 1,
        };
        let client = ClientId(1);
        let address = |text: &str, port| Address::new(text.parse().expect("an address"), port);
        let request = ConnectRequest {
            credentials,
            serial: 1,
            no_wait: false,
            wants_lease: false,
            local: address("0.0.0.0", 0),
            peer: address("192.0.2.1", port),
            source: None,
        };
        let mut actions = Vec::new();
        registry.handle(
            Event::Arrived {
                client,
                credentials,
            },
            &mut actions,
        );
        registry.handle(Event::Hello { client, serial: 0 }, &mut actions);
        actions.clear();
        registry.handle(Event::Connect { client, request }, &mut actions);
        registry.handle(Event::Departed { client }, &mut Vec::new());
        match actions[..] {
            [Action::Reply { packet, .. }] => (Some(packet.message), false),
            [Action::ConnectRemote { host: 1, .. }] => (None, true),
            ref other => panic!("{other:?}"),
        }
    }

    /// A denied connect gets `EACCES`; a connect to an unreachable host is left to the kernel's TCP.
    #[test]
    fn a_host_that_is_away_is_the_kernels_and_what_is_denied_is_refused() {
        let text =
            "[[rule]]\naction = \"deny\"\nports = 1\n[[rule]]\naction = \"kernel\"\nports = 2\n";
        let rules = crate::rules::Rules::parse(text, &|_| None).expect("they make sense");
        let mut registry = Registry::new(Settings {
            rules,
            ..Settings::default()
        });
        let host: IpAddr = "192.0.2.1".parse().expect("an address");
        let errno = Errno::ACCESS.raw_os_error().unsigned_abs();
        let denied = (Some(Message::Refused { errno }), false);
        let kernels = (Some(Message::Kernel), false);
        for is_up in [false, true, false] {
            if is_up {
                assert!(registry.host_up(1, &[host]).is_empty());
            } else {
                registry.host_down(1);
            }
            assert_eq!(answer(&mut registry, 1), denied);
            assert_eq!(answer(&mut registry, 2), kernels);
            // Without forwarders the connection is left to the kernel.
            registry.set_forwarders(false);
            assert_eq!(answer(&mut registry, 3), kernels);
            registry.set_forwarders(true);
            let expected = if is_up { (None, true) } else { kernels };
            assert_eq!(answer(&mut registry, 3), expected);
        }
        // The other host's refusal is passed on.
        let mut actions = Vec::new();
        let refusal = Refusal::Errno(Errno::ACCESS);
        registry.refused_across(ClientId(1), 1, refusal, &mut actions);
        let message = Message::Refused { errno };
        let packet = millrace_stream::control::Packet { serial: 1, message };
        let client = ClientId(1);
        assert_eq!(actions, [Action::Reply { client, packet }]);
    }

    #[test]
    fn the_first_host_keeps_an_address() {
        let mut registry = Registry::new(Settings::default());
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| {
            let ip: IpAddr = text.parse().expect("an address");
            ip
        });
        assert!(registry.host_up(1, &[one]).is_empty());
        assert_eq!(registry.host_up(2, &[one, other]), [one]);
        // The same announcement again.
        assert!(registry.host_up(1, &[one]).is_empty());
        assert_eq!(
            (registry.hosts.of(one), registry.hosts.of(other)),
            (Some(1), Some(2))
        );
        registry.host_down(1);
        assert_eq!(registry.hosts.of(one), None);
        assert!(registry.host_up(2, &[one, other]).is_empty());
        assert_eq!(registry.hosts.of(one), Some(2));
    }
}
