//! The connections that planes carry, and how many of them each user has.

use std::collections::{BTreeMap, HashMap};

use super::carriers::Flow;
use crate::plane::Token as Number;
use crate::registry::Limits;

/// Connections by their numbers. Each counts as that of one user: whoever connects from here, or else whoever accepts.
#[derive(Debug, Default)]
pub(super) struct Carried {
    flows: HashMap<Number, (u32, Flow)>,
    users: BTreeMap<u32, usize>,
    /// Connections that would have been too many.
    turned_away: u64,
}

impl Carried {
    /// Whether a user may have one more.
    pub(super) fn has_room(&mut self, user: u32, limits: &Limits) -> bool {
        let own = self.users.get(&user).copied().unwrap_or(0);
        let is_free = self.flows.len() < limits.carried_max && own < limits.carried_per_user_max;
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

    /// The connection is carried from now on; how far it was.
    pub(super) fn set_across(&mut self, number: Number) -> Option<Flow> {
        let flow = self.get_mut(number)?;
        Some(std::mem::replace(flow, Flow::Across))
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

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.flows.values_mut().map(|(_, flow)| flow)
    }

    /// The users who have some, and how many.
    pub(super) fn users(&self) -> impl Iterator<Item = (u32, usize)> {
        self.users.iter().map(|(user, count)| (*user, *count))
    }

    /// How many would have been too many.
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
            carried_max: 3,
            carried_per_user_max: 2,
            ..Limits::DEFAULT
        };
        let mut carried = Carried::default();
        for number in [1, 2] {
            assert!(carried.has_room(7, &limits));
            carried.insert(number, 7, Flow::Within);
        }
        assert!(!carried.has_room(7, &limits) && carried.has_room(8, &limits));
        carried.insert(3, 8, Flow::Within);
        assert!(!carried.has_room(8, &limits));
        assert_eq!(carried.turned_away(), 2);
        assert!(carried.remove(1).is_some() && carried.remove(1).is_none());
        assert!(carried.has_room(7, &limits) && carried.has_room(8, &limits));
        assert!(carried.remove(2).is_some() && carried.remove(3).is_some());
        assert_eq!(carried.users().count(), 0);
    }
}
