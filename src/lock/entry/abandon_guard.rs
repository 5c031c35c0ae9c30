//! [`AbandonGuard`]: gives back the lease or hold of a future dropped, or unpolled, while it asks the store.

use std::future::poll_fn;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::lock_entry::Moment;
use crate::support::foreign;
use crate::support::sync::Mutex;

use super::{Entry, OnDrop};

/// A value whose drop gives a lease or a hold back. The future drops the value with itself; the watchdog
/// drops the value of a future that was woken and has not been polled for `limit`.
pub(in crate::lock) struct AbandonGuard<T: Send + 'static>(Arc<Shared<T>>);

pub(super) trait Abandonable: Send + Sync {
    /// Takes the value of a future that was woken, or sent its release, at least the limit before `now` and
    /// is unpolled since. Otherwise returns the time of the next look, if any; `None` without a value.
    fn take_unpolled(&self, now: Moment) -> Result<Box<dyn Send>, Option<Moment>>;
}

struct Shared<T> {
    entry: Arc<Entry>,
    /// Time of a release; its answer is awaited for `limit`, even if the future is polled.
    released: Option<Moment>,
    limit: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    kept: Option<T>,
    woken: Option<Moment>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> AbandonGuard<T> {
    /// `released`: the time of a release that `kept` repeats. `superseded`: count of the call's earlier
    /// guards that gave their values back.
    pub(in crate::lock) fn new(
        entry: &Arc<Entry>,
        kept: T,
        released: Option<Moment>,
        superseded: u32,
    ) -> Self {
        let limit = entry.context.rules.unpolled_limit_after(superseded);
        if let Some(released) = released {
            entry.schedule(released + limit);
        }
        let state = Mutex::new(State { kept: Some(kept), woken: None, waker: None });
        let shared = Arc::new(Shared { entry: Arc::clone(entry), released, limit, state });
        let abandonable = Arc::clone(&shared) as Arc<dyn Abandonable>;
        entry.rare().abandon_guards.lock().push(Arc::downgrade(&abandonable));
        Self(shared)
    }

    /// Awaits `future`, and returns the value with its output; `None` if the value was given back meanwhile.
    pub(in crate::lock) async fn until_answered<F>(&self, mut future: F) -> Option<(T, F::Output)>
    where
        F: Future + Unpin,
    {
        let waker = Waker::from(Arc::clone(&self.0));
        let answer = poll_fn(|task| match self.0.polled(task.waker()) {
            true => Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).map(Some),
            false => Poll::Ready(None),
        });
        let answer = answer.await?;
        let kept = self.0.state.lock().kept.take()?;
        Some((kept, answer))
    }
}

impl<T: Send + 'static> Drop for AbandonGuard<T> {
    fn drop(&mut self) {
        let shared = &self.0;
        // In a child the mutexes may stay locked forever.
        if !shared.entry.context.is_same_process() {
            return;
        }
        let (given_back, waker) = {
            let mut state = shared.state.lock();
            (state.kept.take(), state.waker.take())
        };
        drop(given_back);
        foreign::discard(waker);
        shared.entry.end_abandon_guard(Arc::as_ptr(shared));
    }
}

impl<T> Shared<T> {
    fn polled(&self, waker: &Waker) -> bool {
        let (is_there, is_known) = {
            let state = self.state.lock();
            (state.kept.is_some(), state.waker.as_ref().is_some_and(|old| old.will_wake(waker)))
        };
        if !is_known {
            // Cloning and dropping a waker runs foreign code, and so happens while the mutex is free.
            let waker = waker.clone();
            let old = {
                let mut state = self.state.lock();
                // This poll answers the last wake-up, which has taken the known waker.
                state.woken = None;
                state.waker.replace(waker)
            };
            foreign::discard(old);
        }
        is_there
    }
}

impl<T: Send + 'static> Abandonable for Shared<T> {
    fn take_unpolled(&self, now: Moment) -> Result<Box<dyn Send>, Option<Moment>> {
        let mut state = self.state.lock();
        let end = self.released.or(state.woken).map(|woken| woken + self.limit);
        if end.is_none_or(|end| now < end) && state.kept.is_some() {
            return Err(end);
        }
        // A value that was given back is not looked at again, however long its future is kept.
        let kept = state.kept.take().ok_or(None)?;
        if self.released.is_none() {
            self.entry.context.recorder.superseded.add_one();
        }
        Ok(Box::new(kept))
    }
}

impl<T: Send + 'static> Wake for Shared<T> {
    fn wake(self: Arc<Self>) {
        let now = self.entry.now();
        let (woken, waker) = {
            let mut state = self.state.lock();
            (*state.woken.get_or_insert(now), state.waker.take())
        };
        self.entry.schedule(woken + self.limit);
        foreign::wake(waker);
    }
}

impl Entry {
    pub(in crate::lock) fn has_abandon_guards(&self) -> bool {
        self.rare.get().is_some_and(|rare| !rare.abandon_guards.lock().is_empty())
    }

    /// Deregisters a guard: a shutdown waits for its value, not for a caller that keeps the future forever.
    fn end_abandon_guard(&self, ended: *const (impl Abandonable + ?Sized)) {
        self.rare().abandon_guards.lock().retain(|other| !ptr::addr_eq(other.as_ptr(), ended));
        self.context.tell_shutdown();
    }

    /// Gives back the values of futures that were not polled for too long.
    pub(super) fn give_back_abandoned(self: &Arc<Self>, now: Moment) {
        let Some(rare) = self.rare.get() else { return };
        let guards: Vec<_> = rare.abandon_guards.lock().iter().filter_map(Weak::upgrade).collect();
        for abandonable in guards {
            match abandonable.take_unpolled(now) {
                Ok(unpolled) => {
                    let entry = Arc::clone(self);
                    self.context.drop_apart(OnDrop(Some(move || {
                        drop(unpolled);
                        entry.end_abandon_guard(Arc::as_ptr(&abandonable));
                    })));
                }
                Err(end) => end.into_iter().for_each(|end| self.schedule(end)),
            }
        }
    }
}
