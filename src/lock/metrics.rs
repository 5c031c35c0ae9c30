//! [`Metrics`]: what goes on in a client, in numbers.

pub(in crate::lock) mod histogram;
mod prometheus;

use crate::subscription::registry::RegistryStats;
use crate::support::counter::Counter;

use self::histogram::{Histogram, Recording};

/// A snapshot of what happened through one [`LockClient`](crate::LockClient) and its clones, since it was
/// made.
///
/// The figures are read one after the other while things go on, so they need not add up. Made for being
/// scraped: counters only rise, until they wrap around.
///
/// [Running it] says which figures to alert on; the recipe [`prometheus`] exports them.
///
/// [Running it]: https://github.com/latchwork/latchwork/blob/main/docs/operations.md#what-to-alert-on
/// [`prometheus`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/prometheus.rs
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
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
    /// From the call to the guard, for each acquisition. Its [count](Histogram::count) is the number of
    /// acquisitions.
    pub waits: Histogram,
    /// Calls that returned no guard because the lock was held, at once or until their time was over. Calls
    /// that failed are not counted: the caller has their errors.
    pub given_up: u64,
    /// From the guard's being made to its end, for each guard that was not
    /// [forgotten](crate::Guard::forget).
    pub holds: Histogram,
    /// Hand-offs in memory: a release that gave the lock to a waiter of this client, without a command.
    pub hand_offs_local: u64,
    /// Acquisitions from the store by a queue head that had found the lock held.
    pub hand_offs_remote: u64,
    /// Waiters that had the lock, or the right to ask the store for it, and were not polled in time: others
    /// went before them.
    pub superseded: u64,
    /// Releases that the store did not answer, or refused. They are repeated until it answers, or the lease
    /// is over.
    pub releases_failed: u64,
    /// Releases that are under way in the background now.
    pub releases_pending: u64,
    /// Renewals that were sent, each lease's by itself, however many are in one command. Those included that
    /// only ask whether it is still held.
    pub renewals_sent: u64,
    /// Renewals that came too late: answered only after their lease had ended, or due and not sent by then.
    pub renewals_late: u64,
    /// Renewals of which it is not known whether they were done. The watchdog tries again.
    pub renewals_failed: u64,
    /// Holds that were lost, for whatever reason. A hold that is not renewed is found lost when a task
    /// looks. An inner hold whose own lease ends while its owner has the lock on is not counted: only its
    /// guard says so.
    pub leases_lost: u64,
    /// Wake-ups after which the lock was acquired. This counter and the next one count for all clients of the
    /// backend together, as these share their messages.
    pub wakes_useful: u64,
    /// Wake-ups after which the lock was found held.
    pub wakes_spurious: u64,
    /// Channels that have waiters. One that only lingers is not among them.
    pub subscriptions: u64,
    /// Times that a connection to the store was made anew.
    pub reconnects: u64,
    /// Commands that wait now until there is room for them on their way to the store: more were begun at a
    /// time than are under way to it. They wait in order.
    pub commands_waiting: u64,
    /// Holds that there are now: as many as [`LockClient::held`](crate::LockClient::held) lists.
    pub held: u64,
    /// Acquisitions that wait now: those of [`LockClient::waiting`](crate::LockClient::waiting).
    pub waiting: u64,
}

/// A snapshot of what happened to one name through a client, since the first of the [`Lock`](crate::Lock)s
/// that are alive was made.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// lock.lock().await?.unlock().await?;
/// let stats = lock.stats();
/// assert_eq!((stats.acquisitions, stats.hand_offs), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Times the lock was taken.
    pub acquisitions: u64,
    /// Hand-offs in memory: releases that gave the lock to a waiter of the same client, without a command.
    pub hand_offs: u64,
    /// Messages that woke a waiter which then got the lock.
    pub wakes_useful: u64,
    /// Messages that woke a waiter which then found the lock held by another.
    pub wakes_spurious: u64,
}

macro_rules! recorder {
    ($($counter:ident),*) => {
        /// What a client counts.
        #[derive(Default)]
        pub(super) struct Recorder {
            pub(super) waits: Recording,
            pub(super) holds: Recording,
            $(pub(super) $counter: Counter,)*
        }

        impl Recorder {
            /// What is counted here, and what others count.
            pub(super) fn snapshot(&self, registry: &RegistryStats, releases_pending: usize) -> Metrics {
                Metrics {
                    waits: self.waits.snapshot(),
                    holds: self.holds.snapshot(),
                    $($counter: self.$counter.get(),)*
                    releases_pending: releases_pending as u64,
                    wakes_useful: registry.wakes_useful,
                    wakes_spurious: registry.wakes_spurious,
                    // Any number may have begun and ended while the figures were read.
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

/// What is counted of one name, beside the engine's counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) wakes_useful: Counter,
    pub(super) wakes_spurious: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_registry_are_told_by_their_names() {
        let registry = RegistryStats { wakes_useful: 1, wakes_spurious: 2, ..RegistryStats::default() };
        let metrics = Recorder::default().snapshot(&registry, 3);
        assert_eq!((metrics.wakes_useful, metrics.wakes_spurious, metrics.releases_pending), (1, 2, 3));
    }

    /// The figures are read one after the other while channels come and go. A gauge that is below zero for a
    /// moment is one of 18 trillions.
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
