//! [`Desired`]: the channels that have waiters, or had them a moment ago, and where their messages go.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::Mutex;
use crate::transport::Inbox;

/// The channels that have waiters, or had them a moment ago, and where their messages go.
///
/// A channel without waiters lingers for a while: where a lock goes to and fro, its waiter is back soon, and
/// need neither subscribe again nor ask twice.
#[derive(Default)]
pub(super) struct Desired(Mutex<Channels>);

#[derive(Default)]
struct Channels {
    by_name: HashMap<Arc<str>, Want>,
    /// A task is looking after those that linger.
    swept: bool,
}

/// Of each of the names that may share a channel: see
/// [`keys::base_channel`](super::super::keys::base_channel).
pub(super) type Inboxes = [Option<Inbox>; 2];

/// Tells them something, which wakes waiters.
pub(super) fn tell(inboxes: Inboxes, tell: impl Fn(&Inbox)) {
    inboxes.iter().flatten().for_each(tell);
}

struct Want {
    /// Of those that want it, or of the one that wanted it last: what is delivered there then concerns no
    /// waiter.
    inboxes: Inboxes,
    /// Its messages arrive, as far as is known.
    active: bool,
    /// Since when it has no waiters.
    left: Option<Instant>,
}

/// What is to be done about a channel that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    /// It was never had, or is not had any more: see to it at once.
    Gone,
    /// It is wanted still, for the other name.
    Kept,
    /// It lingers, and is [looked after](Desired::take_left).
    Lingers,
    /// The same, and no task looks after it yet.
    LingersFirst,
}

impl Desired {
    /// `which`: of the names that share the channel. True if it stands already, and `inbox` has been told so.
    pub(super) fn add(&self, channel: &Arc<str>, which: usize, inbox: Inbox) -> bool {
        let stands = match self.0.lock().by_name.entry(Arc::clone(channel)) {
            Entry::Occupied(lingers) => {
                let want = lingers.into_mut();
                if want.left.take().is_some() {
                    want.inboxes = Inboxes::default();
                }
                want.inboxes[which] = Some(inbox.clone());
                want.active
            }
            Entry::Vacant(new) => {
                let mut inboxes = Inboxes::default();
                inboxes[which] = Some(inbox.clone());
                new.insert(Want { inboxes, active: false, left: None });
                false
            }
        };
        if stands {
            inbox.ready();
        }
        stands
    }

    pub(super) fn leave(&self, channel: &str, which: usize, now: Instant) -> Leftover {
        let mut channels = self.0.lock();
        match channels.by_name.get_mut(channel) {
            Some(want) if want.inboxes[1 - which].is_some() => {
                want.inboxes[which] = None;
                return Leftover::Kept;
            }
            Some(want) if want.active => want.left = Some(now),
            _ => {
                channels.by_name.remove(channel);
                return Leftover::Gone;
            }
        }
        if std::mem::replace(&mut channels.swept, true) { Leftover::Lingers } else { Leftover::LingersFirst }
    }

    /// Takes those out that have lingered for longer than `linger`, and says whether others still do: then it
    /// is to be called again.
    pub(super) fn take_left(&self, linger: Duration, now: Instant) -> (Vec<Arc<str>>, bool) {
        let mut channels = self.0.lock();
        let is_over = |want: &mut Want| want.left.is_some_and(|left| now.duration_since(left) >= linger);
        let over = channels.by_name.extract_if(|_, want| is_over(want));
        let mut over: Vec<_> = over.map(|(channel, _)| channel).collect();
        // A map has them in another order in each process.
        over.sort_unstable();
        channels.swept = channels.by_name.values().any(|want| want.left.is_some());
        (over, channels.swept)
    }

    pub(super) fn contains(&self, channel: &str) -> bool {
        self.0.lock().by_name.contains_key(channel)
    }

    pub(super) fn is_active(&self, channel: &str) -> bool {
        self.0.lock().by_name.get(channel).is_some_and(|want| want.active)
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().by_name.len()
    }

    /// Where its messages go. Cloned out, because delivering wakes tasks, and a waker is foreign code.
    pub(super) fn inboxes(&self, channel: &str) -> Inboxes {
        self.0.lock().by_name.get(channel).map(|want| want.inboxes.clone()).unwrap_or_default()
    }

    /// Its messages arrive from now on. `lost_some`: not all did before.
    pub(super) fn confirm(&self, channel: &str, lost_some: bool) {
        let inboxes = self.0.lock().by_name.get_mut(channel).map(|want| {
            want.active = true;
            want.inboxes.clone()
        });
        tell(
            inboxes.unwrap_or_default(),
            |inbox| if lost_some { inbox.resubscribed() } else { inbox.ready() },
        );
    }

    /// The server refuses it. The inboxes are to be told.
    pub(super) fn refuse(&self, channel: &str) -> Inboxes {
        self.0.lock().by_name.remove(channel).map(|want| want.inboxes).unwrap_or_default()
    }

    /// Its messages do not arrive any more.
    pub(super) fn mark_lost(&self, channel: &str) {
        if let Some(want) = self.0.lock().by_name.get_mut(channel) {
            want.active = false;
        }
    }
}

