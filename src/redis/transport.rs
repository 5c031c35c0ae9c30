//! [`RedisTransport`]: channels as they should be, and the request to bring the server into line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Msg, PushInfo, PushKind};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::runtime::Runtime;
use crate::transport::{Inbox, Message, Transport};

#[cfg(feature = "cluster")]
use super::cluster::{self, Nodes};
use super::keys;
use super::subscriptions::{self, Source};
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;
use super::wanted::{Left, Wanted};

/// Redis's publish/subscribe, over one connection that is made again whenever it breaks.
///
/// Messages published while there is no connection are lost; every inbox is told once it is back.
pub struct RedisTransport {
    wanted: Arc<Wanted>,
    /// Names a channel whose state may differ from what is wanted. What is to be done about it is looked up when the
    /// request is served, so old requests cannot undo newer ones.
    changed: mpsc::UnboundedSender<Arc<str>>,
    linger: Duration,
    runtime: Handle,
}

/// Channels whose state may differ from what is wanted.
pub(super) type Changes = mpsc::UnboundedReceiver<Arc<str>>;

impl RedisTransport {
    pub(super) fn start(source: Source, timeouts: Timeouts, runtime: &TokioRuntime) -> Self {
        let (this, changes) = Self::new(timeouts, runtime);
        runtime.spawn(subscriptions::supervise(source, timeouts, Arc::clone(&this.wanted), changes));
        this
    }

    /// Sharded messages, each from the node that has its channel's slot.
    #[cfg(feature = "cluster")]
    pub(super) fn start_sharded(nodes: Arc<Nodes>, timeouts: Timeouts, runtime: &TokioRuntime) -> Self {
        let (this, changes) = Self::new(timeouts, runtime);
        runtime.spawn(cluster::supervise_sharded(nodes, timeouts, Arc::clone(&this.wanted), changes));
        this
    }

    fn new(timeouts: Timeouts, runtime: &TokioRuntime) -> (Self, Changes) {
        let (changed, changes) = mpsc::unbounded_channel();
        let (linger, runtime) = (timeouts.linger, runtime.handle.clone());
        (Self { wanted: Arc::default(), changed, linger, runtime }, changes)
    }

    fn change(&self, channel: &Arc<str>) {
        // Fails only when the runtime has ended. Then no message will come, and waiting goes by the timer.
        let _ = self.changed.send(Arc::clone(channel));
    }
}

impl Transport for RedisTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        if !self.wanted.add(channel, inbox) {
            self.change(channel);
        }
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        match self.wanted.leave(channel) {
            Left::Gone => self.change(channel),
            Left::Lingers => {}
            Left::LingersFirst => {
                let (wanted, changed) = (Arc::clone(&self.wanted), self.changed.downgrade());
                self.runtime.spawn(sweep(wanted, changed, self.linger));
            }
        }
    }

    fn stands(&self, channel: &str) -> bool {
        self.wanted.stands(channel)
    }
}

/// Gives up what has lingered for long enough, until nothing lingers.
async fn sweep(wanted: Arc<Wanted>, changed: mpsc::WeakUnboundedSender<Arc<str>>, linger: Duration) {
    loop {
        let (over, more) = wanted.take_left(linger);
        // Without the transport all subscriptions end.
        let Some(changed) = changed.upgrade() else { return };
        over.into_iter().for_each(|channel| _ = changed.send(channel));
        drop(changed);
        if !more {
            return;
        }
        // Not at the very end of each: looking takes time in proportion to all channels.
        sleep(linger / 2).await;
    }
}

/// Hands a message to the inbox of its channel. Runs on the connection's task.
pub(super) fn dispatch(wanted: &Wanted, push: PushInfo) {
    if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        return;
    }
    let Some(message) = Msg::from_push_info(push) else { return };
    let unlock = match message.get_payload_bytes() {
        payload if payload == keys::UNLOCK_MESSAGE.as_bytes() => Message::Unlock,
        payload if payload == keys::READ_UNLOCK_MESSAGE.as_bytes() => Message::ReadUnlock,
        // Not of the lock's: somebody else uses the channel.
        _ => return,
    };
    if let Some(inbox) = wanted.inbox(message.get_channel_name()) {
        inbox.deliver(unlock);
    }
}

impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTransport").field("channels", &self.wanted.len()).finish_non_exhaustive()
    }
}
