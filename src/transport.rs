//! [`Transport`]: how messages of a channel come into this process, and what they may lose on the way.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::lock_entry::LockEntry;

/// What a channel's message says, in Redisson's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Message {
    /// Somebody let go of the lock, and one can have it: one waiter is called. `0` on Redisson's wire.
    Unlock,
    /// Somebody let go of the lock, and many can have it: every waiter is called. `1` on Redisson's wire.
    ReadUnlock,
}

/// Brings the messages of channels to the [`Inbox`]es that subscribed to them.
///
/// Both calls only *begin* something: they must return without blocking and without awaiting, because they are made under
/// the channel's stripe, and from `Drop`. They must not call back into the [`Registry`](crate::Registry).
///
/// # What an implementation must keep
///
/// * Calls for one channel take effect in the order in which they were made.
/// * [`Inbox::ready`] is called once messages published from then on will arrive, and not before.
/// * If a channel cannot be subscribed to, for a reason that waiting does not cure, [`Inbox::failed`] is called, and the
///   channel counts as unsubscribed.
/// * Whenever messages may have been lost (a connection was made anew), [`Inbox::resubscribed`] is called once messages
///   arrive again.
///
/// # What it may do
///
/// * Lose messages, as long as it says so by `resubscribed`; and lose them silently as long as that is rare: who waits for
///   a message always has a timer beside it, so a silent loss costs time, never a hang.
/// * Repeat messages and deliver them late: each only makes a waiter look again.
/// * Reorder messages of different channels.
pub trait Transport: Send + Sync + 'static {
    /// Begins to bring messages of `channel` to `inbox`, until [`unsubscribe`](Self::unsubscribe).
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox);

    /// Stops bringing messages of `channel`.
    fn unsubscribe(&self, channel: &Arc<str>);
}

/// The receiving end of one subscription, given to [`Transport::subscribe`].
#[derive(Clone)]
pub struct Inbox(Arc<LockEntry>);

impl Inbox {
    pub(crate) fn new(entry: Arc<LockEntry>) -> Self {
        Self(entry)
    }

    /// The subscription is confirmed.
    pub fn ready(&self) {
        self.0.ready();
    }

    /// The subscription cannot be had; everybody who waits for it is told.
    pub fn failed(&self, error: SubscribeError) {
        self.0.failed(error);
    }

    /// Messages arrive again after some may have been lost: everybody looks again.
    pub fn resubscribed(&self) {
        self.0.ready();
        self.0.wake_all();
    }

    /// A message came.
    pub fn deliver(&self, message: Message) {
        self.0.deliver(message);
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inbox").field(&self.0.channel()).finish()
    }
}

/// A channel could not be subscribed to. The reason is its [`source`](Error::source); every waiter gets the same one.
#[derive(Clone, Debug)]
pub struct SubscribeError(Arc<dyn Error + Send + Sync>);

impl SubscribeError {
    /// Wraps the transport's own error.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(reason.into()))
    }
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot subscribe to the lock's channel")
    }
}

impl Error for SubscribeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}
