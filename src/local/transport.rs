use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::subscription::{Inbox, Message, Transport};
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicUsize, Ordering};

/// A [`Transport`] that delivers each message once, within [`publish`](Self::publish), in order.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// assert!(!registry.transport().publish("news", Message::Unlock), "it has no subscribers");
/// let subscription = registry.subscribe("news");
/// assert!(registry.transport().publish("news", Message::Unlock));
/// subscription.try_wait().expect("the message is there already").consume();
/// ```
#[derive(Default)]
pub struct LocalTransport {
    inboxes: Mutex<HashMap<Arc<str>, Inbox>>,
    /// Count of subscriptions, readable without the mutex: most releases have no receiver.
    subscribed: AtomicUsize,
}

impl LocalTransport {
    /// Delivers `message` to the subscribers of `channel`. True if there are any.
    #[inline]
    pub fn publish(&self, channel: &str, message: Message) -> bool {
        !self.is_unheard() && self.deliver(channel, message)
    }

    #[inline]
    pub(super) fn is_unheard(&self) -> bool {
        // Ordering: SeqCst, like the store in `subscribe`. A waiter subscribes, and then checks the lock
        // under the mutex; the publisher has freed the lock under the same mutex before. So either we see the
        // subscription here, or the waiter sees the free lock.
        self.subscribed.load(Ordering::SeqCst) == 0
    }

    pub(super) fn is_subscribed(&self, channel: &str) -> bool {
        self.inboxes.lock().contains_key(channel)
    }

    fn deliver(&self, channel: &str, message: Message) -> bool {
        // Cloned to unlock the mutex: delivery wakes tasks, and a waker may publish.
        let inbox = self.inboxes.lock().get(channel).cloned();
        inbox.map(|inbox| inbox.deliver(message)).is_some()
    }
}

impl Transport for LocalTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let _old = {
            let mut inboxes = self.inboxes.lock();
            let old = inboxes.insert(Arc::clone(channel), inbox.clone());
            // Ordering: SeqCst, see `is_unheard`.
            self.subscribed.store(inboxes.len(), Ordering::SeqCst);
            old
        };
        inbox.ready();
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let _inbox = {
            let mut inboxes = self.inboxes.lock();
            let inbox = inboxes.remove(channel);
            // Ordering: SeqCst, see `is_unheard`.
            self.subscribed.store(inboxes.len(), Ordering::SeqCst);
            inbox
        };
    }
}

impl fmt::Debug for LocalTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Read before the formatter, foreign code, is called.
        let channels = self.inboxes.lock().len();
        f.debug_struct("LocalTransport").field("channels", &channels).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::subscription::Registry;

    use super::*;

    #[test]
    fn none_is_heard_of_once_the_last_subscription_is_gone() {
        let registry = Registry::new(LocalTransport::default());
        let transport = registry.transport();
        for _ in 0..2 {
            assert!(transport.is_unheard());
            let subscriptions = ["orders", "prices"].map(|channel| registry.subscribe(channel));
            for subscription in subscriptions {
                assert!(!transport.is_unheard());
                drop(subscription);
            }
        }
    }
}
