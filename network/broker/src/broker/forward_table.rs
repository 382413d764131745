//! The table of forwarded connections, with a count for each user.

use std::collections::{BTreeMap, HashMap};

use super::flow::Flow;
use crate::forwarder::Token as Number;
use crate::registry::Limits;

/// Forwarded connections by number. Each counts for one user: the connecting user if its process is on this host, else
/// the accepting user.
#[derive(Debug, Default)]
pub(super) struct ForwardTable {
    flows: HashMap<Number, (u32, Flow)>,
    users: BTreeMap<u32, usize>,
    /// Connections that exceeded a limit since the start.
    turned_away: u64,
}

impl ForwardTable {
    /// Whether the limits allow one more connection of a user.
    pub(super) fn has_room(&mut self, user: u32, limits: &Limits) -> bool {
        let own = self.users.get(&user).copied().unwrap_or(0);
        let is_free =
            self.flows.len() < limits.forwarded_max && own < limits.forwarded_per_user_max;
        self.turned_away += u64::from(!is_free);
        is_free
    }

    pub(super) fn insert(&mut self, number: Number, user: u32, flow: Flow) {
        let old = self.flows.insert(number, (user, flow));
        debug_assert!(old.is_none(), "numbers are never given twice");
        *self.users.entry(user).or_default() += 1;
    }

    pub(super) fn get(&self, number: Number) -> Option<&Flow> {
        self.flows.get(&number).map(|(_, flow)| flow)
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut Flow> {
        self.flows.get_mut(&number).map(|(_, flow)| flow)
    }

    /// Marks a connection as established with another host, and returns its previous state.
    pub(super) fn set_remote(&mut self, number: Number) -> Option<Flow> {
        let flow = self.get_mut(number)?;
        Some(std::mem::replace(flow, Flow::Remote))
    }

    pub(super) fn remove(&mut self, number: Number) -> Option<Flow> {
        let (user, flow) = self.flows.remove(&number)?;
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
        Some(flow)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Number, &Flow)> {
        self.flows.iter().map(|(number, (_, flow))| (*number, flow))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Number, &mut Flow)> {
        let flows = self.flows.iter_mut();
        flows.map(|(number, (_, flow))| (*number, flow))
    }

    /// Each user with forwarded connections, and their count.
    pub(super) fn users(&self) -> impl Iterator<Item = (u32, usize)> {
        self.users.iter().map(|(user, count)| (*user, *count))
    }

    /// Connections that exceeded a limit since the start.
    pub(super) const fn turned_away(&self) -> u64 {
        self.turned_away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_and_all_have_so_many() {
        let limits = Limits {
            forwarded_max: 3,
            forwarded_per_user_max: 2,
            ..Limits::DEFAULT
        };
        let mut forwarded = ForwardTable::default();
        for number in [1, 2] {
            assert!(forwarded.has_room(7, &limits));
            forwarded.insert(number, 7, Flow::Local);
        }
        assert!(!forwarded.has_room(7, &limits) && forwarded.has_room(8, &limits));
        forwarded.insert(3, 8, Flow::Local);
        assert!(!forwarded.has_room(8, &limits));
        assert_eq!(forwarded.turned_away(), 2);
        assert!(forwarded.remove(1).is_some() && forwarded.remove(1).is_none());
        assert!(forwarded.has_room(7, &limits) && forwarded.has_room(8, &limits));
        assert!(forwarded.remove(2).is_some() && forwarded.remove(3).is_some());
        assert_eq!(forwarded.users().count(), 0);
    }
}
