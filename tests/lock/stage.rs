//! Two clients of one store in memory, and calls and messages that the test moves by hand.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use latchwork::backend::{Backend, Inbox, Runtime, Transport};
use latchwork::local::Local;
use latchwork::{Lock, LockClient, LockOptions, Owner, ReadWriteLock};

use crate::over_local::{Command, Fate, Gate, Way, over_when};
use crate::polled::{poll, poll_by};

/// Begins a call that has to wait.
#[track_caller]
pub(crate) fn begun<F: Future>(call: F) -> Pin<Box<F>> {
    begun_by(call, Waker::noop())
}

#[track_caller]
pub(crate) fn begun_by<F: Future>(call: F, waker: &Waker) -> Pin<Box<F>> {
    let mut call = Box::pin(call);
    assert!(poll_by(call.as_mut(), waker).is_pending(), "expected a call that waits");
    call
}

/// Polls a call that has to wait on.
#[track_caller]
pub(crate) fn waits_on<F: Future + ?Sized>(call: Pin<&mut F>) {
    assert!(poll(call).is_pending(), "expected a call that waits");
}

/// Keeps inboxes, and confirms no subscription by itself.
#[derive(Clone, Default)]
pub(crate) struct ByHand(pub(crate) Arc<Mutex<Vec<Inbox>>>);

impl Transport for ByHand {
    fn subscribe(&self, _: &Arc<str>, inbox: Inbox) {
        self.0.lock().unwrap().push(inbox);
    }

    fn unsubscribe(&self, _: &Arc<str>) {}
}

/// A client whose commands pass `gate` or another interceptor, and another client of the store.
pub(crate) struct Two {
    pub(crate) gate: Gate,
    pub(crate) client: LockClient,
    pub(crate) lock: Lock,
    pub(crate) prices: ReadWriteLock,
    pub(crate) me: Owner,
    /// The client's lock for `me`.
    pub(crate) mine: Lock,
    pub(crate) other: LockClient,
    pub(crate) theirs: Lock,
    pub(crate) their_prices: ReadWriteLock,
}

impl Two {
    pub(crate) fn of<R: Runtime + Clone>(local: &Local<R>) -> Self {
        Self::of_with(local, &LockOptions::default())
    }

    pub(crate) fn of_with<R: Runtime + Clone>(local: &Local<R>, options: &LockOptions) -> Self {
        Self::with(local, local.clone(), Gate::default(), options)
    }

    /// The gate is closed for the commands and answers that `stops` picks.
    pub(crate) fn gated<R: Runtime + Clone>(local: &Local<R>, stops: fn(Way, Command<'_>) -> bool) -> Self {
        Self::gated_with(local, stops, &LockOptions::default())
    }

    pub(crate) fn gated_with<R: Runtime + Clone>(
        local: &Local<R>,
        stops: fn(Way, Command<'_>) -> bool,
        options: &LockOptions,
    ) -> Self {
        let gate = Gate::closed();
        Self::with(local, gate.over(local, stops), gate, options)
    }

    pub(crate) fn when<R: Runtime + Clone>(
        local: &Local<R>,
        fate: impl Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static,
    ) -> Self {
        Self::with(local, over_when(local, fate), Gate::default(), &LockOptions::default())
    }

    fn with<R: Runtime + Clone>(
        local: &Local<R>,
        backend: impl Backend,
        gate: Gate,
        options: &LockOptions,
    ) -> Self {
        let client = LockClient::with_options(backend, options).unwrap();
        let other = LockClient::new(local.clone());
        let [lock, theirs] = [&client, &other].map(|client| client.get_lock("orders").unwrap());
        let [prices, their_prices] =
            [&client, &other].map(|client| client.get_read_write_lock("prices").unwrap());
        let me = client.owner();
        let mine = lock.owned_by(&me);
        Self { gate, client, lock, prices, me, mine, other, theirs, their_prices }
    }
}
