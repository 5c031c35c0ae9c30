//! The in-process backend: named, re-entrant, leased async locks without a server or an async runtime.

mod queue;
mod store;
mod thread_runtime;
mod threads;
mod transport;
mod turns;

use std::borrow::Cow;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

pub use self::store::OtherKind;
use self::store::{Store, kind};
pub use self::thread_runtime::{Sleep, ThreadRuntime};
pub use self::transport::LocalTransport;
use self::turns::Turns;
use crate::backend::{
    AcquireOutcome, AcquireRequest, AnyBackend, Backend, Channels, Failure, LeaseKey, LockName, Mode,
    NextWaiter, ReleaseOutcome,
};
use crate::lock::{Holder, LeaseId, LockClient};
use crate::lock_entry::Moment;
use crate::subscription::Message;
use crate::subscription::Registry;
use crate::support::runtime::Runtime;
use crate::support::sync::Mutex;

/// A backend with the locks in this process's memory.
///
/// Clones share their locks. The only error is a name held as another kind of lock. No command waits for
/// another thread: `lock` acquires a free lock, and dropping a guard frees its lock, within the call.
///
/// # Wakers that block
///
/// A waker must not block. [`ThreadRuntime`] calls wakers on its threads: until a waker returns, no wait
/// times out, no loss is reported and no lease renewed, for all clients of the backend. The call that frees a
/// lock may call a waiter's waker, which must not block on a lock of the calling client, but may poll it.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::{LockClient, local::Local};
/// let local = Local::new();
/// let (one, other) = (LockClient::new(local.clone()), LockClient::new(local));
/// let guard = one.get_lock("orders:42")?.lock().await?;
/// assert!(other.get_lock("orders:42")?.try_lock().await?.is_none());
/// guard.unlock().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Local<R: Runtime + Clone = ThreadRuntime> {
    store: Arc<Mutex<Store>>,
    registry: Registry<LocalTransport>,
    runtime: R,
}

impl Local {
    /// Makes a backend without locks, on a [`ThreadRuntime`] of its own.
    pub fn new() -> Self {
        Self::with_runtime(ThreadRuntime::new())
    }
}

#[cfg(feature = "tokio")]
impl Local<crate::backend::TokioRuntime> {
    /// Makes a backend without locks on the caller's tokio runtime, with which the backend ends. For tests:
    /// if tokio's clock is paused, leases end when the test advances the clock.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime, or in a runtime without timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use latchwork::{LockClient, LockError, local::Local};
    /// #[tokio::test(start_paused = true)]
    /// # async fn unused() {}
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn lease_of_a_minute_ends() -> Result<(), LockError> {
    ///     let client = LockClient::new(Local::on_tokio());
    ///     let guard = client.get_lock("orders")?.lock_with_lease(Duration::from_secs(60)).await?;
    ///     tokio::time::sleep(Duration::from_secs(61)).await; // takes no time
    ///     assert!(!guard.is_held());
    ///     Ok(())
    /// }
    /// # lease_of_a_minute_ends().unwrap();
    /// ```
    pub fn on_tokio() -> Self {
        let runtime = crate::backend::TokioRuntime::current();
        // Panics here rather than in a later call that needs a timer.
        drop(tokio::time::sleep(Duration::ZERO));
        Self::with_runtime(runtime)
    }
}

impl LockClient {
    /// Makes a client over a new in-process backend.
    pub fn local() -> Self {
        Self::new(Local::new())
    }
}

impl<R: Runtime + Clone> Local<R> {
    /// Makes a backend without locks, with timers and background work on `runtime`.
    pub fn with_runtime(runtime: R) -> Self {
        Self { store: Arc::default(), registry: Registry::new(LocalTransport::default()), runtime }
    }

    fn now(&self) -> Moment {
        self.runtime.now().into()
    }

    fn publish(&self, channel: &str, message: Message) -> usize {
        self.registry.transport().publish(channel, message).into()
    }

