//! [`ChannelEntry`]: what all subscribers of one channel in this process share.

mod listener;
mod readiness;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::latch::{Latch, NotificationFigures};
use crate::semaphore::{block_on, block_on_until};
use crate::subscription::message::{Message, SubscribeError};
use crate::support::counter::Counter;
use crate::support::fault::fault;
use crate::support::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::support::unless::unless;

pub use self::listener::Listener;
use self::readiness::Readiness;

/// What happens to all entries of one registry; shared by the two. See
/// [`RegistryStats`](crate::subscription::RegistryStats) for what the figures mean.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) begun: Counter,
    pub(crate) ended: Counter,
    pub(crate) failed: Counter,
    pub(crate) resubscribed: Counter,
    pub(crate) interest: Counter,
    pub(crate) unlocks: Counter,
    pub(crate) read_unlocks: Counter,
    pub(crate) grants: Counter,
    pub(crate) notifications: Arc<NotificationFigures>,
}

/// What all subscribers of one channel in this process share: their number, whether the subscription stands,
/// and the latch that a message releases.
///
/// ```text
/// created by the first subscriber ─► subscribing ─► ready ─► removed when the last subscriber leaves
///                                        └───────────┴────► failed ─► removed likewise; a newcomer
///                                                                      starts a fresh entry
/// ```
///
/// An entry is reached through a [`Subscription`](crate::subscription::Subscription), which is one unit of
/// its interest count.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
///
/// let registry = Registry::new(LocalTransport::default());
/// let subscriptions = [registry.subscribe("orders"), registry.subscribe("orders")];
/// let entry = &*subscriptions[0];
/// assert_eq!((entry.channel(), entry.interest(), entry.is_ready()), ("orders", 2, true));
/// registry.transport().publish("orders", Message::Unlock);
/// assert_eq!(subscriptions[1].latch().pending(), 1); // there is one latch for both
/// ```
pub struct ChannelEntry {
    pub(crate) channel: Arc<str>,
    /// Of the channel, by the registry's hasher: kept, so that leaving and a growing map need not hash again.
    pub(crate) hash: u64,
    /// Subscriptions alive. Comes to 0 only under the channel's stripe and with the registry's map locked,
    /// and is out of the map then.
    interest: AtomicUsize,
    /// Of those, the ones whose waiter is in the latch's queue, as far as that is known.
    asleep: AtomicUsize,
    readiness: Readiness,
    latch: Latch,
    /// The highest number of [`Message::Granted`].
    granted: AtomicU64,
    figures: Arc<Figures>,
}

impl ChannelEntry {
    /// An entry with one unit of interest, its maker's.
    pub(crate) fn new(channel: Arc<str>, hash: u64, figures: Arc<Figures>) -> Self {
        figures.begun.add_one();
        figures.interest.add_one();
        let latch = Latch::counting(Arc::clone(&figures.notifications));
        let (interest, asleep, granted) = (AtomicUsize::new(1), AtomicUsize::new(0), AtomicU64::new(0));
        Self { channel, hash, interest, asleep, readiness: Readiness::new(), latch, granted, figures }
    }

    /// The channel whose messages come here.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// How many are interested: the number of subscriptions alive.
    #[doc(alias = "acquired")]
    pub fn interest(&self) -> usize {
        // Ordering: Relaxed, a figure to look at: others may come and leave at any time.
        self.interest.load(Ordering::Relaxed)
    }

    /// Adds one unit of interest. The caller holds a unit, or has found the entry in the registry's map and
    /// holds that locked.
    pub(crate) fn add_interest(&self) {
        // Ordering: Relaxed. The unit, or the lock, that the caller holds keeps the entry from being removed
        // meanwhile; as with Arc's count, nothing is read through this.
        self.interest.fetch_add(1, Ordering::Relaxed);
        self.figures.interest.add_one();
    }

