//! [`Listening`]: the subscriptions of a queue head, which hear that the lock is released or granted.
//!
//! ```text
//! store ─► Transport (Redis: the subscriber's task, Channels) ─► Inbox ─► ChannelEntry::deliver ─► its latch
//!                                                                                                  │
//!        ReadUnlock: every sleeper; Unlock, Granted: the oldest sleeper, of any client ◄───────────┘
//!                    ▼
//!   Listening::told of a queue head    timer, confirmation, the entry's own latch
//!                    └────────────┬───────────────────────┘
//!                                 ▼ by the head's waker
//!            Entry::wake ─► LockEntry::wake_head ─► Effects ──drop──► the head's task
//!                                                                          ▼
//!                                    the head takes a lock that a message granted, or asks the store
//!
//! a guard is dropped here ─► Entry::event ─► LockEntry::leave ─► Effects ──drop──► the next waiter's task
//! ```

use std::future::{pending, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use crate::latch::Notification;
use crate::subscription::channel::Expected;
use crate::subscription::registry::{Registry, Subscription};
use crate::subscription::transport::{SubscribeError, Transport};

use crate::lock::origin::Origin;

/// Subscriptions to an entry's channels. Never dropped in a child, whose mutexes may stay locked forever.
pub(in crate::lock) struct Listening {
    /// The client's own channel, and the channel common to all clients, if this waiter listens to that.
    subscriptions: [OnceLock<Subscription<dyn Transport>>; 2],
    /// The waiter's place for a grant on its own channel, once the waiter has asked for one.
    expected: OnceLock<Arc<Expected>>,
    origin: Origin,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !self.origin.is_same_process() {
            mem::forget(mem::take(&mut self.subscriptions));
        } else if let Some(expected) = self.expected.get() {
            self.own().expect_no_more(expected);
        }
    }
}

impl Listening {
    pub(in crate::lock) fn new(registry: &Registry<dyn Transport>, own: &str, common: Option<&str>) -> Self {
        let subscriptions = [Some(own), common].map(|channel| {
            channel.map_or_else(OnceLock::new, |channel| OnceLock::from(registry.subscribe(channel)))
        });
        Self { subscriptions, expected: OnceLock::new(), origin: Origin::here() }
    }

    /// Subscribes to the channel that all clients listen to. False if that is done already.
    pub(in crate::lock) fn add(&self, registry: &Registry<dyn Transport>, common: &str) -> bool {
        let [_, subscription] = &self.subscriptions;
        subscription.get().is_none() && subscription.set(registry.subscribe(common)).is_ok()
    }

    fn all(&self) -> impl Iterator<Item = &Subscription<dyn Transport>> {
        self.subscriptions.iter().filter_map(OnceLock::get)
    }

    fn own(&self) -> &Subscription<dyn Transport> {
        self.subscriptions[0].get().expect("subscribed to from the beginning")
    }

    /// Waits until messages are certain to arrive on each channel.
    pub(in crate::lock) async fn subscribed(&self) -> Result<(), SubscribeError> {
        for subscription in self.all() {
            subscription.subscribed().await?;
        }
        Ok(())
    }

    pub(in crate::lock) fn is_ready(&self) -> bool {
        self.all().all(|subscription| subscription.is_ready())
    }

    pub(in crate::lock) fn failure(&self) -> Option<SubscribeError> {
        self.all().find_map(|subscription| subscription.failure())
    }

    /// Has the grant of `number` wake this waiter. Called before the store is asked by the number.
    pub(in crate::lock) fn expect(&self, number: u64) {
        let own = self.own();
        own.expect(self.expected.get_or_init(|| own.expected()), number);
    }

    /// Number of the latest grant for this waiter; 0 without one.
    pub(in crate::lock) fn granted(&self) -> u64 {
        self.expected.get().map_or(0, |expected| expected.granted())
    }

    /// Waits for the next grant, however often the one before is repeated.
    pub(in crate::lock) async fn granted_next(&self) -> Notification<'_> {
        let Some(expected) = self.expected.get() else { return pending().await };
        let before = self.granted();
        loop {
            let notified = expected.latch().wait().await;
            if self.granted() != before {
                return notified;
            }
            notified.consume_spurious();
        }
    }

    pub(in crate::lock) fn try_told(&self) -> Option<Notification<'_>> {
        let granted = self.expected.get().and_then(|expected| expected.latch().try_wait());
        granted.or_else(|| self.all().find_map(|subscription| subscription.try_wait()))
    }

    pub(in crate::lock) async fn told(&self) -> Notification<'_> {
        type Wait<'a> = Pin<Box<dyn Future<Output = Notification<'a>> + Send + 'a>>;
        let mut waits: Vec<Wait<'_>> = Vec::with_capacity(3);
        waits.extend(self.all().map(|subscription| Box::pin(subscription.wait()) as Wait<'_>));
        waits.extend(self.expected.get().map(|expected| Box::pin(expected.latch().wait()) as Wait<'_>));
        poll_fn(|task| {
            let mut polled = waits.iter_mut().map(|wait| wait.as_mut().poll(task));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

#[cfg(all(test, not(latchwork_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::subscription::transport::Inbox;
    use crate::support::sync::Mutex;

    #[derive(Clone, Debug, Default)]
    struct Keeps(Arc<Mutex<Vec<Inbox>>>);

    impl Transport for Keeps {
        fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
            self.0.lock().push(inbox);
        }

        fn unsubscribe(&self, _channel: &Arc<str>) {}
    }

    /// Grants come on one channel and releases on the other: a waiter needs both.
    #[test]
    fn waiter_hears_all_when_both_channels_are_confirmed() {
        let keeps = Keeps::default();
        let registry = Registry::new(keeps.clone()).erased();
        for first in [0, 1] {
            let listening = Listening::new(&registry, "own", Some("common"));
            let inboxes = std::mem::take(&mut *keeps.0.lock());
            assert_eq!(inboxes.len(), 2);
            inboxes[first].ready();
            assert!(!listening.is_ready(), "{first}");
            inboxes[1 - first].ready();
            assert!(listening.is_ready());
        }
    }
}
