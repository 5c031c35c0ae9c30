//! [`Registry`]: one subscription per channel and process, however many wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::lock_entry::LockEntry;
use crate::semaphore::SemaphorePermit;
use crate::striped::StripedSemaphores;
use crate::sync::Mutex;
use crate::transport::{Inbox, Transport};

/// Keeps one subscription per channel, shared by all who are interested: the first one in subscribes, the last one out
/// unsubscribes.
///
/// # How it keeps order
///
/// Three things must not come apart: the interest count reaching zero (or leaving it), the entry's coming into (or going
/// out of) the map, and the call to the transport. They happen together under the channel's *stripe*, one of
/// [`StripedSemaphores`]. Nothing is awaited and no foreign future polled while a stripe is held: the transport only begins
/// its work, and the confirmation is awaited by each waiter on the entry. So a slow, failing or cancelled subscription
/// delays nobody on an unrelated channel of the same stripe, and a stripe is taken by a thread for some hundred nanoseconds
/// at most, which is why it may be taken in `Drop` as well.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::sync::{Arc, Mutex};
/// use latchwork::{Inbox, Message, Registry, Transport};
///
/// /// Brings messages from nowhere; a real one would talk to a server.
/// #[derive(Clone, Default)]
/// struct Loopback(Arc<Mutex<Option<Inbox>>>);
///
/// impl Transport for Loopback {
///     fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
///         inbox.ready();
///         *self.0.lock().unwrap() = Some(inbox);
///     }
///     fn unsubscribe(&self, _channel: &Arc<str>) {
///         *self.0.lock().unwrap() = None;
///     }
/// }
///
/// let transport = Loopback::default();
/// let registry = Registry::new(transport.clone());
/// let subscription = registry.subscribe("news");
/// subscription.subscribed().await?;
/// // … look whether there is something to do; if not, sleep until a message comes …
/// transport.0.lock().unwrap().as_ref().unwrap().deliver(Message::Unlock);
/// subscription.latch().wait().await.consume();
///
/// drop(subscription);
/// assert!(transport.0.lock().unwrap().is_none(), "the last one out unsubscribed");
/// # Ok::<(), latchwork::SubscribeError>(()) }).unwrap();
/// ```
pub struct Registry<T: Transport> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    transport: T,
    stripes: StripedSemaphores,
    /// Never locked while the transport is called, nor while anything foreign runs.
    entries: Mutex<HashMap<Arc<str>, Arc<LockEntry>>>,
}

impl<T: Transport> Registry<T> {
    /// Makes an empty registry over `transport`.
    pub fn new(transport: T) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport,
                stripes: StripedSemaphores::new(),
                entries: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// Joins the entry of `channel`, subscribing if nobody has yet.
    ///
    /// Returns at once. Await [`LockEntry::subscribed`] before relying on messages.
    pub fn subscribe(&self, channel: &str) -> Subscription<T> {
        let shared = Arc::clone(&self.shared);
        let stripe = shared.stripe(channel);
        let (entry, first) = {
            let mut entries = shared.entries.lock();
            match entries.get(channel) {
                // A failed entry is only good for telling those who are in it.
                Some(entry) if entry.failure().is_none() => {
                    entry.acquire();
                    (Arc::clone(entry), false)
                }
                _ => {
                    let entry = Arc::new(LockEntry::new(Arc::from(channel)));
                    entries.insert(Arc::clone(entry.shared_channel()), Arc::clone(&entry));
                    (entry, true)
                }
            }
        };
        if first {
            shared.transport.subscribe(entry.shared_channel(), Inbox::new(Arc::clone(&entry)));
        }
        drop(stripe);
        Subscription { shared, entry }
    }

    /// The transport that was given to [`new`](Self::new).
    pub fn transport(&self) -> &T {
        &self.shared.transport
    }

    /// Channels that somebody is interested in now.
    pub fn len(&self) -> usize {
        self.shared.entries.lock().len()
    }

    /// Whether nobody is interested in anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Transport> Clone for Registry<T> {
    /// Another handle to the same registry.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Shared<T> {
    fn stripe(&self, channel: &str) -> SemaphorePermit<'_> {
        // Blocking, not awaiting: a future that was handed the stripe and is not polled would keep it from a fiftieth of
        // all names. Whoever holds it is a running thread that is about to let go.
        self.stripes.for_name(channel).blocking_acquire().expect("stripes are never closed")
    }
}

/// One unit of interest in a channel. Dereferences to the [`LockEntry`] that all its subscribers share; dropping the last
/// one unsubscribes.
#[must_use = "dropping a subscription gives it up"]
pub struct Subscription<T: Transport> {
    shared: Arc<Shared<T>>,
    entry: Arc<LockEntry>,
}

impl<T: Transport> Deref for Subscription<T> {
    type Target = LockEntry;

    fn deref(&self) -> &LockEntry {
        &self.entry
    }
}

impl<T: Transport> Clone for Subscription<T> {
    fn clone(&self) -> Self {
        self.entry.acquire();
        Self { shared: Arc::clone(&self.shared), entry: Arc::clone(&self.entry) }
    }
}

impl<T: Transport> Drop for Subscription<T> {
    fn drop(&mut self) {
        if self.entry.release_unless_last() {
            return;
        }
        let channel = self.entry.shared_channel();
        let _stripe = self.shared.stripe(channel);
        if !self.entry.release() {
            // Somebody joined before we had the stripe.
            return;
        }
        let ours = {
            let mut entries = self.shared.entries.lock();
            match entries.entry(Arc::clone(channel)) {
                Entry::Occupied(found) if Arc::ptr_eq(found.get(), &self.entry) => {
                    found.remove();
                    true
                }
                // Ours had failed and a newcomer put a fresh one in its place: that one is not for us to touch.
                _ => false,
            }
        };
        // A failed subscription has left nothing behind that could be unsubscribed (the transport's contract).
        if ours && self.entry.failure().is_none() {
            self.shared.transport.unsubscribe(channel);
        }
    }
}

impl<T: Transport> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.entry).finish()
    }
}

impl<T: Transport> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("entries", &self.shared.entries.lock().values())
            .field("stripes", &self.shared.stripes)
            .finish()
    }
}
