//! A process forks while one of its tasks waits: the child has a copy of the task, and must not act for it.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use latchwork::{Lock, LockClient};

use super::futures::poll_once;
use super::stage::{AT_ONCE, end, pairs, serve, sleeps, until_queued, waiter, within};
use crate::day::{Day, eventually};
use crate::rerun;

/// Set only for the process that forks.
const FORKS: &str = "LATCHWORK_TEST_FORKS";

/// In a process of its own: the child copies mutexes held by other threads, such as other tests'.
#[test]
fn child_does_not_leave_the_queue_for_its_parent() {
    let output = rerun::command(module_path!(), "process_that_forks").env(FORKS, "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(FORKS),
        "expected a process that forks, and its output is {output:?}"
    );
}

/// The body of the forking process: its one-thread runtime is idle during the fork. Does nothing as a test.
#[tokio::test]
async fn process_that_forks() {
    if env::var_os(FORKS).is_none() {
        return;
    }
    println!("{FORKS}");
    let day = Day::begin();
    let (holder, client, other) = (day.bystander().await, day.bystander().await, day.bystander().await);
    for (held, first) in pairs(&holder, &client) {
        child_does_not_act_for_its_parent(&day, &held.lock, &client, &first.lock, &other).await;
    }
    end(day, &[&holder, &client, &other]).await;
}

async fn child_does_not_act_for_its_parent(
    day: &Day,
    held: &Lock,
    client: &LockClient,
    first: &Lock,
    other: &LockClient,
) {
    let held = held.lock().await.unwrap();
    let mut wait = Box::pin(first.lock());
    eventually("sleep", async || {
        assert!(poll_once(wait.as_mut()).is_pending());
        sleeps(client)
    })
    .await;
    let behind = waiter(other).await;
    until_queued(&day.server, 2).await;
    // SAFETY: the child calls a few functions of this crate, whose mutexes are free now, and exits at once.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let found = catch_unwind(AssertUnwindSafe(|| {
            // The child must release none of these.
            drop(wait);
            drop(held);
            let mut refused = pin!(first.lock());
            match poll_once(refused.as_mut()) {
                Poll::Ready(Err(error)) if error.is_shut_down() => 0_i32,
                _ => 1,
            }
        }));
        // SAFETY: `_exit` ends the process; no code of the test may run in the child.
        unsafe { libc::_exit(found.unwrap_or(3)) };
    }
    assert!(process > 0, "expected a child process, and fork failed");
    let mut status = 0;
    // SAFETY: `status` is a valid place for the status.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!((waited, status), (process, 0), "expected the child to end with status 0");
    until_queued(&day.server, 2).await;
    held.ensure_held().await.unwrap();
    held.unlock().await.unwrap();
    let guard = within(AT_ONCE, "the parent's turn", wait).await.unwrap();
    assert!(!behind.is_finished());
    guard.unlock().await.unwrap();
    serve(AT_ONCE, "the turn of the one behind", behind).await;
}
