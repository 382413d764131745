//! The order of service of hot connections.

use millrace_stream::partition::{CLASSES, Class};
use millrace_sync::HotSet;

/// The hot connections by class.
///
/// In each round a class has as many turns as its weight, from 1 for the lowest to 8 for the highest (weighted round
/// robin, as in a partition). Within a class each connection has one turn after the other: between two turns of a
/// connection, every other connection of its class has at most one.
#[derive(Debug, Default)]
pub(super) struct WeightedRoundRobin {
    lines: [HotSet<u32>; CLASSES],
    count: usize,
    /// The class of the current turn, and the turns that it has left.
    class: usize,
    left: usize,
}

impl WeightedRoundRobin {
    /// Puts a connection behind the others of its class; nothing if it is there already.
    pub(super) fn insert(&mut self, class: Class, key: u32) {
        self.count += usize::from(self.lines[usize::from(class.number())].insert(key));
    }

    /// Removes a connection; false if it is not hot.
    pub(super) fn remove(&mut self, class: Class, key: u32) -> bool {
        let is_hot = self.lines[usize::from(class.number())].remove(key);
        self.count -= usize::from(is_hot);
        is_hot
    }

    /// The connection that has the next turn. It stays hot.
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        loop {
            if self.left > 0 {
                let line = &mut self.lines[self.class];
                if let Some(key) = line.front() {
                    line.rotate();
                    self.left -= 1;
                    return Some(key);
                }
            }
            self.class = (self.class + 1) % CLASSES;
            self.left = self.class + 1;
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_random::Random;

    fn class(number: usize) -> Class {
        let number = u8::try_from(number).expect("small");
        Class::new(number).expect("below eight")
    }

    /// Every connection stays hot after each turn: classes share by weight, and connections of a class share
    /// equally.
    #[test]
    fn classes_share_by_weight() {
        let mut turns = WeightedRoundRobin::default();
        for key in 0..24 {
            turns.insert(class(key as usize / 3), key);
        }
        let mut counts = [0_u32; 24];
        for _ in 0..36 * 3 {
            let key = turns.next().expect("all are in line");
            counts[key as usize] += 1;
        }
        for (key, count) in counts.into_iter().enumerate() {
            assert_eq!(count as usize, key / 3 + 1, "{key}");
        }
    }

    /// Connections come and go: no connection has two turns between two turns of another one of its class.
    #[test]
    fn one_turn_of_each_between_two_of_one() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut turns = WeightedRoundRobin::default();
            let classes: Vec<_> = (0..40).map(|_| class(random.index(3))).collect();
            let mut is_in_line = [false; 40];
            let mut since = vec![[0_u32; 40]; 40];
            for _ in 0..2000 {
                let comes = random.index(40);
                if !std::mem::replace(&mut is_in_line[comes], true) {
                    // It has just been queued.
                    since[comes] = [0; 40];
                    turns.insert(classes[comes], u32::try_from(comes).expect("small"));
                }
                let Some(key) = turns.next() else {
                    continue;
                };
                let own = key as usize;
                for (other, counts) in since.iter_mut().enumerate() {
                    if is_in_line[other] && other != own && classes[other] == classes[own] {
                        counts[own] += 1;
                        assert!(counts[own] <= 1, "seed {seed}: {own} before {other}");
                    }
                }
                since[own] = [0; 40];
                // It leaves, or has more turns.
                is_in_line[own] = random.chance(3, 4);
                if !is_in_line[own] {
                    assert!(turns.remove(classes[own], key));
                }
            }
        }
    }
}