/// For tests without a supervisor.
#[cfg(test)]
impl crate::transport::Transport for Arc<Desired> {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        self.add(channel, 0, inbox);
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.leave(channel, 0, tokio::time::Instant::now().into_std());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::registry::Registry;
    use crate::sync::atomic::{AtomicBool, Ordering};
    use crate::transport::Transport;

    use super::*;

    /// Keeps the inbox of what was subscribed to last.
    #[derive(Default)]
    struct Keeps(Mutex<Option<Inbox>>);

    impl Transport for Keeps {
        fn subscribe(&self, _: &Arc<str>, inbox: Inbox) {
            *self.0.lock() = Some(inbox);
        }

        fn unsubscribe(&self, _: &Arc<str>) {}
    }

    #[test]
    fn channel_of_two_names_is_kept_for_the_one_that_stays_and_lingers_when_both_have_left() {
        let (registry, desired, now) = (Registry::new(Keeps::default()), Desired::default(), Instant::now());
        let inbox = |name: &str| {
            let _interest = registry.subscribe(name);
            registry.transport().0.lock().take().expect("it is the first interest")
        };
        let channel = Arc::from("both");
        for (which, name) in ["{orders}", "orders"].into_iter().enumerate() {
            assert!(!desired.add(&channel, which, inbox(name)), "it is not confirmed yet");
        }
        desired.confirm(&channel, false);
        assert_eq!(desired.leave(&channel, 0, now), Leftover::Kept);
        assert_eq!(desired.take_left(Duration::ZERO, now), (Vec::new(), false), "one stays");
        assert_eq!(desired.leave(&channel, 1, now), Leftover::LingersFirst);
        assert!(desired.add(&channel, 0, inbox("{orders}")), "it stands still");
        // Of the other one nothing is left that would keep it.
        assert_eq!(desired.leave(&channel, 0, now), Leftover::Lingers);
        assert_eq!(desired.take_left(Duration::ZERO, now), (vec![channel], false));
    }

    /// No server has it, as far as is known, so that there is nothing to wait with.
    #[test]
    fn channel_that_was_never_confirmed_is_gone_when_it_is_left() {
        let desired = Arc::new(Desired::default());
        let registry = Registry::new(Keeps::default());
        let _interest = registry.subscribe("orders");
        let inbox = registry.transport().0.lock().take().expect("it is the first interest");
        desired.add(&"orders".into(), 0, inbox);
        assert_eq!(desired.leave("orders", 0, Instant::now()), Leftover::Gone);
        assert!(!desired.contains("orders"));
    }

    #[test]
    fn waiters_look_again_when_a_confirmation_says_that_messages_were_lost() {
        let desired = Arc::new(Desired::default());
        let registry = Registry::new(Arc::clone(&desired));
        let interest = registry.subscribe("orders");
        for (lost_some, times) in [(false, 0), (true, 1)] {
            desired.confirm("orders", lost_some);
            assert!(interest.is_ready());
            assert_eq!(registry.stats().resubscriptions, times);
        }
    }

    /// What is done about them is the same then each time that it is tried.
    #[test]
    fn channels_that_have_lingered_are_in_an_order() {
        let desired = Arc::new(Desired::default());
        let registry = Registry::new(Arc::clone(&desired));
        let channels: Vec<Arc<str>> = (10..30).map(|number| format!("orders:{number}").into()).collect();
        for channel in &channels {
            let _interest = registry.subscribe(channel);
            desired.confirm(channel, false);
        }
        assert_eq!(desired.take_left(Duration::ZERO, Instant::now()), (channels, false));
    }

    /// At any time of that, as far as a test can say so, which takes long as there are many.
    #[test]
    fn channel_that_a_waiter_comes_back_to_stays_while_those_that_have_lingered_are_taken_out() {
        const ROUNDS: u32 = 100;
        let (desired, waiters) = (Desired::default(), Registry::new(Keeps::default()));
        let _interest = waiters.subscribe("orders");
        let inbox = waiters.transport().0.lock().take().expect("it is the first interest");
        let channels: Vec<Arc<str>> = (0..500).map(|number| format!("orders:{number}").into()).collect();
        let leave_all = || {
            for channel in &channels {
                desired.add(channel, 0, inbox.clone());
                desired.confirm(channel, false);
                desired.leave(channel, 0, Instant::now());
            }
        };
        let take_left = || {
            let begun = Instant::now();
            desired.take_left(Duration::ZERO, begun);
            begun.elapsed()
        };
        leave_all();
        let takes = take_left();
        for round in 0..ROUNDS {
            leave_all();
            let has_begun = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    // Ordering: Relaxed, as nothing is read through it.
                    has_begun.store(true, Ordering::Relaxed);
                    take_left();
                });
                // Ordering: Relaxed, as above.
                while !has_begun.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                let begun = Instant::now();
                while begun.elapsed() < takes * round / ROUNDS {
                    std::hint::spin_loop();
                }
                desired.add(&channels[0], 0, inbox.clone());
            });
            assert!(desired.contains(&channels[0]), "its waiter waits for messages that do not come");
        }
    }
}
