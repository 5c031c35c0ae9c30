//! [`LockKind`].

use std::fmt;

/// What a lock is. A name is held as one kind at a time, and each kind has rules of its own for its owners
/// and waiters.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// use latchwork::{LockError, LockKind};
///
/// let guard = client.get_fair_lock("tickets")?.lock().await?;
/// match client.get_lock("tickets")?.try_lock().await {
///     Err(LockError::OtherKind { found, .. }) => assert_eq!(found, LockKind::Fair),
///     other => panic!("it is held as a fair lock: {other:?}"),
/// }
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// One owner, in no particular order between processes: [`Lock`](crate::Lock).
    Plain,
    /// One owner, in the order of arrival.
    Fair,
    /// Many readers or one writer.
    ReadWrite,
    /// A kind that this version does not know.
    Unknown,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain lock",
            Self::Fair => "fair lock",
            Self::ReadWrite => "read-write lock",
            Self::Unknown => "lock of an unknown kind",
        })
    }
}
