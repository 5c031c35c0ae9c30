//! The lock for threads: [`LockClient`](crate::LockClient), [`Lock`](crate::Lock) and
//! [`Guard`](crate::Guard), in code without an async runtime.
//!
//! There is no `run` here, since a thread cannot be made to drop its work: look at [`Guard::is_held`] between
//! its steps.
//!
//! Each call blocks its thread on the async one. So threads and tasks wait in the same queue, owners,
//! errors and statistics are the same, and both may be used side by side: a client of the one kind makes one
//! of the other ([`LockClient::from_async`], [`LockClient::as_async`]).
//!
//! # Inside of async code
//!
//! Nothing here panics there, but it blocks: the thread runs no other task until the call returns. If the
//! task that holds the lock needs that very thread to run, the two deadlock. And a `redis::Redis` that was
//! connected in a runtime by `Redis::connect` lives on that runtime's threads: a call that blocks such a
//! thread may get no reply, and no timeout: no other thread of the runtime takes over the task that the
//! blocked thread woke last. `LockClient::connect` (feature `redis`) has a thread of its own and does not
//! mind. Where blocking cannot be avoided, do it on a thread that is made for it, such as `spawn_blocking` of
//! tokio's.

mod client;
mod guard;
mod lock;
mod read_write_lock;

use std::pin::pin;

pub use self::client::LockClient;
pub use self::guard::Guard;
pub use self::lock::Lock;
pub use self::read_write_lock::ReadWriteLock;

/// The semaphore's, and not the plain one: a thread may come here inside of a waker, and the threads that it
/// has freed there must not sleep as long as it does.
fn block_on<F: Future>(future: F) -> F::Output {
    crate::semaphore::block_on(pin!(future))
}
