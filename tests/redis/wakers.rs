//! Panicking wakers over a Redis server: the tasks and timers that call them survive.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::by_hand::call_channel;
use latchwork::redis::{Redis, RedisBuilder};
use latchwork::{Guard, LockClient};
use latchwork_testkit::{Bell, RedisServer};

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);

fn sleeps(client: &LockClient) -> bool {
    client.registry().join(&call_channel(client, "orders")).is_some_and(|look| look.waiters() == 1)
}

/// Counts the calls of its wakers, which panic.
#[derive(Default)]
struct Trap(Bell);

impl Trap {
    fn calls(&self) -> usize {
        self.0.rung()
    }

    /// Polls `future` once, and waits until its waker was called.
    async fn spring<F: Future>(&self, mut future: Pin<&mut F>) -> Poll<F::Output> {
        let calls = self.calls();
        let polled = future.as_mut().poll(&mut Context::from_waker(&self.0.waker_that_panics()));
        if polled.is_pending() {
            eventually("wake", async || self.calls() > calls).await;
        }
        polled
    }
}

/// Without heartbeats, which would find a connection whose task has ended.
fn builder() -> RedisBuilder {
    const NEVER: Duration = Duration::from_secs(3600);
    Redis::builder().heartbeat(NEVER)
}

async fn client(server: &RedisServer) -> LockClient {
    LockClient::new(builder().connect(&server.url()).await.unwrap())
}

#[tokio::test]
async fn waker_that_panics_at_a_reply_costs_no_connection() {
    let server = RedisServer::start();
    let (client, trap) = (client(&server).await, Trap::default());
    let lock = client.get_lock("orders").unwrap();
    let mut tries = pin!(lock.try_lock());
    let guard = loop {
        if let Poll::Ready(guard) = trap.spring(tries.as_mut()).await {
            break guard;
        }
    };
    let guard = guard.unwrap().expect("the lock is free");
    {
        let mut asks = pin!(guard.ensure_held());
        while trap.spring(asks.as_mut()).await.is_pending() {}
    }
    guard.unlock().await.unwrap();
    assert!(trap.calls() > 0, "expected a call of the waker");
    assert_eq!(client.metrics().reconnects, 0);
}

async fn fall_asleep(
    client: &LockClient,
    trap: &Trap,
    mut waits: Pin<&mut impl Future<Output = Result<Guard, latchwork::LockError>>>,
) {
    let begun = Instant::now();
    while !sleeps(client) {
        assert!(begun.elapsed() < SOON, "expected the waiter to fall asleep");
        assert!(waits.as_mut().poll(&mut Context::from_waker(&trap.0.waker_that_panics())).is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn waker_panic_at_a_message_costs_no_subscription() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let (lock, trap) = (client.get_lock("orders").unwrap(), Trap::default());
    for round in 0..2 {
        let held = other.get_lock("orders").unwrap().lock().await.unwrap();
        let mut waits = pin!(lock.lock());
        fall_asleep(&client, &trap, waits.as_mut()).await;
        let calls = trap.calls();
        held.unlock().await.unwrap();
        eventually("wake", async || trap.calls() > calls).await;
        soon("the lock", waits).await.unwrap().unlock().await.unwrap();
        // The next message wakes the next waiter; no timer of its own is due within this time.
        let held = other.get_lock("orders").unwrap().lock().await.unwrap();
        let mut waits = pin!(lock.lock());
        tokio::select! {
            biased;
            _ = &mut waits => panic!("two have the lock"),
            () = eventually("sleep", async || sleeps(&client)) => {}
        }
        held.unlock().await.unwrap();
        soon("the message", waits).await.unwrap().unlock().await.unwrap();
        assert_eq!(client.metrics().reconnects, 0, "round {round}");
    }
}

#[tokio::test]
async fn waker_that_panics_at_a_timer_costs_no_runtime() {
    let server = RedisServer::start();
    // The client's runtime has its own thread, with all timers.
    let client = LockClient::new(builder().blocking_connect(&server.url()).unwrap());
    let trap = Trap::default();
    let guard = client.get_lock("orders").unwrap().lock().await.unwrap();
    {
        let mut waits = pin!(guard.lost_timeout(Duration::from_millis(20)));
        while trap.spring(waits.as_mut()).await.is_pending() {}
    }
    assert!(trap.calls() > 0, "expected a call of the waker");
    let lost = soon("a timer", guard.lost_timeout(Duration::from_millis(20))).await;
    assert_eq!(lost, None);
    guard.unlock().await.unwrap();
    assert_eq!(client.metrics().reconnects, 0);
}
