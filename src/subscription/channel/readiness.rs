use crate::subscription::channel::SubscribeError;
use crate::support::event::Event;
use crate::support::fault::fault;
use crate::support::sync::Mutex;

/// ```text
/// Subscribing ──► Ready ──► Ended
///      └────────────┴─────► Failed
/// ```
///
/// No state leads back, so a late confirmation revives nothing.
enum State {
    /// Notified when the subscription has become ready, failed or ended.
    Subscribing(Event),
    Ready,
    /// Boxed, as each entry has room for its state.
    Failed(Box<SubscribeError>),
    Ended,
}

pub(super) struct Readiness(Mutex<State>);

impl Readiness {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Subscribing(Event::default())))
    }

    /// Marks the subscription as confirmed, unless it has failed or ended.
    pub(super) fn ready(&self) {
        self.step(State::Ready, |now| matches!(now, State::Subscribing(_)));
    }

    pub(super) fn fail(&self, error: SubscribeError) -> bool {
        self.step(State::Failed(Box::new(error)), |now| matches!(now, State::Subscribing(_) | State::Ready))
    }

    pub(super) fn end(&self) -> bool {
        self.step(State::Ended, |now| matches!(now, State::Subscribing(_) | State::Ready))
    }

    fn step(&self, next: State, may_be_left: impl FnOnce(&State) -> bool) -> bool {
        let left = {
            let mut state = self.0.lock();
            if !may_be_left(&state) {
                return false;
            }
            std::mem::replace(&mut *state, next)
        };
        // Only after the mutex is free: the wakers are foreign code.
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

    pub(super) fn failure(&self) -> Option<SubscribeError> {
        match &*self.0.lock() {
            State::Failed(error) => Some(SubscribeError::clone(error)),
            _ => None,
        }
    }

    pub(super) async fn wait(&self) -> Result<(), SubscribeError> {
        loop {
            // Registered under the mutex, so that the state cannot change in between.
            let settled = match &*self.0.lock() {
                State::Subscribing(event) => event.listen(),
                State::Ready | State::Ended => return Ok(()),
                State::Failed(error) => return Err(SubscribeError::clone(error)),
            };
            settled.await;
        }
    }
}
