//! [`Transport`]: how messages of a channel come into this process, and what they may lose on the way.

use std::fmt;
use std::sync::Arc;

use crate::subscription::channel::ChannelEntry;
pub use crate::subscription::message::{Message, SubscribeError};

/// Brings the messages of channels to the [`Inbox`]es that subscribed to them.
///
/// Both calls only *begin* something: they must return without blocking and without awaiting, because they
/// are made under the channel's stripe, and from `Drop`. They must not call back into the
/// [`Registry`](crate::subscription::Registry); the inbox may be used at once. Should
/// [`subscribe`](Self::subscribe) panic, the subscription has failed.
///
/// # What an implementation must keep
///
/// * Calls for one channel take effect in the order in which they were made. Between them they alternate: one
///   channel is never subscribed to twice at a time, and not unsubscribed from once it has failed. (A failure
///   that is just being told and an unsubscribe may cross: unsubscribing from what does not stand does
///   nothing.)
/// * [`Inbox::ready`] is called once messages published from then on will arrive, and not before.
/// * If a channel cannot be subscribed to, for a reason that waiting does not cure, [`Inbox::failed`] is
///   called, and the channel counts as unsubscribed.
/// * Whenever messages may have been lost (a connection was made anew), [`Inbox::resubscribed`] is called
///   once messages arrive again.
/// * What concerns one subscription comes to its own inbox. A channel that is subscribed to again has a new
///   one.
///
/// # What it may lose, repeat and reorder
///
/// | | lose | repeat, or bring late | reorder |
/// |---|---|---|---|
/// | [`deliver`](Inbox::deliver) | yes, if it says so by `resubscribed`. Silently only if that is rare: it costs a waiter the time until its own timer, which every waiter must have | yes: a waiter looks once more in vain | yes, also on one channel, and before `ready` |
/// | [`ready`](Inbox::ready) | only until it can be had: a waiter waits for it until its own time limit | yes | not before it is true |
/// | [`resubscribed`](Inbox::resubscribed) | no | yes: every waiter looks once more | not before messages arrive again; it stands for `ready`, too |
/// | [`failed`](Inbox::failed) | no, as long as there are waiters | yes: the first one counts | it is the last word; what comes after it confirms nothing |
///
/// After [`unsubscribe`](Self::unsubscribe) all of them may still come to the old inbox, and do nothing.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
/// use latchwork::subscription::{Inbox, Message, Registry, Transport};
///
/// /// Messages come by `publish`, where a transport over a network would read them from its connection.
/// #[derive(Default)]
/// struct Channels(Mutex<HashMap<Arc<str>, Inbox>>);
///
/// impl Channels {
///     fn publish(&self, channel: &str) {
///         // Delivered with the mutex free, as that wakes tasks.
///         let inbox = self.0.lock().unwrap().get(channel).cloned();
///         if let Some(inbox) = inbox {
///             inbox.deliver(Message::Unlock);
///         }
///     }
/// }
///
/// impl Transport for Channels {
///     fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
///         self.0.lock().unwrap().insert(Arc::clone(channel), inbox.clone());
///         inbox.ready();
///     }
///
///     fn unsubscribe(&self, channel: &Arc<str>) {
///         self.0.lock().unwrap().remove(channel);
///     }
/// }
///
/// let registry = Registry::new(Channels::default());
/// let subscription = registry.subscribe("orders");
/// assert!(subscription.is_ready());
/// registry.transport().publish("orders");
/// assert_eq!(subscription.latch().pending(), 1);
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Begins to bring messages of `channel` to `inbox`, until [`unsubscribe`](Self::unsubscribe).
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox);

    /// Stops bringing messages of `channel`.
    fn unsubscribe(&self, channel: &Arc<str>);

    /// Whether messages of `channel` arrive still, though it may have no waiters: a subscription that was
    /// ended a moment ago is worth keeping for a while. A new subscriber is told at once that it is
    /// [ready](Inbox::ready), most likely.
    ///
    /// Asked by callers that would have to choose between subscribing and trying their luck first.
    fn is_active(&self, channel: &str) -> bool {
        let _ = channel;
        false
    }
}

/// The receiving end of one subscription, given to [`Transport::subscribe`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use latchwork::subscription::{Inbox, Registry, SubscribeError, Transport};
///
/// /// Serves one channel, and no other.
/// struct OnlyNews;
///
/// impl Transport for OnlyNews {
///     fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
///         match &**channel {
///             "news" => inbox.ready(),
///             _ => inbox.failed(SubscribeError::new("there is only `news`")),
///         }
///     }
///
///     fn unsubscribe(&self, _channel: &Arc<str>) {}
/// }
///
/// let registry = Registry::new(OnlyNews);
/// assert!(registry.subscribe("news").is_ready());
/// assert!(registry.subscribe("orders").failure().is_some());
/// ```
#[derive(Clone)]
pub struct Inbox(Arc<ChannelEntry>);

impl Inbox {
    pub(crate) fn new(entry: Arc<ChannelEntry>) -> Self {
        Self(entry)
    }

    /// The subscription is confirmed. Does nothing after [`failed`](Self::failed).
    pub fn ready(&self) {
        self.0.ready();
    }

    /// The subscription cannot be had, or is lost for good; all waiters for it, or for its messages, are
    /// told. A later waiter begins a new one.
    pub fn failed(&self, error: SubscribeError) {
        self.0.failed(error);
    }

    /// Messages arrive again after some may have been lost: as many are called as are interested, also
    /// waiters about to sleep. Confirms a subscription that was not confirmed yet.
    ///
    /// Calls go down the queue. A waiter that joins at this very moment, and is asleep before one that was
    /// there already, takes that one's call. It has joined after messages arrived again, so a waiter that
    /// only sleeps after a look of its own has missed nothing; but where some in the queue can use a
    /// message that others cannot, each needs a timer.
    pub fn resubscribed(&self) {
        self.0.resubscribed();
    }

    /// A message came: wakes the waiters that it is for, on this thread. If none sleeps, it is kept for the
    /// next one.
    pub fn deliver(&self, message: Message) {
        self.0.deliver(message);
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inbox").field(&self.0.channel()).finish()
    }
}
