//! The locks under comparison, behind one trait.

mod bare;
mod blpop;
mod latchwork;
pub(super) mod raw;
mod rlock;
mod rslock;

use std::time::Duration;

pub use self::bare::Bare;
pub use self::blpop::Blpop;
pub use self::latchwork::{Latchwork, LatchworkFair, LatchworkRead, LatchworkWrite, TwoNames, TwoPermits};
pub use self::raw::Raw;
pub use self::rlock::Rlock;
pub use self::rslock::Rslock;

/// The lease of all clients with leases: longer than any scenario.
pub const LEASE: Duration = Duration::from_secs(30);

/// Reply timeout of the clients that have the option; the same as ours.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// A process's client of a lock. Any number of its tasks may use the client at once.
pub trait Client: Send + Sync + Sized + 'static {
    /// The row's name.
    const NAME: &'static str;

    /// Interval at which a waiter asks again without being woken.
    const POLLS: Option<Duration>;

    /// Holds the lock.
    type Guard: Send;

    /// Connects to the server at `url` for the lock called `name`, on the current runtime.
    fn connect(url: &str, name: &str) -> impl Future<Output = Self> + Send;

    /// Acquires the lock, without a time limit.
    fn lock(&self) -> impl Future<Output = Self::Guard> + Send;

    /// Releases the lock.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

/// A client with many locks over one connection.
pub trait Many: Client {
    /// Connects to the server at `url` for each of the locks called `names`, over one connection.
    fn connect_all(url: &str, names: &[String]) -> impl Future<Output = Vec<Self>> + Send;
}

/// As [`each_client!`](crate::each_client), for another lock of ours and the peers of that.
#[macro_export]
macro_rules! each_client_beside {
    ($of_ours:ident, $function:ident($($argument:expr),*)) => {
        [
            $function::<$crate::lock::clients::$of_ours>($($argument),*),
            $function::<$crate::lock::clients::Latchwork>($($argument),*),
            $function::<$crate::lock::clients::Blpop>($($argument),*),
        ]
    };
}

/// Calls a generic function for each lock but [`Raw`], which cannot wait; returns an array, ours first.
#[macro_export]
macro_rules! each_client {
    ($function:ident($($argument:expr),*)) => {
        [
            $function::<$crate::lock::clients::Latchwork>($($argument),*),
            $function::<$crate::lock::clients::Blpop>($($argument),*),
            $function::<$crate::lock::clients::Rlock>($($argument),*),
            $function::<$crate::lock::clients::Rslock>($($argument),*),
        ]
    };
}
