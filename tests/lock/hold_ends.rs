//! The end of an owner's holds, and the report of each end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::over_local::{Back, Command, Fate, There, Way, goes, over_when};
use crate::polled::ready;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{LeaseError, LockClient, LockError, LossReason};
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn guard_learns_at_once_of_its_release_by_name_or_another_guard() {
    let client = LockClient::local();
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let (one, other) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    lock.unlock(&me).await.unwrap();
    let leaves = async {
        tokio::task::yield_now().await;
        drop(one);
    };
    let told = timeout(Duration::from_secs(1), async { tokio::join!(other.lost(), leaves).0 });
    assert_eq!(told.await.expect("expected the notification of the waiter"), LossReason::GivenBack);
}

const LEASE: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_nanos(1);

/// The owner keeps the lock by another hold. Precise to a nanosecond.
#[test]
fn guard_dropped_after_the_end_of_its_own_lease_reports_a_loss() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    let outer = ready(lock.lock()).unwrap();
    for (held_for, is_lost) in [(LEASE - MOMENT, false), (LEASE, true), (LEASE + MOMENT, true)] {
        let inner = ready(lock.lock_with_lease(LEASE)).unwrap();
        clock.advance(held_for);
        assert_eq!(inner.is_held(), !is_lost);
        let given_back = ready(inner.unlock());
        let says_so = matches!(given_back, Err(LockError::Lost { reason: LossReason::Expired, .. }));
        assert_eq!((given_back.is_ok(), says_so), (!is_lost, is_lost), "{given_back:?}");
    }
    ready(outer.unlock()).unwrap();
}

/// The owner keeps the lock by another hold, without a token. Precise to a nanosecond.
#[test]
fn inner_lease_over_before_its_token_fails_and_may_be_retried() {
    let (clock, passes) = (ThreadRuntime::paused(), Arc::<Mutex<Duration>>::default());
    // The time passes before the next acquisition is answered.
    let backend = over_when(&Local::with_runtime(clock.clone()), {
        let passes = Arc::clone(&passes);
        move |way, command| {
            if way == Back && command.acquires() {
                clock.advance(std::mem::take(&mut *passes.lock().unwrap()));
            }
            goes()
        }
    });
    let client = LockClient::new(backend);
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    for (took, is_late) in [(LEASE - MOMENT, false), (LEASE, true), (LEASE + MOMENT, true)] {
        let outer = ready(lock.lock()).unwrap();
        *passes.lock().unwrap() = took;
        let inner = ready(lock.fenced().lock_with_lease(LEASE));
        let says_so = matches!(inner, Err(LockError::Lease(LeaseError::OverBeforeAnswer)));
        assert_eq!((inner.is_ok(), says_so), (!is_late, is_late), "{inner:?}");
        drop(inner);
        ready(outer.unlock()).unwrap();
    }
}

#[test]
fn name_whose_lost_guard_is_forgotten_is_kept_no_longer() {
    let client = LockClient::local();
    let acquisitions = || client.get_lock("orders").unwrap().stats().acquisitions;
    let take = || ready(client.get_lock("orders").unwrap().lock()).unwrap();
    take().forget();
    assert_eq!(acquisitions(), 1);
    assert!(ready(client.get_lock("orders").unwrap().force_unlock()).unwrap());
    let lost = take();
    assert!(ready(client.get_lock("orders").unwrap().force_unlock()).unwrap());
    lost.forget();
    assert_eq!(acquisitions(), 0);
}

/// Commands or answers that `late` picks take their time.
fn slow(time: u64, late: fn(Way, Command<'_>) -> bool) -> LockClient {
    let slowly = move |way, command: Command<'_>| -> Fate {
        if !late(way, command) {
            return goes();
        }
        Box::pin(async move {
            sleep(Duration::from_millis(time)).await;
            Ok(())
        })
    };
    LockClient::new(over_when(&Local::new(), slowly))
}

fn slow_renewals() -> LockClient {
    slow(500, |way, command| way == There && command.renews())
}

#[tokio::test]
async fn wait_limit_applies_to_the_longer_lease_of_an_inner_hold() {
    let client = slow_renewals();
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let _outer = lock.lock_with_lease(Duration::from_secs(60)).await.unwrap();
    let inner = lock.try_lock_for(Duration::from_millis(50), Duration::from_secs(600));
    let inner =
        timeout(Duration::from_millis(400), inner).await.expect("the wait ends at the limit of the caller");
    assert!(matches!(inner, Err(LockError::NoAnswer { .. })), "{inner:?}");
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "expected the outer hold alone");
}

#[tokio::test]
async fn extension_of_a_hold_that_was_given_back_meanwhile_says_so() {
    let client = slow_renewals();
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let mut extended = lock.lock_with_lease(Duration::from_secs(60)).await.unwrap();
    let other = lock.lock().await.unwrap();
    let given_back = async {
        sleep(Duration::from_millis(50)).await;
        lock.unlock(&me).await.unwrap();
        drop(other);
    };
    let (extension, ()) = tokio::join!(extended.extend(Duration::from_secs(600)), given_back);
    let why = extension.unwrap_err();
    assert!(matches!(why, LockError::Lost { reason: LossReason::GivenBack, .. }), "{why:?}");
}

#[tokio::test]
async fn lease_over_before_its_answer_fails_and_passes_the_lock_on() {
    let client = slow(50, |way, command| way == Back && command.acquires());
    let prices = client.get_read_write_lock("prices").unwrap();
    for lock in [client.get_lock("a").unwrap(), client.get_fair_lock("b").unwrap(), prices.read().clone()] {
        let both =
            async { tokio::join!(biased; lock.lock_with_lease(Duration::from_millis(1)), lock.lock()) };
        let (short, watched) = timeout(Duration::from_secs(5), both).await.expect("both calls end");
        assert!(matches!(short, Err(LockError::Lease(LeaseError::OverBeforeAnswer))), "{short:?}");
        assert!(
            short.is_err_and(|error| error.is_retryable() && !error.is_refused()),
            "expected an error that may be retried, as the next answer may be in time"
        );
        assert!(watched.unwrap().is_held());
    }
}
