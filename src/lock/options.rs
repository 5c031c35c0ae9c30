//! [`LockOptions`]: how a client behaves.

use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::{Policy, Rules};

use crate::lock::lease::{Lease, LeaseError};
use crate::lock::name::NameMapper;

/// How a [`LockClient`](crate::LockClient) behaves.
///
/// [Options] lists all of them with their defaults, and when to change which.
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
    pub(super) label: Option<Arc<str>>,
    pub(super) name_mapper: NameMapper,
}

impl LockOptions {
    /// The lease of a lock that is taken without one: it is renewed each time a third of it is over, and runs
    /// out this long after the process died.
    ///
    /// 30 s by default, as in Redisson. A shorter one frees the locks of a dead process sooner; a process
    /// that is paused or cut off for longer than it loses its locks.
    #[must_use]
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.watchdog_timeout = timeout;
        self
    }

    /// For how long an owner may have a lock by a watched lease: then the hold is
    /// [lost](crate::LossReason::HeldTooLong), and the next waiter has the lock. Without a limit by default.
    ///
    /// For holders that hang without ending: without it their locks are renewed for as long as their
    /// process lives. It is counted in this process and costs the store nothing; if the whole process hangs,
    /// its leases end by themselves. Leases of the caller's own have their end anyway, and are not touched.
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// How long a lease may stay with this client while others wait for the lock, here and in other
    /// processes. 30 ms by default.
    ///
    /// Inside of a client a lock passes from waiter to waiter in memory. Waiters of other processes do not
    /// hear of that, and are not let in. So the first release after this time gives the lease back to the
    /// store, and this client competes again behind the others. With more, a crowd in one process costs the
    /// store less; with less, the other processes wait less long. Zero gives each release to the store.
    ///
    /// If no other process listened then, the next lease may stay for twice as long, and so on up to eight
    /// times: that is how long the first one that comes may have to wait. From then on it is this time again.
    #[must_use]
    pub fn tenure(mut self, tenure: Duration) -> Self {
        self.tenure = tenure;
        self
    }

    /// How long a waiter that has the lock, or whose turn it is to ask the store, may go unpolled: 1 s by
    /// default. Then the next one goes before it, and it queues again when it is polled.
    /// The watchdog notices it within twice this time.
    ///
    /// For futures that are kept and not polled, as by `select!` over `&mut future`: without a limit they
    /// would keep the lock from all others.
    #[must_use]
    pub fn unpolled_limit(mut self, limit: Duration) -> Self {
        self.unpolled_limit = limit;
        self
    }

    /// A name for this client, for those that ask for the [holder of a lock](crate::Lock::holder): a host, a
    /// pod, a job. At most [`MAX_LABEL_BYTES`](Self::MAX_LABEL_BYTES) of it are used. Without one by default.
    ///
    /// It becomes a part of the id under which the store keeps each lease.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        let mut end = label.len().min(Self::MAX_LABEL_BYTES);
        while !label.is_char_boundary(end) {
            end -= 1;
        }
        self.label = Some(Arc::from(&label[..end]));
        self
    }

    /// Under which name the store keeps the lock that [`get_lock`](crate::LockClient::get_lock) calls `name`;
    /// under just that by default.
    ///
    /// For a prefix to all names, and for the name mapper that Redisson's clients of the same locks are
    /// configured with. It must map a name to the same result each time. Keys and channels are named by the
    /// result, as is [`Lock::name`](crate::Lock::name).
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
        Ok(())
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            policy: Policy::Exclusive { tenure: self.tenure },
            renewed_lease: self.watchdog_timeout,
            max_hold: self.max_hold,
            unpolled_limit: self.unpolled_limit,
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
    }

    #[test]
    fn label_is_cut_where_a_letter_ends() {
        let cut = |label: &str| LockOptions::default().label(label).label.unwrap();
        assert_eq!(*cut("worker"), *"worker");
        assert_eq!(*cut(&"a".repeat(200)), *"a".repeat(128));
        assert_eq!(*cut(&("a".to_owned() + &"ä".repeat(100))), *("a".to_owned() + &"ä".repeat(63)));
    }
}
