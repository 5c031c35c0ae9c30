//! [`RedisTransport`]: channels as they should be, and the request to bring the server into line.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ::redis::{Msg, PushInfo, PushKind};
use tokio::sync::mpsc;

use crate::runtime::Runtime;
use crate::sync::Mutex;
use crate::transport::{Inbox, Message, Transport};

#[cfg(feature = "cluster")]
use super::cluster::{self, Nodes};
use super::keys;
use super::subscriptions::{self, Source};
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;

/// Redis's publish/subscribe, over one connection that is made again whenever it breaks.
///
/// Messages published while there is no connection are lost; every inbox is told once it is back.
pub struct RedisTransport {
    wanted: Arc<Wanted>,
    /// Names a channel whose state may differ from what is wanted. What is to be done about it is looked up when the
    /// request is served, so old requests cannot undo newer ones.
    changed: mpsc::UnboundedSender<Arc<str>>,
}

/// The channels that somebody wants, and where their messages go.
pub(super) type Wanted = Mutex<HashMap<Arc<str>, Inbox>>;
/// Channels whose state may differ from what is wanted.
pub(super) type Changes = mpsc::UnboundedReceiver<Arc<str>>;

impl RedisTransport {
    pub(super) fn start(source: Source, timeouts: Timeouts, runtime: &TokioRuntime) -> Self {
        let (this, changes) = Self::new();
        runtime.spawn(subscriptions::supervise(source, timeouts, Arc::clone(&this.wanted), changes));
        this
    }

    /// Sharded messages, each from the node that has its channel's slot.
    #[cfg(feature = "cluster")]
    pub(super) fn start_sharded(nodes: Arc<Nodes>, timeouts: Timeouts, runtime: &TokioRuntime) -> Self {
        let (this, changes) = Self::new();
        runtime.spawn(cluster::supervise_sharded(nodes, timeouts, Arc::clone(&this.wanted), changes));
        this
    }

    fn new() -> (Self, Changes) {
        let (changed, changes) = mpsc::unbounded_channel();
        (Self { wanted: Arc::default(), changed }, changes)
    }
}

impl Transport for RedisTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let _old = self.wanted.lock().insert(Arc::clone(channel), inbox);
        // Fails only when the runtime has ended. Then no message will come, and waiting goes by the timer.
        let _ = self.changed.send(Arc::clone(channel));
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let _old = self.wanted.lock().remove(channel);
        let _ = self.changed.send(Arc::clone(channel));
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
    // Cloned out, because delivering wakes tasks, and a waker is foreign code.
    let inbox = wanted.lock().get(message.get_channel_name()).cloned();
    if let Some(inbox) = inbox {
        inbox.deliver(unlock);
    }
}

impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTransport").field("channels", &self.wanted.lock().len()).finish_non_exhaustive()
    }
}
