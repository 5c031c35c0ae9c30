//! [`ChannelEntry`]: the state shared by all subscribers of one channel in this process.

mod listener;
mod readiness;

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::latch::{Latch, NotificationFigures};
use crate::semaphore::block_on_timeout;
use crate::support::counter::Counter;
use crate::support::fault::fault;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use self::listener::Listener;
use self::readiness::Readiness;

/// A channel's message. The first two are Redisson's.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// let (one, other) = (registry.subscribe("orders"), registry.subscribe("orders"));
/// registry.transport().publish("orders", Message::Unlock);
/// assert_eq!(one.pending(), 1); // for one of the two
/// one.try_wait().expect("a message came").consume();
/// assert!(other.try_wait().is_none());
/// registry.transport().publish("orders", Message::ReadUnlock); // for both
/// assert!(one.try_wait().is_some() && other.try_wait().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Message {
    /// The lock was released for one waiter: wakes one waiter. `0` on Redisson's wire.
    Unlock,
    /// The lock was released for many waiters: wakes every waiter. `1` on Redisson's wire.
    ReadUnlock,
    /// The lock was leased to this number, of this process: `granted:` and the number on the wire, on a
    /// channel with only one client. Wakes the waiter that asked by this number; without one, a waiter. See
    /// `Backend`.
    Granted(u64),
}

/// Failure to subscribe to a channel: every waiter gets the same error, with its [reason](Self::reason).
///
/// # Examples
///
/// ```
/// use latchwork::subscription::SubscribeError;
/// let error = SubscribeError::new("the user may not subscribe");
/// assert_eq!(error.to_string(), "cannot subscribe to the channel: the user may not subscribe");
/// assert_eq!(error.reason().to_string(), "the user may not subscribe");
/// ```
#[derive(Clone, Debug)]
pub struct SubscribeError {
    reason: Arc<dyn Error + Send + Sync>,
    lock: Option<Arc<str>>,
}

