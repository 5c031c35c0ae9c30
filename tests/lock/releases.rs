//! Releases that the store rejects.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use latchwork::backend::{Failure, LATEST_RUN, Runtime as _};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{LockClient, LockError, ShutdownError};
use tracing::Level;

use crate::foreign::told::{at_events_of, events_of};
use crate::over_local::{
    Back, Between, Command, Fate, Gate, Nothing, There, Way, fails, goes, never, over, over_when,
};
use crate::polled::{poll, ready};
use crate::stage::begun;

/// Refuses every release while the flag is set, and records the time of each.
#[derive(Clone)]
struct TakesNoRelease(ThreadRuntime, Arc<Mutex<Vec<Instant>>>, Arc<AtomicBool>);

impl TakesNoRelease {
    fn new(clock: &ThreadRuntime) -> Self {
        Self(clock.clone(), Arc::default(), Arc::new(AtomicBool::new(true)))
    }
}

impl Between for TakesNoRelease {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        if way == Back || !command.releases() {
            return goes();
        }
        self.1.lock().unwrap().push(self.0.now());
        // Ordering: SeqCst, here and below for simplicity; a test needs no less.
        if self.2.load(SeqCst) { fails(Failure::Indeterminate) } else { goes() }
    }
}

/// An operator hears once of a series of failures; a success in the background or by a call ends the series.
#[test]
fn error_of_a_release_is_told_again_once_one_has_succeeded() {
    let clock = ThreadRuntime::paused();
    let backend = TakesNoRelease::new(&clock);
    let client = LockClient::new(over(&Local::with_runtime(clock.clone()), backend.clone()));
    let lock = client.get_lock("orders").unwrap();
    let fails = || {
        events_of(Level::WARN, "latchwork::lock::entry::release", || {
            drop(ready(lock.lock_with_lease(Duration::from_secs(1))).unwrap());
            clock.advance(Duration::from_secs(2));
        })
    };
    assert_eq!((fails(), fails()), (1, 0));
    for awaited in [true, false] {
        backend.2.store(false, SeqCst);
        let held = ready(lock.lock()).unwrap();
        if awaited {
            ready(held.unlock()).unwrap()
        } else {
            drop(held)
        }
        backend.2.store(true, SeqCst);
        assert_eq!(fails(), 1, "{awaited}");
    }
}

/// Back-off spares an unavailable server, but stays at half a second, for a quick recovery.
#[test]
fn failed_release_is_retried_with_back_off_until_its_lease_ends() {
    const LEASE: Duration = Duration::from_secs(20);
    let clock = ThreadRuntime::paused();
    let backend = TakesNoRelease::new(&clock);
    let local = Local::with_runtime(clock.clone());
    let client = LockClient::new(over(&local, backend.clone()));
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
    assert!(pauses[0] <= Duration::from_millis(20), "expected a retry at once, and saw pauses of {pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
    let longest = pauses.iter().max().unwrap();
    assert_eq!(*longest, Duration::from_millis(500), "{pauses:?}");
    let last = *times.last().unwrap() - begin;
    assert!(last <= LEASE && last >= LEASE - *longest, "{last:?}");
}

#[test]
fn unanswered_unlock_fails_as_unanswered_and_is_counted() {
    let clock = ThreadRuntime::paused();
    let backend = TakesNoRelease::new(&clock);
    let client = LockClient::new(over(&Local::with_runtime(clock), backend));
    let lock = client.get_lock("orders").unwrap();
    let mut unlocks = pin!(async { lock.lock().await.unwrap().unlock().await });
    let Poll::Ready(Err(error)) = poll(unlocks.as_mut()) else {
        panic!("expected an error of the unanswered release")
    };
    assert!(error.is_release_pending() && !error.is_retryable(), "{error:?}");
    // The caller's release and the first retry.
    assert_eq!(client.metrics().releases_failed, 2);
    let refused = client.get_lock("").unwrap_err();
    assert!(!refused.is_release_pending(), "{refused:?}");
}

/// The store never answers the first release.
fn first_release_is_lost(local: &Local) -> LockClient {
    let is_first = AtomicBool::new(true);
    LockClient::new(over_when(local, move |way, command| {
        let is_lost = way == There && command.releases() && is_first.swap(false, SeqCst);
        if is_lost { never() } else { goes() }
    }))
}

type Shutdown = Pin<Box<dyn Future<Output = Result<(), ShutdownError>> + Send>>;

/// Polls a shutdown within the wake-up.
#[derive(Default)]
struct InPlace {
    shutdown: Mutex<Option<Shutdown>>,
    outcome: Mutex<Option<Result<(), ShutdownError>>>,
}

impl InPlace {
    fn begun(client: &LockClient) -> Arc<Self> {
        let (this, client) = (Arc::new(Self::default()), client.clone());
        let shutdown = async move { client.shutdown(Duration::from_secs(3600)).await };
        *this.shutdown.lock().unwrap() = Some(Box::pin(shutdown));
        Arc::clone(&this).wake();
        assert_eq!(this.outcome(), None);
        this
    }

    fn outcome(&self) -> Option<Result<(), ShutdownError>> {
        self.outcome.lock().unwrap().clone()
    }
}

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        // Locked by the poll that caused this wake-up, which sees the change anyway.
        let Ok(mut shutdown) = self.shutdown.try_lock() else { return };
        let Some(waits) = shutdown.as_mut() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if let Poll::Ready(outcome) = waits.as_mut().poll(&mut Context::from_waker(&waker)) {
            (*shutdown, *self.outcome.lock().unwrap()) = (None, Some(outcome));
        }
    }
}

