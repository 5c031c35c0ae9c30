//! [`RedisTransport`]: channels as they should be, and the request to make the server's the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::runtime::Runtime;
use crate::transport::{Inbox, Transport};

use super::super::connection::{Common, TokioRuntime};
use super::super::keys;
use super::super::nonces::Nonces;
use super::super::topology::Topology;
use super::desired::{Desired, Leftover};
use super::supervisor::supervise;

/// Redis's publish/subscribe, over a connection to each node that messages come from, made again whenever it
/// breaks.
///
/// Messages published while there is no connection are lost; every inbox is told once the subscription is
/// back.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use latchwork::backend::Backend;
/// use latchwork::redis::Redis;
///
/// let redis = Redis::connect("redis://127.0.0.1").await?;
/// let subscription = redis.registry().subscribe("redisson_lock__channel:{orders}");
/// subscription.subscribed().await?;
/// subscription.latch().wait().await.consume(); // until some client has released the lock
/// assert_eq!(redis.registry().stats().unlock_messages, 1);
/// # Ok(()) }
/// ```
pub struct RedisTransport {
    desired: Arc<Desired>,
    /// Names a channel whose state may differ from what is desired. What is to be done about it is looked up
    /// when the request is served, so old requests cannot undo newer ones.
    changed: mpsc::UnboundedSender<Arc<str>>,
    linger: Duration,
    runtime: TokioRuntime,
}

impl RedisTransport {
    pub(in super::super) fn start(
        topology: Arc<dyn Topology>,
        common: &Arc<Common>,
        nonces: &Arc<Nonces>,
    ) -> Self {
        let (changed, changes) = mpsc::unbounded_channel();
        let desired = Arc::new(Desired::default());
        let supervised =
            supervise(topology, Arc::clone(common), Arc::clone(&desired), Arc::clone(nonces), changes);
        common.runtime.spawn(supervised);
        Self { desired, changed, linger: common.timing.linger, runtime: common.runtime.clone() }
    }

    fn change(&self, channel: &Arc<str>) {
        // Fails only when the runtime has ended. Then no message will come, and waiting goes by the timer.
        let _ = self.changed.send(Arc::clone(channel));
    }
}

impl Transport for RedisTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let (channel, which) = servers(channel);
        if !self.desired.add(&channel, which, inbox) {
            self.change(&channel);
        }
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let (channel, which) = servers(channel);
        match self.desired.leave(&channel, which, self.runtime.now()) {
            Leftover::Gone => self.change(&channel),
            Leftover::Kept => {}
            Leftover::Lingers => {}
            Leftover::LingersFirst => {
                let (desired, changed) = (Arc::clone(&self.desired), self.changed.downgrade());
                self.runtime.spawn(sweep(desired, changed, self.linger, self.runtime.clone()));
            }
        }
    }

    fn is_active(&self, channel: &str) -> bool {
        self.desired.is_active(keys::base_channel(channel).0)
    }
}

/// The server's channel, and which of the names that share it is meant.
fn servers(channel: &Arc<str>) -> (Arc<str>, usize) {
    match keys::base_channel(channel) {
        (_, 0) => (Arc::clone(channel), 0),
        (shared, which) => (Arc::from(shared), which),
    }
}

/// Gives up what has lingered for long enough, until nothing lingers.
async fn sweep(
    desired: Arc<Desired>,
    changed: mpsc::WeakUnboundedSender<Arc<str>>,
    linger: Duration,
    runtime: TokioRuntime,
) {
    loop {
        let (over, more) = desired.take_left(linger, runtime.now());
        // Without the transport all subscriptions end.
        let Some(changed) = changed.upgrade() else { return };
        over.into_iter().for_each(|channel| _ = changed.send(channel));
        drop(changed);
        if !more {
            return;
        }
        // Not at the very end of each: looking takes time in proportion to all channels.
        runtime.sleep(linger / 2).await;
    }
}

impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTransport").field("channels", &self.desired.len()).finish_non_exhaustive()
    }
}
