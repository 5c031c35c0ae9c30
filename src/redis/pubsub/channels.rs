//! [`ChannelTable`]: the table of channels, with the node and the inboxes of each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::subscription::{Inbox, Message, SubscribeError};
use crate::support::sync::Mutex;

/// The channels with waiters, and lingering channels: where a lock goes to and fro, the next waiter comes
/// soon, and need neither subscribe again nor ask twice.
pub(super) struct ChannelTable {
    table: Mutex<Table>,
    first_source: Source,
}

#[derive(Default)]
struct Table {
    by_name: HashMap<Arc<str>, Channel>,
    /// True while a task sweeps the lingering channels.
    is_swept: bool,
}

/// An inbox for each name that may share the channel: see `keys::base_channel`.
type Inboxes = [Option<Inbox>; 2];

/// Calls the inboxes. Not under the mutex: they wake waiters, and a waker is foreign code.
fn tell(inboxes: Option<Inboxes>, tell: impl Fn(&Inbox)) {
    inboxes.iter().flatten().flatten().for_each(tell);
}

struct Channel {
    /// Inboxes of the names that want the channel; of a lingering channel, of the last name.
    inboxes: Inboxes,
    interest: Interest,
    source: Source,
    /// True if the channel's messages arrive, as far as is known.
    is_active: bool,
    /// True if messages may have been lost since the last confirmation.
    lost_some: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    Wanted,
    /// Without waiters since this time.
    Lingers(Instant),
    /// To be unsubscribed from, and then removed.
    Over,
}

/// The number of the node that sends a channel's messages; `None`: no node has been found.
pub(super) type Source = Option<u64>;

/// The work that is left after a waiter has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    /// Remove the row now: there is no subscription.
    Over,
    /// None: the other name wants the channel, or a task [sweeps](ChannelTable::sweep) already.
    Stays,
    /// Start a task to sweep.
    LingersFirst,
}

impl ChannelTable {
    /// `first_source`: the source of each channel until [placed](Self::place).
    pub(super) fn new(first_source: Source) -> Self {
        Self { table: Mutex::default(), first_source }
    }

    fn row<T>(&self, channel: &str, with: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        self.table.lock().by_name.get_mut(channel).map(with)
    }

    /// Adds a waiter's `inbox`; `which` is the index among the names that share the channel. Returns true if
    /// the channel is already subscribed to, so that `inbox` is ready.
    pub(super) fn add(&self, channel: &Arc<str>, which: usize, inbox: Inbox) -> bool {
        let stands = match self.table.lock().by_name.entry(Arc::clone(channel)) {
            Entry::Occupied(known) => {
                let row = known.into_mut();
                if std::mem::replace(&mut row.interest, Interest::Wanted) != Interest::Wanted {
                    row.inboxes = Inboxes::default();
                }
                row.inboxes[which] = Some(inbox.clone());
                row.is_active
            }
            Entry::Vacant(new) => {
                let mut inboxes = Inboxes::default();
                inboxes[which] = Some(inbox.clone());
                let (interest, source) = (Interest::Wanted, self.first_source);
                new.insert(Channel { inboxes, interest, source, is_active: false, lost_some: false });
                false
            }
        };
        if stands {
            inbox.ready();
        }
        stands
    }

    pub(super) fn leave(&self, channel: &str, which: usize, now: Instant) -> Leftover {
        let mut table = self.table.lock();
        match table.by_name.get_mut(channel) {
            Some(row) if row.inboxes[1 - which].is_some() => {
                row.inboxes[which] = None;
                return Leftover::Stays;
            }
            Some(row) if row.is_active => row.interest = Interest::Lingers(now),
            Some(row) => {
                row.interest = Interest::Over;
                return Leftover::Over;
            }
            None => return Leftover::Over,
        }
        if std::mem::replace(&mut table.is_swept, true) { Leftover::Stays } else { Leftover::LingersFirst }
    }

    /// Ends channels that have lingered for `linger`, and returns them; true if others still linger, for the
    /// caller to sweep again.
    pub(super) fn sweep(&self, linger: Duration, now: Instant) -> (Vec<Arc<str>>, bool) {
        let mut table = self.table.lock();
        let (mut over, mut more) = (Vec::new(), false);
        for (channel, row) in &mut table.by_name {
            match row.interest {
                Interest::Lingers(since) if now.duration_since(since) >= linger => {
                    row.interest = Interest::Over;
                    over.push(Arc::clone(channel));
                }
                Interest::Lingers(_) => more = true,
                Interest::Wanted | Interest::Over => {}
            }
        }
        // The order of a map differs between processes.
        over.sort_unstable();
        table.is_swept = more;
        (over, more)
    }

