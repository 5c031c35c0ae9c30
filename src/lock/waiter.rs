//! [`Waiter`]: a place in the queue of an entry, as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::lock_entry::{Ticket, Told};

use super::backend::Backend;
use super::entry::Entry;

/// Waits until it is told something, and says when that was. Dropped before, leaves the queue, or passes on what it was told and has not heard.
pub(super) struct Waiter<'a, B: Backend> {
    entry: &'a Arc<Entry<B>>,
    /// `None` once it was told something.
    ticket: Option<Ticket>,
    polled: bool,
}

impl<'a, B: Backend> Waiter<'a, B> {
    pub(super) fn new(entry: &'a Arc<Entry<B>>, ticket: Ticket) -> Self {
        Self { entry, ticket: Some(ticket), polled: false }
    }
}

impl<B: Backend> Future for Waiter<'_, B> {
    type Output = (Told, Instant);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (entry, ticket) = (this.entry, this.ticket.as_ref().expect("polled after its end"));
        let mut told_at = None;
        let now = || *told_at.insert(entry.now());
        let (told, actions) = match std::mem::replace(&mut this.polled, true) {
            false => entry.state.poll_first(ticket, context.waker().clone(), now),
            true => entry.state.poll(ticket, context, now),
        };
        if told.is_some() {
            this.ticket = None;
        }
        entry.carry_out(actions);
        told.zip(told_at).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<B: Backend> Drop for Waiter<'_, B> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.entry.carry_out(self.entry.state.cancel(ticket, self.entry.now()));
        }
    }
}