    /// Gives up one unit of interest if it is not the last one. Needs no lock.
    pub(crate) fn drop_interest_unless_last(&self) -> bool {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut interest = self.interest.load(Ordering::Relaxed);
        while interest > 1 {
            if fault!(LeavesInTwoSteps) {
                // Ordering: as below; the fault is that this is not a CAS.
                self.interest.store(interest - 1, Ordering::Relaxed);
                return true;
            }
            // Ordering: Relaxed, as in `add_interest`: only the step to zero means anything, and that takes
            // locks.
            let step = self.interest.compare_exchange_weak(
                interest,
                interest - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match step {
                Ok(_) => {
                    self.figures.interest.subtract_one();
                    return true;
                }
                Err(now) => interest = now,
            }
        }
        false
    }

    /// Gives up one unit of interest. True if it was the last: then the entry is to be removed. The caller
    /// holds the channel's stripe, and the registry's map locked.
    pub(crate) fn drop_interest(&self) -> bool {
        self.figures.interest.subtract_one();
        // Ordering: Relaxed. Others may leave, or join by cloning, at the same time, and the count orders
        // those steps by itself; an entry at zero cannot be joined, since that takes a unit, or the map that
        // the caller holds locked.
        self.interest.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Where to sleep until a message comes.
    ///
    /// A message for all also stays pending once for each subscription, whose user may have looked and be
    /// about to sleep: a waiter may be woken once more for it.
    pub fn latch(&self) -> &Latch {
        &self.latch
    }

    /// Whether messages arrive.
    pub fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    /// Waits until messages published from now on will arrive.
    ///
    /// Every waiter waits for itself, under whatever limit it sets; one that gives up takes nothing from the
    /// others.
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

    /// Waits as [`subscribed`](Self::subscribed) does, unless `timer` is ready first: then `None`. Any
    /// runtime's sleep will do.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`subscribed`](Self::subscribed).
    pub async fn subscribed_unless(
        &self,
        timer: impl Future<Output = ()>,
    ) -> Option<Result<(), SubscribeError>> {
        unless(pin!(self.subscribed()), pin!(timer)).await
    }

    /// Waits as [`subscribed`](Self::subscribed) does, with this thread asleep, until `timeout` is over: then
    /// `None`.
    ///
    /// # Errors
    ///
    /// Those of [`subscribed`](Self::subscribed).
    pub fn blocking_subscribed_timeout(&self, timeout: Duration) -> Option<Result<(), SubscribeError>> {
        let subscribed = pin!(self.subscribed());
        match Instant::now().checked_add(timeout) {
            Some(deadline) => block_on_until(subscribed, deadline),
            // A time further away than the clock can say does not come.
            None => Some(block_on(subscribed)),
        }
    }

    /// Calls `callback` once, when the first message comes that no earlier waiter takes.
    ///
    /// Callbacks share one queue with the tasks that sleep on the [`latch`](Self::latch): one `Unlock` calls
    /// one of them, a `ReadUnlock` calls all, and a message that came before is kept for it (then the
    /// callback runs before `listen` returns; inside of a waker or another callback, behind that). It runs on
    /// whatever thread delivers the message, so it must be short and must not block. Its panic is
    /// [reported](crate::on_foreign_panic). Dropping the [`Listener`] takes it out of the line, however long
    /// that is, in one step.
    ///
    /// What calls all (messages may have been lost, or will not come any more) runs it, too.
    ///
    /// A listener is not interest: when the last [`Subscription`](crate::subscription::Subscription) is
    /// dropped, no message comes any more.
    pub fn listen(&self, callback: impl FnOnce() + Send + 'static) -> Listener {
        Listener::new(&self.latch, Box::new(callback))
    }

    /// Why the subscription cannot be had, if it cannot.
    pub fn failure(&self) -> Option<SubscribeError> {
        self.readiness.failure()
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.readiness.is_failed()
    }

    pub(crate) fn ready(&self) {
        self.readiness.ready();
    }

    pub(crate) fn failed(&self, error: SubscribeError) {
        if self.readiness.fail(error) {
            self.figures.failed.add_one();
            // Waiters that were ready, and sleep on the latch, must learn it too.
            self.call_all(0);
        }
    }

    pub(crate) fn resubscribed(&self) {
        self.figures.resubscribed.add_one();
        self.readiness.ready();
        if !fault!(ResubscribedSilently) {
            self.call_all(0);
        }
    }

    /// No waiter is interested any more. True if there is a subscription to be ended, false if it failed.
    pub(crate) fn end(&self) -> bool {
        let stood = self.readiness.end();
        if stood {
            self.figures.ended.add_one();
        }
        stood
    }

    pub(crate) fn deliver(&self, message: Message) {
        match message {
            Message::Unlock => {
                self.figures.unlocks.add_one();
                self.latch.release(1);
            }
            Message::ReadUnlock => {
                self.figures.read_unlocks.add_one();
                self.call_all(0);
            }
            Message::Granted(number) => {
                self.figures.grants.add_one();
                // Ordering: Relaxed. The waiter that this wakes sees it through the latch. Numbers rise, and
                // only the one waiter that asked for it goes by it, so that a message that comes late or
                // twice changes nothing.
                self.granted.fetch_max(number, Ordering::Relaxed);
                self.latch.release(1);
            }
        }
    }

    /// The highest number that was granted by a message so far; 0 if there was none.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn granted(&self) -> u64 {
        // Ordering: Relaxed, as in `deliver`. A waiter that sees it too late asks the store.
        self.granted.load(Ordering::Relaxed)
    }

    /// Calls every waiter and listener, and keeps a call for each subscription that may have looked and be
    /// about to sleep: each may, but for those that [are asleep](Self::is_asleep), and as many as `besides`.
    pub(crate) fn call_all(&self, besides: usize) {
        // Ordering: Acquire, before the look at the queue: a waiter that counts as asleep is found there.
        let asleep = self.asleep.load(Ordering::Acquire);
        let all = self.interest().saturating_sub(asleep + besides) + self.latch.sleepers();
        self.latch.release(if fault!(CallsOne) { 1 } else { all });
    }

    /// A subscription's one waiter is in the latch's queue, until the returned function is called: no call
    /// need be kept for the subscription meanwhile.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn is_asleep(&self) -> impl FnOnce() + use<'_> {
        // Ordering: Release, after it has joined the queue.
        self.asleep.fetch_add(1, Ordering::Release);
        // Ordering: Release, as above, for those that are still counted.
        || _ = self.asleep.fetch_sub(1, Ordering::Release)
    }
}

impl fmt::Debug for ChannelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelEntry")
            .field("channel", &self.channel)
            .field("interest", &self.interest())
            .field("readiness", &self.readiness)
            .field("latch", &self.latch)
            .finish()
    }
}

#[cfg(all(test, not(latchwork_loom)))]
mod tests {
    use super::*;

    #[test]
    fn grant_that_comes_late_or_twice_hides_no_later_one() {
        let entry = ChannelEntry::new(Arc::from("a"), 0, Arc::default());
        let granted = [2, 3, 1, 3].map(|number| {
            entry.deliver(Message::Granted(number));
            entry.granted()
        });
        assert_eq!(granted, [2, 3, 3, 3]);
    }
}
