//! Processes that are killed while they read, or while others do.

use super::queued::processes::{INSIDE, Process};
use super::queued::stage::{AT_ONCE, LIFE, LITTLE, end, lock, serve, waiter, waiter_of, within};
use super::readers::{leases, read};
use crate::day::Day;

async fn inside_no_more(day: &Day) {
    let () = day.run(&format!("DEL {INSIDE}")).await;
}

/// Its lease is not in the way of others that read, and ends in the way of those that write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_is_killed_keeps_writers_out_as_long_as_its_lease_and_no_longer() {
    let day = Day::begin();
    let (one, other) = (day.bystander().await, day.bystander().await);
    let beside = read(&one).lock().await.unwrap();
    let mut dies = Process::start(&day.server).await;
    dies.take(true);
    dies.hear(LIFE, "has it").await;
    dies.kill_9();
    inside_no_more(&day).await;
    let left = read(&other).remaining().await.unwrap().unwrap();
    let next = waiter(&other).await;
    beside.ensure_held().await.unwrap();
    beside.unlock().await.unwrap();
    assert_eq!(leases(&day.server).await, 1);
    let guard = within(left + LITTLE, "the end of the lease", next).await.unwrap().unwrap();
    assert_eq!(leases(&day.server).await, 0, "a writer beside a reader");
    guard.unlock().await.unwrap();
    end(day, &[&one, &other]).await;
}

/// The last one that lives goes when the dead one's lease is over, and the lock goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_outlives_one_that_was_killed_passes_the_lock_on() {
    let day = Day::begin();
    let (one, other) = (day.bystander().await, day.bystander().await);
    let mut dies = Process::start(&day.server).await;
    dies.take(true);
    dies.hear(LIFE, "has it").await;
    dies.kill_9();
    inside_no_more(&day).await;
    let beside = read(&one).lock().await.unwrap();
    let next = waiter(&other).await;
    within(LIFE * 4, "the end of the lease", async {
        while leases(&day.server).await > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    beside.ensure_held().await.unwrap();
    assert!(!next.is_finished(), "a writer beside a reader");
    beside.unlock().await.unwrap();
    serve(LITTLE, "the writer's turn", next).await;
    end(day, &[&one, &other]).await;
}

/// A writer that was granted the lock unasked, and dies: those that wait to read have their turn when its
/// position is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_that_is_killed_inside_keeps_readers_out_as_long_as_its_lease_and_no_longer() {
    let day = Day::begin();
    let (one, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&one).lock().await.unwrap();
    let mut dies = Process::waiter_of(&day.server, false).await;
    held.unlock().await.unwrap();
    dies.hear(AT_ONCE, "has it").await;
    let readers = [waiter_of(&one, &read(&one)).await, waiter_of(&other, &read(&other)).await];
    dies.kill_9();
    inside_no_more(&day).await;
    let left = lock(&one).remaining().await.unwrap().unwrap();
    assert!(left < LIFE + LITTLE, "{left:?}");
    let [first, second] = readers;
    let (first, second) =
        within(left + LITTLE, "the readers' turn", async { tokio::join!(first, second) }).await;
    for guard in [first, second] {
        let guard = guard.unwrap().unwrap();
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    end(day, &[&one, &other]).await;
}

/// Those whose turn it is die at the moment when it comes: that is a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_are_killed_when_it_is_their_turn_cost_a_second() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let mut dead = Vec::new();
    for _ in 0..3 {
        dead.push(Process::waiter_of(&day.server, true).await);
    }
    let next = waiter(&other).await;
    for process in &dead {
        process.pause();
    }
    held.unlock().await.unwrap();
    dead.iter_mut().for_each(Process::kill_9);
    serve(LITTLE, "the writer's turn", next).await;
    end(day, &[&holder, &other]).await;
}
