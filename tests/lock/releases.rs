//! Releases that the store does not take.

use std::fmt;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use latchwork::backend::Runtime as _;
use latchwork::local::{Local, OtherKind, ThreadRuntime};
use latchwork::{LockClient, ShutdownError};

use crate::over_local::{Between, Command, OverLocal};
use crate::polled::{poll, ready};

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

/// Refuses every release, and notes when it came.
#[derive(Clone)]
struct TakesNoRelease(ThreadRuntime, Arc<Mutex<Vec<Instant>>>);

impl Between for TakesNoRelease {
    type Error = Refused;

    async fn carry<T: Send>(
        &self,
        command: Command<'_>,
        run: impl Future<Output = Result<T, OtherKind>> + Send,
    ) -> Result<T, Refused> {
        if let Command::Release(_) = command {
            self.1.lock().unwrap().push(self.0.now());
            return Err(Refused);
        }
        run.await.map_err(|_| Refused)
    }
}

/// A server that cannot answer is not asked a hundred times a second by each lock, and one that can again is
/// asked before a second has passed.
#[test]
fn release_that_fails_is_repeated_ever_more_rarely_until_its_lease_is_over() {
    const LEASE: Duration = Duration::from_secs(20);
    let clock = ThreadRuntime::paused();
    let backend = TakesNoRelease(clock.clone(), Arc::default());
    let local = Local::with_runtime(clock.clone());
    let client = LockClient::new(OverLocal::new(&local, backend.clone()));
    let lock = client.get_lock("orders").unwrap();
    let taken = {
        let mut takes = pin!(lock.lock_with_lease(LEASE));
        poll(takes.as_mut())
    };
    let Poll::Ready(held) = taken else { panic!("the lock is free") };
    drop(held.unwrap());
    let begin = clock.now();
    for _ in 0..3 * LEASE.as_millis() / 10 {
        clock.advance(Duration::from_millis(10));
    }
    let times = backend.1.lock().unwrap().clone();
    assert_eq!(client.metrics().releases_failed, times.len() as u64);
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] <= Duration::from_millis(20), "it is repeated at once: {pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
    let longest = pauses.iter().max().unwrap();
    assert_eq!(*longest, Duration::from_secs(1), "{pauses:?}");
    let last = *times.last().unwrap() - begin;
    assert!(last <= LEASE && last >= LEASE - *longest, "{last:?}");
}

#[test]
fn unlock_that_the_store_does_not_answer_is_an_error_that_says_so_and_is_counted() {
    let clock = ThreadRuntime::paused();
    let backend = TakesNoRelease(clock.clone(), Arc::default());
    let client = LockClient::new(OverLocal::new(&Local::with_runtime(clock), backend));
    let lock = client.get_lock("orders").unwrap();
    let mut unlocks = pin!(async { lock.lock().await.unwrap().unlock().await });
    let Poll::Ready(Err(error)) = poll(unlocks.as_mut()) else { panic!("it is answered") };
    assert!(error.is_release_pending() && !error.is_retryable(), "{error:?}");
    // The caller's, and the first repetition.
    assert_eq!(client.metrics().releases_failed, 2);
    let refused = client.get_lock("").unwrap_err();
    assert!(!refused.is_release_pending(), "{refused:?}");
}

/// Answers the first release when it is polled for the second time, which it never is.
#[derive(Clone, Default)]
struct FirstIsSilent(Arc<AtomicBool>);

impl Between for FirstIsSilent {
    type Error = OtherKind;

    async fn carry<T: Send>(
        &self,
        command: Command<'_>,
        run: impl Future<Output = Result<T, OtherKind>> + Send,
    ) -> Result<T, OtherKind> {
        // Ordering: SeqCst, for no reason but that it is a test.
        if matches!(command, Command::Release(_)) && !self.0.swap(true, SeqCst) {
            pending::<()>().await;
        }
        run.await
    }
}

type Shutdown = Pin<Box<dyn Future<Output = Result<(), ShutdownError>> + Send>>;

/// Polls a shutdown where it is woken.
#[derive(Default)]
struct InPlace {
    shutdown: Mutex<Option<Shutdown>>,
    outcome: Mutex<Option<Result<(), ShutdownError>>>,
}

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        // Woken by what it does itself, it has seen that.
        let Ok(mut shutdown) = self.shutdown.try_lock() else { return };
        let Some(waits) = shutdown.as_mut() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if let Poll::Ready(outcome) = waits.as_mut().poll(&mut Context::from_waker(&waker)) {
            (*shutdown, *self.outcome.lock().unwrap()) = (None, Some(outcome));
        }
    }
}

/// As by a thread that was busy meanwhile: what was done before it looks was done in time.
#[test]
fn shutdown_that_is_polled_late_looks_once_more() {
    const LIMIT: Duration = Duration::from_secs(1);
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let mut ends = pin!(client.shutdown(LIMIT));
    assert!(poll(ends.as_mut()).is_pending());
    drop(held);
    clock.advance(LIMIT);
    assert_eq!(poll(ends.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn shutdown_hears_of_a_release_that_a_caller_has_left_unawaited() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(OverLocal::new(&Local::with_runtime(clock), FirstIsSilent::default()));
    let lock = client.get_lock("orders").unwrap();
    let mut unlocks = Box::pin(async move { lock.lock().await.unwrap().unlock().await });
    assert!(poll(unlocks.as_mut()).is_pending());
    let waits = Arc::new(InPlace::default());
    *waits.shutdown.lock().unwrap() =
        Some(Box::pin(async move { client.shutdown(Duration::from_secs(5)).await }));
    Arc::clone(&waits).wake();
    assert_eq!(*waits.outcome.lock().unwrap(), None);
    drop(unlocks);
    assert_eq!(*waits.outcome.lock().unwrap(), Some(Ok(())));
}
