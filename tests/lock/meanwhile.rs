//! Events during a call to the runtime, as from another thread, are seen by a later check or reported.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::Runtime;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{LockClient, LossReason};
use latchwork_testkit::Bell;

use crate::polled::{poll, poll_by, ready};
use crate::runtimes::{Differently, Differs, Task};
use crate::stage::begun;

type Once = Box<dyn FnOnce() + Send>;

/// An action for the next call.
#[derive(Clone, Default)]
pub(crate) struct Act(Arc<Mutex<Option<Once>>>);

impl Act {
    pub(crate) fn set(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(act));
    }

    /// True if an action was set.
    pub(crate) fn run(&self) -> bool {
        let act = self.0.lock().unwrap().take();
        act.map(|act| act()).is_some()
    }

    pub(crate) fn has_run(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }
}

#[derive(Clone, Default)]
struct Meanwhile {
    /// Runs when a spawned task reads the clock; elsewhere a store may read the clock under its mutex.
    task_reads_clock: Act,
    is_asked_for_its_end: Act,
    spawns: Arc<AtomicBool>,
}

impl Meanwhile {
    fn client() -> (ThreadRuntime, Self, LockClient) {
        let (clock, meanwhile) = (ThreadRuntime::paused(), Self::default());
        let local = Local::with_runtime(Differently(clock.clone(), meanwhile.clone()));
        (clock, meanwhile, LockClient::new(local))
    }
}

impl Differs for Meanwhile {
    fn reads_clock(&self) {
        // Ordering: SeqCst for simplicity; a test needs no less.
        if self.spawns.load(Ordering::SeqCst) {
            self.task_reads_clock.run();
        }
    }

    fn spawns(&self, task: Task, clock: &ThreadRuntime) {
        // Ordering: SeqCst, as above. `spawn` polls the task.
        self.spawns.store(true, Ordering::SeqCst);
        clock.spawn(task);
        self.spawns.store(false, Ordering::SeqCst);
    }

    fn is_asked_for_its_end(&self) {
        self.is_asked_for_its_end.run();
    }
}

/// The watchdog sleeps until a renewal; a hold taken meanwhile ends earlier, and its waiter has no timer.
#[test]
fn waiter_beside_a_watchdog_falling_asleep_is_served_in_time() {
    const SHORT: Duration = Duration::from_secs(3);
    let (clock, meanwhile, client) = Meanwhile::client();
    let waits = Arc::new(Mutex::new(None));
    meanwhile.task_reads_clock.set({
        let (lock, waits) = (client.get_lock("short").unwrap(), Arc::clone(&waits));
        move || {
            std::mem::forget(ready(lock.lock_with_lease(SHORT)).unwrap());
            let waiter = begun(async move { lock.lock().await });
            *waits.lock().unwrap() = Some(waiter);
        }
    });
    let _watched = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let mut waits = waits.lock().unwrap().take().expect("the watchdog has read the clock");
    let woken = Bell::default();
    assert!(poll_by(waits.as_mut(), &woken.waker()).is_pending());
    clock.advance(SHORT + Duration::from_millis(10));
    assert!(woken.take(), "expected the wake-up of the waiter beside the free lock");
    assert!(poll(waits.as_mut()).is_ready());
}

#[test]
fn loss_that_comes_while_the_wait_for_it_begins_is_told() {
    let (_, meanwhile, client) = Meanwhile::client();
    let lock = client.get_lock("orders").unwrap();
    let guard = ready(lock.lock()).unwrap();
    let mut lost = pin!(guard.lost());
    meanwhile.is_asked_for_its_end.set(move || assert!(ready(lock.force_unlock()).unwrap()));
    assert_eq!(poll(lost.as_mut()), Poll::Ready(LossReason::Gone));
    assert!(meanwhile.is_asked_for_its_end.has_run());
}
