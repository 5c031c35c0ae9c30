//! A timed wait ends with `None` if this client has heard that the lock is held, else with `NoAnswer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use latchwork::local::Local;
use latchwork::{Guard, Lease, Lock, LockClient, LockError};
use tokio::task::JoinHandle;

use crate::over_local::{Back, Command, There, goes, never, over_when};
use crate::waiting::waiting_for;

waiting_for!(Duration::from_secs(20));

const WAIT: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Shared {
    is_silent: AtomicBool,
    answered: AtomicUsize,
    unanswered: AtomicUsize,
}

fn tries(lock: &Lock, wait: Duration) -> JoinHandle<Result<Option<Guard>, LockError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.try_lock_for(wait, Lease::Watched).await })
}

/// Another client has the lock. The store answers the queue head only, which then sleeps until its limit.
#[tokio::test]
async fn waiter_behind_a_refused_queue_head_learns_of_the_holder() {
    let local = Local::new();
    let elsewhere = LockClient::new(local.clone());
    let _held = elsewhere.get_lock("orders").unwrap().lock().await.unwrap();
    let store = Arc::new(Shared::default());
    let backend = over_when(&local, {
        let store = Arc::clone(&store);
        move |way, command| match (way, command) {
            // Ordering: SeqCst here and below, as the test compares the three values in program order.
            (There, Command::Acquire(_)) if store.is_silent.load(SeqCst) => {
                store.unanswered.fetch_add(1, SeqCst);
                never()
            }
            (Back, Command::Acquire(_)) => {
                store.answered.fetch_add(1, SeqCst);
                goes()
            }
            _ => goes(),
        }
    });
    let client = LockClient::new(backend);
    let lock = client.get_lock("orders").unwrap();

    let head = tries(&lock, WAIT);
    // The head asks, subscribes, and asks again.
    eventually("both answers", async || store.answered.load(SeqCst) == 2).await;
    store.is_silent.store(true, SeqCst);
    let behind = tries(&lock, WAIT * 2);
    eventually("the queue", async || lock.waiters() == 1).await;
    let head = soon("the head's end", head).await.unwrap();
    assert!(matches!(head, Ok(None)), "{head:?}");

    // The next waiter is queue head now; a call that begins now has heard nothing.
    eventually("a question", async || store.unanswered.load(SeqCst) == 1).await;
    let late = tries(&lock, WAIT / 10);
    let late = soon("the end of the late one", late).await.unwrap();
    assert!(matches!(late, Err(LockError::NoAnswer { .. })), "{late:?}");
    let behind = soon("the end of the waiter", behind).await.unwrap();
    assert!(matches!(behind, Ok(None)), "{behind:?}");

    let alone = soon("the end of a call of its own", tries(&lock, WAIT / 10)).await.unwrap();
    assert!(matches!(alone, Err(LockError::NoAnswer { .. })), "{alone:?}");
}
