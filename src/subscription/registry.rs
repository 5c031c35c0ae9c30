//! [`Registry`]: one subscription per channel and process, however many tasks wait.

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hashbrown::HashTable;

use crate::latch::{Broadcasts, Notification};
use crate::semaphore::block_on_timeout;
use crate::striped::StripedSemaphores;
use crate::subscription::channel::{ChannelEntry, Figures, Listener};
use crate::subscription::transport::{Inbox, SubscribeError, Transport};
use crate::support::fault::fault;
use crate::support::foreign;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU64, Ordering};

/// Keeps one subscription per channel: the first user subscribes, the last one to leave unsubscribes.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// let subscription = registry.subscribe("news");
/// subscription.subscribed().await?;
/// // … look for work; without any, sleep until a message comes …
/// registry.transport().publish("news", Message::Unlock);
/// subscription.wait().await.consume();
///
/// drop(subscription); // the channel's last: unsubscribes
/// assert!(registry.is_empty());
/// # Ok::<(), latchwork::subscription::SubscribeError>(()) }).unwrap();
/// ```
///
/// # How it keeps order
///
/// The registry calls the transport for one channel in the order in which the channel's entries enter and
/// leave the map: each entering or leaving, together with its call, happens under the channel's *stripe*, one
/// of [`StripedSemaphores`]. Joining an entry takes no stripe: the interest count reaches zero, and the entry
/// leaves the map, in one step under the map's mutex.
///
/// While a stripe is held, no task awaits: each waiter awaits the confirmation on the entry. So no slow
/// subscription delays another channel, and a stripe is held for some hundred nanoseconds, also in `Drop`.
pub struct Registry<T: Transport + ?Sized> {
    shared: Arc<Shared<T>>,
}

struct Shared<T: ?Sized> {
    stripes: StripedSemaphores,
    /// Entries under their channels' hashes. Never locked during foreign code.
    entries: Mutex<HashTable<Arc<ChannelEntry>>>,
    figures: Arc<Figures>,
    /// Last field, for type erasure.
    transport: T,
}

impl<T: Transport> Registry<T> {
    /// Makes an empty registry over `transport`.
    pub fn new(transport: T) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport,
                stripes: StripedSemaphores::new(),
                entries: Mutex::new(HashTable::new()),
                figures: Arc::default(),
            }),
        }
    }

    /// Returns the same registry, without the type of its transport.
    pub fn erased(&self) -> Registry<dyn Transport> {
        Registry { shared: Arc::clone(&self.shared) as Arc<Shared<dyn Transport>> }
    }
}

impl<T: Transport + ?Sized> Registry<T> {
    /// Joins the entry of `channel`, and subscribes if the entry is new. Await [`ChannelEntry::subscribed`]
    /// before relying on messages. A panic of [`Transport::subscribe`] is
    /// [reported](crate::on_foreign_panic), and fails the subscription.
    pub fn subscribe(&self, channel: &str) -> Subscription<T> {
        let shared = &self.shared;
        let hash = shared.stripes.hash(channel);
        if let Some(entry) = shared.join(channel, hash) {
            return Subscription::new(shared, entry);
        }
        // A transport may confirm at once: the waiters' wakers are called after the stripe is released.
        foreign::wake_after(|| {
            let _stripe =
                (!fault!(FoundsWithoutStripe)).then(|| shared.stripes.for_hash(hash).blocking_acquire());
            // Another caller may have had the stripe before us.
            if let Some(entry) = shared.join(channel, hash)
                && !fault!(NoLookWhoFounded)
            {
                return Subscription::new(shared, entry);
            }
            let entry = shared.create_entry(channel, hash);
            let inbox = Inbox::new(Arc::clone(&entry));
            let subscribe = || shared.transport.subscribe(&entry.channel, inbox);
            if foreign::call("a transport", subscribe).is_none() {
                entry.failed(SubscribeError::new("the transport has panicked"));
            }
            Subscription::new(shared, entry)
        })
    }

    /// Joins the entry of `channel` if the channel has subscribers already, and does nothing otherwise.
    pub fn join(&self, channel: &str) -> Option<Subscription<T>> {
        let entry = self.shared.join(channel, self.shared.stripes.hash(channel))?;
        Some(Subscription::new(&self.shared, entry))
    }

    /// Returns the transport that was given to [`new`](Self::new).
    pub fn transport(&self) -> &T {
        &self.shared.transport
    }

    /// Returns the count of channels with subscribers.
    pub fn len(&self) -> usize {
        self.shared.entries.lock().len()
    }

    /// True if no channel has users.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot of the registry's counters, at a cost that does not depend on the count of entries.
    pub fn stats(&self) -> RegistryStats {
        let figures = &self.shared.figures;
        // Read first, for ended ≤ begun in the snapshot.
        let (ended, failed) = (figures.ended.get(), figures.failed.get());
        RegistryStats {
            subscriptions_begun: figures.begun.get(),
            subscriptions_ended: ended,
            subscriptions_failed: failed,
            resubscriptions: figures.resubscribed.get(),
            entries: self.len() as u64,
            interest: figures.interest.get(),
            unlock_messages: figures.unlocks.get(),
            read_unlock_messages: figures.read_unlocks.get(),
            grant_messages: figures.grants.get(),
            wakes_useful: figures.notifications.useful.get(),
            wakes_spurious: figures.notifications.spurious.get(),
        }
    }
}

