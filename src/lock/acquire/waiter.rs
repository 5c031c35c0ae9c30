//! [`Waiter`]: a place in the queue of an entry, as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::lock_entry::{Moment, Ticket, WaitOutcome};

use crate::lock::entry::Entry;

/// Waits until it is told something, and says when that was. Dropped before, leaves the queue, or passes on
/// what it was told and has not heard.
pub(super) struct Waiter<'a> {
    entry: &'a Arc<Entry>,
    /// `None` once it was told something.
    ticket: Option<Ticket>,
    /// The first poll is a part of the one that entered, whose waker the queue has already.
    registered: bool,
}

impl<'a> Waiter<'a> {
    pub(super) fn new(entry: &'a Arc<Entry>, ticket: Ticket, registered: bool) -> Self {
        Self { entry, ticket: Some(ticket), registered }
    }
}

impl Waiter<'_> {
    /// Whether this poll is a part of the one that entered. Once.
    #[inline]
    pub(super) fn is_part_of_entering(&mut self) -> bool {
        std::mem::take(&mut self.registered)
    }

    /// What it is told, if anything.
    #[inline(always)]
    pub(super) fn hear(&mut self, context: &Context<'_>, now: Moment) -> Option<WaitOutcome> {
        let entry = self.entry;
        entry.event(|state, effects| {
            let ticket = self.ticket.as_ref().expect("polled after its end");
            let told = state.poll(ticket, context.waker(), now, effects);
            if told.is_some() {
                self.ticket = None;
            }
            told
        })
    }
}

impl Future for Waiter<'_> {
    type Output = (WaitOutcome, Moment);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_part_of_entering() {
            return Poll::Pending;
        }
        let now = self.entry.now();
        self.hear(context, now).map_or(Poll::Pending, |told| Poll::Ready((told, now)))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take().filter(|_| self.entry.context.is_here()) {
            let entry = self.entry;
            entry.event(|state, effects| state.cancel(ticket, entry.now(), effects));
        }
    }
}
