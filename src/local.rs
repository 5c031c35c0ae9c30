//! The in-process backend: named, re-entrant, leased async locks without a server and without an async runtime.

mod thread_runtime;
mod transport;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry};

pub use self::thread_runtime::{Sleep, ThreadRuntime};
pub use self::transport::LocalTransport;
use crate::lock::{AcquireOutcome, Backend, Holder, LeaseId, LeaseKey, LockName, ReleaseOutcome};
use crate::registry::Registry;
use crate::runtime::Runtime;
use crate::sync::Mutex;
use crate::transport::Message;

/// Locks kept in this process's memory.
///
/// Clones share their locks; two `Local`s made separately know nothing of each other. Nothing here can fail, and no command
/// is awaited: a lock that is free is taken, and a guard that is dropped has let go, without a trip to another thread.
#[derive(Clone)]
pub struct Local<R: Runtime + Clone = ThreadRuntime> {
    held: Arc<Mutex<Held>>,
    registry: Registry<LocalTransport>,
    runtime: R,
}

/// Which lease is on what. One that is over counts as none, whether or not it is still here.
#[derive(Debug, Default)]
struct Held {
    /// A `HashTable`, as the name brings its hash along, and each step looks it up once.
    by_name: HashTable<Lease>,
    /// When the map has grown to this size, it is cleared of leases that are over: those that nobody releases would
    /// stay for good otherwise. At twice the size after the last sweep, so that a sweep is paid for by the entries added.
    sweep_at: usize,
    /// The last token given out. One counter for all names, as what rises over all of them rises for each, and one for each name
    /// would have to be kept for ever.
    last_token: u64,
}

#[derive(Debug)]
struct Lease {
    name: LockName,
    id: LeaseId,
    /// `None`: further away than the clock can say.
    until: Option<Instant>,
}

const FIRST_SWEEP: usize = 64;

impl Local {
    /// Makes a backend that holds no locks, on a [`ThreadRuntime`] of its own.
    pub fn new() -> Self {
        Self::with_runtime(ThreadRuntime::new())
    }
}

impl<R: Runtime + Clone> Local<R> {
    /// Makes a backend that holds no locks, with timers and background work on `runtime`.
    pub fn with_runtime(runtime: R) -> Self {
        Self {
            held: Arc::new(Mutex::new(Held {
                by_name: HashTable::new(),
                sweep_at: FIRST_SWEEP,
                last_token: 0,
            })),
            registry: Registry::new(LocalTransport::default()),
            runtime,
        }
    }
}

impl Lease {
    fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(now))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }
}

impl Held {
    fn entry(&mut self, name: &LockName) -> Entry<'_, Lease> {
        self.by_name.entry(name.hash_value(), |lease| lease.name == *name, |lease| lease.name.hash_value())
    }

    fn find(&mut self, name: &LockName) -> Option<OccupiedEntry<'_, Lease>> {
        self.by_name.find_entry(name.hash_value(), |lease| lease.name == *name).ok()
    }

    fn alive(&mut self, name: &LockName, now: Instant) -> Option<&mut Lease> {
        self.find(name).map(OccupiedEntry::into_mut).filter(|lease| !lease.is_over(now))
    }

    fn sweep(&mut self, now: Instant) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|lease| !lease.is_over(now));
            self.sweep_at = FIRST_SWEEP.max(self.by_name.len() * 2);
        }
    }
}

impl<R: Runtime + Clone> Backend for Local<R> {
    type Error = Infallible;
    type Transport = LocalTransport;
    type Runtime = R;

    const ANSWERS_AT_ONCE: bool = true;

    fn registry(&self) -> &Registry<LocalTransport> {
        &self.registry
    }

    fn runtime(&self) -> &R {
        &self.runtime
    }

    fn channel(&self, name: &LockName) -> String {
        name.as_str().to_owned()
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
    ) -> Result<AcquireOutcome, Infallible> {
        let now = self.runtime.now();
        let until = now.checked_add(lease);
        let (last_token, shorter) = {
            let mut held = self.held.lock();
            held.sweep(now);
            let begins = || Lease { name: name.clone(), id: id.clone(), until };
            let shorter = match held.entry(name) {
                Entry::Vacant(vacant) => {
                    vacant.insert(begins());
                    false
                }
                Entry::Occupied(mut taken) => {
                    let lease = taken.get_mut();
                    if lease.is_over(now) {
                        *lease = begins();
                        false
                    } else if lease.id == *id {
                        let before = std::mem::replace(&mut lease.until, until);
                        until.is_some_and(|until| before.is_none_or(|before| until < before))
                    } else {
                        return Ok(AcquireOutcome::Held { left: lease.left(now) });
                    }
                }
            };
            held.last_token += tokens;
            (held.last_token, shorter)
        };
        if shorter {
            // Whoever waits for its end waits for the wrong one.
            self.registry.transport().publish(name.as_str(), Message::Unlock);
        }
        Ok(AcquireOutcome::Acquired { last_token: if tokens > 0 { last_token } else { 0 } })
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Infallible> {
        let released = {
            // Whether its lease is over makes no difference: nobody else has taken it.
            let mut held = self.held.lock();
            held.find(name).filter(|lease| lease.get().id == *id).map(|lease| lease.remove().0)
        };
        if released.is_none() {
            return Ok(ReleaseOutcome::NotHeld);
        }
        let heard = self.registry.transport().publish(name.as_str(), Message::Unlock);
        Ok(ReleaseOutcome::Released { heard: usize::from(heard) })
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Infallible> {
        let now = self.runtime.now();
        let until = now.checked_add(lease);
        let mut held = self.held.lock();
        let renewed = leases.iter().map(|key| match held.alive(&key.name, now) {
            Some(lease) if lease.id == key.id => {
                if lease.until.is_some_and(|old| until.is_none_or(|new| old < new)) {
                    lease.until = until;
                }
                true
            }
            _ => false,
        });
        Ok(renewed.collect())
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Infallible> {
        let now = self.runtime.now();
        let released = self.held.lock().find(name).is_some_and(|lease| !lease.remove().0.is_over(now));
        if released {
            self.registry.transport().publish(name.as_str(), Message::Unlock);
        }
        Ok(released)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Infallible> {
        let now = self.runtime.now();
        let mut held = self.held.lock();
        let holder = |lease: &mut Lease| Holder { id: Some(lease.id.clone()), left: lease.left(now) };
        Ok(held.alive(name, now).map(holder))
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Runtime + Clone> fmt::Debug for Local<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("held", &self.held.lock().by_name)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}
