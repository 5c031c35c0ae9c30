use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A channel's message. The first two are Redisson's.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// let (one, other) = (registry.subscribe("orders"), registry.subscribe("orders"));
/// registry.transport().publish("orders", Message::Unlock);
/// assert_eq!(one.pending(), 1); // for one of the two
/// one.try_wait().expect("a message came").consume();
/// assert!(other.try_wait().is_none());
/// registry.transport().publish("orders", Message::ReadUnlock); // for both
/// assert!(one.try_wait().is_some() && other.try_wait().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Message {
    /// The lock was released for one waiter: wakes one waiter. `0` on Redisson's wire.
    Unlock,
    /// The lock was released for many waiters: wakes every waiter. `1` on Redisson's wire.
    ReadUnlock,
    /// The lock was leased to this number, of this process: `granted:` and the number on the wire, on a
    /// channel with only one client. See `Backend`.
    Granted(u64),
}

/// Failure to subscribe to a channel: every waiter gets the same error, with its [reason](Self::reason).
///
/// # Examples
///
/// ```
/// use latchwork::subscription::SubscribeError;
/// let error = SubscribeError::new("the user may not subscribe");
/// assert_eq!(error.to_string(), "cannot subscribe to the channel: the user may not subscribe");
/// assert_eq!(error.reason().to_string(), "the user may not subscribe");
/// ```
#[derive(Clone, Debug)]
pub struct SubscribeError {
    reason: Arc<dyn Error + Send + Sync>,
    lock: Option<Arc<str>>,
}

impl SubscribeError {
    /// Wraps the transport's own error.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { reason: Arc::from(reason.into()), lock: None }
    }

    /// Returns the transport's own error.
    pub fn reason(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.reason
    }

    /// Adds the name of `lock` for a waiter: transports know only channels.
    #[cfg(feature = "lock")]
    pub(crate) fn of_lock(self, lock: &str) -> Self {
        Self { lock: Some(lock.into()), ..self }
    }
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot subscribe to the channel")?;
        if let Some(lock) = &self.lock {
            write!(f, " of lock {lock:?}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A chain names each cause once, and the reason's text is in this error's text.
impl Error for SubscribeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}