impl<T: Transport + ?Sized> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: ?Sized> Shared<T> {
    /// Adds a unit of interest to the entry of `channel`, unless there is none or the entry has failed.
    fn join(&self, channel: &str, hash: u64) -> Option<Arc<ChannelEntry>> {
        let entries = self.entries.lock();
        let entry = entries.find(hash, |entry| entry.channel() == channel)?;
        if entry.failure().is_some() && !fault!(JoinsTheFailed) {
            return None;
        }
        entry.add_interest();
        Some(Arc::clone(entry))
    }

    /// Adds an entry with a unit of interest, in place of a failed one. The caller holds the stripe.
    fn create_entry(&self, channel: &str, hash: u64) -> Arc<ChannelEntry> {
        let entry = Arc::new(ChannelEntry::new(Arc::from(channel), hash, Arc::clone(&self.figures)));
        let fresh = Arc::clone(&entry);
        let mut entries = self.entries.lock();
        // A failed entry's subscriptions keep it alive.
        entries.entry(hash, |entry| entry.channel() == channel, |entry| entry.hash).insert(fresh);
        entry
    }

    /// Gives up a unit of interest, under the stripe. True if it was the last: the entry is out of the map.
    fn leave(&self, entry: &Arc<ChannelEntry>) -> bool {
        // Locked before the count is lowered, as any entry in the map can be joined.
        let mut entries = self.entries.lock();
        if !entry.drop_interest() && !fault!(NoLookWhoJoined) {
            return false;
        }
        // A newcomer may have replaced a failed entry: the fresh entry must stay.
        let is_ours = |found: &_| Arc::ptr_eq(found, entry) || fault!(AnyEntryIsOurs);
        if let Ok(ours) = entries.find_entry(entry.hash, is_ours) {
            ours.remove();
        }
        if entries.capacity() > FEW && entries.len() < entries.capacity() / 8 {
            let room = entries.len() * 2;
            entries.shrink_to(room, |entry| entry.hash);
        }
        true
    }
}

/// Largest capacity at which the map is never shrunk.
const FEW: usize = 64;

/// One unit of interest in a channel. Dereferences to the [`ChannelEntry`] that all its subscribers share;
/// dropping the last subscription unsubscribes.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::Registry;
/// let registry = Registry::new(LocalTransport::default());
/// let one = registry.subscribe("orders");
/// let other = one.clone();
/// assert_eq!(other.interest(), 2);
/// drop((one, other)); // the last one unsubscribes
/// assert!(registry.is_empty());
/// ```
#[must_use = "dropping a subscription gives it up"]
pub struct Subscription<T: Transport + ?Sized> {
    shared: Arc<Shared<T>>,
    entry: Arc<ChannelEntry>,
    /// Count of the entry's messages for all at the last consumed notification; at first, when joining.
    heard: AtomicU64,
}

impl<T: Transport + ?Sized> Subscription<T> {
    fn new(shared: &Arc<Shared<T>>, entry: Arc<ChannelEntry>) -> Self {
        let heard = AtomicU64::new(entry.broadcasts());
        Self { shared: Arc::clone(shared), entry, heard }
    }

    /// Waits for a [`Message`](crate::subscription::Message) for one of the waiters of all subscriptions, or
    /// for an event for all: a `ReadUnlock`, a failure, or messages that arrive again. An event for all wakes
    /// the next wait of each subscription, also of a subscription that did not wait when the event came.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or its notification unconsumed, loses nothing: a message for one passes to the
    /// next waiter, and an event for all wakes this subscription's next wait.
    ///
    /// # Fairness
    ///
    /// Messages for one go to the waiters in the order of their first polls.
    pub async fn wait(&self) -> Notification<'_> {
        let mut notified = pin!(self.entry.latch().wait());
        poll_fn(|context| {
            if fault!(LooksBeforeQueueing)
                && let Some(unheard) = self.unheard()
            {
                return Poll::Ready(unheard);
            }
            if let Poll::Ready(notification) = notified.as_mut().poll(context) {
                return Poll::Ready(notification.with_broadcasts(self.broadcasts()));
            }
            // In the queue by now, so that `wake_all` finds this waiter, or this waiter finds the event.
            match self.unheard() {
                Some(unheard) if !fault!(LooksBeforeQueueing) => Poll::Ready(unheard),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Waits as [`wait`](Self::wait) does, and blocks this thread. `None` after `timeout`.
    pub fn blocking_wait_timeout(&self, timeout: Duration) -> Option<Notification<'_>> {
        block_on_timeout(pin!(self.wait()), timeout)
    }

    /// Takes a message for which [`wait`](Self::wait) would not wait, if there is one.
    pub fn try_wait(&self) -> Option<Notification<'_>> {
        let notification = self.entry.latch().try_wait();
        notification.map(|it| it.with_broadcasts(self.broadcasts())).or_else(|| self.unheard())
    }

    /// Calls `callback` once, for the first message that [`wait`](Self::wait) would return for.
    ///
    /// Callbacks share one queue with the tasks that wait: an `Unlock` runs or wakes one of them, a
    /// `ReadUnlock` all. A message that came before runs the callback before `listen` returns, or after the
    /// outer call, inside of a waker or another callback. The callback runs on the thread that delivers the
    /// message: keep it short, and do not block. A panic is [reported](crate::on_foreign_panic). Dropping the
    /// [`Listener`] takes the callback out of the queue in one step, however long the queue is.
    ///
    /// Without a living subscription no message comes.
    pub fn listen(&self, callback: impl FnOnce() + Send + 'static) -> Listener {
        let early = fault!(LooksBeforeQueueing).then(|| self.entry.broadcasts());
        let listener = Listener::new(self.entry.latch(), Box::new(callback));
        // In the queue by now, as in `wait`.
        let count = early.unwrap_or_else(|| self.entry.broadcasts());
        // Ordering: Relaxed, as in `unheard`.
        if self.heard.load(Ordering::Relaxed) < count && listener.call() {
            // Ordering: Relaxed, as above.
            self.heard.fetch_max(count, Ordering::Relaxed);
        }
        listener
    }

    fn broadcasts(&self) -> Broadcasts<'_> {
        Broadcasts { heard: &self.heard, count: self.entry.broadcasts() }
    }