impl SubscribeError {
    /// Wraps the transport's own error.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { reason: Arc::from(reason.into()), lock: None }
    }

    /// Returns the transport's own error.
    pub fn reason(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.reason
    }

    /// Adds the name of `lock` for a waiter: transports know only channels.
    #[cfg(feature = "lock")]
    pub(crate) fn of_lock(self, lock: &str) -> Self {
        Self { lock: Some(lock.into()), ..self }
    }
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot subscribe to the channel")?;
        if let Some(lock) = &self.lock {
            write!(f, " of lock {lock:?}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A chain names each cause once, and the reason's text is in this error's text.
impl Error for SubscribeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}

/// Counters of a registry's entries: see [`RegistryStats`](crate::subscription::RegistryStats).
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

/// The state of one channel in this process: its subscribers, its readiness, and its messages.
///
/// ```text
/// created by the first subscriber ─► subscribing ─► ready ─► removed when the last subscriber leaves
///                                        └───────────┴────► failed ─► removed likewise; a newcomer
///                                                                      starts a fresh entry
/// ```
///
/// Each [`Subscription`](crate::subscription::Subscription) to the channel is one unit of interest.
///
/// A message for one subscriber is a permit of a latch that all share: without a waiter, the next one takes
/// the permit. A message for all is counted, and each subscription keeps the count that it has heard: a
/// subscriber that waits twice takes no message from another.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// let subscriptions = [registry.subscribe("orders"), registry.subscribe("orders")];
/// let entry = &*subscriptions[0];
/// assert_eq!((entry.channel(), entry.interest(), entry.is_ready()), ("orders", 2, true));
/// registry.transport().publish("orders", Message::Unlock);
/// assert_eq!(subscriptions[1].pending(), 1); // for one of the two
/// ```
pub struct ChannelEntry {
    pub(crate) channel: Arc<str>,
    /// Hash of the channel by the registry's hasher.
    pub(crate) hash: u64,
    /// Count of subscriptions. Becomes 0 under the stripe and the map's mutex, in one step with the removal.
    interest: AtomicUsize,
    readiness: Readiness,
    latch: Latch,
    /// Count of the messages for all.
    broadcasts: AtomicU64,
    /// Waiters by the lease number whose [`Message::Granted`] each expects.
    expected: Mutex<Vec<(u64, Arc<Expected>)>>,
    figures: Arc<Figures>,
}

impl ChannelEntry {
    /// Returns an entry with one unit of interest, for its creator.
    pub(crate) fn new(channel: Arc<str>, hash: u64, figures: Arc<Figures>) -> Self {
        figures.begun.add_one();
        figures.interest.add_one();
        let latch = Latch::counting(Arc::clone(&figures.notifications));
        let (interest, broadcasts, expected) = (AtomicUsize::new(1), AtomicU64::new(0), Mutex::default());
        Self { channel, hash, interest, readiness: Readiness::new(), latch, broadcasts, expected, figures }
    }

    /// Name of the channel whose messages come here.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Count of living subscriptions.
    #[doc(alias = "acquired")]
    pub fn interest(&self) -> usize {
        // Ordering: Relaxed, a figure to read: others may come and leave at any time.
        self.interest.load(Ordering::Relaxed)
    }

    /// Adds one unit of interest. The caller holds a unit, or has found the entry in the locked map.
    pub(crate) fn add_interest(&self) {
        // Ordering: Relaxed. The caller's unit, or its lock, keeps the entry in the map meanwhile; as with
        // Arc's count, nothing is read through the counter.
        self.interest.fetch_add(1, Ordering::Relaxed);
        self.figures.interest.add_one();
    }

    /// Gives up one unit of interest, but not the last one. Takes no lock.
    pub(crate) fn drop_interest_unless_last(&self) -> bool {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut interest = self.interest.load(Ordering::Relaxed);
        while interest > 1 {
            if fault!(LeavesInTwoSteps) {
                // Ordering: as below; the fault is the missing CAS.
                self.interest.store(interest - 1, Ordering::Relaxed);
                return true;
            }
            // Ordering: Relaxed, as in `add_interest`: only the step to zero has a meaning, and takes locks.
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

    /// Gives up a unit of interest, under the stripe and the map's mutex. True if it was the last.
    pub(crate) fn drop_interest(&self) -> bool {
        self.figures.interest.subtract_one();
        // Ordering: Relaxed. The count orders simultaneous steps by itself; an entry at zero cannot be
        // joined, since joining takes a unit, or the map, which the caller keeps locked.
        self.interest.fetch_sub(1, Ordering::Relaxed) == 1
    }

    pub(super) fn latch(&self) -> &Latch {
        &self.latch
    }

    /// Returns the count of waiters and listeners, also of notified waiters not yet polled. Walks the queue.
    pub fn waiters(&self) -> usize {
        self.latch.waiters()
    }

    /// Returns the count of messages for one subscriber that no waiter has taken.
    pub fn pending(&self) -> usize {
        self.latch.pending()
    }

    /// True if messages arrive.
    pub fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    /// Waits until messages published from now on will arrive. Giving up takes nothing from other waiters.
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

    /// Waits as [`subscribed`](Self::subscribed) does, and blocks this thread. `None` after `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of [`subscribed`](Self::subscribed).
    pub fn blocking_subscribed_timeout(&self, timeout: Duration) -> Option<Result<(), SubscribeError>> {
        block_on_timeout(pin!(self.subscribed()), timeout)
    }

    /// Returns why the subscription failed, if it did.
    pub fn failure(&self) -> Option<SubscribeError> {
        self.readiness.failure()
    }

    pub(crate) fn ready(&self) {
        self.readiness.ready();
    }

    pub(crate) fn failed(&self, error: SubscribeError) {
        if self.readiness.fail(error) {
            self.figures.failed.add_one();
            // Waiters asleep on the latch also learn of the failure.
            self.wake_all();
        }
    }

    pub(crate) fn resubscribed(&self) {
        self.figures.resubscribed.add_one();
        self.readiness.ready();
        if !fault!(ResubscribedSilently) {
            self.wake_all();
        }
    }

    /// Ends the subscription after the last subscriber. False if the subscription has failed before.
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
                self.wake_all();
            }
            Message::Granted(number) => {
                self.figures.grants.add_one();
                let all = self.expected.lock();
                let expected = all.iter().find(|it| it.0 == number).map(|it| Arc::clone(&it.1));
                drop(all);
                match expected {
                    Some(expected) => expected.tell(number),
                    None => self.latch.release(1),
                }
            }
        }
    }

    /// Wakes all waiters and listeners, and each other subscription that is about to wait.
    pub(crate) fn wake_all(&self) {
        // Ordering: AcqRel, before the read of the queue. Of this step and a waiter's `broadcasts`, the later
        // one sees the earlier: the waiter in the queue, or the message in the count.
        self.broadcasts.fetch_add(1, Ordering::AcqRel);
        self.latch.release(if fault!(CallsOne) { 1 } else { self.latch.sleepers() });
    }

    /// Count of the messages for all, read by a waiter that has joined the queue.
    pub(super) fn broadcasts(&self) -> u64 {
        // Ordering: AcqRel, a read-modify-write to be in one order with `wake_all`, see there.
        self.broadcasts.fetch_add(0, Ordering::AcqRel)
    }
}

