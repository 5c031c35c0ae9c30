use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{LockClient, LockError, LockOptions};

use super::act;
use super::told::told_of;
use crate::over_local::{Back, Between, Command, Fate, OverLocal, There, Way, goes, over};
use crate::polled::{poll, ready};

#[derive(Clone)]
struct Panics {
    calls: Arc<AtomicUsize>,
    /// Index of the panicking call; out of range if no call panics.
    at: Arc<AtomicUsize>,
    /// Makes every `release` panic.
    always: Arc<AtomicBool>,
    /// True if the panic comes after the command has run.
    late: bool,
}

impl Panics {
    fn over(local: &Local, late: bool) -> OverLocal<Self> {
        let (calls, at) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX)));
        over(local, Self { calls, at, always: Arc::default(), late })
    }

    fn call(&self) {
        // Ordering: SeqCst for simplicity; a test needs no less.
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        assert_ne!(call, self.at.load(Ordering::SeqCst), "on purpose");
    }
}

impl Between for Panics {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        // Ordering: SeqCst, as above.
        let panics = way == There && command.releases() && self.always.load(Ordering::SeqCst);
        assert!(!panics, "on purpose");
        if self.late == (way == Back) {
            self.call();
        }
        goes()
    }

    fn asked(&self) {
        self.call();
    }
}

#[test]
fn backend_that_panics_at_any_call_costs_no_name_and_no_renewal() {
    for (fair, late) in [(false, false), (false, true), (true, false), (true, true)] {
        let run = |at: Option<usize>| {
            let clock = ThreadRuntime::paused();
            let local = Local::with_runtime(clock.clone());
            let backend = Panics::over(&local, late);
            let client = LockClient::with_options(backend.clone(), &LockOptions::default()).unwrap();
            let watched = ready(client.get_lock("watched").unwrap().lock()).unwrap();
            backend.interceptor().0.calls.store(0, Ordering::SeqCst);
            backend.interceptor().0.at.store(at.unwrap_or(usize::MAX), Ordering::SeqCst);
            let told = told_of(|| act(&backend, &clock, fair, &client));
            let calls = backend.interceptor().0.calls.load(Ordering::SeqCst);
            backend.interceptor().0.at.store(usize::MAX, Ordering::SeqCst);
            // Long enough for a retry, and shorter than a lease.
            clock.advance(Duration::from_secs(3));
            let place = format!("call {at:?}, fair: {fair}, late: {late}");
            assert!(told > 0 || at.is_none(), "{place}: expected an event about the panic");
            let others = LockClient::new(local.clone());
            let lock = if fair { others.get_fair_lock("orders") } else { others.get_lock("orders") }.unwrap();
            assert!(
                ready(lock.try_lock()).unwrap().is_some(),
                "{place}: expected the free lock, and the name is dead"
            );
            let lock = if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") }.unwrap();
            assert!(
                ready(lock.try_lock()).unwrap().is_some(),
                "{place}: expected the free lock of this client, and the name is dead"
            );
            for _ in 0..3 {
                clock.advance(Duration::from_secs(20));
                assert!(watched.is_held(), "{place}: expected a renewed lease");
                ready(watched.ensure_held()).unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            calls
        };
        let calls = run(None);
        assert!(calls > 50, "{calls} calls");
        for at in 0..calls {
            run(Some(at));
        }
    }
}

#[test]
fn guard_dropped_by_a_panic_survives_a_panicking_backend() {
    let clock = ThreadRuntime::paused();
    let backend = Panics::over(&Local::with_runtime(clock.clone()), false);
    let client = LockClient::new(backend.clone());
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut waits = pin!(lock.lock());
    assert!(poll(waits.as_mut()).is_pending());
    backend.interceptor().0.always.store(true, Ordering::SeqCst);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("on purpose, too");
    }));
    assert!(panicked.is_err());
    let Poll::Ready(Ok(handed_on)) = poll(waits) else { panic!("expected the hand-off") };
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
