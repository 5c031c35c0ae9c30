//! [`Message`]: what comes on a channel; and [`SubscribeError`], when nothing can.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What a channel's message says. The first two are Redisson's.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
///
/// let registry = Registry::new(LocalTransport::default());
/// let (one, other) = (registry.subscribe("orders"), registry.subscribe("orders"));
/// registry.transport().publish("orders", Message::Unlock);
/// assert_eq!(one.latch().pending(), 1); // for one of the two
/// registry.transport().publish("orders", Message::ReadUnlock);
/// assert_eq!(other.latch().pending(), 2); // for both
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Message {
    /// The lock was released, and one waiter can have it: one waiter is called. `0` on Redisson's wire.
    Unlock,
    /// The lock was released, and many waiters can have it: every waiter is called. `1` on Redisson's wire.
    ReadUnlock,
    /// The lock was leased to a waiter of this process, under this number: `granted:` and the number on the
    /// wire. Comes on a channel that only one client listens to. See `Backend`.
    Granted(u64),
}

/// A channel could not be subscribed to, for a [reason](Self::reason) that its text says; every waiter gets
/// the same one.
///
/// # Examples
///
/// ```
/// use latchwork::subscription::SubscribeError;
///
/// let error = SubscribeError::new("the user may not subscribe");
/// assert_eq!(error.to_string(), "cannot subscribe to the channel: the user may not subscribe");
/// assert_eq!(error.reason().to_string(), "the user may not subscribe");
/// ```
#[derive(Clone, Debug)]
pub struct SubscribeError(Arc<dyn Error + Send + Sync>);

/// A reason, with the lock that the channel is of. Behind the same pointer as a reason without one, since
/// each entry of a registry has room for an error.
#[derive(Debug)]
struct OfLock {
    lock: Box<str>,
    reason: Arc<dyn Error + Send + Sync>,
}

impl SubscribeError {
    /// Wraps the transport's own error.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(reason.into()))
    }

    /// The transport's own error.
    pub fn reason(&self) -> &(dyn Error + Send + Sync + 'static) {
        match self.0.downcast_ref::<OfLock>() {
            Some(OfLock { reason, .. }) => &**reason,
            None => &*self.0,
        }
    }

    /// The same error, for a waiter of `lock`: transports know of channels only.
    #[cfg(feature = "lock")]
    pub(crate) fn of_lock(self, lock: &str) -> Self {
        Self(Arc::new(OfLock { lock: lock.into(), reason: self.0 }))
    }
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot subscribe to the channel")?;
        if let Some(OfLock { lock, .. }) = self.0.downcast_ref() {
            write!(f, " of lock {lock:?}")?;
        }
        write!(f, ": {}", self.reason())
    }
}

/// The reason's text is a part of this one's, and a chain says each cause once.
impl Error for SubscribeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason().source()
    }
}

impl fmt::Display for OfLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl Error for OfLock {}
