//! A runtime that panics at each call in turn, with a failing store, so that timers retry commands.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use latchwork::backend::{Failure, Runtime};
use latchwork::local::{Local, Sleep, ThreadRuntime};
use latchwork::{Guard, LockClient};

use super::act;
use super::told::told_of;
use crate::over_local::{Command, There, fails, goes, over_when};
use crate::polled::ready;

#[derive(Clone)]
struct Panics {
    runtime: ThreadRuntime,
    calls: Arc<AtomicUsize>,
    /// Index of the panicking call; out of range if no call panics.
    at: Arc<AtomicUsize>,
}

impl Panics {
    fn call(&self) {
        // Ordering: SeqCst for simplicity; a test needs no less.
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        assert_ne!(call, self.at.load(Ordering::SeqCst), "on purpose");
    }
}

/// A sleep whose polls count as calls.
struct PanickingSleep {
    sleep: Sleep,
    calls: Panics,
}

impl Future for PanickingSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        self.calls.call();
        Pin::new(&mut self.sleep).poll(task)
    }
}

impl Runtime for Panics {
    type Sleep = PanickingSleep;

    fn now(&self) -> Instant {
        self.call();
        self.runtime.now()
    }

    fn sleep_until(&self, deadline: Instant) -> PanickingSleep {
        self.call();
        PanickingSleep { sleep: self.runtime.sleep_until(deadline), calls: self.clone() }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.call();
        self.runtime.spawn(task);
    }

    fn random(&self) -> u64 {
        self.call();
        self.runtime.random()
    }

    fn has_ended(&self) -> bool {
        self.call();
        self.runtime.has_ended()
    }
}

#[test]
fn runtime_that_panics_at_any_call_costs_no_name_and_no_renewal() {
    for fair in [false, true] {
        let run = |at: Option<usize>| {
            let clock = ThreadRuntime::paused();
            let (calls, never) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX)));
            let runtime = Panics { runtime: clock.clone(), calls, at: never };
            let local = Local::with_runtime(runtime.clone());
            let back = clock.now() + Duration::from_secs(12);
            let backend = over_when(&local, {
                let clock = clock.clone();
                move |way, command| {
                    let waits = !command.acquires() && !matches!(command, Command::Holders(_));
                    match way == There && waits && clock.now() < back {
                        true => fails(Failure::Indeterminate),
                        false => goes(),
                    }
                }
            });
            let client = LockClient::new(backend.clone());
            let watched = ready(client.get_lock("watched").unwrap().lock()).unwrap();
            runtime.calls.store(0, Ordering::SeqCst);
            runtime.at.store(at.unwrap_or(usize::MAX), Ordering::SeqCst);
            let told = told_of(|| {
                act(&backend, &clock, fair, &client);
                // Long enough for retries once the store is back, and shorter than a lease.
                clock.advance(Duration::from_secs(16));
            });
            let calls = runtime.calls.load(Ordering::SeqCst);
            runtime.at.store(usize::MAX, Ordering::SeqCst);
            let place = format!("call {at:?}, fair: {fair}");
            assert!(told > 0 || at.is_none(), "{place}: expected an event about the panic");
            for client in [LockClient::new(backend.clone()), client.clone()] {
                let lock =
                    if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") }.unwrap();
                assert!(
                    ready(lock.try_lock()).unwrap().is_some(),
                    "{place}: expected the free lock, and the name is dead"
                );
            }
            for _ in 0..3 {
                clock.advance(Duration::from_secs(20));
                assert!(Guard::is_held(&watched), "{place}: expected a renewed lease");
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
