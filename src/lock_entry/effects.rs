//! [`Effects`]: the work that an event of the engine leaves for the time after the mutex is unlocked.

use std::task::Waker;

use crate::support::foreign;
use crate::support::moment::Moment;

use super::events::{HeadTicket, LossReason, PendingRelease, Request};

/// Work that an event of a [`LockEntry`](super::LockEntry) leaves to its client. Dropping the effects wakes
/// waiters: first carry out the rest. May hold the effects of several events of one entry.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{LockEntry, LossReason, Request};
/// let _grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// let mut effects = Effects::default();
/// let _ = entry.tick(now, &mut effects);
/// assert!(effects.look_at <= now + Duration::from_secs(10), "the lease needs a renewal by then");
/// // The client is late: the lease is over.
/// let _ = entry.tick(now + Duration::from_secs(30), &mut effects);
/// assert_eq!(effects.lost(), Some(LossReason::Expired));
/// ```
#[derive(Debug)]
#[must_use = "the store may have to be told"]
#[non_exhaustive]
#[doc(alias = "Actions")]
pub struct Effects {
    waker: Option<Waker>,
    wakes: bool,
    /// Latest time of the next [`tick`](super::LockEntry::tick). [`NEVER`](super::Moment::NEVER) if an
    /// earlier event has reported a time that is still valid, or if nothing is due.
    pub look_at: Moment,
    /// Count of hand-offs in memory.
    pub handed_off: u32,
    more: Option<Box<More>>,
}

/// Effects of few events, boxed to keep all others small.
#[derive(Debug, Default)]
pub(super) struct More {
    wakers: Vec<Waker>,
    /// The first release, apart from further ones: nearly always the only one.
    release: Option<(PendingRelease, Option<NextHead>)>,
    releases: Vec<(PendingRelease, Option<NextHead>)>,
    pub(super) lost: Option<LossReason>,
    pub(super) holds_lost: u32,
    pub(super) renewals_unsent: u32,
    pub(super) wakes_sleepers: bool,
    pub(super) has_older_leases: bool,
    pub(super) superseded: u32,
    counted: bool,
}

/// The waiter that a release names at a store with a [queue](super::Policy::Queued), which may lease the lock
/// to the waiter at once. The client makes the waiter's [`attempt`](super::LockEntry::attempt), sends the
/// attempt with the release, and reports the result by [`answered`](super::LockEntry::answered). A client
/// that does not name the waiter calls [`asks_itself`](super::LockEntry::asks_itself).
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{Turn, LockEntry, Policy, Request};
/// let rules = Rules { policy: Policy::Queued { position: Duration::from_secs(10) }, ..Rules::default() };
/// let entry = LockEntry::new(rules);
/// let grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// // Owner 2 waits. The release of owner 1 names owner 2.
/// let Turn::Queued(_ticket) =
///     entry.enter(&Request::new(2), Some(waker.clone()), now, &mut effects) else { panic!("1 has it") };
/// let mut effects = Effects::default();
/// let left = entry.leave(grant, now, &mut effects);
/// assert_eq!(left, Ok(None));
/// let (release, next) = effects.releases().next().expect("the lease goes back");
/// assert_eq!((release.number, next.map(|next| next.request)), (1, Some(Request::new(2))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "Next")]
pub struct NextHead {
    /// Ticket of the next queue head.
    pub head: HeadTicket,
    /// The waiter's request.
    pub request: Request,
}

impl Effects {
    /// Returns the releases and rollbacks to send in the background, each number once, until the store has
    /// answered or the lease is over; a release with the waiter that it names.
    pub fn releases(&self) -> impl Iterator<Item = (PendingRelease, Option<NextHead>)> {
        self.more.iter().flat_map(|more| more.release.iter().chain(&more.releases)).copied()
    }

    /// Returns why a hold with a grant was lost, if one was.
    pub fn lost(&self) -> Option<LossReason> {
        self.more.as_ref()?.lost
    }

    /// Returns how many holds with a grant were lost.
    pub fn holds_lost(&self) -> u32 {
        self.more.as_ref().map_or(0, |more| more.holds_lost)
    }

    /// Returns how many leases ended before their due renewal was sent.
    pub fn renewals_unsent(&self) -> u32 {
        self.more.as_ref().map_or(0, |more| more.renewals_unsent)
    }

