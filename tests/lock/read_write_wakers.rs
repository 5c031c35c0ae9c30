//! Read-write locks whose waiters' wakers run code.

use std::mem::ManuallyDrop;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use latchwork::LockOptions;
use latchwork::local::{Local, ThreadRuntime};

use crate::foreign::told::told_of;
use crate::foreign::waker_that_panics;
use crate::polled::{poll, poll_by, ready};
use crate::stage::{Two, begun, begun_by};

/// Length of a read turn.
const TURN: Duration = Duration::from_secs(1);

/// Makes the clone of a waker, once.
pub(crate) type Hook = Mutex<Option<Box<dyn FnOnce() -> Waker + Send>>>;

pub(crate) fn on_clone(hook: impl FnOnce() -> Waker + Send + 'static) -> Waker {
    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: data is the `Arc<Hook>` of the waker being cloned, which keeps the hook alive.
            let hook = unsafe { &*data.cast::<Hook>() };
            let run = hook.lock().unwrap().take();
            let made = ManuallyDrop::new(run.map_or_else(|| Waker::noop().clone(), |run| run()));
            RawWaker::new(made.data(), made.vtable())
        },
        |_| {},
        |_| {},
        // SAFETY: consumes the `Arc<Hook>` of the waker, once.
        |data| drop(unsafe { Arc::from_raw(data.cast::<Hook>()) }),
    );
    let hook: Arc<Hook> = Arc::new(Mutex::new(Some(Box::new(hook))));
    // SAFETY: the functions meet the contract of `RawWaker`; `wake`, never called, would only leak the hook.
    unsafe { Waker::new(Arc::into_raw(hook).cast(), &VTABLE) }
}

fn two() -> (ThreadRuntime, Two) {
    let clock = ThreadRuntime::paused();
    let options = LockOptions::default().unpolled_limit(TURN * 10);
    (clock.clone(), Two::of_with(&Local::with_runtime(clock), &options))
}

/// The write lock comes between the re-entry check and enqueueing, or to a queue head.
#[test]
fn owner_granted_the_write_lock_while_enqueueing_to_read_reads() {
    for as_head in [false, true] {
        let (clock, Two { prices, me, their_prices, .. }) = two();
        let held = ready(their_prices.write().lock()).unwrap();
        let mut rests = pin!(prices.read().lock());
        let mut held = Some(held);
        if !as_head {
            // Let a reader in that is not polled.
            assert!(poll(rests.as_mut()).is_pending());
            held = None;
            clock.advance(TURN);
        }

        let (reads, writes) = (prices.read().owned_by(&me), prices.write().owned_by(&me));
        let wrote = Arc::new(Mutex::new(None));
        let has_written = Arc::clone(&wrote);
        let hook = move || {
            drop(held);
            *has_written.lock().unwrap() = ready(writes.try_lock()).unwrap();
            Waker::noop().clone()
        };
        let mut reads = pin!(reads.lock());
        let begun = poll_by(reads.as_mut(), &on_clone(hook));
        assert!(wrote.lock().unwrap().is_some(), "expected the owner to hold the write lock");
        let read = match begun {
            Poll::Pending => poll(reads.as_mut()),
            read => read,
        };
        assert!(
            matches!(read, Poll::Ready(Ok(_))),
            "expected the owner to read beside its write lock (queue head: {as_head})"
        );
    }
}

#[test]
fn waker_that_panics_costs_no_lock_of_its_caller() {
    for by_recall in [true, false] {
        let (clock, Two { prices, me, their_prices, .. }) = two();
        let held = ready(their_prices.write().lock()).unwrap();
        let panics = waker_that_panics();
        let (write, read) = (prices.write().owned_by(&me), prices.read().owned_by(&me));
        let mut reads = begun(prices.read().lock());
        // Enqueued, so that the next holder calls the waker.
        let behind = begun_by(read.lock(), &panics);
        let mut writes = begun(write.lock());
        drop(held);
        if by_recall {
            clock.advance(TURN);
        }
        let reports = told_of(|| match by_recall {
            true => drop(poll(writes.as_mut())),
            false => drop(poll(reads.as_mut())),
        });
        assert_eq!(reports, 1, "expected one report (by recall: {by_recall})");
        drop((writes, reads, behind));
        assert!(
            ready(their_prices.write().try_lock()).unwrap().is_some(),
            "expected a free lock for the other client (by recall: {by_recall})"
        );
    }
}
