//! [`Runtime`]: what the lock asks of its surroundings, namely a clock, timers, and a place for work that
//! outlives its caller.

#[cfg(feature = "tokio")]
mod shield;
#[cfg(latchwork_simulation)]
mod surroundings;
#[cfg(feature = "tokio")]
mod tokio_runtime;

use std::time::Instant;

#[cfg(feature = "redis")]
pub(crate) use self::shield::shielded;
#[cfg(latchwork_simulation)]
pub use self::surroundings::{Bytes, Surroundings};
#[cfg(feature = "tokio")]
pub use self::tokio_runtime::{TokioRuntime, TokioSleep};

/// A clock, timers and detached tasks.
///
/// The lock never names an executor: its futures run on whichever polls them, and what they need besides
/// comes from the `Backend`, through this.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
/// use latchwork::backend::Runtime;
/// use latchwork::{LockClient, local::Local};
///
/// /// A tokio runtime that lasts for as long as the process: one that may end says so by `has_ended`.
/// #[derive(Clone)]
/// struct OnTokio(tokio::runtime::Handle);
///
/// impl Runtime for OnTokio {
///     type Sleep = tokio::time::Sleep;
///
///     fn now(&self) -> Instant {
///         Instant::now()
///     }
///
///     fn sleep_until(&self, deadline: Instant) -> tokio::time::Sleep {
///         let _inside = self.0.enter();
///         tokio::time::sleep_until(deadline.into())
///     }
///
///     fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
///         self.0.spawn(task);
///     }
/// }
///
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// let runtime = OnTokio(tokio::runtime::Handle::current());
/// let client = LockClient::new(Local::with_runtime(runtime));
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// assert!(guard.is_held());
/// guard.unlock().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub trait Runtime: Send + Sync + 'static {
    /// A timer. What it wakes is foreign code, which may panic or block: neither is to keep other timers from
    /// firing, nor tasks from running.
    type Sleep: Future<Output = ()> + Send + 'static;

    /// The time by the clock that [`sleep_until`](Self::sleep_until) goes by.
    fn now(&self) -> Instant;

    /// Is ready once [`now`](Self::now) has reached `deadline`.
    fn sleep_until(&self, deadline: Instant) -> Self::Sleep;

    /// Runs `task` to its end, whatever becomes of the caller. Returns without waiting for it, and may be
    /// called from `Drop`.
    ///
    /// When the runtime itself ends first, the task is dropped unfinished. A task that panics ends alone.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// A random number, for ids that must be unique and for pauses that must differ from those of others.
    ///
    /// By default it is the system's. A runtime that is to do the same again, in a simulation, has its own.
    ///
    /// # Panics
    ///
    /// If the system has no random numbers.
    #[cfg(feature = "lock")]
    fn random(&self) -> u64 {
        getrandom::u64().expect("the system gives random numbers")
    }

    /// Whether the runtime has ended: no task is run any more, and no timer fires.
    ///
    /// From then on [`sleep_until`](Self::sleep_until) is ready at once, those sleeps included that were
    /// pending, so that waiters see it. False if it lasts for as long as the process.
    fn has_ended(&self) -> bool {
        false
    }
}
