//! A runtime that panics at each call in turn, with a failing store, so that timers retry commands.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use latchwork::LockClient;
use latchwork::backend::{Failure, Runtime};
use latchwork::local::{Local, Sleep, ThreadRuntime};

use super::told::told_of;
use super::{PanicsAt, act, assert_alive, at_each_call};
use crate::over_local::{Command, There, fails, goes, over_when};
use crate::polled::ready;

#[derive(Clone)]
struct Panics {
    runtime: ThreadRuntime,
    at: PanicsAt,
}

/// A sleep whose polls count as calls.
struct PanickingSleep {
    sleep: Sleep,
    at: PanicsAt,
}

impl Future for PanickingSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        self.at.call();
        Pin::new(&mut self.sleep).poll(task)
    }
}

impl Runtime for Panics {
    type Sleep = PanickingSleep;

    fn now(&self) -> Instant {
        self.at.call();
        self.runtime.now()
    }

    fn sleep_until(&self, deadline: Instant) -> PanickingSleep {
        self.at.call();
        PanickingSleep { sleep: self.runtime.sleep_until(deadline), at: self.at.clone() }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.at.call();
        self.runtime.spawn(task);
    }

    fn random(&self) -> u64 {
        self.at.call();
        self.runtime.random()
    }

    fn has_ended(&self) -> bool {
        self.at.call();
        self.runtime.has_ended()
    }
}

#[test]
fn runtime_that_panics_at_any_call_costs_no_name_and_no_renewal() {
    for fair in [false, true] {
        at_each_call(|at| {
            let clock = ThreadRuntime::paused();
            let runtime = Panics { runtime: clock.clone(), at: PanicsAt::default() };
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
            let mut told = 0;
            let calls = runtime.at.calls_of(at.clone(), || {
                told = told_of(|| {
                    act(&backend, &clock, fair, &client);
                    // Long enough for retries once the store is back, and shorter than a lease.
                    clock.advance(Duration::from_secs(16));
                });
            });
            let place = format!("call {at:?}, fair: {fair}");
            assert!(told > 0 || at.is_empty(), "{place}: expected an event about the panic");
            assert_alive(&place, [&LockClient::new(backend.clone()), &client], fair, &clock, &watched);
            calls
        });
    }
}