    pub(super) fn source(&self, channel: &str) -> Option<Source> {
        self.row(channel, |row| row.source)
    }

    /// True if the channel is wanted from `source`. Removes a row that is over.
    pub(super) fn is_wanted(&self, channel: &str, source: Source) -> bool {
        let mut table = self.table.lock();
        let Some(row) = table.by_name.get(channel).filter(|row| row.source == source) else { return false };
        let is_over = row.interest == Interest::Over;
        // Dropped outside of the mutex.
        let _gone = if is_over { table.by_name.remove(channel) } else { None };
        drop(table);
        !is_over
    }

    pub(super) fn all_of(&self, source: Source) -> Vec<Arc<str>> {
        let mut all = self.placed();
        all.retain(|(channel, its)| *its == source && self.is_wanted(channel, source));
        all.into_iter().map(|(channel, _)| channel).collect()
    }

    pub(super) fn placed(&self) -> Vec<(Arc<str>, Source)> {
        let table = self.table.lock();
        let mut all: Vec<_> =
            table.by_name.iter().map(|(channel, row)| (Arc::clone(channel), row.source)).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    pub(super) fn place(&self, channel: &str, source: Source) {
        self.row(channel, |row| row.source = source);
    }

    /// Takes the channel from `source`. Returns false if the channel has another source.
    pub(super) fn lose(&self, channel: &str, source: Source) -> bool {
        self.row(channel, |row| {
            let is_lost = row.source == source;
            if is_lost {
                (row.source, row.is_active, row.lost_some) = (None, false, true);
            }
            is_lost
        })
        .unwrap_or(false)
    }

    pub(super) fn interrupt(&self, source: Source) {
        for row in self.table.lock().by_name.values_mut().filter(|row| row.source == source) {
            row.lost_some |= std::mem::take(&mut row.is_active);
        }
    }

    pub(super) fn is_active(&self, channel: &str) -> bool {
        self.row(channel, |row| row.is_active && row.interest != Interest::Over).unwrap_or(false)
    }

    pub(super) fn deliver(&self, channel: &str, message: Message) {
        tell(self.row(channel, |row| row.inboxes.clone()), |inbox| inbox.deliver(message));
    }

    /// Marks the channel as active, if `source` is still its source, and tells the inboxes.
    pub(super) fn confirm(&self, channel: &str, source: Source) {
        let confirmed = self.row(channel, |row| {
            (row.source == source).then(|| {
                row.is_active = true;
                (row.inboxes.clone(), std::mem::take(&mut row.lost_some))
            })
        });
        let (inboxes, lost_some) = confirmed.flatten().unzip();
        tell(inboxes, |inbox| if lost_some == Some(true) { inbox.resubscribed() } else { inbox.ready() });
    }

    /// Removes a channel that the server refuses, and fails its inboxes.
    pub(super) fn refuse(&self, channel: &str, error: SubscribeError) {
        let refused = self.table.lock().by_name.remove(channel);
        tell(refused.map(|row| row.inboxes), |inbox| inbox.failed(error.clone()));
    }
}

#[cfg(test)]
impl crate::subscription::Transport for Arc<ChannelTable> {
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

    use crate::subscription::Registry;
    use crate::subscription::Transport;
    use crate::support::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const HERE: Source = Some(0);

    #[derive(Default)]
    struct Keeps(Mutex<Option<Inbox>>);

    impl Transport for Keeps {
        fn subscribe(&self, _: &Arc<str>, inbox: Inbox) {
            *self.0.lock() = Some(inbox);
        }

        fn unsubscribe(&self, _: &Arc<str>) {}
    }

