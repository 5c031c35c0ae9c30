//! [`HandOffStats`]: when a release of a read-write lock leaves it to other clients, and whether another
//! process most likely waits for a release.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::backend::LockName;
use crate::support::sync::Mutex;

/// After so many releases of a read-write lock the next one leaves it to whichever client asks first. While
/// ours wait, they grant it to each other, and a client of Redisson's would not be told. It does not change
/// the order among ours: all of them are told, and the first of the queue gets it, whichever asks.
const MAX_HAND_OFFS: u32 = 31;

/// The releases of more locks than these are not counted.
const MAX_COUNT: usize = 4096;

/// A lock that was not released for so long may be forgotten for another one.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// The count of each lock's releases by this process that passed the lock on, since one has left it to other
/// clients.
#[derive(Debug, Default)]
pub(super) struct HandOffStats(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_name: HashMap<LockName, (u32, Instant)>,
    /// When those that are idle were forgotten: looking at all of them takes time.
    cleared: Option<Instant>,
}

impl HandOffStats {
    /// True if this release is to leave the lock to other clients. A release without room to be counted is:
    /// that costs the waiters a command each, while never to leave it would keep other clients out for ever.
    pub(super) fn is_enough(&self, name: &LockName) -> bool {
        let counts = self.0.lock();
        match counts.by_name.get(name) {
            Some((times, _)) => *times >= MAX_HAND_OFFS,
            None => counts.by_name.len() >= MAX_COUNT,
        }
    }

    /// True if the last release of the lock passed it on. Then others most likely wait for the next release,
    /// too.
    pub(super) fn last_time(&self, name: &LockName) -> bool {
        self.0.lock().by_name.contains_key(name)
    }

    /// Counts a release. `freed`: the lock is free now, so other clients have their chance.
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
    fn names_without_room_are_left_to_strangers_until_others_are_idle() {
        let (stats, now) = (HandOffStats::default(), Instant::now());
        for number in 0..=MAX_COUNT {
            stats.count(&name(number), false, now);
        }
        assert_eq!(stats.0.lock().by_name.len(), MAX_COUNT);
        assert!(!stats.is_enough(&name(0)) && stats.is_enough(&name(MAX_COUNT)));
        // All are looked at once a second: here half a second too early, and not again before they are idle.
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
