//! The locks under comparison, behind one trait.

mod bare;
mod blpop;
mod latchwork;
mod raw;
mod rlock;
mod rslock;

use std::time::Duration;

pub use self::bare::Bare;
pub use self::blpop::Blpop;
pub use self::latchwork::{Latchwork, LatchworkFair, LatchworkRead, LatchworkWrite};
pub use self::raw::Raw;
pub use self::rlock::Rlock;
pub use self::rslock::Rslock;

/// The lease of all clients that have leases: longer than any scenario.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long a client that has such an option waits for a reply; as ours does.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// One process's way to one lock. Any number of its tasks may use it at once.
pub trait Client: Send + Sync + Sized + 'static {
    /// The row's name.
    const NAME: &'static str;

    /// How long a waiter that is not woken sleeps at most before it asks again.
    const POLLS: Option<Duration>;

    /// Has the lock.
    type Guard: Send;

    /// A client of the server at `url` for the lock called `name`, whose connections live on this runtime.
    fn connect(url: &str, name: &str) -> impl Future<Output = Self> + Send;

    /// Takes the lock, waiting for it as long as it takes.
    fn lock(&self) -> impl Future<Output = Self::Guard> + Send;

    /// Gives it back.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

/// A client of which one process has many locks over the same connection.
pub trait Many: Client {
    /// A client of the server at `url` for each of the locks called `names`, over one connection.
    fn connect_all(url: &str, names: &[String]) -> impl Future<Output = Vec<Self>> + Send;
}

/// As [`each_client!`](crate::each_client), for one more of ours and those that it is held against.
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

/// Calls a generic function for each lock and makes an array of what it gives. Ours comes first, and [`Raw`]
/// is not among them: it cannot wait.
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