/// Places of waiters for grants.
#[cfg_attr(not(any(feature = "lock", latchwork_loom)), expect(dead_code, reason = "for the lock client"))]
impl ChannelEntry {
    /// Registers the one waiter to be woken by the grant of `number`, instead of the number of before.
    pub(crate) fn expect(&self, expected: &Arc<Expected>, number: u64) {
        let mut all = self.expected.lock();
        match all.iter_mut().find(|it| Arc::ptr_eq(&it.1, expected)) {
            Some(it) => it.0 = number,
            None => all.push((number, Arc::clone(expected))),
        }
    }

    /// Removes a waiter that expects no grant any more.
    pub(crate) fn expect_no_more(&self, expected: &Arc<Expected>) {
        self.expected.lock().retain(|it| !Arc::ptr_eq(&it.1, expected));
    }

    /// Makes a waiter's place for grants of this channel.
    pub(crate) fn expected(&self) -> Arc<Expected> {
        let latch = Latch::counting(Arc::clone(&self.figures.notifications));
        Arc::new(Expected { granted: AtomicU64::new(0), latch })
    }
}

/// The place of one waiter for the grant of the lease number that the waiter asked by.
pub(crate) struct Expected {
    /// Number of the latest grant for this waiter; 0 without one.
    granted: AtomicU64,
    latch: Latch,
}

#[cfg_attr(not(any(feature = "lock", latchwork_loom)), expect(dead_code, reason = "for the lock client"))]
impl Expected {
    fn tell(&self, number: u64) {
        // Ordering: Relaxed. The woken waiter sees the number through the latch; a waiter that reads the
        // number too late asks the store.
        self.granted.store(number, Ordering::Relaxed);
        self.latch.release(1);
    }

    pub(crate) fn granted(&self) -> u64 {
        // Ordering: Relaxed, as above.
        self.granted.load(Ordering::Relaxed)
    }

    /// Latch of one permit for each grant.
    pub(crate) fn latch(&self) -> &Latch {
        &self.latch
    }
}

impl fmt::Debug for ChannelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelEntry")
            .field("channel", &self.channel)
            .field("interest", &self.interest())
            .field("ready", &self.is_ready())
            .field("failure", &self.failure())
            .field("latch", &self.latch)
            .finish()
    }
}

#[cfg(all(test, not(latchwork_loom)))]
mod tests {
    use super::*;

    #[test]
    fn grant_wakes_the_waiter_of_its_number_and_no_other() {
        let entry = ChannelEntry::new(Arc::from("a"), 0, Arc::default());
        let waiters = [2, 3].map(|number| {
            let waiter = entry.expected();
            entry.expect(&waiter, number);
            waiter
        });
        let told = || waiters.each_ref().map(|waiter| (waiter.granted(), waiter.latch().pending()));
        entry.deliver(Message::Granted(9));
        assert_eq!((told(), entry.pending()), ([(0, 0), (0, 0)], 1));
        entry.deliver(Message::Granted(3));
        assert_eq!((told(), entry.pending()), ([(0, 0), (3, 1)], 1));
        entry.expect(&waiters[0], 4);
        for number in [2, 4] {
            entry.deliver(Message::Granted(number));
        }
        assert_eq!(told(), [(4, 1), (3, 1)]);
        waiters.iter().for_each(|waiter| entry.expect_no_more(waiter));
        assert!(entry.expected.lock().is_empty());
    }
}
