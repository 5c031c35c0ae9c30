//! The blocking lock on each backend, and next to async tasks.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::task::Context;
use std::thread;
use std::time::{Duration, Instant};

use latchwork::backend::{Backend as _, Runtime as _};
use latchwork::blocking::{Guard, Lock, LockClient};
use latchwork::redis::Redis;
use latchwork::{Lease, LockError, LossReason};
use latchwork_testkit::{RedisServer, waker};

/// Far longer than any step here, and far shorter than the 30 s lease that hides a lost wake-up.
const SOON: Duration = Duration::from_secs(10);

/// One server for all tests here that do not inspect the server; lives until the process ends.
static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

macro_rules! on_each_backend {
    ($($test:ident)*) => {
        mod local {
            $(#[test]
            fn $test() {
                super::$test(super::LockClient::local());
            })*
        }

        mod on_a_server {
            $(#[test]
            fn $test() {
                super::$test(super::LockClient::connect(&super::SERVER.url()).unwrap());
            })*
        }
    };
}

on_each_backend! {
    thread_is_woken_however_a_hold_ends
    waits_end_in_time
    same_owner_may_enter_again
    threads_take_turns
    threads_and_tasks_stand_in_one_line
    shutdown_waits_for_guards_and_says_what_is_left
    guard_in_a_thread_local_is_released_when_its_thread_ends
}