    #[test]
    fn channel_of_two_names_lingers_once_both_names_have_left() {
        let (registry, channels, now) =
            (Registry::new(Keeps::default()), ChannelTable::new(HERE), Instant::now());
        let inbox = |name: &str| {
            let _interest = registry.subscribe(name);
            registry.transport().0.lock().take().expect("it is the first interest")
        };
        let channel = Arc::from("both");
        for (which, name) in ["{orders}", "orders"].into_iter().enumerate() {
            assert!(!channels.add(&channel, which, inbox(name)), "expected no confirmation yet");
        }
        channels.confirm(&channel, HERE);
        assert_eq!(channels.leave(&channel, 0, now), Leftover::Stays);
        assert_eq!(
            channels.sweep(Duration::ZERO, now),
            (Vec::new(), false),
            "expected no sweep of the channel of the other name"
        );
        assert_eq!(channels.leave(&channel, 1, now), Leftover::LingersFirst);
        assert!(channels.add(&channel, 0, inbox("{orders}")), "expected a confirmed channel");
        // The other name does not keep the channel.
        assert_eq!(channels.leave(&channel, 0, now), Leftover::Stays);
        assert_eq!(channels.sweep(Duration::ZERO, now), (vec![channel], false));
    }

    #[test]
    fn channel_that_was_never_confirmed_is_gone_when_it_is_left() {
        let channels = Arc::new(ChannelTable::new(HERE));
        let registry = Registry::new(Keeps::default());
        let _interest = registry.subscribe("orders");
        let inbox = registry.transport().0.lock().take().expect("it is the first interest");
        channels.add(&"orders".into(), 0, inbox);
        assert_eq!(channels.leave("orders", 0, Instant::now()), Leftover::Over);
        assert!(!channels.is_wanted("orders", HERE));
    }

    #[test]
    fn waiters_check_again_at_a_confirmation_with_lost_messages() {
        let channels = Arc::new(ChannelTable::new(HERE));
        let registry = Registry::new(Arc::clone(&channels));
        let interest = registry.subscribe("orders");
        for times in 0..2 {
            channels.confirm("orders", HERE);
            assert!(interest.is_ready());
            assert_eq!(registry.stats().resubscriptions, times);
            channels.interrupt(HERE);
        }
    }

    /// Otherwise the waiters would not ask again when the next node confirms the channel.
    #[test]
    fn confirmation_of_a_former_node_is_ignored() {
        let channels = Arc::new(ChannelTable::new(HERE));
        let registry = Registry::new(Arc::clone(&channels));
        let interest = registry.subscribe("orders");
        assert!(channels.lose("orders", HERE));
        channels.confirm("orders", HERE);
        assert!(!interest.is_ready() && !channels.is_active("orders"));
        channels.place("orders", Some(1));
        channels.confirm("orders", Some(1));
        assert!(interest.is_ready());
        assert_eq!(registry.stats().resubscriptions, 1);
    }

    #[test]
    fn channels_that_have_lingered_are_in_an_order() {
        let channels = Arc::new(ChannelTable::new(HERE));
        let registry = Registry::new(Arc::clone(&channels));
        let names: Vec<Arc<str>> = (10..30).map(|number| format!("orders:{number}").into()).collect();
        for channel in &names {
            let _interest = registry.subscribe(channel);
            channels.confirm(channel, HERE);
        }
        assert_eq!(channels.sweep(Duration::ZERO, Instant::now()), (names, false));
    }

    #[test]
    fn channel_of_a_returning_waiter_survives_the_sweep() {
        const ROUNDS: u32 = 100;
        let (channels, waiters) = (ChannelTable::new(HERE), Registry::new(Keeps::default()));
        let _interest = waiters.subscribe("orders");
        let inbox = waiters.transport().0.lock().take().expect("it is the first interest");
        let names: Vec<Arc<str>> = (0..500).map(|number| format!("orders:{number}").into()).collect();
        let leave_all = || {
            for channel in &names {
                channels.add(channel, 0, inbox.clone());
                channels.confirm(channel, HERE);
                channels.leave(channel, 0, Instant::now());
            }
        };
        let sweep = || {
            let begun = Instant::now();
            channels.sweep(Duration::ZERO, begun);
            begun.elapsed()
        };
        leave_all();
        let takes = sweep();
        for round in 0..ROUNDS {
            leave_all();
            let has_begun = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    // Ordering: Relaxed, as nothing is read through the flag.
                    has_begun.store(true, Ordering::Relaxed);
                    sweep();
                });
                // Ordering: Relaxed, as above.
                while !has_begun.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                let begun = Instant::now();
                while begun.elapsed() < takes * round / ROUNDS {
                    std::hint::spin_loop();
                }
                channels.add(&names[0], 0, inbox.clone());
            });
            assert!(channels.is_wanted(&names[0], HERE), "expected the channel to be wanted by its waiter");
        }
    }
}
