//! The in-process backend: named, re-entrant, leased async locks without a server and without an async runtime.

mod thread_runtime;
mod transport;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::thread_runtime::{Sleep, ThreadRuntime};
pub use self::transport::LocalTransport;
use crate::lock::{Backend, HandedOver, HoldKey, LockName, Owner, Released, Tried};
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

/// Who holds what. A lease that is over counts as not held, whether or not the entry is still here.
#[derive(Debug, Default)]
struct Held {
    by_name: HashMap<LockName, Hold>,
    /// When the map has grown to this size, it is cleared of leases that are over: those whose owner forgot them would
    /// stay for good otherwise. At twice the size after the last sweep, so that a sweep is paid for by the entries added.
    sweep_at: usize,
    /// The last token given out. One counter for all names, as what rises over all of them rises for each, and one for each name
    /// would have to be kept for ever.
    last_token: u64,
}

#[derive(Debug)]
struct Hold {
    owner: Owner,
    count: u64,
    token: Option<u64>,
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
                by_name: HashMap::new(),
                sweep_at: FIRST_SWEEP,
                last_token: 0,
            })),
            registry: Registry::new(LocalTransport::default()),
            runtime,
        }
    }
}

impl Hold {
    fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(now))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }
}

impl Held {
    fn alive(&mut self, name: &LockName, now: Instant) -> Option<&mut Hold> {
        self.by_name.get_mut(name).filter(|hold| !hold.is_over(now))
    }

    fn insert(&mut self, name: &LockName, hold: Hold, now: Instant) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, hold| !hold.is_over(now));
            self.sweep_at = FIRST_SWEEP.max(self.by_name.len() * 2);
        }
        self.by_name.insert(name.clone(), hold);
    }
}

impl<R: Runtime + Clone> Backend for Local<R> {
    type Error = Infallible;
    type Transport = LocalTransport;
    type Runtime = R;

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
        owner: &Owner,
        holds: u64,
        lease: Duration,
        fenced: bool,
    ) -> Result<Tried, Infallible> {
        let now = self.runtime.now();
        let until = now.checked_add(lease);
        let mut held = self.held.lock();
        let next_token = held.last_token + 1;
        let token = match held.alive(name, now) {
            Some(hold) if hold.owner == *owner => {
                if fenced && (hold.count != holds || hold.token.is_none()) {
                    hold.token = Some(next_token);
                }
                hold.count = holds;
                // An inner hold with a short lease must not cut the outer one short.
                hold.until = match (hold.until, until) {
                    (Some(old), Some(new)) => Some(old.max(new)),
                    _ => None,
                };
                hold.token
            }
            Some(hold) => return Ok(Tried::Held { left: hold.left(now) }),
            None if holds > 1 => return Ok(Tried::Lost),
            None => {
                let token = fenced.then_some(next_token);
                held.insert(name, Hold { owner: owner.clone(), count: holds, token, until }, now);
                token
            }
        };
        held.last_token = held.last_token.max(token.unwrap_or(0));
        Ok(Tried::Acquired { token: token.filter(|_| fenced) })
    }

    async fn release(&self, name: &LockName, owner: &Owner, left: u64) -> Result<Released, Infallible> {
        let now = self.runtime.now();
        {
            let mut held = self.held.lock();
            match held.alive(name, now) {
                Some(hold) if hold.owner == *owner => {
                    if left > 0 {
                        hold.count = left;
                        return Ok(Released::StillHeld);
                    }
                }
                _ => return Ok(Released::NotHeld),
            }
            held.by_name.remove(name);
        }
        self.registry.transport().publish(name.as_str(), Message::Unlock);
        Ok(Released::Free)
    }

    async fn hand_over(
        &self,
        name: &LockName,
        owner: &Owner,
        next: &Owner,
        lease: Duration,
        fenced: bool,
    ) -> Result<HandedOver, Infallible> {
        let now = self.runtime.now();
        let mut held = self.held.lock();
        let next_token = held.last_token + 1;
        let Some(hold) = held.alive(name, now) else { return Ok(HandedOver::NotHeld) };
        let until = now.checked_add(lease);
        if hold.owner == *next {
            hold.until = hold.until.zip(until).map(|(old, new)| old.max(new));
        } else if hold.owner == *owner {
            let token = fenced.then_some(next_token);
            *hold = Hold { owner: next.clone(), count: 1, token, until };
        } else {
            return Ok(HandedOver::NotHeld);
        }
        let token = hold.token;
        held.last_token = held.last_token.max(token.unwrap_or(0));
        Ok(HandedOver::Done { token: token.filter(|_| fenced) })
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Infallible> {
        let now = self.runtime.now();
        let released = self.held.lock().by_name.remove(name).is_some_and(|hold| !hold.is_over(now));
        if released {
            self.registry.transport().publish(name.as_str(), Message::Unlock);
        }
        Ok(released)
    }

    async fn renew(&self, holds: &[HoldKey], lease: Duration) -> Result<Vec<bool>, Infallible> {
        let now = self.runtime.now();
        let until = now.checked_add(lease);
        let mut held = self.held.lock();
        let renewed = holds.iter().map(|key| match held.alive(&key.name, now) {
            Some(hold) if hold.owner == key.owner => {
                if hold.until.is_some_and(|old| until.is_none_or(|new| old < new)) {
                    hold.until = until;
                }
                true
            }
            _ => false,
        });
        Ok(renewed.collect())
    }

    async fn hold_count(&self, name: &LockName, owner: &Owner) -> Result<u64, Infallible> {
        let now = self.runtime.now();
        let mut held = self.held.lock();
        Ok(held.alive(name, now).filter(|hold| hold.owner == *owner).map_or(0, |hold| hold.count))
    }

    async fn remaining(&self, name: &LockName) -> Result<Option<Duration>, Infallible> {
        let now = self.runtime.now();
        Ok(self.held.lock().alive(name, now).map(|hold| hold.left(now)))
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