    /// True if the client has to wake all waiters of this name: a superseded queue head may keep a
    /// notification, or a lease has ended without a release's message.
    pub fn wakes_sleepers(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.wakes_sleepers)
    }

    /// True if the client may merge holds: see [`older_leases`](super::LockEntry::older_leases).
    pub fn has_older_leases(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.has_older_leases)
    }

    /// Returns how many waiters were superseded.
    pub fn superseded(&self) -> u32 {
        self.more.as_ref().map_or(0, |more| more.superseded)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.waker.is_none() && self.more.is_none()
    }

    /// True if the only effects are a look, hand-offs and a wake.
    #[inline]
    pub fn is_usual(&self) -> bool {
        self.more.is_none()
    }

    /// True if anything but a look has to be carried out.
    #[inline]
    pub fn must_be_applied(&self) -> bool {
        self.handed_off > 0 || !self.is_quiet()
    }

    /// True if these effects have releases not yet counted. Marks them as counted.
    #[inline]
    pub(super) fn count_releases(&mut self) -> bool {
        let Some(more) = &mut self.more else { return false };
        more.release.is_some() && !std::mem::replace(&mut more.counted, true)
    }

    pub(super) fn has_counted_releases(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.counted)
    }

    /// Adds a release. An earlier release of the same number is widened instead, to serve for both.
    pub(super) fn release(&mut self, release: PendingRelease, next: Option<NextHead>) {
        let more = self.more();
        let mut all = more.release.iter_mut().chain(&mut more.releases);
        if let Some((same, _)) = all.find(|(other, _)| other.number == release.number) {
            same.until = same.until.max(release.until);
            same.appoints |= release.appoints;
            same.rolls_back |= release.rolls_back;
        } else if more.release.is_none() {
            more.release = Some((release, next));
        } else {
            more.releases.push((release, next));
        }
    }

    pub(super) fn wake_all(&mut self, wakers: Vec<Waker>) {
        self.more().wakers.extend(wakers);
    }

    fn finish(&mut self) {
        let waker = self.waker.take();
        let (called, unused) = if self.wakes { (waker, None) } else { (None, waker) };
        unused.into_iter().for_each(foreign::discard);
        let others = self.more.take().map(|more| more.wakers).unwrap_or_default();
        foreign::wake(called.into_iter().chain(others));
    }

    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        self.wakes |= waker.is_some() && self.waker.is_none();
        self.keep_waker(waker);
    }

    /// Keeps a waker until the mutex is unlocked: calling or dropping a waker runs foreign code.
    pub(super) fn keep_waker(&mut self, waker: Option<Waker>) {
        match (waker, &self.waker) {
            (None, _) => {}
            (waker, None) => self.waker = waker,
            // `finish` wakes it, even if it was only to be dropped: a needless wake costs one poll.
            (Some(waker), Some(_)) => self.more().wakers.push(waker),
        }
    }
}

impl Default for Effects {
    #[inline]
    fn default() -> Self {
        Self { waker: None, wakes: false, look_at: Moment::NEVER, handed_off: 0, more: None }
    }
}

impl Drop for Effects {
    #[inline]
    fn drop(&mut self) {
        if !self.is_quiet() {
            self.finish();
        }
    }
}

#[cfg(all(test, feature = "lock", not(latchwork_loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    #[test]
    fn effects_are_nothing_until_there_is_something_to_be_done() {
        let none = Effects::default();
        assert!(none.is_quiet() && none.is_usual() && !none.must_be_applied());
        assert_eq!(none.look_at, Moment::NEVER);
        assert!(!none.wakes_sleepers() && none.superseded() == 0 && none.holds_lost() == 0);
        type Sets = fn(&mut Effects);
        let sets: [(Sets, bool, bool); 4] = [
            (|effects| effects.look_at = Moment::from(std::time::Instant::now()), true, false),
            (|effects| effects.handed_off = 1, true, true),
            (|effects| effects.keep_waker(Some(Waker::noop().clone())), false, true),
            (|effects| effects.more().wakes_sleepers = true, false, true),
        ];
        for (set, is_quiet, must_be_applied) in sets {
            let mut effects = Effects::default();
            set(&mut effects);
            assert_eq!((effects.is_quiet(), effects.must_be_applied()), (is_quiet, must_be_applied));
        }
    }

    #[test]
    fn releases_are_counted_once_and_only_if_there_are_some() {
        let release = PendingRelease { number: 1, until: Moment::NEVER, appoints: false, rolls_back: false };
        type Sets = fn(&mut Effects, PendingRelease);
        let sets: [(Sets, bool); 2] = [
            (|effects, _| effects.more().wakes_sleepers = true, false),
            (|effects, release| effects.release(release, None), true),
        ];
        for (set, counts) in sets {
            let mut effects = Effects::default();
            assert!(!effects.count_releases());
            set(&mut effects, release);
            assert_eq!((effects.count_releases(), effects.has_counted_releases()), (counts, counts));
            assert!(!effects.count_releases(), "expected each release to be counted once");
        }
    }

    struct Panics(&'static str);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            if self.0 == "by its call" {
                panic!("by its call");
            }
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            if self.0 == "by its drop" {
                panic!("by its drop");
            }
        }
    }

    #[test]
    fn waker_that_panics_when_dropped_costs_no_other_waker_its_call() {
        let mut effects = Effects::default();
        effects.keep_waker(Some(Arc::new(Panics("by its drop")).into()));
        effects.wake_all(vec![Arc::new(Panics("by its call")).into()]);
        let before = crate::foreign_panics();
        drop(effects);
        assert!(crate::foreign_panics() >= before + 2, "expected both panicking wakers to be called");
    }
}
