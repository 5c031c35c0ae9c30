//! Semaphores over several clients of one store: the same tests in memory and over a server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use latchwork::{LockClient, LockError, LockKind, LossReason, NamedSemaphore, PermitGuard};

crate::waiting::waiting_for!(Duration::from_secs(60));

const SHORT: Duration = Duration::from_millis(100);

/// Makes the tests over two clients; `$clients` also returns what they need to live.
macro_rules! over_two_clients {
    ($clients:expr) => {
        crate::permits::over_two_clients! { $clients =>
            bad_requests_are_refused_before_anything_is_sent
            client_waits_for_permits_at_its_end
            ended_leases_serve_all_waiters_that_fit
            permits_are_listed_forced_and_forgotten
            try_overtakes_no_waiter_behind_the_gate
            unpolled_waiters_give_way
        }
    };
    ($clients:expr => $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let (_needed, [one, other]) = $clients;
                crate::permits::$name(&one, &other).await;
            }
        )*
    };
}
pub(crate) use over_two_clients;

type Waiter = Pin<Box<dyn Future<Output = Result<PermitGuard, LockError>> + Send>>;

/// Begins to wait for permits, and waits until the store has queued the acquisition.
pub(crate) async fn waits(jobs: &NamedSemaphore, permits: u32) -> tokio::task::JoinHandle<PermitGuard> {
    let (before, jobs) = (jobs.waiting(), jobs.clone());
    let waiter = {
        let jobs = jobs.clone();
        tokio::spawn(async move { jobs.acquire_many(permits).await.unwrap() })
    };
    eventually("a waiter", async || jobs.waiting() > before).await;
    // A try of all permits is refused also by a waiter in the queue; the first question has come by then.
    tokio::time::sleep(SHORT).await;
    waiter
}

/// Runs holds of `clients` beside each other. Never more permits than the capacity are in use.
pub(crate) async fn holds_never_exceed_the_capacity(clients: &[LockClient], tasks: u32, rounds: u32) {
    const CAPACITY: u32 = 5;
    let (used, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks = (0..tasks).map(|task| {
        let jobs = clients[task as usize % clients.len()].get_semaphore("jobs", CAPACITY).unwrap();
        let (used, most) = (Arc::clone(&used), Arc::clone(&most));
        tokio::spawn(async move {
            for round in 0..rounds {
                let permits = (task + round) % CAPACITY + 1;
                let guard = jobs.acquire_many(permits).await.unwrap();
                // Ordering: SeqCst here and below for simplicity.
                let now = used.fetch_add(permits, Ordering::SeqCst) + permits;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                used.fetch_sub(permits, Ordering::SeqCst);
                match round % 2 {
                    0 => guard.release().await.unwrap(),
                    _ => drop(guard),
                }
            }
        })
    });
    soon("the end of all tasks", join_all(tasks.collect::<Vec<_>>())).await;
    assert_eq!(most.load(Ordering::SeqCst), CAPACITY, "expected all permits in use, and never more");
    for client in clients {
        client.shutdown(Duration::from_secs(10)).await.unwrap();
    }
}

pub(crate) async fn bad_requests_are_refused_before_anything_is_sent(client: &LockClient, _: &LockClient) {
    let jobs = client.get_semaphore("jobs", 2).unwrap();
    let refusals = [
        (client.get_semaphore("jobs", 0).map(|_| ()), "at least 1"),
        (jobs.acquire_many(0).await.map(|_| ()), "ask for 1 to 2"),
        (jobs.acquire_many(3).await.map(|_| ()), "ask for at most 2"),
        (jobs.try_acquire_many(3).await.map(|_| ()), "ask for at most 2"),
        (jobs.run_many(3, async {}).await, "ask for at most 2"),
    ];
    for (refused, advice) in refusals {
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::Permits { .. }) && error.is_refused(), "{error:?}");
        assert!(error.to_string().contains(advice), "{error}");
    }
    let permit = jobs.acquire().await.unwrap();
    let locks = [client.get_lock("jobs").unwrap(), client.get_fair_lock("jobs").unwrap()];
    let both = client.get_read_write_lock("jobs").unwrap();
    for lock in locks.iter().chain([both.read(), both.write()]) {
        match lock.try_lock().await {
            Err(LockError::OtherKind { found: LockKind::Semaphore, .. }) => {}
            other => panic!("expected a semaphore in the way of a lock, and got {other:?}"),
        }
    }
    permit.release().await.unwrap();
    let locks = locks.iter().chain([both.read(), both.write()]);
    let kinds = [LockKind::Plain, LockKind::Fair, LockKind::ReadWrite, LockKind::ReadWrite];
    for (lock, kind) in locks.zip(kinds) {
        let guard = lock.lock().await.unwrap();
        match (jobs.try_acquire().await, jobs.usage().await, jobs.force_release().await) {
            (
                Err(LockError::OtherKind { found, .. }),
                Err(LockError::OtherKind { .. }),
                Err(LockError::OtherKind { .. }),
            ) => {
                assert_eq!(found, kind);
            }
            other => panic!("expected a {kind} in the way of a permit, and got {other:?}"),
        }
        guard.unlock().await.unwrap();
    }
}