    /// Runs a step of a lock with a queue, and publishes its news.
    fn step<T>(
        &self,
        mode: Mode,
        name: &LockName,
        now: Moment,
        step: impl FnOnce(&mut Turns<'_>) -> T,
    ) -> Result<T, OtherKind> {
        let transport = self.registry.transport();
        // If the client stops listening before the message, the client itself releases the grant.
        let told = |id: &LeaseId| transport.is_subscribed(&grant_channel(mode, name, &id.client_id()));
        let (outcome, news) = self.store.lock().step(kind(mode), name, now, &told, step)?;
        if transport.is_unheard() {
            return Ok(outcome);
        }
        for id in news.granted {
            self.publish(&grant_channel(mode, name, &id.client_id()), Message::Granted(id.number()));
        }
        if let Some(message) = news.message.filter(|_| mode != Mode::Fair) {
            self.publish(&read_write_channel(name), message);
        }
        Ok(outcome)
    }

    #[inline]
    fn acquire_now(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, OtherKind> {
        let tried = match mode {
            Mode::Plain => return self.store.lock().acquire(name, request),
            Mode::Fair | Mode::Write => self.step(mode, name, request.sent, |turns| turns.try_write(request)),
            Mode::Read => self.step(mode, name, request.sent, |turns| turns.try_read(request)),
            Mode::Permits => self.step(mode, name, request.sent, |turns| turns.try_permits(request)),
        };
        Ok(match tried? {
            Ok(last_token) => AcquireOutcome::Acquired { last_token },
            Err(left) => AcquireOutcome::Held { left },
        })
    }

    #[inline]
    fn release_now(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> ReleaseOutcome {
        let released = match mode {
            Mode::Plain => {
                if !self.store.lock().release(name, id, || self.now()) {
                    return ReleaseOutcome::NotHeld;
                }
                return ReleaseOutcome::Released {
                    receivers: self.publish(&plain_channel(name), Message::Unlock),
                };
            }
            Mode::Fair | Mode::Write => {
                self.step(mode, name, self.now(), |turns| turns.release_write(id, next))
            }
            Mode::Read => self.step(mode, name, self.now(), |turns| turns.release_read(id)),
            Mode::Permits => self.step(mode, name, self.now(), |turns| turns.release_permits(id)),
        };
        // An error means a lock of another kind: not held.
        released.unwrap_or(ReleaseOutcome::NotHeld)
    }
}

/// Returns the channel of a plain lock: its name, with a prefix if other kinds' channels begin like the name.
fn plain_channel(name: &LockName) -> Cow<'_, str> {
    match name.as_str() {
        hostile if hostile.starts_with('\0') => Cow::Owned(["\0plain:", hostile].concat()),
        name => Cow::Borrowed(name),
    }
}

/// Returns the channel of a read-write lock, which no plain lock has, whatever its name.
fn read_write_channel(name: &LockName) -> String {
    ["\0read-write:", name.as_str()].concat()
}

/// Returns the channel on which a client is told of its grants of a lock with a queue.
fn grant_channel(mode: Mode, name: &LockName, client: &str) -> String {
    let prefix = match mode {
        Mode::Fair => "\0granted:",
        Mode::Permits => "\0granted permits:",
        Mode::Plain | Mode::Read | Mode::Write => "\0granted to write:",
    };
    [prefix, client, ":", name.as_str()].concat()
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

    fn supports(&self, _mode: Mode) -> bool {
        true
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        match mode {
            Mode::Plain => Channels::one(plain_channel(name)),
            Mode::Fair | Mode::Permits => Channels::one(grant_channel(mode, name, client)),
            Mode::Write => {
                let common = Some(read_write_channel(name));
                Channels { own: grant_channel(mode, name, client), common }
            }
            Mode::Read => Channels::one(read_write_channel(name)),
        }
    }

    fn failure(&self, error: &OtherKind) -> Failure {
        Failure::OtherKind(error.found())
    }

    fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireOutcome, OtherKind>> + Send {
        ready(self.acquire_now(mode, name, request))
    }

    fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> impl Future<Output = Result<ReleaseOutcome, OtherKind>> + Send {
        ready(Ok(self.release_now(mode, name, id, next)))
    }

    fn renew(
        &self,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, OtherKind>> + Send {
        ready(Ok(self.store.lock().renew(mode, leases, lease, self.now())))
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, OtherKind> {
        let now = self.now();
        match mode {
            Mode::Plain => {}
            Mode::Permits => return self.step(mode, name, now, |turns| turns.force_release_permits()),
            _ => return self.step(mode, name, now, |turns| turns.force_release()),
        }
        let released = self.store.lock().force_release(name, now)?;
        if released {
            self.publish(&plain_channel(name), Message::Unlock);
        }
        Ok(released)
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, OtherKind> {
        self.store.lock().holders(mode, name, self.now())
    }

    #[inline(never)]
    fn erased(self) -> AnyBackend {
        AnyBackend::new(self)
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Runtime + Clone> fmt::Debug for Local<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Read before the formatter, foreign code, is called. A count, as names could fill pages.
        let names = self.store.lock().names();
        f.debug_struct("Local")
            .field("names", &names)
            .field("channels", &self.registry.len())
            .finish_non_exhaustive()
    }
}
