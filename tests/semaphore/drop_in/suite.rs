// Behavior that users of tokio's semaphore rely on. Included by drop_in.rs, once for each semaphore.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

static SHARED: Semaphore = Semaphore::const_new(1);
const MAX: usize = Semaphore::MAX_PERMITS;

fn panics(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

/// Asserts that `future` is pending after a generous time.
async fn stays_pending<F: Future>(future: F) {
    assert!(timeout(Duration::from_millis(10), future).await.is_err());
}

#[tokio::test]
async fn a_static_semaphore_guards() {
    let permit: SemaphorePermit<'static> = SHARED.acquire().await.unwrap();
    assert!(SHARED.try_acquire().is_err());
    drop(permit);
    assert_eq!(SHARED.available_permits(), 1);
}

#[tokio::test]
async fn permits_come_back_when_dropped() {
    let semaphore = Semaphore::new(1);
    let permit = semaphore.try_acquire().unwrap();
    assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
    stays_pending(semaphore.acquire()).await;
    drop(permit);
    drop(semaphore.acquire().await.unwrap());
    assert_eq!(semaphore.available_permits(), 1);
}

#[tokio::test]
async fn a_waiting_task_is_woken() {
    let semaphore = Arc::new(Semaphore::new(1));
    let held = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_owned().await.unwrap().num_permits() }
    });
    tokio::task::yield_now().await;
    drop(held);
    assert_eq!(waiting.await.unwrap(), 1);
}

#[tokio::test]
async fn many_are_taken_and_given_back_at_once() {
    let semaphore = Semaphore::new(5);
    let four = semaphore.acquire_many(4).await.unwrap();
    assert_eq!(four.num_permits(), 4);
    assert!(semaphore.try_acquire_many(2).is_err());
    let one = semaphore.try_acquire_many(1).unwrap();
    assert_eq!(semaphore.available_permits(), 0);
    drop(four);
    assert_eq!(semaphore.available_permits(), 4);
    drop(one);
    assert_eq!(semaphore.available_permits(), 5);
}

#[tokio::test]
async fn none_are_always_to_be_had() {
    let semaphore = Semaphore::new(0);
    assert_eq!(semaphore.acquire_many(0).await.unwrap().num_permits(), 0);
    assert!(semaphore.try_acquire_many(0).is_ok());
    stays_pending(async {
        tokio::join!(semaphore.acquire(), async {
            assert!(semaphore.try_acquire_many(0).is_ok(), "expected zero permits at once, past waiters too");
        })
    })
    .await;
}

#[tokio::test]
async fn owned_permits_outlive_the_handle() {
    let semaphore = Arc::new(Semaphore::new(3));
    let one: OwnedSemaphorePermit = semaphore.clone().acquire_owned().await.unwrap();
    let two = semaphore.clone().try_acquire_many_owned(2).unwrap();
    assert_eq!(semaphore.clone().try_acquire_owned().unwrap_err(), TryAcquireError::NoPermits);
    stays_pending(semaphore.clone().acquire_many_owned(2)).await;
    assert!(Arc::ptr_eq(one.semaphore(), &semaphore));
    drop(two);
    assert_eq!(semaphore.available_permits(), 2);
    one.forget();
    assert_eq!(semaphore.available_permits(), 2);
    assert_eq!(Arc::strong_count(&semaphore), 1);
}

#[test]
fn blocking_calls_wait_in_the_same_line() {
    let semaphore = Arc::new(Semaphore::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| drop(semaphore.blocking_acquire().unwrap()));
        scope.spawn(|| drop(semaphore.blocking_acquire_many(2).unwrap()));
        scope.spawn(|| drop(semaphore.clone().blocking_acquire_owned().unwrap()));
        scope.spawn(|| drop(semaphore.clone().blocking_acquire_many_owned(2).unwrap()));
        semaphore.add_permits(2);
    });
    assert_eq!(semaphore.available_permits(), 2);
}

