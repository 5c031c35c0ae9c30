//! [`Contract`]: rules for clients, by the docs of `Backend` and `Transport`, that only the store can check.

use std::collections::{BTreeMap, HashMap, HashSet};

use latchwork::LeaseId;
use latchwork::backend::Mode;

use crate::world::Nanos;

#[derive(Default)]
pub(super) struct Contract {
    /// Attempts that may still run late: neither answered, nor known not to have run.
    unsettled: HashMap<LeaseId, usize>,
    released: HashSet<LeaseId>,
    /// Refused subscriptions: process, channel, and the time of the refusal.
    refused: Vec<(usize, String, Nanos)>,
    /// Locks that a client was last told are held, with the time; removed once the client has the lock.
    told_held: BTreeMap<(String, Mode, String), Nanos>,
    breach: Option<String>,
}

impl Contract {
    pub(super) fn breach(&self) -> Option<&str> {
        self.breach.as_deref()
    }

    pub(super) fn is_broken(&mut self, what: impl FnOnce() -> String) {
        self.breach.get_or_insert_with(what);
    }

    /// "A client never uses an id again that it has released".
    pub(super) fn attempts(&mut self, lease: &LeaseId) {
        if self.released.contains(lease) {
            self.is_broken(|| format!("a client asks by lease {}, which it has released", lease.number()));
        }
        *self.unsettled.entry(lease.clone()).or_default() += 1;
    }

    /// An attempt was answered, or is known not to have run.
    pub(super) fn settles(&mut self, lease: &LeaseId) {
        if let Some(count) = self.unsettled.get_mut(lease) {
            *count -= 1;
        }
    }

    /// "An attempt that may come late is undone by `roll_back`".
    pub(super) fn releases(&mut self, lease: &LeaseId, rolls_back: bool) {
        if !rolls_back && self.unsettled.get(lease).is_some_and(|count| *count > 0) {
            let number = lease.number();
            self.is_broken(|| format!("a client releases lease {number}, an attempt by which may come late"));
        }
        self.released.insert(lease.clone());
    }

    /// Notes that a client was told at `held` that a lock is held, or has, or has had, a lease (`None`).
    pub(super) fn tells(&mut self, client: &str, mode: Mode, name: &str, held: Option<Nanos>) {
        let lock = (client.to_owned(), mode, name.to_owned());
        match held {
            Some(now) => _ = self.told_held.insert(lock, now),
            None => _ = self.told_held.remove(&lock),
        }
    }

    pub(super) fn told_held(&self, client: &str, mode: Mode, name: &str) -> Option<Nanos> {
        self.told_held.get(&(client.to_owned(), mode, name.to_owned())).copied()
    }

    pub(super) fn refuses(&mut self, process: usize, channel: &str, now: Nanos) {
        self.refused.push((process, channel.to_owned(), now));
    }

    pub(super) fn may_have_refused(&self, process: usize, name: &str, since: Nanos) -> bool {
        let is_of_it = |channel: &str| channel.strip_suffix(name).is_some_and(|rest| rest.ends_with(':'));
        let mut refused = self.refused.iter().rev().take_while(|(.., at)| *at >= since);
        refused.any(|(other, channel, _)| *other == process && is_of_it(channel))
    }
}
