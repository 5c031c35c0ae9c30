//! [`RedisTransport`]: the wanted channels, and changes sent to the tasks that subscribe.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::subscription::{Inbox, Transport};
use crate::support::runtime::Runtime;

use super::super::connection::Common;
use super::super::keys;
use super::super::keys::Nonces;
use super::super::topology::Topology;
use super::channels::{ChannelTable, Leftover};
use super::subscriber::{Shared, Subscriber};
use super::supervisor::supervise;
use crate::support::runtime::TokioRuntime;

/// Redis's publish/subscribe, over a connection to each node that sends messages. A broken connection is made
/// again: messages published meanwhile are lost, and every inbox is told once the subscription is back.
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
/// subscription.wait().await.consume(); // until some client has released the lock
/// assert_eq!(redis.registry().stats().unlock_messages, 1);
/// # Ok(()) }
/// ```
pub struct RedisTransport {
    channels: Arc<ChannelTable>,
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
        // Plain messages have one source, so the first waiter need not wait for the connection.
        let only = topology.source("").filter(|_| !topology.is_sharded());
        let channels = Arc::new(ChannelTable::new(only.as_ref().map(|node| node.number)));
        let (shared_channels, nonces) = (Arc::clone(&channels), Arc::clone(nonces));
        let shared = Shared { topology, common: Arc::clone(common), channels: shared_channels, nonces };
        match only {
            Some(node) => {
                let subscriber = Subscriber::new(node, shared, changes, mpsc::unbounded_channel().0);
                common.runtime.spawn(subscriber.run());
            }
            None => common.runtime.spawn(supervise(shared, changes)),
        }
        Self { channels, changed, linger: common.timing.linger, runtime: common.runtime.clone() }
    }

    fn change(&self, channel: &Arc<str>) {
        // Fails only after the runtime has ended. Waiters then ask by timer.
        let _ = self.changed.send(Arc::clone(channel));
    }
}

impl Transport for RedisTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let (channel, which) = servers(channel);
        if !self.channels.add(&channel, which, inbox) {
            self.change(&channel);
        }
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let (channel, which) = servers(channel);
        match self.channels.leave(&channel, which, self.runtime.now()) {
            Leftover::Over => self.change(&channel),
            Leftover::Stays => {}
            Leftover::LingersFirst => {
                let (channels, changed) = (Arc::clone(&self.channels), self.changed.downgrade());
                self.runtime.spawn(sweep(channels, changed, self.linger, self.runtime.clone()));
            }
        }
    }

    fn is_active(&self, channel: &str) -> bool {
        self.channels.is_active(keys::base_channel(channel).0)
    }
}

fn servers(channel: &Arc<str>) -> (Arc<str>, usize) {
    match keys::base_channel(channel) {
        (_, 0) => (Arc::clone(channel), 0),
        (shared, which) => (Arc::from(shared), which),
    }
}

/// Unsubscribes from channels that have lingered for `linger`, until no channel lingers.
async fn sweep(
    channels: Arc<ChannelTable>,
    changed: mpsc::WeakUnboundedSender<Arc<str>>,
    linger: Duration,
    runtime: TokioRuntime,
) {
    loop {
        let (over, more) = channels.sweep(linger, runtime.now());
        let Some(changed) = changed.upgrade() else { return };
        over.into_iter().for_each(|channel| _ = changed.send(channel));
        drop(changed);
        if !more {
            return;
        }
        // Not at each channel's end: a sweep takes time in proportion to all channels.
        runtime.sleep(linger / 2).await;
    }
}

impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTransport")
            .field("channels", &self.channels.placed().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::time::timeout;

    use super::super::super::fake::{EVENT_LIMIT, Fake, push};
    use super::super::{topology_of, unhurried};
    use super::*;
    use crate::subscription::Registry;
    use crate::support::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn channel_left_while_offline_is_not_subscribed_to_again() {
        let serves = Arc::new(AtomicBool::new(true));
        let fake = Fake::start({
            let serves = Arc::clone(&serves);
            move |command| match command.split_once(' ') {
                Some((name, channel)) => push(&name.to_lowercase(), channel),
                // Ordering: Relaxed, the test is single-threaded.
                None if serves.load(Ordering::Relaxed) => "+PONG\r\n".to_owned(),
                None => "-ERR it does not serve\r\n".to_owned(),
            }
        })
        .await;
        let common = unhurried();
        let topology = topology_of(&fake, &common).await;
        let nonces = Arc::new(Nonces::new(&common.runtime));
        let registry = Registry::new(RedisTransport::start(topology, &common, &nonces));
        let left = registry.subscribe("left");
        timeout(EVENT_LIMIT, left.subscribed()).await.expect("it is not confirmed").unwrap();
        assert!(format!("{:?}", registry.transport()).contains("channels: 1"));
        // Ordering: Relaxed, as above.
        serves.store(false, Ordering::Relaxed);
        let dials = fake.count("PING");
        fake.cut();
        fake.until("PING", dials + 1).await;
        assert!(!registry.transport().is_active("left"));
        drop(left);
        // Ordering: Relaxed, as above.
        serves.store(true, Ordering::Relaxed);
        let next = registry.subscribe("next");
        timeout(EVENT_LIMIT, next.subscribed()).await.expect("it is not confirmed").unwrap();
        assert_eq!(fake.count("SUBSCRIBE left"), 1);
    }

    fn channels() -> Arc<ChannelTable> {
        Arc::new(ChannelTable::new(Some(0)))
    }

    fn leave(channels: &Arc<ChannelTable>, channel: &str) {
        let _interest = Registry::new(Arc::clone(channels)).subscribe(channel);
        channels.confirm(channel, Some(0));
    }

    #[tokio::test]
    async fn channel_is_given_up_after_its_linger_and_then_the_sweep_ends() {
        let (linger, channels, runtime) = (Duration::from_millis(30), channels(), TokioRuntime::current());
        let (changed, mut changes) = mpsc::unbounded_channel();
        let left = runtime.now();
        leave(&channels, "orders");
        let sweep = tokio::spawn(sweep(channels, changed.downgrade(), linger, runtime.clone()));
        let given_up = timeout(EVENT_LIMIT, changes.recv()).await.expect("it lingers still");
        assert_eq!(given_up.as_deref(), Some("orders"));
        assert!(runtime.now() - left >= linger);
        timeout(EVENT_LIMIT, sweep).await.expect("nothing lingers").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn channel_lingers_for_half_as_long_again_at_most() {
        let (linger, channels, runtime) = (Duration::from_secs(1), channels(), TokioRuntime::current());
        let (changed, mut changes) = mpsc::unbounded_channel();
        leave(&channels, "0");
        let mut left = HashMap::from([("0".to_owned(), runtime.now())]);
        let begun = runtime.now();
        tokio::spawn(sweep(Arc::clone(&channels), changed.downgrade(), linger, runtime.clone()));
        for tenths in [1, 4, 6, 9] {
            runtime.sleep_until(begun + linger * tenths / 10).await;
            leave(&channels, &tenths.to_string());
            left.insert(tenths.to_string(), runtime.now());
        }
        while !left.is_empty() {
            let channel = timeout(EVENT_LIMIT, changes.recv()).await.expect("it lingers still").unwrap();
            let lingered = runtime.now() - left.remove(&*channel).expect("it is given up once");
            assert!((linger..=linger * 3 / 2).contains(&lingered), "{channel}: {lingered:?}");
        }
    }

    #[tokio::test]
    async fn transport_ends_at_once_though_a_channel_lingers() {
        let channels = channels();
        let (changed, mut changes) = mpsc::unbounded_channel();
        leave(&channels, "orders");
        let sweep =
            tokio::spawn(sweep(channels, changed.downgrade(), EVENT_LIMIT * 100, TokioRuntime::current()));
        tokio::task::yield_now().await;
        assert!(!sweep.is_finished(), "expected the sweep to wait for the lingering channel");
        drop(changed);
        assert_eq!(timeout(EVENT_LIMIT, changes.recv()).await, Ok(None));
    }
}
