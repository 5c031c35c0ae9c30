//! Ordinary programs under many executors: tokio's budget is spent, calls block inside async code, and
//! runtimes end, lack a part or have another clock.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::by_hand;
use futures_util::future::{join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use latchwork::local::Local;
use latchwork::redis::{ErrorKind, Redis};
use latchwork::{Guard, Lease, LockClient, LockError, blocking};
use latchwork_testkit::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
/// Thousands of round trips of one task take less on a machine under load; a fault lets them last for ever.
const PATIENCE: Duration = Duration::from_secs(240);
crate::waiting::waiting_for!(SOON);

/// Response timeout: the client drops a connection after a second of silence.
const PROMPT: Duration = Duration::from_millis(900);

/// More operations than a task's budget allows.
const MANY: usize = 300;

fn runtimes() -> [(&'static str, Runtime); 2] {
    let build = |mut builder: Builder| builder.enable_all().build().unwrap();
    [
        ("multi_thread", build(Builder::new_multi_thread())),
        ("current_thread", build(Builder::new_current_thread())),
    ]
}

async fn lock_many(client: &LockClient, count: usize) -> Vec<Guard> {
    let locks: Vec<_> = (0..count).map(|n| client.get_lock(&format!("orders:{n}")).unwrap()).collect();
    let begun = Instant::now();
    let mut waits: FuturesUnordered<_> = locks.iter().map(|lock| lock.lock()).collect();
    let mut guards = Vec::new();
    while let Some(guard) = waits.next().await {
        guards.push(guard.unwrap());
    }
    assert_eq!(guards.len(), count);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    guards
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn spend_budget() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    (0..MANY).for_each(|n| sender.send(n).unwrap());
    poll_fn(|context| {
        while receiver.poll_recv(context).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

fn without_budget<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(async {
        spend_budget().await;
        work.await
    })
}

#[test]
fn crowd_of_locks_in_one_task_costs_no_connection() {
    let server = RedisServer::start();
    for (flavour, runtime) in runtimes() {
        let client = runtime.block_on(by_hand::client(&server.url()));
        let guards = without_budget(&runtime, lock_many(&client, MANY));
        let slowest = runtime.block_on(async {
            let drops = guards.into_iter().map(|guard| {
                let begun = Instant::now();
                drop(guard);
                begun.elapsed()
            });
            drops.max().unwrap()
        });
        assert!(slowest < PROMPT, "{flavour}: expected a drop that does not block, and it took {slowest:?}");
        let begun = Instant::now();
        let set = LocalSet::new();
        drop(set.block_on(&runtime, lock_many(&client, MANY)));
        runtime.block_on(eventually("release", async || client.metrics().releases_pending == 0));
        assert!(begun.elapsed() < SOON, "{flavour}: {:?}", begun.elapsed());
        assert_eq!(client.metrics().reconnects, 0, "{flavour}");
    }
}

#[test]
fn task_without_budget_is_answered_promptly() {
    let server = RedisServer::start();
    for (flavour, runtime) in runtimes() {
        let client = runtime.block_on(by_hand::client(&server.url()));
        let lock = client.get_lock(flavour).unwrap();
        let begun = Instant::now();
        without_budget(&runtime, async {
            assert!(!lock.is_locked().await.unwrap());
            let guard = lock.lock().await.unwrap();
            guard.ensure_held().await.unwrap();
            guard.unlock().await.unwrap();
            let tick = pin!(tokio::time::sleep(SOON));
            _ = select(pin!(lock.lock()), tick).await;
        });
        assert!(begun.elapsed() < PROMPT, "{flavour}: {:?}", begun.elapsed());
        assert_eq!(client.metrics().reconnects, 0, "{flavour}");
    }
}

#[test]
fn blocking_calls_inside_of_a_task_go_on_for_ever() {
    let server = RedisServer::start();
    for (flavour, runtime) in runtimes() {
        let begun = Instant::now();
        runtime.block_on(async {
            let client = blocking::LockClient::connect(&server.url()).unwrap();
            let lock = client.get_lock("orders").unwrap();
            for round in 0..MANY {
                let guard = lock.try_lock_for(Duration::from_secs(1), Lease::Watched);
                let guard = guard.unwrap_or_else(|error| panic!("{flavour}: {error} in round {round}"));
                drop(guard.expect("the lock is free"));
            }
        });
        assert!(begun.elapsed() < PATIENCE, "{flavour}: {:?}", begun.elapsed());
    }
}

/// Each executor blocks its thread, and no runtime of ours polls it.
#[test]
fn foreign_executors_go_on_inside_of_a_task_without_budget() {
    let server = RedisServer::start();
    let over_redis = blocking::LockClient::connect(&server.url()).unwrap();
    for client in [LockClient::local(), over_redis.as_async().clone()] {
        let lock = client.get_lock("orders").unwrap();
        let semaphore = latchwork::AsyncSemaphore::new(1);
        let work = || async {
            for _ in 0..MANY {
                drop(semaphore.acquire().await.unwrap());
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        };
        for (_, runtime) in runtimes() {
            without_budget(&runtime, async {
                futures_executor::block_on(work());
                smol::block_on(work());
            });
        }
    }
}

async fn program(client: &LockClient) {
    let lock = client.get_fair_lock("prices").unwrap();
    let waits = (0..MANY).map(|_| async { lock.run(async {}).await.unwrap() });
    join_all(waits).await;
    drop(lock_many(client, MANY).await);
    assert!(client.get_lock("orders:0").unwrap().try_lock_for(SOON, Lease::Watched).await.unwrap().is_some());
}

#[test]
fn programs_run_under_each_executor() {
    let server = RedisServer::start();
    let over_redis = blocking::LockClient::connect(&server.url()).unwrap();
    for client in [LockClient::local(), over_redis.as_async().clone()] {
        futures_executor::block_on(program(&client));
        smol::block_on(program(&client));
        let pool = smol::Executor::new();
        smol::block_on(pool.run(program(&client)));
        for (_, runtime) in runtimes() {
            runtime.block_on(program(&client));
            LocalSet::new().block_on(&runtime, program(&client));
            let client = client.clone();
            runtime.block_on(async { tokio::spawn(async move { program(&client).await }).await.unwrap() });
        }
        assert_eq!(client.metrics().reconnects, 0);
    }
}

async fn gives_way(flavour: &str, call: impl AsyncFn()) {
    let begun = Instant::now();
    let calls = async {
        loop {
            assert!(begun.elapsed() < SOON, "{flavour}: expected the task to give way");
            call().await;
        }
    };
    assert!(timeout(Duration::from_millis(50), calls).await.is_err());
}

/// Other tasks of the same thread get to run, and so do its timers.
#[test]
fn task_that_finds_all_free_gives_way() {
    let (client, semaphore) = (LockClient::local(), latchwork::AsyncSemaphore::new(1));
    let lock = client.get_lock("orders").unwrap();
    for (flavour, runtime) in runtimes() {
        runtime.block_on(async {
            let closed = latchwork::AsyncSemaphore::new(1);
            closed.close();
            gives_way(flavour, async || drop(semaphore.acquire().await.unwrap())).await;
            gives_way(flavour, async || _ = closed.acquire().await.unwrap_err()).await;
            gives_way(flavour, async || drop(lock.lock().await.unwrap())).await;
            gives_way(flavour, async || _ = lock.is_locked().await.unwrap()).await;
        });
    }
}

/// A future kept without another poll would otherwise keep the lock.
#[test]
fn acquisition_of_a_lock_gives_way_before_it_has_the_lock() {
    let (client, runtime) = (LockClient::local(), Builder::new_current_thread().build().unwrap());
    let lock = client.get_lock("orders").unwrap();
    without_budget(&runtime, async {
        let mut waits = pin!(lock.lock());
        assert!(poll_once(waits.as_mut()).is_pending());
        assert!(!futures_executor::block_on(lock.is_locked()).unwrap());
        assert!(poll_once(waits).is_ready(), "expected the second poll to return the guard");
    });
}

/// The other runtime's clock jumps past the end of the lease.
#[test]
fn lease_lasts_by_the_clock_of_the_clients_own_runtime() {
    let server = RedisServer::start();
    let own = blocking::LockClient::connect(&server.url()).unwrap();
    let (_, elsewhere) = runtimes().into_iter().next().unwrap();
    let there = elsewhere.block_on(by_hand::client(&server.url()));
    let paused = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    paused.block_on(async {
        for client in [own.as_async(), &there] {
            let held = client.get_lock("orders").unwrap().lock().await.unwrap();
            tokio::time::advance(Duration::from_secs(3600)).await;
            assert!(held.is_held() && held.remaining() > Duration::from_secs(20));
            let begun = Instant::now();
            let second = Duration::from_secs(1);
            let lock = client.get_lock("orders").unwrap();
            assert!(lock.try_lock_for(second, Lease::Watched).await.unwrap().is_none());
            assert!((second..SOON).contains(&begun.elapsed()));
            held.unlock().await.unwrap();
        }
    });
}

#[test]
fn runtime_that_redis_cannot_live_on_is_told_of() {
    let server = RedisServer::start();
    let [mut paused, mut without_timers, mut without_io] = [(); 3].map(|()| Builder::new_current_thread());
    for (builder, kind, words) in [
        (paused.enable_all().start_paused(true), ErrorKind::PausedClock, ["blocking_connect"; 2]),
        (without_timers.enable_io(), ErrorKind::NoRuntime, ["timers", "enable_all"]),
        (without_io.enable_time(), ErrorKind::NoRuntime, ["I/O", "enable_all"]),
    ] {
        let error = builder.build().unwrap().block_on(Redis::connect(&server.url())).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}

#[test]
fn limited_wait_whose_runtime_ends_says_so() {
    let server = RedisServer::start();
    let holds = blocking::LockClient::connect(&server.url()).unwrap();
    let names = ["orders", "prices", "stock"];
    let _held = names.map(|name| holds.get_lock(name).unwrap().lock().unwrap());
    for round in 0..20 {
        for (flavour, runtime) in runtimes() {
            let client = runtime.block_on(by_hand::client(&server.url()));
            let waits = (0..12).map(|n| {
                let lock = client.get_lock(names[n % names.len()]).unwrap();
                let wait = move || futures_executor::block_on(lock.try_lock_for(SOON, Lease::Watched));
                thread::spawn(wait)
            });
            let waits: Vec<_> = waits.collect();
            runtime.block_on(async { tokio::time::sleep(Duration::from_micros(round * 150)).await });
            drop(runtime);
            let mut ends = BTreeMap::new();
            for wait in waits {
                *ends.entry(format!("{:?}", wait.join().unwrap().map(|_| ()))).or_insert(0) += 1;
            }
            assert_eq!(ends, BTreeMap::from([("Err(RuntimeEnded)".into(), 12)]), "{flavour}");
        }
    }
}

/// A runtime that ends drops its tasks in an order given by their ids.
#[test]
fn unlimited_wait_reports_the_end_of_its_runtime() {
    let server = RedisServer::start();
    for others in 0..4 {
        for (flavour, runtime) in runtimes() {
            let (over_redis, over_memory) = runtime.block_on(async {
                let over_redis = by_hand::client(&server.url()).await;
                let over_memory = LockClient::new(Local::on_tokio());
                (0..others).for_each(|_| drop(tokio::spawn(async {})));
                (over_redis, over_memory)
            });
            for client in [&over_redis, &over_memory] {
                let lock = client.get_lock(&format!("{flavour}:{others}")).unwrap();
                runtime.block_on(async { lock.lock().await.unwrap().forget() });
            }
            let ends = [over_redis, over_memory].map(|client| {
                let lock = client.get_lock(&format!("{flavour}:{others}")).unwrap();
                let (begins, begun) = mpsc::channel();
                let (ends, ended) = mpsc::channel();
                thread::spawn(move || {
                    let mut waits = pin!(lock.lock());
                    assert!(poll_once(waits.as_mut()).is_pending());
                    begins.send(()).unwrap();
                    _ = ends.send(futures_executor::block_on(waits).map(drop));
                });
                begun.recv().unwrap();
                ended
            });
            drop(runtime);
            for end in ends {
                let end = end.recv_timeout(SOON).expect("the call ends");
                assert!(matches!(end, Err(LockError::RuntimeEnded)), "{flavour}, {others}: {end:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lease_in_memory_ends_by_tokios_clock() {
    let client = LockClient::new(Local::on_tokio());
    let lock = client.get_lock("orders").unwrap();
    let hour = Duration::from_secs(3600);
    let held = lock.lock_with_lease(hour).await.unwrap();
    let begun = tokio::time::Instant::now();
    let waits = lock.try_lock_for(2 * hour, Lease::Watched).await;
    assert!(waits.unwrap().is_some() && !held.is_held());
    assert!((hour..hour * 2).contains(&begun.elapsed()));
}
