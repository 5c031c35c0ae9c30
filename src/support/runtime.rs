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

/// A clock, timers and detached tasks for the lock, whose futures any executor may poll.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
/// use latchwork::backend::Runtime;
/// use latchwork::{LockClient, local::Local};
///
/// /// A tokio runtime that lasts as long as the process; a runtime that may end implements `has_ended`.
/// #[derive(Clone)]
/// struct OnTokio(tokio::runtime::Handle);
///
/// impl Runtime for OnTokio {
///     type Sleep = tokio::time::Sleep;
///     fn now(&self) -> Instant {
///         Instant::now()
///     }
///     fn sleep_until(&self, deadline: Instant) -> tokio::time::Sleep {
///         let _inside = self.0.enter();
///         tokio::time::sleep_until(deadline.into())
///     }
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
    /// A timer. Its waker is foreign code, and a panic or a block there may not stop other timers or tasks.
    type Sleep: Future<Output = ()> + Send + 'static;

    /// Returns the current time, by the clock of [`sleep_until`](Self::sleep_until).
    fn now(&self) -> Instant;

    /// Returns a timer that is ready once [`now`](Self::now) has reached `deadline`.
    fn sleep_until(&self, deadline: Instant) -> Self::Sleep;

    /// Runs `task` to its end, independently of the caller. Does not wait, and may be called from `Drop`. If
    /// the runtime ends first, drops the task. A task that panics ends alone.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Returns a random number, for unique ids and for pauses different from others'. The default asks the
    /// system; a runtime for reproducible simulations overrides this.
    ///
    /// # Panics
    ///
    /// If the system provides no random numbers.
    #[cfg(feature = "lock")]
    fn random(&self) -> u64 {
        getrandom::u64().expect("the system gives random numbers")
    }

    /// True if the runtime has ended, and runs no tasks. Then each [`sleep_until`](Self::sleep_until), also a
    /// pending one, is ready at once, and waiters notice the end. False if it lasts as long as the process.
    fn has_ended(&self) -> bool {
        false
    }
}