pub(crate) async fn permits_are_listed_forced_and_forgotten(one: &LockClient, other: &LockClient) {
    let jobs = one.get_semaphore("jobs", 4).unwrap();
    let (two, one_more) = (jobs.acquire_many(2).await.unwrap(), jobs.acquire().await.unwrap());
    let mut held: Vec<u32> = one.held().iter().map(|held| held.permits).collect();
    held.sort_unstable();
    assert_eq!((held, one.metrics().held, other.held().len()), (vec![1, 2], 2, 0));
    let usage = other.get_semaphore("jobs", 9).unwrap().usage().await.unwrap();
    assert_eq!((usage.used, usage.holders.len()), (3, 2));
    for holder in &usage.holders {
        assert_eq!(holder.id.as_ref().unwrap().client_id(), one.id());
        assert!(holder.left > Duration::ZERO && holder.left <= Duration::from_millis(30_100));
    }
    let waiters = [waits(&jobs, 2).await, waits(&jobs, 2).await];
    let waiting = one.waiting();
    assert_eq!((waiting.len(), waiting[0].waiters, jobs.waiting()), (1, 2, 2));
    assert!(jobs.force_release().await.unwrap());
    assert_eq!((two.lost().await, one_more.lost().await), (LossReason::Gone, LossReason::Gone));
    assert!(two.release().await.unwrap_err().is_lost());
    for waiter in waiters {
        soon("a permit after the force", waiter).await.unwrap().forget();
    }
    assert_eq!((one.held().len(), jobs.usage().await.unwrap().used), (2, 4));
    assert!(other.get_semaphore("jobs", 4).unwrap().force_release().await.unwrap());
    assert!(!jobs.force_release().await.unwrap());
}

/// More futures than the client has places wait and are kept unpolled; a live waiter comes behind them.
pub(crate) async fn unpolled_waiters_give_way(client: &LockClient, _: &LockClient) {
    let jobs = client.get_semaphore("jobs", 5).unwrap();
    let held = jobs.acquire_many(5).await.unwrap();
    let mut kept: Vec<Waiter> = (0..40)
        .map(|_| {
            let jobs = jobs.clone();
            Box::pin(async move { jobs.acquire().await }) as Waiter
        })
        .collect();
    // Polled for a while, so that they wait at the store or at the client's gate.
    let until = tokio::time::Instant::now() + Duration::from_millis(300);
    while tokio::time::Instant::now() < until {
        kept.iter_mut().for_each(|waiter| assert!(waiter.as_mut().now_or_never().is_none()));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let live = waits(&jobs, 1).await;
    let begun = tokio::time::Instant::now();
    held.release().await.unwrap();
    drop(soon("the live waiter", live).await.unwrap());
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2500), "expected two limits at most, and waited {took:?}");
    // Polled again, each has its turn.
    for waiter in kept {
        drop(soon("a waiter that is polled again", waiter).await.unwrap());
    }
}

pub(crate) async fn client_waits_for_permits_at_its_end(one: &LockClient, other: &LockClient) {
    let [ours, theirs] = [one, other].map(|client| client.get_semaphore("jobs", 1).unwrap());
    let permit = ours.acquire().await.unwrap();
    let waiter = waits(&ours, 1).await;
    let drain = one.drain(Duration::from_secs(30));
    let mut drain = std::pin::pin!(drain);
    assert!(drain.as_mut().now_or_never().is_none());
    assert!(matches!(ours.acquire().await, Err(LockError::ShutDown)));
    drop(permit);
    drop(soon("the waiter", waiter).await.unwrap());
    soon("the end of the drain", drain).await.unwrap();
    theirs.acquire().await.unwrap().release().await.unwrap();
    let kept = theirs.acquire().await.unwrap();
    let error = other.shutdown(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("jobs"), "{error}");
    drop(kept);
    other.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// The leases of a client that is gone end; nobody releases anything.
pub(crate) async fn ended_leases_serve_all_waiters_that_fit(one: &LockClient, other: &LockClient) {
    const PERMITS: u32 = 40;
    let [ours, theirs] = [one, other].map(|client| client.get_semaphore("jobs", PERMITS).unwrap());
    let lease = Duration::from_millis(1500);
    let begun = tokio::time::Instant::now();
    for permits in [1, PERMITS - 1] {
        ours.try_acquire_many_for(permits, Duration::ZERO, lease)
            .await
            .unwrap()
            .expect("all are free")
            .forget();
    }
    let first = waits(&theirs, PERMITS).await;
    let waiters: Vec<_> = (0..PERMITS)
        .map(|_| {
            let theirs = theirs.clone();
            tokio::spawn(async move { theirs.acquire().await.unwrap() })
        })
        .collect();
    tokio::time::sleep(SHORT * 3).await;
    // The waiter that was told the end leaves.
    first.abort();
    let permits = soon("all permits", join_all(waiters)).await;
    let took = begun.elapsed();
    assert!(
        took < lease + Duration::from_millis(900),
        "expected the permits at the end, and waited {took:?}"
    );
    assert_eq!(theirs.usage().await.unwrap().used, u64::from(PERMITS));
    drop(permits);
}

/// More wait than the client queues at the store.
pub(crate) async fn try_overtakes_no_waiter_behind_the_gate(client: &LockClient, _: &LockClient) {
    let jobs = client.get_semaphore("jobs", 33).unwrap();
    let held = jobs.acquire_many(33).await.unwrap();
    let waiters: Vec<_> = (0..60)
        .map(|_| {
            let jobs = jobs.clone();
            tokio::spawn(async move {
                let permit = jobs.acquire().await.unwrap();
                tokio::time::sleep(SHORT).await;
                drop(permit);
            })
        })
        .collect();
    eventually("waiters", async || jobs.waiting() == 60).await;
    tokio::time::sleep(SHORT * 3).await;
    held.release().await.unwrap();
    let (mut refused, before) = (0, client.metrics().given_up);
    while jobs.waiting() > 0 {
        let got = jobs.try_acquire().await.unwrap();
        refused += u64::from(got.is_none());
        assert!(got.is_none() || jobs.waiting() == 0, "{} wait", jobs.waiting());
        tokio::task::yield_now().await;
    }
    assert_eq!(client.metrics().given_up - before, refused, "expected each refused try to be counted");
    soon("each waiter's turn", join_all(waiters)).await;
}
