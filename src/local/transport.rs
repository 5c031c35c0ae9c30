//! [`LocalTransport`]: messages from one part of this process to another.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::sync::Mutex;
use crate::transport::{Inbox, Message, Transport};

/// Delivers in the thread that publishes, before [`publish`](Self::publish) returns. Loses, repeats and reorders nothing.
#[derive(Default)]
pub struct LocalTransport {
    inboxes: Mutex<HashMap<Arc<str>, Inbox>>,
}

impl LocalTransport {
    /// Delivers `message` to whoever is subscribed to `channel`.
    pub fn publish(&self, channel: &str, message: Message) {
        // Cloned out, because delivering wakes tasks, and a waker may come back here.
        let inbox = self.inboxes.lock().get(channel).cloned();
        if let Some(inbox) = inbox {
            inbox.deliver(message);
        }
    }
}

impl Transport for LocalTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        self.inboxes.lock().insert(Arc::clone(channel), inbox.clone());
        inbox.ready();
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let _inbox = self.inboxes.lock().remove(channel);
    }
}

impl fmt::Debug for LocalTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTransport").field("channels", &self.inboxes.lock().len()).finish()
    }
}
