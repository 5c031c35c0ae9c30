//! A server whose clock is set.

use std::time::Duration;

use latchwork::LossReason;
use latchwork_testkit::ServerClock;

use super::kind::QUEUE;
use super::stage::{
    AT_ONCE, Convoy, LIFE, LITTLE, end, lock, now, pairs, queued, serve, until_listening, until_queued,
    waiter, waiter_of, within,
};
use crate::day::{Day, NAME, eventually};

const HOUR: i64 = 3600;

fn begin() -> (Day, ServerClock) {
    let (server, clock) = ServerClock::start_server();
    (Day::begin_on(server), clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_when_the_clock_is_set_back_again_and_again() {
    let (day, clock) = begin();
    let clients = [day.bystander().await, day.bystander().await, day.bystander().await];
    let convoy = Convoy::start(&clients, 3, 300);
    for round in 1..20 {
        clock.set(-HOUR * round);
        convoy.goes_on(30).await;
    }
    convoy.ends().await;
    end(day, &clients.each_ref()).await;
}

/// Otherwise the waiter would wait until the clock is back at its old time, on a lock that is always wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_precedes_newcomers_soon_after_a_clock_set_back() {
    let (day, clock) = begin();
    let [holder, first, second] = [day.bystander().await, day.bystander().await, day.bystander().await];
    let held = lock(&holder).lock().await.unwrap();
    let waits = waiter(&first).await;
    until_queued(&day.server, 1).await;
    until_listening(&day.server, &[&first]).await;
    clock.set(-HOUR);
    // The waiter has reported its time waited again.
    eventually("a place by the new clock", async || began(&day).await <= now(&day.server).await).await;
    let comes = waiter(&second).await;
    until_queued(&day.server, 2).await;
    held.unlock().await.unwrap();
    let guard = within(AT_ONCE, "the turn of the first that came", waits).await.unwrap().unwrap();
    assert!(!comes.is_finished() && queued(&day.server).await == 1);
    guard.unlock().await.unwrap();
    serve(AT_ONCE, "the other one's turn", comes).await;
    end(day, &[&holder, &first, &second]).await;
}

/// The server's start time of the first waiter in the queue.
async fn began(day: &Day) -> Duration {
    let (_, began): (String, f64) =
        day.run(&format!("ZRANGE {NAME}:latchwork:{{{NAME}}}:{QUEUE} 0 0 WITHSCORES")).await;
    Duration::from_micros(began as u64)
}

/// All leases end at once, unavoidably. The holder learns of the loss, and no waiter is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_have_a_turn_when_the_clock_is_set_forward() {
    let (day, clock) = begin();
    let [holder, first, second] = [day.bystander().await, day.bystander().await, day.bystander().await];
    let mut forward = 0;
    for (one, other) in pairs(&first, &second) {
        let held = lock(&holder).lock().await.unwrap();
        let one = waiter_of(&first, &one.lock).await;
        let other = waiter_of(&second, &other.lock).await;
        until_queued(&day.server, 2).await;
        forward += HOUR;
        clock.set(forward);
        assert_eq!(within(LIFE + LITTLE, "being told", held.lost()).await, LossReason::Gone);
        tokio::join!(serve(AT_ONCE, "a turn", one), serve(AT_ONCE, "a turn", other));
        assert!(held.unlock().await.unwrap_err().is_not_held());
    }
    end(day, &[&holder, &first, &second]).await;
}
