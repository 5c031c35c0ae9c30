//! [`Places`]: bounds the acquisitions of one semaphore that a client queues at the store. Locks have none.
//!
//! Each acquisition of permits is the queue head of its own entry. Before its first question that may
//! enqueue, a head takes a place. The place is the entry's and not the future's: a future that is
//! kept unpolled is superseded by the watchdog, and then loses its place.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Wake};

use crate::lock_entry::Moment;
use crate::semaphore::{AcquireOwned, AsyncSemaphore, OwnedSemaphorePermit};
use crate::support::sync::Mutex;

use super::{Acquisition, Entry};

/// Places of a client for each name. More places cost the store memory; with fewer places than permits, some
/// permits stay free over slow links while waiters wait here.
const PLACES: usize = 32;

#[derive(Default)]
pub(super) struct Places {
    semaphore: OnceLock<Arc<AsyncSemaphore>>,
    /// Time at which all heads were last woken.
    woken: Mutex<Option<Moment>>,
    /// End of the earliest lease, as far as the store has told.
    earliest_end: Mutex<Option<Moment>>,
}

pub(super) enum Place {
    Waits(AcquireOwned),
    Taken { _permit: OwnedSemaphorePermit },
}

impl Entry {
    pub(in crate::lock) fn takes_place(&self) -> bool {
        self.acquisition.is_some()
    }

    /// Waits for a place. Ready at once if the entry has a place.
    pub(in crate::lock) async fn take_place(&self) {
        let Some(acquisition) = &self.acquisition else { return };
        let places = &acquisition.handles.rare().places;
        let semaphore = places.semaphore.get_or_init(|| Arc::new(AsyncSemaphore::new(PLACES)));
        poll_fn(|task| {
            // Outside of the mutex while polled. A place taken from a superseded head meanwhile would be put
            // back, but that head ends in the same poll, and leaves its place.
            let place = acquisition.place.lock().take();
            let mut place = place.unwrap_or_else(|| Place::Waits(Arc::clone(semaphore).acquire_owned()));
            if let Place::Waits(waits) = &mut place
                && let Poll::Ready(permit) = Pin::new(waits).poll(task)
            {
                place = Place::Taken { _permit: permit.expect("the places are never closed") };
            }
            let is_taken = matches!(place, Place::Taken { .. });
            *acquisition.place.lock() = Some(place);
            if is_taken { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// True if the entry is an acquisition's, and others wait for a place: a try must not overtake them.
    #[inline]
    pub(in crate::lock) fn is_behind_others(&self) -> bool {
        let rare = self.acquisition.as_ref().and_then(|acquisition| acquisition.handles.rare.get());
        rare.and_then(|rare| rare.places.semaphore.get()).is_some_and(|places| places.waiters() > 0)
    }

    /// Has the oldest waiter of this client ask at the end of the earliest lease, and not all of them.
    pub(in crate::lock) fn note_earliest_end(&self, at: Moment) {
        let Some(Acquisition { handles, .. }) = self.acquisition.as_deref() else { return };
        let mut earliest = handles.rare().places.earliest_end.lock();
        if earliest.is_none_or(|end| at < end) {
            *earliest = Some(at);
            drop(earliest);
            handles.schedule(at);
        }
    }

    /// Called by the watchdog for a handle's entry.
    pub(super) fn ask_at_earliest_end(self: &Arc<Self>, now: Moment) {
        let Some(rare) = self.rare.get() else { return };
        let Some(end) = *rare.places.earliest_end.lock() else { return };
        if now < end {
            return self.schedule(end);
        }
        *rare.places.earliest_end.lock() = None;
        let has_place = |entry: &Arc<Self>| {
            let acquisition = entry.acquisition.as_ref();
            acquisition.is_some_and(|it| matches!(*it.place.lock(), Some(Place::Taken { .. })))
        };
        let oldest = self.table().all_of(&self.name).into_iter().find(has_place);
        oldest.inspect(|oldest| oldest.engine.latch().release(1));
    }

    /// Gives the place to the next acquisition, if this entry has or awaits one.
    pub(in crate::lock) fn leave_place(&self) {
        if let Some(acquisition) = &self.acquisition {
            // Dropped with the mutex free: wakes the next acquisition.
            let _place = acquisition.place.lock().take();
        }
    }

    /// Wakes all heads of the semaphore after one was superseded: other unpolled heads are superseded a
    /// limit later, all at once, and not one by one as their turns come.
    pub(super) fn wake_all_heads(&self) {
        let Some(acquisition) = &self.acquisition else { return };
        let (now, limit) = (self.now(), self.context.rules.unpolled_limit);
        {
            let mut woken = acquisition.handles.rare().places.woken.lock();
            if woken.is_some_and(|woken| now < woken + limit) {
                return;
            }
            *woken = Some(now);
        }
        self.table().all_of(&self.name).into_iter().for_each(Wake::wake);
    }
}
