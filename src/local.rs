//! The in-process backend: named, re-entrant, leased async locks without a server and without an async runtime.

mod fair;
mod other_kind;
mod queue;
mod thread_runtime;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

pub use self::other_kind::OtherKind;
use self::queue::Queues;
pub use self::thread_runtime::{Sleep, ThreadRuntime};
pub use self::transport::LocalTransport;
use crate::lock::{AcquireOutcome, Backend, Failure, Holder, LeaseId, LeaseKey, LockName, ReleaseOutcome};
use crate::lock_entry::Moment;
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
    /// When the map has grown to this size, it is cleared of leases that were released or are over: a lock that is taken again before that
    /// finds its place. At twice the size after the last sweep, so that a sweep is paid for by the entries added.
    sweep_at: usize,
    /// The last token given out. One counter for all names, as what rises over all of them rises for each, and one for each name
    /// would have to be kept for ever.
    last_token: u64,
    /// Who waits for a fair lock, by its name.
    queues: Queues,
}

#[derive(Debug)]
struct Lease {
    name: LockName,
    /// `None` once it was released.
    id: Option<LeaseId>,
    until: Moment,
    fair: bool,
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
                queues: Queues::default(),
            })),
            registry: Registry::new(LocalTransport::default()),
            runtime,
        }
    }

    fn now(&self) -> Moment {
        self.runtime.now().into()
    }
}

impl Lease {
    fn left(&self, now: Moment) -> Duration {
        self.until.saturating_duration_since(now)
    }

    fn is_alive(&self, now: Moment) -> bool {
        self.id.is_some() && now < self.until
    }
}

impl Held {
    fn insert(&mut self, lease: Lease) {
        self.by_name.insert_unique(lease.name.hash_value(), lease, |lease| lease.name.hash_value());
    }

    fn find(&mut self, name: &LockName) -> Option<&mut Lease> {
        self.by_name.find_mut(name.hash_value(), |lease| lease.name == *name)
    }

    fn alive(&mut self, name: &LockName, now: Moment) -> Option<&mut Lease> {
        self.find(name).filter(|lease| lease.is_alive(now))
    }

    /// Takes the lease of `id` away. Whether it is over makes no difference: nobody else has taken it.
    fn take(&mut self, name: &LockName, id: &LeaseId) -> Option<LeaseId> {
        self.find(name).filter(|lease| lease.id.as_ref() == Some(id))?.id.take()
    }

    /// So many tokens: the last of them, or 0 if none are wanted.
    fn reserve(&mut self, tokens: u64) -> u64 {
        self.last_token += tokens;
        if tokens > 0 { self.last_token } else { 0 }
    }

    fn sweep(&mut self, now: Moment) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|lease| lease.is_alive(now));
            self.sweep_at = FIRST_SWEEP.max(self.by_name.len() * 2);
        }
    }
}

impl<R: Runtime + Clone> Backend for Local<R> {
    type Error = OtherKind;
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

    fn failure(&self, error: &OtherKind) -> Failure {
        Failure::OtherKind(error.found())
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        let until = now + lease;
        let (last_token, shorter) = {
            let mut held = self.held.lock();
            let shorter = match held.find(name) {
                None => {
                    held.sweep(now);
                    held.insert(Lease { name: name.clone(), id: Some(id.clone()), until, fair: false });
                    false
                }
                Some(lease) => {
                    let (was_alive, is_same) = (lease.is_alive(now), lease.id.as_ref() == Some(id));
                    if was_alive && !is_same {
                        return match lease.fair {
                            false => Ok(AcquireOutcome::Held { left: lease.left(now) }),
                            true => Err(OtherKind::FAIR),
                        };
                    }
                    if !is_same {
                        (lease.id, lease.fair) = (Some(id.clone()), false);
                    }
                    let before = std::mem::replace(&mut lease.until, until);
                    was_alive && until < before
                }
            };
            (held.reserve(tokens), shorter)
        };
        if shorter {
            // Whoever waits for its end waits for the wrong one.
            self.registry.transport().publish(name.as_str(), Message::Unlock);
        }
        Ok(AcquireOutcome::Acquired { last_token })
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, OtherKind> {
        if self.held.lock().take(name, id).is_none() {
            return Ok(ReleaseOutcome::NotHeld);
        }
        let heard = self.registry.transport().publish(name.as_str(), Message::Unlock);
        Ok(ReleaseOutcome::Released { heard: usize::from(heard) })
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, OtherKind> {
        let now = self.now();
        let mut held = self.held.lock();
        let renewed = leases.iter().map(|key| match held.alive(&key.name, now) {
            Some(held) if held.id.as_ref() == Some(&key.id) => {
                held.until = held.until.max(now + lease);
                true
            }
            _ => false,
        });
        Ok(renewed.collect())
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, OtherKind> {
        let now = self.now();
        let released = {
            let mut held = self.held.lock();
            let lease = held.alive(name, now);
            if lease.as_ref().is_some_and(|lease| lease.fair) {
                return Err(OtherKind::FAIR);
            }
            lease.and_then(|lease| lease.id.take()).is_some()
        };
        if released {
            self.registry.transport().publish(name.as_str(), Message::Unlock);
        }
        Ok(released)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, OtherKind> {
        let now = self.now();
        let mut held = self.held.lock();
        let holder = |lease: &mut Lease| Holder { id: lease.id.clone(), left: lease.left(now) };
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
