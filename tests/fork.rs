//! A process that forks: the child has a copy of the client, and of what the parent holds.
#![cfg(unix)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use latchwork::{LockClient, LockError};

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// What the child finds: 0 if all is as it should be.
fn child(
    client: &LockClient<latchwork::local::Local>,
    guard: latchwork::Guard<latchwork::local::Local>,
) -> i32 {
    let lock = client.get_lock("held").unwrap();
    let is_forked = |error: &LockError| matches!(error, LockError::Forked) && error.is_shut_down();
    let refused = [
        now(lock.try_lock()).err(),
        now(lock.lock()).err(),
        now(client.get_lock("free").unwrap().lock()).err(),
        now(lock.force_unlock()).err(),
        now(lock.holder()).err(),
        now(guard.ensure_held()).err(),
    ];
    if guard.is_held() || !refused.iter().all(|error| error.as_ref().is_some_and(is_forked)) {
        return 1;
    }
    // Not the child's to give back.
    drop(guard);
    let fresh = LockClient::local();
    let works = now(now(fresh.get_lock("held").unwrap().lock()).unwrap().unlock()).is_ok();
    if works { 0 } else { 2 }
}

#[test]
fn child_does_not_go_on_as_the_same_owner() {
    let client = LockClient::local();
    let lock = client.get_lock("held").unwrap();
    let guard = now(lock.lock()).unwrap();
    // SAFETY: the child runs a few functions of this crate, whose locks nobody holds at this moment, and exits at once.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(&client, guard)));
        // SAFETY: ends the process, as it says; nothing of the test's is to run in the child.
        unsafe { libc::_exit(found.unwrap_or(3)) };
    }
    assert!(process > 0, "no process to be had");
    let mut status = 0;
    // SAFETY: the status is written to a place that is there.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!((waited, status), (process, 0), "the child went on, or hung");
    assert!(guard.is_held(), "the child gave the parent's lock back");
    now(guard.unlock()).unwrap();
}
