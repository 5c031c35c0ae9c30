//! [`HandOffStats`]: counts the hand-offs of read-write locks.

use std::collections::HashMap;

use crate::backend::LockName;
use crate::support::sync::Mutex;

/// Hand-offs in a row after which a release frees the lock: Redisson's clients get no message while our
/// waiters grant the lock to each other. Our waiters keep their order: all are woken, and the head acquires.
const MAX_HAND_OFFS: u32 = 31;

const MAX_COUNT: usize = 4096;

/// For each lock, the releases by this process that passed the lock on since it was last left free.
#[derive(Debug, Default)]
pub(super) struct HandOffStats(Mutex<HashMap<LockName, u32>>);

impl HandOffStats {
    /// True if this release has to free the lock. Also true of a lock that there is no room to count: freeing
    /// costs its waiters a command each, never freeing keeps other clients out.
    pub(super) fn is_enough(&self, name: &LockName) -> bool {
        let counts = self.0.lock();
        counts.get(name).map_or(counts.len() >= MAX_COUNT, |times| *times >= MAX_HAND_OFFS)
    }

    /// True if the last release passed the lock on: other waiters most likely wait for the next release.
    pub(super) fn last_time(&self, name: &LockName) -> bool {
        self.0.lock().contains_key(name)
    }

    pub(super) fn count(&self, name: &LockName, freed: bool) {
        let mut counts = self.0.lock();
        if freed {
            // Without room, most counts are of locks that nobody wants any more.
            if counts.len() >= MAX_COUNT {
                counts.clear();
            }
            counts.remove(name);
        } else if let Some(times) = counts.get_mut(name) {
            *times += 1;
        } else if counts.len() < MAX_COUNT {
            counts.insert(name.clone(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(&format!("name:{number}")).unwrap()
    }

    #[test]
    fn each_name_is_left_to_strangers_after_its_own_releases() {
        let stats = HandOffStats::default();
        for times in 0..MAX_HAND_OFFS {
            assert!(!stats.is_enough(&name(0)), "after {times}");
            assert_eq!(stats.last_time(&name(0)), times > 0);
            stats.count(&name(0), false);
            stats.count(&name(1), true);
        }
        assert!(stats.is_enough(&name(0)) && !stats.is_enough(&name(1)));
        stats.count(&name(0), true);
        assert!(!stats.is_enough(&name(0)) && !stats.last_time(&name(0)));
    }

    #[test]
    fn names_without_room_go_to_strangers_until_one_is_left_free() {
        let stats = HandOffStats::default();
        for number in 0..=MAX_COUNT {
            stats.count(&name(number), false);
        }
        assert_eq!(stats.0.lock().len(), MAX_COUNT);
        assert!(!stats.is_enough(&name(0)) && stats.is_enough(&name(MAX_COUNT)));
        stats.count(&name(MAX_COUNT), true);
        assert!(!stats.is_enough(&name(MAX_COUNT)) && stats.0.lock().is_empty());
    }
}
