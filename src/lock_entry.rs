//! [`LockEntry`]: what all who wait for one name in this process share.

mod listener;
mod readiness;

use std::fmt;
use std::sync::Arc;

use crate::latch::Latch;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::transport::{Message, SubscribeError};

pub use self::listener::Listener;
use self::readiness::Readiness;

/// What all who wait for one channel in this process share: how many they are, whether the subscription stands, and the
/// latch they sleep on.
///
/// ```text
/// created by the first subscriber ─► subscribing ─► ready ─► removed when the last subscriber leaves
///                                        └────────► failed ─► removed likewise; a newcomer starts a fresh entry
/// ```
///
/// An entry is reached through a [`Subscription`](crate::Subscription), which is one unit of its interest count.
pub struct LockEntry {
    channel: Arc<str>,
    /// Subscriptions alive. Goes from 0 to 1, and from 1 to 0, only under the channel's stripe.
    interest: AtomicUsize,
    readiness: Readiness,
    latch: Latch,
}

impl LockEntry {
    /// An entry with one unit of interest, its maker's.
    pub(crate) fn new(channel: Arc<str>) -> Self {
        Self { channel, interest: AtomicUsize::new(1), readiness: Readiness::new(), latch: Latch::new() }
    }

    /// The channel whose messages come here.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    pub(crate) fn shared_channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// How many are interested: the number of subscriptions alive.
    pub fn acquired(&self) -> usize {
        // Ordering: Relaxed, a figure to look at. Whoever acts on it holds the channel's stripe, which orders it.
        self.interest.load(Ordering::Relaxed)
    }

    /// Adds one unit of interest. The caller holds a unit, or the channel's stripe.
    pub(crate) fn acquire(&self) {
        // Ordering: Relaxed. The unit, or the stripe, that the caller holds keeps the entry from being removed meanwhile;
        // as with Arc's count, nothing is read through this.
        self.interest.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives up one unit of interest if it is not the last one. Needs no stripe.
    pub(crate) fn release_unless_last(&self) -> bool {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut interest = self.interest.load(Ordering::Relaxed);
        while interest > 1 {
            // Ordering: Relaxed, as in `acquire`: only the step to zero means anything, and that takes the stripe.
            let step = self.interest.compare_exchange_weak(
                interest,
                interest - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match step {
                Ok(_) => return true,
                Err(now) => interest = now,
            }
        }
        false
    }

    /// Gives up one unit of interest under the channel's stripe. True if it was the last.
    pub(crate) fn release(&self) -> bool {
        // Ordering: Relaxed. Others may leave, or join by cloning, at the same time, and the count orders those steps by
        // itself; nobody can join an entry at zero, since that takes the stripe which the caller holds.
        self.interest.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Where to sleep until a message comes.
    pub fn latch(&self) -> &Latch {
        &self.latch
    }

    /// Waits until messages published from now on will arrive.
    ///
    /// Every waiter waits for itself, under whatever limit it sets; one that gives up takes nothing from the others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`SubscribeError`] if the transport could not subscribe.
    pub async fn subscribed(&self) -> Result<(), SubscribeError> {
        self.readiness.wait().await
    }

    /// Calls `callback` once, when the first message comes that no earlier waiter takes.
    ///
    /// Callbacks stand in one line with those who sleep on the [`latch`](Self::latch): one `Unlock` calls one of them, and a
    /// message that came before is kept for it (then the callback runs before `listen` returns). It runs on whatever thread
    /// delivers the message, so it must be short and must not block. Dropping the [`Listener`] takes it out of the line.
    pub fn listen(&self, callback: impl FnOnce() + Send + 'static) -> Listener {
        Listener::new(&self.latch, Box::new(callback))
    }

    /// Why the subscription cannot be had, if it cannot.
    pub fn failure(&self) -> Option<SubscribeError> {
        self.readiness.failure()
    }

    pub(crate) fn ready(&self) {
        self.readiness.ready();
    }

    pub(crate) fn failed(&self, error: SubscribeError) {
        self.readiness.failed(error);
        // Those who were ready, and sleep on the latch, must learn it too.
        self.wake_all();
    }

    pub(crate) fn deliver(&self, message: Message) {
        match message {
            Message::Unlock => self.latch.release(1),
            Message::ReadUnlock => self.wake_all(),
        }
    }

    /// Calls everyone who is interested. Some may be busy trying and not asleep yet: for them the call is kept, which is why
    /// this counts the interested and not the sleepers.
    pub(crate) fn wake_all(&self) {
        self.latch.release(self.acquired());
    }
}

impl fmt::Debug for LockEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEntry")
            .field("channel", &self.channel)
            .field("interest", &self.acquired())
            .field("readiness", &self.readiness)
            .field("latch", &self.latch)
            .finish()
    }
}
