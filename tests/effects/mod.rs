//! Outcomes of `LockEntry` events paired with effects. The parent module names the types.

use std::task::Waker;

use super::{Effects, HeadTicket, LockEntry, Moment, Request, Ticket, Turn};

pub(crate) fn with<T>(event: impl FnOnce(&mut Effects) -> T) -> (T, Effects) {
    let mut effects = Effects::default();
    let outcome = event(&mut effects);
    (outcome, effects)
}

pub(crate) fn effects_of(event: impl FnOnce(&mut Effects)) -> Effects {
    with(event).1
}

pub(crate) fn noop() -> Option<Waker> {
    Some(Waker::noop().clone())
}

pub(crate) fn head_of(entry: &LockEntry, request: &Request, now: Moment) -> HeadTicket {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Head(head) => head,
        other => panic!("expected a queue head of the idle entry, and got {other:?}"),
    }
}

pub(crate) fn queued(entry: &LockEntry, request: &Request, now: Moment) -> Ticket {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Queued(ticket) => ticket,
        other => panic!("expected a queued newcomer, as the lock is held, and got {other:?}"),
    }
}
