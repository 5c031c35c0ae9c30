//! Read-write locks whose waiters have wakers that do more than to wake.

use std::mem::ManuallyDrop;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, LockClient, LockOptions, ReadWriteLock};

use crate::foreign::told::told_of;
use crate::foreign::waker_that_panics;
use crate::polled::{poll, poll_by, ready};

/// For how long the lock is kept for readers that are let in.
const TURN: Duration = Duration::from_secs(1);

/// Runs once, when the waker is cloned, and makes the clone.
pub(crate) type Hook = Mutex<Option<Box<dyn FnOnce() -> Waker + Send>>>;

/// A waker that runs `hook` when it is cloned.
pub(crate) fn on_clone(hook: impl FnOnce() -> Waker + Send + 'static) -> Waker {
    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: data is an `Arc<Hook>` that the waker which is cloned has, and keeps.
            let hook = unsafe { &*data.cast::<Hook>() };
            let run = hook.lock().unwrap().take();
            let made = ManuallyDrop::new(run.map_or_else(|| Waker::noop().clone(), |run| run()));
            RawWaker::new(made.data(), made.vtable())
        },
        |_| {},
        |_| {},
        // SAFETY: the waker's own `Arc<Hook>`, once.
        |data| drop(unsafe { Arc::from_raw(data.cast::<Hook>()) }),
    );
    let hook: Arc<Hook> = Arc::new(Mutex::new(Some(Box::new(hook))));
    // SAFETY: the functions keep to what a waker's are to do; `wake` keeps nothing, and is not called.
    unsafe { Waker::new(Arc::into_raw(hook).cast(), &VTABLE) }
}

/// Two clients of a store in memory, by a clock that stands still.
struct Stage {
    runtime: ThreadRuntime,
    client: LockClient,
    prices: ReadWriteLock,
    /// The same lock, of the other client.
    theirs: ReadWriteLock,
}

impl Stage {
    fn new() -> Self {
        let runtime = ThreadRuntime::paused();
        let local = Local::with_runtime(runtime.clone());
        let options = LockOptions::default().unpolled_limit(TURN * 10);
        let client = LockClient::with_options(local.clone(), &options).unwrap();
        let prices = client.get_read_write_lock("prices").unwrap();
        let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
        Self { runtime, client, prices, theirs }
    }

    fn they_write(&self) -> Guard {
        ready(self.theirs.write().lock()).unwrap()
    }
}

/// Between the look whether it has the other side and its place in the queue, or as the queue head.
#[test]
fn owner_that_gets_the_write_lock_while_it_begins_to_wait_for_the_read_lock_reads() {
    for as_head in [false, true] {
        let stage = Stage::new();
        let held = stage.they_write();
        let mut rests = pin!(stage.prices.read().lock());
        let mut held = Some(held);
        if !as_head {
            // A reader is let in, and does not come.
            assert!(poll(rests.as_mut()).is_pending());
            held = None;
            stage.runtime.advance(TURN);
        }

        let me = stage.client.owner();
        let (reads, writes) = (stage.prices.read().owned_by(&me), stage.prices.write().owned_by(&me));
        let wrote = Arc::new(Mutex::new(None));
        let has_written = Arc::clone(&wrote);
        let hook = move || {
            drop(held);
            *has_written.lock().unwrap() = ready(writes.try_lock()).unwrap();
            Waker::noop().clone()
        };
        let mut reads = pin!(reads.lock());
        let begun = poll_by(reads.as_mut(), &on_clone(hook));
        assert!(wrote.lock().unwrap().is_some(), "it does not write");
        let read = match begun {
            Poll::Pending => poll(reads.as_mut()),
            read => read,
        };
        assert!(matches!(read, Poll::Ready(Ok(_))), "it waits for itself, as the queue head: {as_head}");
    }
}

#[test]
fn waker_that_panics_costs_no_lock_of_its_caller() {
    for by_recall in [true, false] {
        let stage = Stage::new();
        let held = stage.they_write();
        let me = stage.client.owner();
        let panics = waker_that_panics();
        let (write, read) = (stage.prices.write().owned_by(&me), stage.prices.read().owned_by(&me));
        let mut reads = Box::pin(stage.prices.read().lock());
        assert!(poll(reads.as_mut()).is_pending());
        // In the queue, so that its waker is called by the one that gets the lock.
        let mut behind = Box::pin(read.lock());
        assert!(poll_by(behind.as_mut(), &panics).is_pending());
        let mut writes = Box::pin(write.lock());
        assert!(poll(writes.as_mut()).is_pending());
        drop(held);
        if by_recall {
            stage.runtime.advance(TURN);
        }
        let reports = told_of(|| match by_recall {
            true => drop(poll(writes.as_mut())),
            false => drop(poll(reads.as_mut())),
        });
        assert_eq!(reports, 1, "by recall: {by_recall}");
        drop((writes, reads, behind));
        assert!(ready(stage.theirs.write().try_lock()).unwrap().is_some(), "by recall: {by_recall}");
    }
}
