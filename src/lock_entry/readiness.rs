//! Whether an entry's subscription stands: subscribing, then ready or failed.

use std::fmt;

use crate::sync::{Event, Mutex};
use crate::transport::SubscribeError;

#[derive(Debug)]
enum State {
    Subscribing,
    Ready,
    Failed(SubscribeError),
}

pub(super) struct Readiness {
    state: Mutex<State>,
    /// Tells everyone that `state` is no longer `Subscribing`.
    settled: Event,
}

impl Readiness {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::Subscribing), settled: Event::new() }
    }

    pub(super) fn ready(&self) {
        *self.state.lock() = State::Ready;
        self.settled.notify(usize::MAX);
    }

    pub(super) fn failed(&self, error: SubscribeError) {
        *self.state.lock() = State::Failed(error);
        self.settled.notify(usize::MAX);
    }

    pub(super) fn failure(&self) -> Option<SubscribeError> {
        self.now()?.err()
    }

    pub(super) async fn wait(&self) -> Result<(), SubscribeError> {
        loop {
            if let Some(result) = self.now() {
                return result;
            }
            let settled = self.settled.listen();
            // If it was settled before we listened, no notification comes for us: look once more.
            if let Some(result) = self.now() {
                return result;
            }
            settled.await;
        }
    }

    fn now(&self) -> Option<Result<(), SubscribeError>> {
        match &*self.state.lock() {
            State::Subscribing => None,
            State::Ready => Some(Ok(())),
            State::Failed(error) => Some(Err(error.clone())),
        }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.lock().fmt(f)
    }
}
