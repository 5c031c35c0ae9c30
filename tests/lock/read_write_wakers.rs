//! Read-write locks whose waiters' wakers run code.

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

struct Stage {
    runtime: ThreadRuntime,
    client: LockClient,
    prices: ReadWriteLock,
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

/// The write lock comes between the re-entry check and enqueueing, or to a queue head.
#[test]
fn owner_granted_the_write_lock_while_enqueueing_to_read_reads() {
    for as_head in [false, true] {
        let stage = Stage::new();
        let held = stage.they_write();
        let mut rests = pin!(stage.prices.read().lock());
        let mut held = Some(held);
        if !as_head {
            // Let a reader in that is not polled.
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
        let stage = Stage::new();
        let held = stage.they_write();
        let me = stage.client.owner();
        let panics = waker_that_panics();
        let (write, read) = (stage.prices.write().owned_by(&me), stage.prices.read().owned_by(&me));
        let mut reads = Box::pin(stage.prices.read().lock());
        assert!(poll(reads.as_mut()).is_pending());
        // Enqueued, so that the next holder calls the waker.
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
        assert_eq!(reports, 1, "expected one report (by recall: {by_recall})");
        drop((writes, reads, behind));
        assert!(
            ready(stage.theirs.write().try_lock()).unwrap().is_some(),
            "expected a free lock for the other client (by recall: {by_recall})"
        );
    }
}
