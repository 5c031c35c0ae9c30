//! [`Listening`]: where a queue head hears that it is to ask, or that it has the lock.

use std::future::pending;
use std::pin::pin;

use crate::latch::Notification;
use crate::registry::{Registry, Subscription};
use crate::transport::{SubscribeError, Transport};
use crate::unless::unless;

use crate::lock::backend::Channels;

/// Subscriptions to the channels of an entry.
pub(in crate::lock) struct Listening {
    own: Subscription<dyn Transport>,
    /// The one that all clients listen to, if that is another one.
    common: Option<Subscription<dyn Transport>>,
}

impl Listening {
    pub(in crate::lock) fn new(
        registry: &Registry<dyn Transport>,
        Channels { own, common }: &Channels,
    ) -> Self {
        let common = common.as_ref().map(|common| registry.subscribe(common));
        Self { own: registry.subscribe(own), common }
    }

    fn all(&self) -> impl Iterator<Item = &Subscription<dyn Transport>> {
        [&self.own].into_iter().chain(&self.common)
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
            self.own.latch().wait().await.consume_spurious();
        }
    }

    /// What was told while it was not awaited.
    pub(in crate::lock) fn try_told(&self) -> Option<Notification<'_>> {
        self.all().find_map(|subscription| subscription.latch().try_wait())
    }

    /// Waits to be told something.
    pub(in crate::lock) async fn told(&self) -> Notification<'_> {
        let mut on_common = None;
        let told = {
            let common = pin!(async {
                match &self.common {
                    Some(common) => on_common = Some(common.latch().wait().await),
                    None => pending().await,
                }
            });
            unless(pin!(self.own.latch().wait()), common).await
        };
        match told.or(on_common) {
            Some(told) => told,
            None => unreachable!("one of them has come"),
        }
    }
}
