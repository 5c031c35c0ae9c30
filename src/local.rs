//! The in-process backend: named, re-entrant, leased async locks without a server and without an async runtime.

mod fair;
mod other_kind;
mod queue;
mod read_write;
mod sweep;
mod tasks;
mod thread_runtime;
mod threads;
mod transport;
mod turns;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

pub use self::other_kind::OtherKind;
use self::queue::Queues;
use self::sweep::Sweep;
pub use self::thread_runtime::{Sleep, ThreadRuntime};
pub use self::transport::LocalTransport;
use self::turns::ReadWrite;
use crate::fault::fault;
use crate::lock::{
    AcquireOutcome, Backend, Failure, Holder, LeaseId, LeaseKey, LockKind, LockName, ReleaseOutcome,
};
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
    /// Of leases that were released or are over: a lock that is taken again before that finds its place.
    sweep: Sweep,
    tokens: Tokens,
    /// Who waits for a fair lock, by its name.
    fair: Queues,
    /// Who waits to write.
    writers: Queues,
    /// Who waits to read, and has not been let in since.
    readers: Queues,
}

/// One counter for all names, as what rises over all of them rises for each, and one for each name would have to be kept for ever.
#[derive(Debug, Default)]
struct Tokens {
    last: u64,
}

#[derive(Debug)]
struct Lease {
    name: LockName,
    /// Who has it, if it is a lock that one has; `None` once it was released.
    id: Option<LeaseId>,
    until: Moment,
    /// What it is held as. One kind at a time, as there is one `Lease` to a name.
    kind: LockKind,
    /// Who has it, if it is a [read-write lock](LockKind::ReadWrite). In a box, as most are not.
    read_write: Option<Box<ReadWrite>>,
}

impl Local {
    /// Makes a backend that holds no locks, on a [`ThreadRuntime`] of its own.
    pub fn new() -> Self {
        Self::with_runtime(ThreadRuntime::new())
    }
}

impl<R: Runtime + Clone> Local<R> {
    /// Makes a backend that holds no locks, with timers and background work on `runtime`.
    pub fn with_runtime(runtime: R) -> Self {
        Self { held: Arc::default(), registry: Registry::new(LocalTransport::default()), runtime }
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
        (self.id.is_some() || self.kind == LockKind::ReadWrite) && now < self.until
    }

    /// For who takes it for a lock of another kind.
    fn other_kind(&self) -> OtherKind {
        OtherKind::new(self.kind)
    }
}

/// The channel of a plain lock: its name, unless that begins as the channels of the other kinds do.
fn channel(name: &LockName) -> Cow<'_, str> {
    match name.as_str() {
        hostile if hostile.starts_with('\0') => Cow::Owned(["\0plain:", hostile].concat()),
        name => Cow::Borrowed(name),
    }
}

/// What there is of `name`, alive or not.
fn entry<'a>(by_name: &'a mut HashTable<Lease>, name: &LockName, now: Moment) -> &'a mut Lease {
    let is_it = |lease: &Lease| lease.name == *name;
    match by_name.entry(name.hash_value(), is_it, |lease| lease.name.hash_value()) {
        Entry::Occupied(lease) => lease.into_mut(),
        Entry::Vacant(place) => {
            let kind = LockKind::Plain;
            let lease = Lease { name: name.clone(), id: None, until: now, kind, read_write: None };
            place.insert(lease).into_mut()
        }
    }
}

impl Tokens {
    /// So many: the last of them, or 0 if none are wanted.
    fn reserve(&mut self, tokens: u64) -> u64 {
        self.last += tokens;
        if tokens > 0 { self.last } else { 0 }
    }

    /// One that all who read at a time have: `shared`, or a new one if they have none yet.
    fn share(&mut self, shared: &mut Option<u64>) -> u64 {
        *shared.get_or_insert_with(|| self.reserve(1))
    }
}

impl Held {
    fn find(&mut self, name: &LockName) -> Option<&mut Lease> {
        self.by_name.find_mut(name.hash_value(), |lease| lease.name == *name)
    }

    fn alive(&mut self, name: &LockName, now: Moment) -> Option<&mut Lease> {
        self.find(name).filter(|lease| lease.is_alive(now))
    }

    /// Takes the lease of `id` away. Whether it is over makes no difference: nobody else has taken it.
    fn take(&mut self, name: &LockName, id: &LeaseId) -> Option<LeaseId> {
        let is_its = |lease: &&mut Lease| lease.id.as_ref() == Some(id) || fault!(LocalReleasesForAnother);
        self.find(name).filter(is_its)?.id.take()
    }

    fn sweep(&mut self, now: Moment) {
        if self.sweep.is_due(self.by_name.len()) {
            self.clear(now);
        }
    }

    /// Clears the map of leases that are over.
    #[cold]
    fn clear(&mut self, now: Moment) {
        let writers = &self.writers;
        self.by_name.retain(|lease| {
            // With a read-write lock is kept whose turn it is.
            lease.is_alive(now)
                || lease.kind == LockKind::ReadWrite && writers.waiters(&lease.name, now).next().is_some()
        });
        let left = self.by_name.len();
        if left < self.by_name.capacity() / 8 {
            self.by_name.shrink_to(left * 2, |lease| lease.name.hash_value());
        }
        self.sweep.is_done(left);
    }

    /// As [`take`](Self::take). Memory of a burst of names is given back as they are released.
    fn release(&mut self, name: &LockName, id: &LeaseId, now: impl FnOnce() -> Moment) -> bool {
        let released = self.take(name, id).is_some();
        if released && self.sweep.adds_dead(self.by_name.len()) {
            self.clear(now());
        }
        released
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
        channel(name).into_owned()
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
        let mut held = self.held.lock();
        match held.find(name) {
            None => {
                held.sweep(now);
                let lease = entry(&mut held.by_name, name, now);
                (lease.id, lease.until, lease.kind) = (Some(id.clone()), until, LockKind::Plain);
            }
            Some(lease) => {
                let (was_alive, is_same) = (lease.is_alive(now), lease.id.as_ref() == Some(id));
                if was_alive && !is_same {
                    return match lease.kind {
                        LockKind::Plain => Ok(AcquireOutcome::Held { left: lease.left(now) }),
                        _ => Err(lease.other_kind()),
                    };
                }
                let was_dead = lease.id.is_none() && !was_alive;
                if !is_same {
                    (lease.id, lease.kind) = (Some(id.clone()), LockKind::Plain);
                }
                // Never shorter, as long as it lasts.
                lease.until =
                    if was_alive && !fault!(LocalLeaseShortened) { lease.until.max(until) } else { until };
                if was_dead {
                    held.sweep.revives();
                }
            }
        }
        Ok(AcquireOutcome::Acquired { last_token: held.tokens.reserve(tokens) })
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, OtherKind> {
        if !self.held.lock().release(name, id, || self.now()) {
            return Ok(ReleaseOutcome::NotHeld);
        }
        let heard = self.registry.transport().publish(&channel(name), Message::Unlock);
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
            if let Some(lease) = lease.as_ref().filter(|lease| lease.kind != LockKind::Plain) {
                return Err(lease.other_kind());
            }
            lease.and_then(|lease| lease.id.take()).is_some()
        };
        if released {
            self.registry.transport().publish(&channel(name), Message::Unlock);
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
        // Taken out: what is written to may use a lock itself. A count, as names would fill pages.
        let names = self.held.lock().by_name.len();
        f.debug_struct("Local")
            .field("names", &names)
            .field("channels", &self.registry.len())
            .finish_non_exhaustive()
    }
}
