//! Whether an entry's subscription stands: subscribing, then ready or failed.

use std::fmt;

use crate::subscription::message::SubscribeError;
use crate::support::event::Event;
use crate::support::fault::fault;
use crate::support::sync::Mutex;

/// ```text
/// Subscribing ──► Ready ──► Ended
///      └────────────┴─────► Failed
/// ```
///
/// There is no way back, so a confirmation that comes late revives nothing.
enum State {
    /// The event is told when this state is left. It is in here so that its memory is gone then, too.
    Subscribing(Event),
    Ready,
    Failed(SubscribeError),
    /// No waiter is interested any more.
    Ended,
}

pub(super) struct Readiness(Mutex<State>);

impl Readiness {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Subscribing(Event::new())))
    }

    /// The subscription stands, unless it has failed or ended.
    pub(super) fn ready(&self) {
        self.step(State::Ready, |now| matches!(now, State::Subscribing(_)));
    }

    /// The subscription cannot be had. False if it was told so before, or if no waiter is interested any
    /// more.
    pub(super) fn fail(&self, error: SubscribeError) -> bool {
        self.step(State::Failed(error), |now| matches!(now, State::Subscribing(_) | State::Ready))
    }

    /// No waiter is interested any more. False if the subscription failed before.
    pub(super) fn end(&self) -> bool {
        self.step(State::Ended, |now| matches!(now, State::Subscribing(_) | State::Ready))
    }

    /// Goes on to `next` if `may_be_left` says so of the state now.
    fn step(&self, next: State, may_be_left: impl FnOnce(&State) -> bool) -> bool {
        let left = {
            let mut state = self.0.lock();
            if !may_be_left(&state) {
                return false;
            }
            std::mem::replace(&mut *state, next)
        };
        // After the mutex is free again: the wakers are foreign code.
        if let State::Subscribing(settled) = left
            && !fault!(SettledSilently)
        {
            settled.notify();
        }
        true
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(*self.0.lock(), State::Ready)
    }

    pub(super) fn is_failed(&self) -> bool {
        matches!(*self.0.lock(), State::Failed(_))
    }

    pub(super) fn failure(&self) -> Option<SubscribeError> {
        match &*self.0.lock() {
            State::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }

    pub(super) async fn wait(&self) -> Result<(), SubscribeError> {
        loop {
            // Listened to under the mutex, so that the state is not left in between.
            let settled = match &*self.0.lock() {
                State::Subscribing(event) => event.listen(),
                State::Ready | State::Ended => return Ok(()),
                State::Failed(error) => return Err(error.clone()),
            };
            settled.await;
        }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &*self.0.lock() {
            State::Subscribing(_) => "Subscribing",
            State::Ready => "Ready",
            State::Failed(_) => "Failed",
            State::Ended => "Ended",
        };
        // Shown after the mutex is free again: the error is the transport's own, and foreign code.
        match self.failure() {
            Some(error) => f.debug_tuple("Failed").field(&error).finish(),
            None => f.write_str(name),
        }
    }
}
