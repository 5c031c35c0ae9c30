//! [`Transport`]: the way of a channel's messages into this process, and what may be lost on the way.

use std::fmt;
use std::sync::Arc;

use crate::subscription::channel::ChannelEntry;
pub use crate::subscription::channel::{Message, SubscribeError};

/// Brings the messages of channels to the subscribed [`Inbox`]es.
///
/// Both calls only *begin* their work: they must return without blocking and without awaiting, because the
/// registry makes them under the channel's stripe, and from `Drop`. They must not call back into the
/// [`Registry`](crate::subscription::Registry); the inbox may be used at once. If
/// [`subscribe`](Self::subscribe) panics, the subscription has failed.
///
/// # What an implementation must keep
///
/// * Calls for one channel take effect in the order in which they were made. They alternate: the registry
///   never subscribes twice to a channel, and unsubscribes only from a subscription that has not failed.
///   (Unless the failure is reported meanwhile; then the transport ignores the call.)
/// * [`Inbox::ready`] is called once messages published from then on will arrive, and not before.
/// * If a subscription fails for good, [`Inbox::failed`] is called: the channel counts as unsubscribed.
/// * After a possible loss, as with a new connection, [`Inbox::resubscribed`] is called once messages arrive.
/// * Each subscription reports to its own inbox. A new subscription to the same channel has a new inbox.
///
/// # What it may lose, repeat and reorder
///
/// | | lose | repeat, or bring late | reorder |
/// |---|---|---|---|
/// | [`deliver`](Inbox::deliver) | yes, if `resubscribed` reports the loss. Rarely without: then a waiter waits for its own timer, which every waiter must have | yes: a waiter looks once more in vain | yes, also on one channel, and before `ready` |
/// | [`ready`](Inbox::ready) | only while no confirmation comes: a waiter waits for `ready` until its own time limit | yes | not before messages arrive |
/// | [`resubscribed`](Inbox::resubscribed) | no | yes: every waiter looks once more | not before messages arrive again. Confirms a subscription as `ready` does |
/// | [`failed`](Inbox::failed) | no, as long as there are waiters | yes: the first report counts | no report after it has an effect |
///
/// After [`unsubscribe`](Self::unsubscribe) calls of the old inbox have no effect.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
/// use latchwork::subscription::{Inbox, Message, Registry, Transport};
///
/// /// Messages come by `publish`; a transport over a network would read them from its connection.
/// #[derive(Default)]
/// struct Channels(Mutex<HashMap<Arc<str>, Inbox>>);
/// impl Channels {
///     fn publish(&self, channel: &str) {
///         // Delivers with the mutex unlocked: delivery wakes tasks.
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
/// assert_eq!(subscription.pending(), 1);
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Begins to bring messages of `channel` to `inbox`, until [`unsubscribe`](Self::unsubscribe).
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox);

    /// Stops bringing messages of `channel`.
    fn unsubscribe(&self, channel: &Arc<str>);

    /// True if messages of `channel` arrive, also without waiters: an ended subscription may be kept for a
    /// while, and a new subscriber is then most likely [ready](Inbox::ready) at once.
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
/// struct OnlyNews;
///
/// impl Transport for OnlyNews {
///     fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
///         match &**channel {
///             "news" => inbox.ready(),
///             _ => inbox.failed(SubscribeError::new("there is only `news`")),
///         }
///     }
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

    /// Confirms the subscription. Does nothing after [`failed`](Self::failed).
    pub fn ready(&self) {
        self.0.ready();
    }

    /// Reports that the subscription has failed, or is lost for good; wakes all waiters, for the subscription
    /// and for messages. A later subscriber begins a new subscription.
    pub fn failed(&self, error: SubscribeError) {
        self.0.failed(error);
    }

    /// Reports that messages arrive again after some may have been lost: notifies as many waiters as are
    /// interested, including waiters about to sleep. Confirms an unconfirmed subscription. A waiter that
    /// joins just now may take an older subscriber's notification: if only some waiters can use a message,
    /// each needs a timer.
    pub fn resubscribed(&self) {
        self.0.resubscribed();
    }

    /// Delivers a message: wakes its waiters, on this thread, or stays pending for the next waiter.
    pub fn deliver(&self, message: Message) {
        self.0.deliver(message);
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inbox").field(&self.0.channel()).finish()
    }
}