/// The thread was busy past the limit; work finished before the poll counts as in time.
#[test]
fn shutdown_that_is_polled_late_looks_once_more() {
    const LIMIT: Duration = Duration::from_secs(1);
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let mut ends = begun(client.shutdown(LIMIT));
    drop(held);
    clock.advance(LIMIT);
    assert_eq!(poll(ends.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn shutdown_waits_for_guards_and_leaves_forgotten_holds_alone() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock));
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    ready(lock.lock()).unwrap().forget();
    let beside = [(); 2].map(|()| ready(lock.lock()).unwrap());
    let waits = InPlace::begun(&client);
    let [forgotten, dropped] = beside;
    forgotten.forget();
    assert_eq!(waits.outcome(), None);
    drop(dropped);
    assert_eq!(waits.outcome(), Some(Ok(())));
    assert!(ready(lock.is_locked()).unwrap(), "expected the forgotten hold to keep its lease");
}

/// The program may end: without a hold, no work can conflict with another client's.
#[test]
fn shutdown_lacking_answers_only_reports_that_no_work_is_lost() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(over(&Local::with_runtime(clock.clone()), TakesNoRelease::new(&clock)));
    let both = client.get_read_write_lock("orders").unwrap();
    let owner = client.owner();
    let writes = ready(both.write().owned_by(&owner).lock()).unwrap();
    let reads = ready(both.read().owned_by(&owner).lock()).unwrap();
    let left = || ready(client.shutdown(Duration::ZERO)).unwrap_err();
    for held in [Some(writes), Some(reads), None] {
        let (told, name) = (left(), "\"orders\"");
        assert_eq!(told.to_string().matches(name).count(), 1, "{told}");
        assert_eq!(told.is_release_pending(), held.is_none(), "{told}");
        assert_eq!(LockError::from(told).is_release_pending(), held.is_none());
        drop(held);
    }
}

#[test]
fn shutdown_hears_of_a_release_that_a_caller_has_left_unawaited() {
    let clock = ThreadRuntime::paused();
    let client = first_release_is_lost(&Local::with_runtime(clock));
    let lock = client.get_lock("orders").unwrap();
    let unlocks = begun(async move { lock.lock().await.unwrap().unlock().await });
    let waits = InPlace::begun(&client);
    drop(unlocks);
    assert_eq!(waits.outcome(), Some(Ok(())));
}

