//! [`LockOptions`]: how a client behaves.

use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::{Policy, Rules};

use crate::lock::lease::{Lease, LeaseError};
use crate::lock::name::NameMapper;

/// Options of a [`LockClient`](crate::LockClient).
///
/// [Options] lists all options with their defaults, and when to change each.
///
/// [Options]: https://github.com/latchwork/latchwork/blob/main/docs/options.md
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "local")] mod example {
/// use std::time::Duration;
/// use latchwork::local::Local;
/// use latchwork::{LockClient, LockError, LockOptions};
///
/// fn client() -> Result<LockClient, LockError> {
///     let options = LockOptions::default().watchdog_timeout(Duration::from_secs(10)).label("worker-3");
///     Ok(LockClient::with_options(Local::new(), &options)?)
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockOptions {
    watchdog_timeout: Duration,
    max_hold: Option<Duration>,
    tenure: Duration,
    unpolled_limit: Duration,
    pub(super) slow_wait: Duration,
    pub(super) label: Option<Arc<str>>,
    pub(super) name_mapper: NameMapper,
}

impl LockOptions {
    /// Sets the lease of locks that are taken without a lease of their own; 30 s by default, as in Redisson.
    ///
    /// The watchdog renews the lease each time a third of it is over. If the process dies, the lock is free
    /// within this time; a process that is paused or cut off for longer loses its locks.
    #[must_use]
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.watchdog_timeout = timeout;
        self
    }

    /// Limits the time for which an owner may have a lock by a watched lease: then the hold is
    /// [lost](crate::LossReason::HeldTooLong), and the next waiter has the lock. No limit by default.
    ///
    /// Without a limit, the locks of a holder that hangs are renewed while its process lives. Leases of the
    /// caller's own are not limited.
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Limits how long a lease stays here while others wait, in this process or another; 30 ms by default.
    ///
    /// A client passes its lock on in memory. So the first release after this time gives the lease back to
    /// the store, and this client competes again behind the others. A longer tenure costs the store fewer
    /// commands; a shorter tenure lets other processes wait less. Zero gives each release back.
    ///
    /// If no other process hears that release, the next lease may stay twice as long, up to eight times the
    /// tenure, until another process comes.
    #[must_use]
    pub fn tenure(mut self, tenure: Duration) -> Self {
        self.tenure = tenure;
        self
    }

    /// Limits how long a waiter that has the lock, or has to ask the store, may go unpolled; 1 s by default.
    /// Then the next waiter goes first, and the unpolled waiter queues again at its next poll. The watchdog
    /// notices within twice this time. Each time doubles the limit of the same call, up to a third of
    /// [`watchdog_timeout`](Self::watchdog_timeout), so that a task whose polls always come late gets in.
    ///
    /// Without a limit, futures kept unpolled, as by `select!` over `&mut future`, would keep the lock.
    #[must_use]
    pub fn unpolled_limit(mut self, limit: Duration) -> Self {
        self.unpolled_limit = limit;
        self
    }

    /// Sets the time after which a wait is slow; 10 s by default. Zero turns the warnings off.
    ///
    /// With the feature `tracing`, a WARN event tells a name's waiters, longest wait and holder once the wait
    /// is slow, and then once a minute.
    #[must_use]
    pub fn slow_wait(mut self, limit: Duration) -> Self {
        self.slow_wait = limit;
        self
    }

    /// Sets this client's name for programs that ask for the [holder of a lock](crate::Lock::holder): a host,
    /// a pod, a job. At most [`MAX_LABEL_BYTES`](Self::MAX_LABEL_BYTES) bytes are used. No label by default.
    ///
    /// The label is part of the [lease's id](crate::LeaseId).
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        let mut end = label.len().min(Self::MAX_LABEL_BYTES);
        while !label.is_char_boundary(end) {
            end -= 1;
        }
        self.label = Some(Arc::from(&label[..end]));
        self
    }

    /// Maps the name given to [`get_lock`](crate::LockClient::get_lock) to the store's name of the lock,
    /// which [`Lock::name`](crate::Lock::name) returns. The same name by default.
    ///
    /// A name must map to the same result each time.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork::{LockClient, LockOptions, local::Local};
    ///
    /// let options = LockOptions::default().name_mapper(|name| format!("shop:{name}"));
    /// let client = LockClient::with_options(Local::new(), &options)?;
    /// assert_eq!(client.get_lock("orders")?.name().as_str(), "shop:orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.name_mapper = NameMapper::new(map);
        self
    }

    /// The longest label, in bytes of UTF-8.
    pub const MAX_LABEL_BYTES: usize = 128;

    pub(super) fn check(&self) -> Result<(), LeaseError> {
        Lease::check(self.watchdog_timeout)?;
        self.max_hold.map(Lease::check).transpose()?;
        Lease::check(self.unpolled_limit)?;
        Some(self.slow_wait).filter(|limit| !limit.is_zero()).map(Lease::check).transpose()?;
        Ok(())
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            policy: Policy::Exclusive { tenure: self.tenure },
            renewed_lease: self.watchdog_timeout,
            max_hold: self.max_hold,
            unpolled_limit: self.unpolled_limit,
            wakes_one: false,
        }
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            watchdog_timeout: Duration::from_secs(30),
            max_hold: None,
            tenure: Duration::from_millis(30),
            unpolled_limit: Duration::from_secs(1),
            slow_wait: Duration::from_secs(10),
            label: None,
            name_mapper: NameMapper::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_and_limits_that_cannot_be_leases_are_refused() {
        let checked =
            |set: fn(LockOptions, Duration) -> LockOptions, time| set(LockOptions::default(), time).check();
        for set in [LockOptions::watchdog_timeout, LockOptions::max_hold, LockOptions::unpolled_limit] {
            assert_eq!(checked(set, Duration::from_secs(1)), Ok(()));
            assert_eq!(checked(set, Duration::ZERO), Err(LeaseError::TooShort));
            assert_eq!(checked(set, Duration::MAX), Err(LeaseError::TooLong));
        }
        let slow = |limit| checked(LockOptions::slow_wait, limit);
        assert_eq!((slow(Duration::ZERO), slow(Duration::MAX)), (Ok(()), Err(LeaseError::TooLong)));
        assert_eq!(slow(Duration::from_micros(999)), Err(LeaseError::TooShort));
    }

    #[test]
    fn label_is_cut_where_a_letter_ends() {
        let cut = |label: &str| LockOptions::default().label(label).label.unwrap();
        assert_eq!(*cut("worker"), *"worker");
        assert_eq!(*cut(&"a".repeat(200)), *"a".repeat(128));
        assert_eq!(*cut(&("a".to_owned() + &"ä".repeat(100))), *("a".to_owned() + &"ä".repeat(63)));
    }
}
