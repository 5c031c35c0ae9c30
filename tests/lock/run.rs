//! `run` and `run_with` of `Lock` and `Guard`: work that ends with the lock.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{LockClient, LossReason};

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        // Ordering: SeqCst for simplicity; only a counter.
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn output_is_returned_and_the_lock_is_free_again() {
    let lock = LockClient::local().get_lock("name").unwrap();
    assert_eq!(lock.run(ready(7)).await.unwrap(), 7);
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn work_is_dropped_when_the_lock_is_lost_and_the_reason_is_told() {
    let client = LockClient::local();
    let lock = client.get_lock("name").unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let guard = lock.lock_with_lease(Duration::from_millis(20)).await.unwrap();
    let work = {
        let dropped = Dropped(Arc::clone(&dropped));
        async move {
            let _dropped = dropped;
            pending::<()>().await;
        }
    };
    let error = guard.run(work).await.unwrap_err();
    assert!(error.is_lost() && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains(&LossReason::Expired.to_string()), "{error}");
    // Ordering: SeqCst, as above.
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(lock.try_lock().await.unwrap().is_some(), "expected a free lock after the work");
}

#[tokio::test]
async fn output_of_work_whose_lock_was_taken_away_is_an_error() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let lock = client.get_lock("name").unwrap();
    let guard = lock.lock_with_lease(Duration::from_secs(1)).await.unwrap();
    let work = async move { clock.advance(Duration::from_secs(2)) };
    assert!(
        guard.run(work).await.unwrap_err().is_lost(),
        "expected a loss, as the work ended after its lease"
    );
}

#[tokio::test]
async fn dropped_run_gives_the_lock_back_and_drops_its_work() {
    let client = LockClient::local();
    let lock = client.get_lock("name").unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let guarded = Dropped(Arc::clone(&dropped));
    let run = lock.run(async move {
        let _guarded = guarded;
        pending::<()>().await;
    });
    assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());
    // Ordering: SeqCst, as above.
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn panic_of_the_work_gives_the_lock_back() {
    let client = LockClient::local();
    let lock = client.get_lock("name").unwrap();
    let run = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.run(async { panic!("the work's own") }).await })
    };
    assert!(run.await.unwrap_err().is_panic());
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn work_has_its_guard_while_it_runs() {
    let lock = LockClient::local().get_lock("name").unwrap().fenced();
    let before = lock.lock().await.unwrap();
    let last = before.fencing_token();
    before.unlock().await.unwrap();
    let work = {
        let lock = lock.clone();
        // Spawned, since the future must be `Send`.
        tokio::spawn(async move {
            lock.run_with(async |guard| {
                guard.ensure_held().await.unwrap();
                tokio::task::yield_now().await;
                (guard.fencing_token(), guard.is_held())
            })
            .await
        })
    };
    let (token, held) = work.await.unwrap().unwrap();
    assert!(held && token > last, "{token:?} after {last:?}");
    assert!(lock.try_lock().await.unwrap().is_some(), "expected a free lock after the work");
}

/// The loss is known before the first poll.
#[tokio::test]
async fn work_with_its_guard_is_not_begun_once_the_loss_is_known() {
    let client = LockClient::local();
    let lock = client.get_lock("name").unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    let outcome: Result<(), _> = guard.run_with(async |_| panic!("the lock is lost")).await;
    assert!(outcome.unwrap_err().is_lost());
    assert!(lock.try_lock().await.unwrap().is_some());
}
