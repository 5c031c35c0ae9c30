//! [`Metrics`]: counters, gauges and times of a client.

pub(in crate::lock) mod histogram;
mod prometheus;

use crate::subscription::registry::RegistryStats;
use crate::support::counter::Counter;

use self::histogram::{Histogram, Recording};

/// A snapshot of the events of one [`LockClient`](crate::LockClient) and its clones since its creation.
///
/// The figures are read one after the other, and so need not add up. Counters only rise, until they wrap
/// around. [Running it] says which figures to alert on; the recipe [`prometheus`] exports the figures.
///
/// [Running it]: https://github.com/latchwork/latchwork/blob/main/docs/operations.md#alerts
/// [`prometheus`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/prometheus.rs
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// assert!(lock.try_lock().await?.is_none());
/// let metrics = client.metrics();
/// assert_eq!((metrics.waits.count(), metrics.given_up, metrics.held), (1, 1, 1));
/// guard.unlock().await?;
/// assert_eq!((client.metrics().holds.count(), client.metrics().held), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Times from the call to the guard. The [count](Histogram::count) is the number of acquisitions.
    pub waits: Histogram,
    /// The part of `waits` that ended with a hand-off in memory.
    pub waits_local: Histogram,
    /// The part of `waits` that ended with an acquisition from the store, after a refusal or in the queue.
    pub waits_remote: Histogram,
    /// Waits that ended without the lock: time over, an error, or a dropped future.
    pub waits_abandoned: Histogram,
    /// Calls that returned no guard, and no error, because the lock was held.
    pub given_up: u64,
    /// Lifetimes of guards, except [forgotten](crate::Guard::forget) ones.
    pub holds: Histogram,
    /// Hand-offs in memory: releases that gave the lock to a waiter of this client without a command.
    pub hand_offs_local: u64,
    /// Acquisitions from the store by a queue head after it had found the lock held.
    pub hand_offs_remote: u64,
    /// Waiters with the lock, or the right to ask the store, overtaken as they were not polled in time.
    pub superseded: u64,
    /// Releases refused or not answered. The client repeats them until an answer or the lease's end.
    pub releases_failed: u64,
    /// Releases under way in the background now.
    pub releases_pending: u64,
    /// Renewals sent, counted per lease, including mere questions if the lease is still held.
    pub renewals_sent: u64,
    /// Renewals answered after the end of their lease, or due and not sent by then.
    pub renewals_late: u64,
    /// Renewals of unknown effect. The watchdog retries.
    pub renewals_failed: u64,
    /// Holds lost, for any reason; a hold without renewals when a task looks at the hold. An inner hold whose
    /// own lease ends while its owner still has the lock does not count.
    pub leases_lost: u64,
    /// Wake-ups with an acquisition, by all clients of the backend, as clients share messages.
    pub wakes_useful: u64,
    /// Wake-ups without one, as the waiter found the lock held, by all clients of the backend.
    pub wakes_spurious: u64,
    /// Channels with waiters. A lingering channel without waiters is not counted.
    pub subscriptions: u64,
    /// Connections to the store that replaced a broken one.
    pub reconnects: u64,
    /// Commands waiting now, in order, for room on the way to the store, whose limit is reached.
    pub commands_waiting: u64,
    /// Current holds: the length of [`LockClient::held`](crate::LockClient::held).
    pub held: u64,
    /// Waiting acquisitions: the length of [`LockClient::waiting`](crate::LockClient::waiting).
    pub waiting: u64,
}

/// A snapshot of the events of one name in a client, since the first of its live [`Lock`](crate::Lock)s.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// lock.lock().await?.unlock().await?;
/// let stats = lock.stats();
/// assert_eq!((stats.acquisitions, stats.hand_offs), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Acquisitions of the lock.
    pub acquisitions: u64,
    /// Hand-offs in memory: releases that gave the lock to a waiter of the same client without a command.
    pub hand_offs: u64,
    /// Messages that woke a waiter and led to an acquisition.
    pub wakes_useful: u64,
    /// Messages that woke a waiter to find the lock held.
    pub wakes_spurious: u64,
}

macro_rules! recorder {
    ($($times:ident),*; $($counter:ident),*) => {
        #[derive(Default)]
        pub(super) struct Recorder {
            $(pub(super) $times: Recording,)*
            $(pub(super) $counter: Counter,)*
        }

        impl Recorder {
            pub(super) fn snapshot(&self, registry: &RegistryStats, releases_pending: usize) -> Metrics {
                Metrics {
                    $($times: self.$times.snapshot(),)*
                    $($counter: self.$counter.get(),)*
                    releases_pending: releases_pending as u64,
                    wakes_useful: registry.wakes_useful,
                    wakes_spurious: registry.wakes_spurious,
                    // Any number of subscriptions may begin and end while the figures are read.
                    subscriptions: registry
                        .subscriptions_begun
                        .saturating_sub(registry.subscriptions_ended)
                        .saturating_sub(registry.subscriptions_failed)
                        .min(registry.entries),
                    ..Metrics::default()
                }
            }
        }
    };
}

recorder!(
    waits, waits_local, waits_remote, waits_abandoned, holds;
    given_up,
    hand_offs_local,
    hand_offs_remote,
    superseded,
    releases_failed,
    renewals_sent,
    renewals_late,
    renewals_failed,
    leases_lost
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_registry_are_told_by_their_names() {
        let registry = RegistryStats { wakes_useful: 1, wakes_spurious: 2, ..RegistryStats::default() };
        let metrics = Recorder::default().snapshot(&registry, 3);
        assert_eq!((metrics.wakes_useful, metrics.wakes_spurious, metrics.releases_pending), (1, 2, 3));
    }

    /// The figures are read one by one while channels come and go. A gauge below zero would show as 2⁶⁴ − 1.
    #[test]
    fn channels_are_never_fewer_than_none_nor_more_than_there_are() {
        let of = |subscriptions_begun, subscriptions_ended, subscriptions_failed| {
            let registry = RegistryStats {
                subscriptions_begun,
                subscriptions_ended,
                subscriptions_failed,
                entries: 2,
                ..RegistryStats::default()
            };
            Recorder::default().snapshot(&registry, 0).subscriptions
        };
        assert_eq!([of(7, 5, 1), of(7, 5, 0), of(7, 6, 2), of(7, 8, 0), of(70, 5, 0)], [1, 2, 0, 0, 2]);
    }
}