/// The store never answers the first release, whose future is kept unpolled.
#[test]
fn unanswered_release_is_retried_and_shutdown_needs_no_caller() {
    let clock = ThreadRuntime::paused();
    let client = first_release_is_lost(&Local::with_runtime(clock.clone()));
    let lock = client.get_lock("orders").unwrap();
    let unlocked = lock.clone();
    let unlocks = begun(async move { unlocked.lock().await.unwrap().unlock().await });
    clock.advance(Duration::from_millis(900));
    assert!(ready(lock.is_locked()).unwrap(), "expected the release to wait a second for its answer");
    clock.advance(Duration::from_millis(200));
    assert!(!ready(lock.is_locked()).unwrap());
    let mut ends = pin!(client.shutdown(Duration::from_secs(5)));
    assert_eq!(poll(ends.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(client.metrics().superseded, 0, "expected no superseded waiter");
    drop(unlocks);
}

/// A renewal due at 10 s takes along all that is due within the next second.
#[test]
fn unanswered_release_is_retried_beside_the_renewal_of_another_lock() {
    let clock = ThreadRuntime::paused();
    let client = first_release_is_lost(&Local::with_runtime(clock.clone()));
    let [renewed, lock] = ["renewed", "orders"].map(|name| client.get_lock(name).unwrap());
    let held = ready(renewed.lock()).unwrap();
    clock.advance(Duration::from_millis(9_500));
    let unlocked = lock.clone();
    let unlocks = begun(async move { unlocked.lock().await.unwrap().unlock().await });
    clock.advance(Duration::from_millis(500));
    clock.advance(Duration::from_millis(600));
    assert!(held.remaining() > Duration::from_secs(25), "expected a renewal before the retry");
    assert!(!ready(lock.is_locked()).unwrap());
    drop(unlocks);
}

/// The look at the end of a forgotten lease goes along with a renewal, and finds nothing to renew.
#[test]
fn forgotten_hold_that_is_gone_keeps_no_dropped_client() {
    let (clock, used) = (ThreadRuntime::paused(), Arc::new(()));
    let local = Local::with_runtime(clock.clone());
    let client = LockClient::new(over_when(&local, {
        let used = Arc::clone(&used);
        move |_, _| {
            _ = &used;
            goes()
        }
    }));
    let [renewed, lock] = ["renewed", "orders"].map(|name| client.get_lock(name).unwrap());
    let held = ready(renewed.lock()).unwrap();
    clock.advance(Duration::from_millis(500));
    let owner = client.owner();
    ready(lock.owned_by(&owner).lock()).unwrap().forget();
    assert!(ready(LockClient::new(local).get_lock("orders").unwrap().force_unlock()).unwrap());
    assert_eq!(ready(lock.hold_count(&owner)).unwrap(), 0);
    for _ in 0..4 {
        clock.advance(Duration::from_secs(10));
    }
    drop((held, renewed, lock, client));
    clock.advance(Duration::from_secs(60));
    assert_eq!(Arc::strong_count(&used), 1, "expected the client's end with its last handle");
}

/// The shutdown is woken during the release, when the lock may still be handed on.
#[test]
fn shutdown_woken_during_a_release_hears_of_the_locks_end() {
    let client = LockClient::new(over(&Local::new(), Nothing));
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let waits = InPlace::begun(&client);
    drop(held);
    assert_eq!(waits.outcome(), Some(Ok(())));
}

#[test]
fn answered_unlock_is_sent_once_and_reports_a_lost_lease() {
    let (local, sent) = (Local::new(), Arc::new(AtomicUsize::new(0)));
    let backend = over_when(&local, {
        let sent = Arc::clone(&sent);
        move |way, command| {
            let releases = way == There && (command.releases() || matches!(command, Command::RollBack(_)));
            sent.fetch_add(usize::from(releases), SeqCst);
            goes()
        }
    });
    let client = LockClient::new(backend);
    let (lock, theirs) = (client.get_lock("orders").unwrap(), LockClient::new(local).get_lock("orders"));
    let held = ready(lock.lock()).unwrap();
    ready(held.unlock()).unwrap();
    assert_eq!(sent.load(SeqCst), 1);
    let held = ready(lock.lock()).unwrap();
    ready(theirs.unwrap().force_unlock()).unwrap();
    assert!(ready(held.unlock()).unwrap_err().is_lost());
    assert_eq!(client.metrics().leases_lost, 1);
}

/// A silent connection may deliver the acquisition late, and the lease begins on delivery.
#[test]
fn unanswered_attempt_is_rolled_back_for_as_long_as_it_may_run() {
    let clock = ThreadRuntime::paused();
    let rolled_back = Arc::<Mutex<Vec<Instant>>>::default();
    let backend = over_when(&Local::with_runtime(clock.clone()), {
        let (clock, rolled_back) = (clock.clone(), Arc::clone(&rolled_back));
        move |_, command| {
            if let Command::RollBack(_) = command {
                rolled_back.lock().unwrap().push(clock.now());
            }
            fails(Failure::Indeterminate)
        }
    });
    let client = LockClient::new(backend);
    let (begin, lease) = (clock.now(), Duration::from_secs(20));
    ready(client.get_lock("orders").unwrap().lock_with_lease(lease)).unwrap_err();
    for _ in 0..300 {
        clock.advance(Duration::from_secs(1));
    }
    let last = *rolled_back.lock().unwrap().last().unwrap() - begin;
    let most = lease + LATEST_RUN;
    assert!(last <= most && last >= most - Duration::from_secs(2), "{last:?}");
}

/// Polls the shutdown between the failure of the release and the start of the retry.
#[test]
fn shutdown_waits_for_the_retry_of_a_failed_release() {
    // The first release waits, and fails.
    let (gate, is_first) = (Gate::closed(), AtomicBool::new(true));
    let backend = over_when(&Local::with_runtime(ThreadRuntime::paused()), {
        let gate = gate.clone();
        move |way, command| {
            let passes = gate.passes();
            match way == There && command.releases() && is_first.swap(false, SeqCst) {
                true => Box::pin(async {
                    passes.await?;
                    Err(Failure::Indeterminate)
                }),
                false => goes(),
            }
        }
    });
    let client = LockClient::new(backend);
    let lock = client.get_lock("orders").unwrap();
    let mut unlocks = begun(async move { lock.lock().await.unwrap().unlock().await });
    let (waits, too_early) = (InPlace::begun(&client), Arc::new(AtomicBool::default()));
    gate.open();
    let look = {
        let (waits, too_early) = (waits.clone(), too_early.clone());
        move || {
            waits.clone().wake();
            too_early.store(waits.outcome().is_some(), SeqCst);
        }
    };
    at_events_of(Level::WARN, "latchwork::lock::entry::release", look, || {
        assert!(matches!(poll(unlocks.as_mut()), Poll::Ready(Err(error)) if error.is_release_pending()));
    });
    assert!(!too_early.load(SeqCst), "expected the shutdown to wait for the retry of the release");
    assert_eq!(waits.outcome(), Some(Ok(())));
}

/// A token request that arrives after the release leases the lock anew.
#[test]
fn late_token_of_a_departed_owner_is_undone_after_the_outage() {
    const LEASE: Duration = Duration::from_secs(1200);
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let (asks, away) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let backend = over_when(&local, {
        let (asks, away) = (asks.clone(), Arc::clone(&away));
        move |way, command| match (way, command) {
            (There, Command::Acquire(_)) => asks.passes(),
            (There, Command::RollBack(_)) if away.load(SeqCst) => fails(Failure::Indeterminate),
            _ => goes(),
        }
    });
    let client = LockClient::new(backend);
    let (me, lock) = (client.owner(), client.get_lock("orders").unwrap());
    let (mine, theirs) = (lock.owned_by(&me), LockClient::new(local).get_lock("orders").unwrap());
    let _outer = ready(mine.lock_with_lease(LEASE)).unwrap();
    asks.close();
    let fenced = mine.clone().fenced();
    let mut inner = begun(fenced.lock_with_lease(LEASE));
    ready(mine.unlock(&me)).unwrap();
    ready(mine.unlock(&me)).unwrap();
    assert!(ready(theirs.try_lock()).unwrap().is_some());
    away.store(true, SeqCst);
    asks.open();
    assert!(matches!(poll(inner.as_mut()), Poll::Ready(Err(error)) if error.is_lost()));
    assert!(
        ready(theirs.try_lock()).unwrap().is_none(),
        "expected the lock leased anew by the late token request"
    );
    for _ in 0..300 {
        clock.advance(Duration::from_secs(1));
    }
    away.store(false, SeqCst);
    clock.advance(Duration::from_secs(2));
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "expected a free lock after the repeated rollback");
}
