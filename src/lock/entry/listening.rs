//! [`Listening`]: where a queue head hears that it is to ask, or that it has the lock.

use std::future::{pending, poll_fn};
use std::mem;
use std::ops::Deref;
use std::pin::pin;

use crate::channel_entry::ChannelEntry;
use crate::latch::Notification;
use crate::registry::{Registry, Subscription};
use crate::transport::{SubscribeError, Transport};
use crate::unless::unless;

use crate::lock::backend::Channels;
use crate::lock::origin::Origin;

use super::OnDrop;

/// Subscriptions to the channels of an entry.
pub(in crate::lock) struct Listening {
    own: Here,
    /// The one that all clients listen to, if that is another one.
    common: Option<Here>,
}

/// A subscription that is ended in the process that has made it only: in a child, the mutexes that this takes
/// are not sure to be unlocked ever.
struct Here {
    subscription: Option<Subscription<dyn Transport>>,
    origin: Origin,
}

impl Here {
    fn new(registry: &Registry<dyn Transport>, channel: &str) -> Self {
        Self { subscription: Some(registry.subscribe(channel)), origin: Origin::here() }
    }
}

impl Deref for Here {
    type Target = ChannelEntry;

    fn deref(&self) -> &ChannelEntry {
        self.subscription.as_ref().expect("it is taken out when it is dropped")
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            mem::forget(self.subscription.take());
        }
    }
}

impl Listening {
    pub(in crate::lock) fn new(
        registry: &Registry<dyn Transport>,
        Channels { own, common }: &Channels,
    ) -> Self {
        let common = common.as_ref().map(|common| Here::new(registry, common));
        Self { own: Here::new(registry, own), common }
    }

    fn all(&self) -> impl Iterator<Item = &ChannelEntry> {
        [&self.own].into_iter().chain(&self.common).map(Deref::deref)
    }

    /// Waits until messages come for sure.
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

    /// The number that was granted last, as a message has said; 0 if none was.
    pub(in crate::lock) fn granted(&self) -> u64 {
        self.own.granted()
    }

    /// Waits until another number was granted than was last.
    pub(in crate::lock) async fn granted_next(&self) {
        let before = self.granted();
        while self.granted() == before {
            told(&self.own).await.consume_spurious();
        }
    }

    /// What was told while it was not awaited.
    pub(in crate::lock) fn try_told(&self) -> Option<Notification<'_>> {
        self.all().find_map(|subscription| subscription.latch().try_wait())
    }

    /// Waits to be told something.
    pub(in crate::lock) async fn told(&self) -> Notification<'_> {
        let mut on_common = None;
        let notified = {
            let common = pin!(async {
                match &self.common {
                    Some(common) => on_common = Some(told(common).await),
                    None => pending().await,
                }
            });
            unless(pin!(told(&self.own)), common).await
        };
        match notified.or(on_common) {
            Some(notified) => notified,
            None => unreachable!("one of them has come"),
        }
    }
}

/// Waits for a message, as the one waiter of its subscription.
async fn told(entry: &ChannelEntry) -> Notification<'_> {
    let mut told = pin!(entry.latch().wait());
    // Ended before the queue is left.
    let mut _asleep = None;
    poll_fn(|context| {
        _asleep = None;
        let polled = told.as_mut().poll(context);
        _asleep = polled.is_pending().then(|| OnDrop(Some(entry.is_asleep())));
        polled
    })
    .await
}

#[cfg(all(test, not(latchwork_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::Mutex;
    use crate::transport::Inbox;

    /// Keeps the inboxes, in the order in which they came.
    #[derive(Clone, Debug, Default)]
    struct Keeps(Arc<Mutex<Vec<Inbox>>>);

    impl Transport for Keeps {
        fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
            self.0.lock().push(inbox);
        }

        fn unsubscribe(&self, _channel: &Arc<str>) {}
    }

    /// A grant comes on the one and a release on the other: without either the waiter sleeps beside a free
    /// lock.
    #[test]
    fn waiter_hears_all_when_both_channels_are_confirmed() {
        let keeps = Keeps::default();
        let registry = Registry::new(keeps.clone()).erased();
        let channels = Channels { own: "own".into(), common: Some("common".into()) };
        for first in [0, 1] {
            let listening = Listening::new(&registry, &channels);
            let inboxes = std::mem::take(&mut *keeps.0.lock());
            assert_eq!(inboxes.len(), 2);
            inboxes[first].ready();
            assert!(!listening.is_ready(), "{first}");
            inboxes[1 - first].ready();
            assert!(listening.is_ready());
        }
    }
}