    fn unheard(&self) -> Option<Notification<'_>> {
        let broadcasts = self.broadcasts();
        // Ordering: Relaxed. A waiter that reads an older count wakes once more.
        let is_unheard = self.heard.load(Ordering::Relaxed) < broadcasts.count;
        is_unheard.then(|| Notification::of_broadcasts(self.entry.latch(), broadcasts))
    }
}

impl<T: Transport + ?Sized> Deref for Subscription<T> {
    type Target = ChannelEntry;

    fn deref(&self) -> &ChannelEntry {
        &self.entry
    }
}

impl<T: Transport + ?Sized> Clone for Subscription<T> {
    fn clone(&self) -> Self {
        self.entry.add_interest();
        Self::new(&self.shared, Arc::clone(&self.entry))
    }
}

impl<T: Transport + ?Sized> Drop for Subscription<T> {
    fn drop(&mut self) {
        if self.entry.drop_interest_unless_last() {
            return;
        }
        foreign::wake_after(|| {
            let mut stripe = Some(self.shared.stripes.for_hash(self.entry.hash).blocking_acquire());
            // Another caller may have joined meanwhile. A failed subscription has nothing left to end.
            if self.shared.leave(&self.entry) && (self.entry.end() || fault!(UnsubscribesTheFailed)) {
                if fault!(UnsubscribesWithoutStripe) {
                    stripe.take();
                }
                let unsubscribe = || self.shared.transport.unsubscribe(&self.entry.channel);
                foreign::call("a transport", unsubscribe);
            }
        });
    }
}

impl<T: Transport + ?Sized> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.entry).finish()
    }
}

impl<T: Transport + ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A count: thousands of entries would fill pages, and an entry's `Debug` output is foreign code.
        f.debug_struct("Registry").field("channels", &self.len()).finish_non_exhaustive()
    }
}

/// Snapshot of a [`Registry`](crate::subscription::Registry)'s counters since its creation. The counters are
/// read one by one, so they add up only while no other thread counts.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// let subscription = registry.subscribe("orders");
/// registry.transport().publish("orders", Message::Unlock);
/// subscription.try_wait().expect("a message came").consume();
/// let stats = registry.stats();
/// assert_eq!((stats.interest, stats.unlock_messages, stats.wakes_useful), (1, 1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// Subscriptions begun at the transport: ended, failed or standing now.
    pub subscriptions_begun: u64,
    /// Subscriptions ended at the transport, after the last user had left.
    pub subscriptions_ended: u64,
    /// Subscriptions that failed, or were lost for good.
    pub subscriptions_failed: u64,
    /// Times that messages of a channel arrived again, after some may have been lost.
    pub resubscriptions: u64,
    /// Channels with users now, also those whose subscription has failed.
    pub entries: u64,
    /// [`Subscription`]s alive now.
    pub interest: u64,
    /// [`Unlock`](crate::subscription::Message::Unlock)s received.
    pub unlock_messages: u64,
    /// [`ReadUnlock`](crate::subscription::Message::ReadUnlock)s received.
    pub read_unlock_messages: u64,
    /// [`Granted`](crate::subscription::Message::Granted)s received.
    pub grant_messages: u64,
    /// Useful wake-ups: [consumed](crate::latch::Notification::consume) notifications, and run callbacks. A
    /// notification counts once, however often it was passed on before.
    pub wakes_useful: u64,
    /// Spurious wake-ups: notifications [consumed as such](crate::latch::Notification::consume_spurious), as
    /// by a waiter that finds the lock still held.
    pub wakes_spurious: u64,
}
