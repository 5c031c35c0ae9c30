//! The lock for threads: [`LockClient`](crate::LockClient), [`Lock`](crate::Lock) and
//! [`Guard`](crate::Guard), in code without an async runtime.
//!
//! Each call blocks its thread on the async call. So threads and tasks wait in the same queue and share
//! owners, errors and statistics. Each client converts into the other kind ([`LockClient::from_async`],
//! [`LockClient::as_async`]), and both may be used at the same time.
//!
//! There is no `run` here, since a thread cannot be made to drop its work: check [`Guard::is_held`] instead.
//!
//! # Inside of async code
//!
//! A call here blocks its thread, which runs no other task until the return. If the task that holds the lock
//! needs the same thread, the two deadlock. A call that blocks a thread of the runtime in which
//! `Redis::connect` was called may get neither a reply nor a timeout. `LockClient::connect` (feature `redis`)
//! has its own thread and is safe. If blocking is unavoidable, use a thread as of `spawn_blocking`.

mod client;
mod guard;
mod lock;
mod read_write_lock;

use std::pin::pin;

pub use self::client::LockClient;
pub use self::guard::Guard;
pub use self::lock::Lock;
pub use self::read_write_lock::ReadWriteLock;

/// Uses the semaphore's `block_on`: before a thread blocks inside of a waker, it calls its collected wakers.
fn block_on<F: Future>(future: F) -> F::Output {
    crate::semaphore::block_on(pin!(future))
}
