//! Waiting for the permits of a closed semaphore, at another semaphore, which is closed when all are back.
//!
//! # Why no wake-up is lost
//!
//! A closed semaphore grants nothing, so permits only come back. A draining task publishes the place where
//! it waits, and then counts the held permits; a call that may have brought back the last permit looks for
//! the place, and then counts. The task takes a step on `credited` in between, the call before, so the later
//! step sees what was done before the other [L]. A place stays closed: a task that counted too early does not
//! begin to wait.

use crate::semaphore::AsyncSemaphore;
use crate::support::fault::fault;
use crate::support::sync::atomic::Ordering;

use super::Engine;

impl Engine {
    /// Closes the semaphore, and waits until no permit is held.
    pub(in super::super) async fn drain(&self) {
        self.close();
        let counted = fault!(CountsBeforePlace).then(|| self.is_drained());
        let place = self.place_to_drain();
        if !counted.unwrap_or_else(|| self.is_drained()) {
            // Has no permits, and ends by being closed.
            drop(place.acquire().await);
        }
    }

    fn is_drained(&self) -> bool {
        self.meet_credit();
        self.held() == 0
    }

    /// Returns where draining tasks wait. The first of them makes the place.
    fn place_to_drain(&self) -> &AsyncSemaphore {
        // Ordering: Acquire, for the place's content.
        let mut place = self.place_to_drain.load(Ordering::Acquire);
        if place.is_null() {
            let made = Box::into_raw(Box::new(AsyncSemaphore::new(0)));
            // Ordering: Release of the place's content; Acquire on failure, as above.
            match self.place_to_drain.compare_exchange(place, made, Ordering::Release, Ordering::Acquire) {
                Ok(_null) => place = made,
                Err(published) => {
                    // SAFETY: not published.
                    drop(unsafe { Box::from_raw(made) });
                    place = published;
                }
            }
        }
        // SAFETY: published, and freed with the engine.
        unsafe { &*place }
    }

    /// Ends the waits of draining tasks if the semaphore is closed, and no permit is held. Called after each
    /// step that may bring back the last permit.
    #[cold]
    #[inline(never)]
    pub(super) fn end_drain(&self) {
        self.meet_credit();
        let counted = fault!(CountsWhileOpen).then(|| self.held());
        // Ordering: Acquire, for the place's content.
        let place = self.place_to_drain.load(Ordering::Acquire);
        // Counted last: permits may be taken until the semaphore is closed, as it is once there is a place.
        // SAFETY: published, and freed with the engine.
        if let Some(place) = unsafe { place.as_ref() }
            && counted.unwrap_or_else(|| self.held()) == 0
        {
            place.close();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Ordering: Relaxed: nothing else uses the engine any longer.
        let place = self.place_to_drain.load(Ordering::Relaxed);
        if !place.is_null() {
            // SAFETY: published once, by `place_to_drain`.
            drop(unsafe { Box::from_raw(place) });
        }
    }
}