/// Thread-locals of a runtime may be destroyed before the guard's.
fn guard_in_a_thread_local_is_released_when_its_thread_ends(client: LockClient) {
    thread_local! {
        static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    let name = "kept in a thread-local";
    let prices = client.get_read_write_lock("kept and read in a thread-local").unwrap();
    let (plain, fair) = (client.get_lock(name).unwrap(), client.get_fair_lock("kept in order").unwrap());
    for lock in [&plain, &fair, prices.read(), prices.write()] {
        let theirs = lock.clone();
        let holds = thread::spawn(move || {
            KEPT.with_borrow(|kept| assert!(kept.is_none()));
            KEPT.set(Some(theirs.lock().unwrap()));
        });
        holds.join().unwrap();
        let free = lock.try_lock_for(SOON, Lease::Watched).unwrap();
        assert!(free.is_some(), "expected a free lock after the thread's end");
    }
    client.shutdown(SOON).unwrap();
}

fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("blocking:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn eventually(what: &str, ask: impl Fn() -> bool) {
    let begin = Instant::now();
    while !ask() {
        assert!(begin.elapsed() < SOON, "expected within {SOON:?}: {what}");
        thread::yield_now();
    }
}

fn thread_is_woken_however_a_hold_ends(client: LockClient) {
    let ends: [fn(&Lock, Guard); 4] = [
        |_, guard| drop(guard),
        |_, guard| guard.unlock().unwrap(),
        |_, guard| {
            let panicked = catch_unwind(AssertUnwindSafe(move || {
                let _guard = guard;
                std::panic::resume_unwind(Box::new("while holding"));
            }));
            assert!(panicked.is_err());
        },
        |lock, guard| {
            assert!(lock.force_unlock().unwrap());
            assert_eq!((guard.lost_timeout(SOON), guard.lost()), (Some(LossReason::Gone), LossReason::Gone));
        },
    ];
    for end in ends {
        let lock = client.get_lock(&fresh_name()).unwrap();
        let guard = lock.lock().unwrap();
        let (got_it, outcome) = mpsc::channel();
        thread::spawn({
            let lock = lock.clone();
            move || got_it.send(lock.lock().unwrap()).unwrap()
        });
        eventually("the wait", || lock.waiters() == 1);
        assert!(outcome.try_recv().is_err(), "expected the waiter to wait for the holder");
        end(&lock, guard);
        outcome.recv_timeout(SOON).expect("not woken").unlock().unwrap();
        assert!(!lock.is_locked().unwrap() && !lock.force_unlock().unwrap());
    }
    eventually("the end of the subscription", || client.registry().is_empty());
}

fn waits_end_in_time(client: LockClient) {
    let lock = client.get_lock(&fresh_name()).unwrap();
    let guard = lock.lock().unwrap();
    let wait = Duration::from_millis(100);
    for lease in [Lease::Watched, Lease::For(SOON)] {
        let begin = Instant::now();
        assert!(lock.try_lock_for(wait, lease).unwrap().is_none());
        assert!((wait..SOON).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }
    let begin = Instant::now();
    assert_eq!(guard.lost_timeout(wait), None);
    assert!((wait..SOON).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(guard.lost_timeout(Duration::ZERO), None);
    assert!(client.registry().is_empty());
    assert!(guard.is_held());
    guard.unlock().unwrap();
    lock.try_lock().unwrap().expect("the lock is free").unlock().unwrap();
    lock.try_lock_for(wait, Lease::Watched).unwrap().expect("the lock is free").unlock().unwrap();
    // The end of a lease wakes a thread without a message.
    let guard = lock.lock_with_lease(4 * wait).unwrap();
    assert!(guard.remaining() <= 4 * wait && lock.remaining().unwrap().expect("it is held") <= 4 * wait);
    let next = lock.lock().unwrap();
    assert_eq!((guard.lost(), guard.remaining()), (LossReason::Expired, Duration::ZERO));
    assert!(guard.unlock().unwrap_err().is_not_held());
    next.unlock().unwrap();
    assert!(lock.try_lock_for(SOON, Duration::ZERO).unwrap_err().is_refused());
}

fn same_owner_may_enter_again(client: LockClient) {
    let me = client.owner();
    assert!(me.to_string().starts_with(client.id()));
    let free = client.get_lock(&fresh_name()).unwrap();
    let lock = free.owned_by(&me);
    assert_eq!((lock.hold_count(&me).unwrap(), lock.remaining().unwrap()), (0, None));
    let outer = lock.lock().unwrap();
    // The owner is an `Owner`, not a thread: another thread re-enters.
    let inner = thread::spawn({
        let lock = lock.clone();
        move || lock.lock().unwrap()
    });
    let inner = inner.join().unwrap();
    assert_eq!((outer.owner(), outer.name()), (&me, free.name()));
    assert_eq!(lock.hold_count(&me).unwrap(), 2);
    assert!(free.try_lock().unwrap().is_none(), "expected no lock for another owner");
    assert!(!free.is_held_by(&client.owner()).unwrap());
    inner.unlock().unwrap();
    assert!(lock.is_held_by(&me).unwrap() && lock.is_locked().unwrap());
    outer.forget();
    assert!(lock.unlock(&client.owner()).unwrap_err().is_not_held());
    lock.unlock(&me).unwrap();
    assert!(!lock.is_held_by(&me).unwrap() && !lock.is_locked().unwrap());
}

fn threads_take_turns(client: LockClient) {
    const THREADS: u64 = 16;
    const TURNS: u64 = 25;
    let lock = client.get_lock(&fresh_name()).unwrap();
    let (inside, sum) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for turn in 0..TURNS {
                    let guard = lock.lock().unwrap();
                    assert!(
                        !inside.swap(true, Ordering::Relaxed),
                        "expected one thread inside, and found two"
                    );
                    let before = sum.load(Ordering::Relaxed);
                    thread::yield_now();
                    sum.store(before + 1, Ordering::Relaxed);
                    inside.store(false, Ordering::Relaxed);
                    if turn % 2 == 0 {
                        guard.unlock().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), THREADS * TURNS);
    assert!(begin.elapsed() < 2 * SOON, "expected no lost wake-up, and the wait took {:?}", begin.elapsed());
    assert!(client.registry().is_empty());
    eventually("the last release", || !lock.is_locked().unwrap());
}

fn threads_and_tasks_stand_in_one_line(client: LockClient) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lock = client.get_lock(&fresh_name()).unwrap();
    let holder = lock.lock().unwrap();
    let waiting = lock.clone();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    let mut tasks = Vec::new();
    for place in 0..6_usize {
        let (order, lock) = (Arc::clone(&order), lock.clone());
        if place % 2 == 0 {
            threads.push(thread::spawn(move || {
                let guard = lock.lock().unwrap();
                order.lock().unwrap().push(place);
                guard.unlock().unwrap();
            }));
        } else {
            tasks.push(runtime.spawn(async move {
                let guard = lock.as_async().lock().await.unwrap();
                order.lock().unwrap().push(place);
                guard.unlock().await.unwrap();
            }));
        }
        eventually("the next place", || waiting.waiters() == place + 1);
    }
    assert!(client.registry().is_empty(), "expected no subscription of a client without waiters");
    // A guard converts between blocking and async.
    drop(Guard::from_async(holder.into_async()));
    for thread in threads {
        thread.join().unwrap();
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(client.registry().is_empty());
}

fn shutdown_waits_for_guards_and_says_what_is_left(client: LockClient) {
    let lock = client.get_lock(&fresh_name()).unwrap();
    let guard = lock.lock().unwrap();
    let left = client.shutdown(Duration::from_millis(20)).unwrap_err();
    assert_eq!((left.held(), left.releasing()), ([lock.name().clone()].as_slice(), [].as_slice()));
    assert!(lock.lock().unwrap_err().is_shut_down());
    thread::scope(|scope| {
        let drains = scope.spawn(|| client.shutdown(SOON));
        drop(guard);
        assert_eq!(drains.join().unwrap(), Ok(()));
    });
    assert!(!lock.is_locked().unwrap());
}

/// In async code the lock does not panic, but blocks the thread with all tasks of the runtime.
async fn blocks_and_does_not_panic(client: LockClient) {
    let lock = client.get_lock(&fresh_name()).unwrap();
    let guard = lock.lock().unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let task = tokio::spawn({
        let ran = Arc::clone(&ran);
        async move { ran.store(true, Ordering::Relaxed) }
    });
    assert!(lock.try_lock_for(Duration::from_millis(50), Lease::Watched).unwrap().is_none());
    assert!(!ran.load(Ordering::Relaxed), "expected the blocked thread to run no other task");
    let other = thread::spawn(move || guard.lost_timeout(Duration::from_millis(50)).is_none());
    let guard = lock.lock().unwrap();
    assert!(other.join().unwrap());
    assert!(!ran.load(Ordering::Relaxed), "expected the blocked thread to run no other task");
    task.await.unwrap();
    // Release here, so that the last handles end the background thread within this function.
    guard.unlock().unwrap();
    drop((lock, client));
}

#[tokio::test]
async fn local_in_async_code_blocks_and_does_not_panic() {
    blocks_and_does_not_panic(LockClient::local()).await;
}

#[test]
fn server_that_is_not_there_is_an_error() {
    // Port 1 has no listener.
    let error = LockClient::connect("redis://127.0.0.1:1").unwrap_err();
    assert_eq!(error.kind(), latchwork::redis::ErrorKind::Connection);
    assert_eq!(LockClient::connect("localhost").unwrap_err().kind(), latchwork::redis::ErrorKind::Url);
}

/// Waiters freed by a waker are woken when the waker returns, or before the waker's thread blocks.
#[test]
fn waker_that_blocks_waits_for_a_task_that_it_has_freed() {
    let client = LockClient::local();
    let [outer, freed, blocked_on] =
        ["outer", "freed", "blocked on"].map(|name| client.get_lock(name).unwrap());
    let (outer_guard, freed_guard) = (outer.lock().unwrap(), freed.lock().unwrap());
    let (is_held, held) = mpsc::channel();
    let other = thread::spawn({
        let (freed, blocked_on) = (freed.clone(), blocked_on.clone());
        move || {
            let _blocks = blocked_on.lock().unwrap();
            is_held.send(()).unwrap();
            freed.lock().unwrap().unlock().unwrap();
        }
    });
    held.recv().unwrap();
    let asleep = |lock: &Lock| lock.waiters() == 1;
    eventually("the wait", || asleep(&freed));
    let freed_guard = Mutex::new(Some(freed_guard));
    let waker = waker(move || {
        let freed = freed_guard.lock().unwrap().take();
        if freed.is_some() {
            drop(freed);
            blocked_on.lock().unwrap().unlock().unwrap();
        }
    });
    let mut waits = std::pin::pin!(outer.as_async().lock());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(asleep(&outer));
    let begin = Instant::now();
    outer_guard.unlock().unwrap();
    assert!(
        begin.elapsed() < SOON,
        "expected the release soon, and it blocks beside a task that it has to wake"
    );
    other.join().unwrap();
}

mod needs_a_server {
    use super::*;

    #[tokio::test]
    async fn redis_in_async_code_blocks_and_does_not_panic() {
        blocks_and_does_not_panic(LockClient::connect(&SERVER.url()).unwrap()).await;
    }

    #[test]
    fn background_thread_ends_after_the_last_clone_and_last_release() {
        let server = RedisServer::start();
        let mut raw = ::redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let client = LockClient::connect(&server.url()).unwrap();
        // The runtime drops an endless task, with its values, when the runtime ends.
        let (alive, ended) = mpsc::channel::<()>();
        client.backend::<Redis>().unwrap().runtime().spawn(async move {
            let _alive = alive;
            std::future::pending().await
        });
        let lock = client.get_lock("orders").unwrap();
        let guard = lock.lock().unwrap();
        drop((client, lock));
        assert_eq!(
            ended.try_recv(),
            Err(mpsc::TryRecvError::Empty),
            "expected the guard to keep the background thread"
        );
        // While the server is stopped, the release cannot finish before the last handle is dropped.
        server.pause();
        drop(guard);
        assert_eq!(
            ended.try_recv(),
            Err(mpsc::TryRecvError::Empty),
            "expected the pending release to keep the background thread"
        );
        server.resume();
        assert_eq!(
            ended.recv_timeout(SOON),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "expected the background thread to end with the last handle"
        );
        let held: bool = ::redis::cmd("EXISTS").arg("orders").query(&mut raw).unwrap();
        assert!(!held, "expected a free lock, and the release was lost with the thread");
    }

    #[test]
    fn wait_ends_in_time_though_the_server_does_not_answer() {
        let server = RedisServer::start();
        let client = LockClient::new(
            Redis::builder()
                .response_timeout(Duration::from_millis(300))
                .blocking_connect(&server.url())
                .unwrap(),
        );
        let lock = client.get_lock("orders").unwrap();
        server.pause();
        let begin = Instant::now();
        let error = lock.try_lock_for(Duration::from_millis(100), Lease::Watched).unwrap_err();
        assert!(matches!(error, LockError::NoAnswer { .. }) && error.is_unreachable(), "{error:?}");
        let error = lock.is_locked().unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
}
