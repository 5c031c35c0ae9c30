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

use std::future::poll_fn;
use std::mem;
use std::sync::OnceLock;
use std::task::Poll;

use crate::latch::Notification;
use crate::subscription::registry::{Registry, Subscription};
use crate::subscription::transport::{SubscribeError, Transport};

use crate::lock::origin::Origin;

/// Subscriptions to an entry's channels. Never dropped in a child, whose mutexes may stay locked forever.
pub(in crate::lock) struct Listening {
    /// The client's own channel, and the channel common to all clients, if this waiter listens to that.
    subscriptions: [OnceLock<Subscription<dyn Transport>>; 2],
    origin: Origin,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !self.origin.is_same_process() {
            mem::forget(mem::take(&mut self.subscriptions));
        }
    }
}

impl Listening {
    pub(in crate::lock) fn new(registry: &Registry<dyn Transport>, own: &str, common: Option<&str>) -> Self {
        let subscriptions = [Some(own), common].map(|channel| {
            channel.map_or_else(OnceLock::new, |channel| OnceLock::from(registry.subscribe(channel)))
        });
        Self { subscriptions, origin: Origin::here() }
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

    /// Highest lease number that a message has granted; 0 if none has.
    pub(in crate::lock) fn granted(&self) -> u64 {
        self.own().granted()
    }

    pub(in crate::lock) async fn granted_next(&self) {
        let before = self.granted();
        while self.granted() == before {
            self.own().wait().await.consume_spurious();
        }
    }

    pub(in crate::lock) fn try_told(&self) -> Option<Notification<'_>> {
        self.all().find_map(|subscription| subscription.try_wait())
    }

    pub(in crate::lock) async fn told(&self) -> Notification<'_> {
        let mut waits: Vec<_> = self.all().map(|subscription| Box::pin(subscription.wait())).collect();
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
