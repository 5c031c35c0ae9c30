//! [`HandOffStats`]: counts the hand-offs of read-write locks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::backend::LockName;
use crate::support::sync::Mutex;

/// Hand-offs in a row after which a release frees the lock: Redisson's clients get no message while our
/// waiters grant the lock to each other. Our waiters keep their order: all are woken, and the head acquires.
const MAX_HAND_OFFS: u32 = 31;

const MAX_COUNT: usize = 4096;

/// Time without a release after which a lock's count may be dropped to make room.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// For each lock, the releases by this process that passed the lock on since it was last left free.
#[derive(Debug, Default)]
pub(super) struct HandOffStats(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_name: HashMap<LockName, (u32, Instant)>,
    /// Time of the latest removal of idle locks, which scans all.
    cleared: Option<Instant>,
}

impl HandOffStats {
    /// True if this release has to free the lock. Also true of a lock that there is no room to count: freeing
    /// costs its waiters a command each, never freeing keeps other clients out.
    pub(super) fn is_enough(&self, name: &LockName) -> bool {
        let counts = self.0.lock();
        match counts.by_name.get(name) {
            Some((times, _)) => *times >= MAX_HAND_OFFS,
            None => counts.by_name.len() >= MAX_COUNT,
        }
    }

    /// True if the last release passed the lock on: other waiters most likely wait for the next release.
    pub(super) fn last_time(&self, name: &LockName) -> bool {
        self.0.lock().by_name.contains_key(name)
    }

    pub(super) fn count(&self, name: &LockName, freed: bool, now: Instant) {
        let mut counts = self.0.lock();
        if freed {
            counts.by_name.remove(name);
            return;
        }
        if let Some((times, last)) = counts.by_name.get_mut(name) {
            (*times, *last) = (*times + 1, now);
            return;
        }
        let since = |then: Instant| now.saturating_duration_since(then);
        if counts.by_name.len() >= MAX_COUNT
            && counts.cleared.is_none_or(|then| since(then) >= IDLE_TIME / 60)
        {
            counts.by_name.retain(|_, (_, last)| since(*last) < IDLE_TIME);
            counts.cleared = Some(now);
        }
        if counts.by_name.len() < MAX_COUNT {
            counts.by_name.insert(name.clone(), (1, now));
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
        let (stats, now) = (HandOffStats::default(), Instant::now());
        for times in 0..MAX_HAND_OFFS {
            assert!(!stats.is_enough(&name(0)), "after {times}");
            assert_eq!(stats.last_time(&name(0)), times > 0);
            stats.count(&name(0), false, now);
            stats.count(&name(1), true, now);
        }
        assert!(stats.is_enough(&name(0)) && !stats.is_enough(&name(1)));
        stats.count(&name(0), true, now);
        assert!(!stats.is_enough(&name(0)) && !stats.last_time(&name(0)));
    }

    #[test]
    fn names_without_room_go_to_strangers_until_others_are_idle() {
        let (stats, now) = (HandOffStats::default(), Instant::now());
        for number in 0..=MAX_COUNT {
            stats.count(&name(number), false, now);
        }
        assert_eq!(stats.0.lock().by_name.len(), MAX_COUNT);
        assert!(!stats.is_enough(&name(0)) && stats.is_enough(&name(MAX_COUNT)));
        // At most one removal a second: half a second is too early.
        for half_seconds in [119, 120] {
            stats.count(&name(MAX_COUNT), false, now + half_seconds * IDLE_TIME / 120);
            assert!(stats.is_enough(&name(MAX_COUNT)), "after {half_seconds} / 2 s");
        }
        stats.count(&name(MAX_COUNT), false, now + 121 * IDLE_TIME / 120);
        assert!(!stats.is_enough(&name(MAX_COUNT)));
        assert_eq!(stats.0.lock().by_name.len(), 1);
    }

    #[test]
    fn idle_names_are_kept_while_there_is_room() {
        let (stats, now) = (HandOffStats::default(), Instant::now());
        for _ in 0..MAX_HAND_OFFS {
            stats.count(&name(0), false, now);
        }
        stats.count(&name(1), false, now + 2 * IDLE_TIME);
        assert!(stats.is_enough(&name(0)));
    }
}