#[test]
fn permits_are_split_and_merged() {
    let semaphore = Arc::new(Semaphore::new(8));
    let mut all = semaphore.try_acquire_many(8).unwrap();
    let three = all.split(3).unwrap();
    assert_eq!((all.num_permits(), three.num_permits()), (5, 3));
    assert!(all.split(6).is_none());
    assert_eq!(all.split(0).unwrap().num_permits(), 0);
    drop(three);
    assert_eq!(semaphore.available_permits(), 3);
    all.merge(semaphore.try_acquire_many(2).unwrap());
    assert_eq!(all.num_permits(), 7);
    assert!(std::ptr::eq(all.semaphore(), &*semaphore));
    drop(all);
    assert_eq!(semaphore.available_permits(), 8);

    let mut owned = semaphore.clone().try_acquire_many_owned(2).unwrap();
    owned.merge(semaphore.clone().try_acquire_owned().unwrap());
    let one = owned.split(1).unwrap();
    assert_eq!((owned.num_permits(), one.num_permits()), (2, 1));
    assert!(owned.split(3).is_none());
    drop((owned, one));
    assert_eq!(semaphore.available_permits(), 8);
}

#[test]
fn permits_of_two_semaphores_do_not_merge() {
    let (one, other) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
    assert!(panics(|| one.try_acquire().unwrap().merge(other.try_acquire().unwrap())));
    assert!(panics(|| {
        let mut permit = one.clone().try_acquire_owned().unwrap();
        permit.merge(other.clone().try_acquire_owned().unwrap());
    }));
    assert_eq!((one.available_permits(), other.available_permits()), (1, 1));
}

#[tokio::test]
async fn permits_are_added_and_forgotten() {
    let semaphore = Semaphore::new(0);
    stays_pending(semaphore.acquire()).await;
    semaphore.add_permits(5);
    semaphore.try_acquire().unwrap().forget();
    assert_eq!(semaphore.available_permits(), 4);
    assert_eq!(semaphore.forget_permits(1), 1);
    assert_eq!(semaphore.forget_permits(100), 3);
    assert_eq!(semaphore.forget_permits(1), 0);
    semaphore.add_permits(1);
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn the_most_permits_are_accepted_and_no_more() {
    Semaphore::new(0).add_permits(MAX);
    let nearly = Semaphore::new(MAX - 1);
    nearly.add_permits(1);
    assert!(panics(|| nearly.add_permits(1)));
    assert!(panics(|| Semaphore::new(1).add_permits(MAX)));
    assert!(catch_unwind(|| Semaphore::new(MAX + 1)).is_err());
}

#[tokio::test]
async fn closing_refuses_all() {
    let semaphore = Arc::new(Semaphore::new(2));
    let held = semaphore.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move {
            let refused: AcquireError = semaphore.acquire().await.unwrap_err();
            refused.to_string()
        }
    });
    tokio::task::yield_now().await;
    assert!(!semaphore.is_closed());
    semaphore.close();
    assert!(semaphore.is_closed());
    assert_eq!(waiting.await.unwrap(), "semaphore closed");
    assert!(semaphore.acquire().await.is_err());
    assert!(semaphore.acquire_many(0).await.is_err());
    assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::Closed);
    assert_eq!(TryAcquireError::Closed.to_string(), "semaphore closed");
    assert_eq!(TryAcquireError::NoPermits.to_string(), "no permits available");
    drop(held);
    assert_eq!(semaphore.available_permits(), 2);
    assert_eq!(semaphore.forget_permits(1), 1);
    assert!(semaphore.is_closed(), "expected the semaphore closed after forgetting");
    assert!(semaphore.try_acquire().is_err());
}

#[tokio::test]
async fn a_large_request_is_not_overtaken() {
    let semaphore = Arc::new(Semaphore::new(2));
    let held = semaphore.clone().acquire_many_owned(2).await.unwrap();
    let large = tokio::spawn(semaphore.clone().acquire_many_owned(2));
    tokio::task::yield_now().await;
    let small = tokio::spawn(semaphore.clone().acquire_owned());
    tokio::task::yield_now().await;
    let mut held = held;
    drop(held.split(1).unwrap());
    tokio::task::yield_now().await;
    assert!(!small.is_finished() && !large.is_finished());
    drop(held);
    let two = large.await.unwrap().unwrap();
    assert!(!small.is_finished());
    drop(two);
    drop(small.await.unwrap().unwrap());
}

#[test]
fn auto_traits() {
    fn is<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
    is::<Semaphore>();
    is::<SemaphorePermit<'_>>();
    is::<OwnedSemaphorePermit>();
    is::<AcquireError>();
    is::<TryAcquireError>();
    fn sent<T: Send + Sync>(_: T) {}
    let semaphore = Arc::new(Semaphore::new(1));
    sent(semaphore.acquire());
    sent(semaphore.acquire_many(1));
    sent(semaphore.clone().acquire_owned());
    sent(semaphore.acquire_many_owned(1));
}
