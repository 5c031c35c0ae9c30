use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{LockClient, LockError};

use super::told::told_of;
use super::{PanicsAt, act, assert_alive, at_each_call};
use crate::over_local::{Back, Between, Command, Fate, OverLocal, There, Way, goes, over};
use crate::polled::ready;
use crate::stage::begun;

#[derive(Clone)]
struct Panics {
    at: PanicsAt,
    /// Makes every `release` panic.
    always: Arc<AtomicBool>,
    /// True if the panic comes after the command has run.
    late: bool,
}

impl Panics {
    fn over(local: &Local, late: bool) -> OverLocal<Self> {
        over(local, Self { at: PanicsAt::default(), always: Arc::default(), late })
    }
}

impl Between for Panics {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        // Ordering: SeqCst for simplicity; a test needs no less.
        let panics = way == There && command.releases() && self.always.load(Ordering::SeqCst);
        assert!(!panics, "on purpose");
        if self.late == (way == Back) {
            self.at.call();
        }
        goes()
    }

    fn asked(&self) {
        self.at.call();
    }
}

#[test]
fn backend_that_panics_at_any_call_costs_no_name_and_no_renewal() {
    for (fair, late) in [(false, false), (false, true), (true, false), (true, true)] {
        at_each_call(|at| {
            let clock = ThreadRuntime::paused();
            let local = Local::with_runtime(clock.clone());
            let backend = Panics::over(&local, late);
            let client = LockClient::new(backend.clone());
            let watched = ready(client.get_lock("watched").unwrap().lock()).unwrap();
            let mut told = 0;
            let calls = backend.interceptor().0.at.calls_of(at.clone(), || {
                told = told_of(|| act(&backend, &clock, fair, &client));
            });
            // Long enough for a retry, and shorter than a lease.
            clock.advance(Duration::from_secs(3));
            let place = format!("call {at:?}, fair: {fair}, late: {late}");
            assert!(told > 0 || at.is_empty(), "{place}: expected an event about the panic");
            assert_alive(&place, [&LockClient::new(local.clone()), &client], fair, &clock, &watched);
            calls
        });
    }
}

#[test]
fn guard_dropped_by_a_panic_survives_a_panicking_backend() {
    let clock = ThreadRuntime::paused();
    let backend = Panics::over(&Local::with_runtime(clock.clone()), false);
    let client = LockClient::new(backend.clone());
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let waits = begun(lock.lock());
    backend.interceptor().0.always.store(true, Ordering::SeqCst);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("on purpose, too");
    }));
    assert!(panicked.is_err());
    let handed_on = ready(waits).unwrap();
    // The release began in place and is retried in the background.
    drop(handed_on);
    backend.interceptor().0.always.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(2));
    assert!(ready(lock.try_lock()).unwrap().is_some(), "expected a free lock after the retry of the release");
}

#[test]
fn release_that_panics_is_pending_for_its_unlock_and_repeated() {
    let clock = ThreadRuntime::paused();
    let backend = Panics::over(&Local::with_runtime(clock.clone()), false);
    let client = LockClient::new(backend.clone());
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    backend.interceptor().0.always.store(true, Ordering::SeqCst);
    let unlocked = ready(held.unlock());
    assert!(matches!(unlocked, Err(LockError::ReleasePending { .. })), "{unlocked:?}");
    clock.advance(Duration::from_millis(100));
    assert!(client.metrics().releases_failed > 1, "{:?}", client.metrics());
    backend.interceptor().0.always.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(2));
    assert!(ready(lock.try_lock()).unwrap().is_some(), "expected a free lock after the retry of the release");
}
