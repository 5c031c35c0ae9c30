//! Readers: helpers of their stage, and the fate of a read lease when replies are lost or its process dies.

use std::time::Duration;

use latchwork::{Guard, Lease, Lock, LockClient, LockError, LossReason};
use latchwork_testkit::{Afterwards, Cut, RedisServer, Way};
use tokio::task::JoinHandle;

use super::queued::stage::{
    AT_ONCE, LIFE, LITTLE, LONG, Waiter, end, lock, proxied, serve, taker, taker_of, until_queued, waiter,
    waiter_of, within,
};
use crate::by_hand::run;
use crate::day::{Day, EVAL, NAME, eventually, soon, until_renewed};

pub(crate) const EACH: [Afterwards; 2] = [Afterwards::Reset, Afterwards::Silence];

/// The default. A later reader asks the server, though others of its client read.
pub(crate) const TENURE: Duration = Duration::from_millis(30);

pub(crate) fn read(client: &LockClient) -> Lock {
    client.get_read_write_lock(NAME).unwrap().read().clone()
}

/// Starts to read, and waits through errors from the first attempt on.
pub(crate) fn patient_reader(client: &LockClient) -> Waiter {
    let read = read(client);
    tokio::spawn(async move {
        read.try_lock_for(LONG, Lease::Watched).await.map(|guard| guard.expect("the waiter has its turn"))
    })
}

pub(crate) async fn leases(server: &RedisServer) -> usize {
    run::<Vec<String>>(server, "KEYS *:rwlock_timeout:*").await.len()
}

pub(crate) async fn until_leases(server: &RedisServer, how_many: usize) {
    eventually("leases", async || leases(server).await == how_many).await;
}

/// Asserts that a writer is refused, and a reader is not.
pub(crate) async fn assert_only_read(client: &LockClient) {
    assert!(lock(client).try_lock().await.unwrap().is_none(), "expected no writer beside the reader");
    read(client).try_lock().await.unwrap().expect("readers may").unlock().await.unwrap();
}

/// Asserts that no reader is left: a writer is served at once, and no key remains.
pub(crate) async fn end_free(day: Day, client: &LockClient, other: &LockClient) {
    serve(AT_ONCE, "the writer's turn", taker(other)).await;
    end(day, &[client, other]).await;
}

/// A renewing reader of Redisson up to 3.x sets the leases of all readers to its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lease_to_read_that_strangers_cut_is_mended() {
    let day = Day::begin();
    let (client, other) = (day.bystander().await, day.bystander().await);
    let long = Duration::from_secs(3600);
    let guard = read(&client).lock_with_lease(long).await.unwrap();
    let keys = run::<Vec<String>>(&day.server, "KEYS *:rwlock_timeout:*").await;
    let [own] = &*keys else { panic!("{keys:?}") };
    let left = async |key: &str| run::<u64>(&day.server, &format!("PTTL {key}")).await;
    for key in [NAME, own] {
        let () = day.run(&format!("PEXPIRE {key} 30000")).await;
    }
    within(LIFE + LITTLE, "the whole lease", async {
        while left(own).await < 3_500_000 || left(NAME).await < 3_500_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // The lease is no longer than requested.
    assert!(left(own).await <= 3_600_000 && guard.remaining() <= long);
    assert_only_read(&other).await;
    guard.unlock().await.unwrap();
    end(day, &[&client, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_command_that_reads() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        day.proxy.lose_reply(EVAL, afterwards);
        let reader = patient_reader(&client);
        day.proxy.wait_until_replies_are_lost();
        let guard = soon("an answer", reader).await.unwrap().unwrap();
        assert_only_read(&other).await;
        guard.ensure_held().await.unwrap();
        until_leases(&day.server, 1).await;
        guard.unlock().await.unwrap();
        end_free(day, &client, &other).await;
    }
}

/// The reading task leaves, and its lease has to be released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_command_that_reads_for_a_task_that_leaves() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        day.proxy.lose_reply(EVAL, afterwards);
        let reader = patient_reader(&client);
        day.proxy.wait_until_replies_are_lost();
        reader.abort();
        drop(reader.await);
        end_free(day, &client, &other).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_release_of_the_last_reader() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let guard = read(&client).lock().await.unwrap();
        let writer = waiter(&other).await;
        day.proxy.lose_reply(EVAL, afterwards);
        let release = tokio::spawn(guard.unlock());
        day.proxy.wait_until_replies_are_lost();
        serve(AT_ONCE, "the writer's turn", writer).await;
        if let Err(error) = within(AT_ONCE, "the release", release).await.unwrap() {
            assert!(error.is_release_pending(), "{error:?}");
        }
        end(day, &[&client, &other]).await;
    }
}

/// Loses the replies of a waiting reader's first command, and of a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_of_the_commands_that_a_reader_waits_by() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, holder, behind) = (day.client().await, day.bystander().await, day.bystander().await);
        let held = lock(&holder).lock().await.unwrap();
        day.proxy.lose_reply(EVAL, afterwards);
        day.proxy.lose_reply("EVALSHA", afterwards);
        let reader = patient_reader(&client);
        day.proxy.wait_until_replies_are_lost();
        let writer = waiter(&behind).await;
        held.unlock().await.unwrap();
        tokio::join!(
            serve(LIFE + LITTLE, "the reader's turn", reader),
            serve(LIFE + LITTLE, "the writer's turn", writer),
        );
        end(day, &[&client, &holder, &behind]).await;
    }
}

/// The reader leaves while a writer holds the lock: the next writer need not wait for the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_roll_back_of_a_reader_that_leaves() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, holder, behind) = (day.client().await, day.bystander().await, day.bystander().await);
        let held = lock(&holder).lock().await.unwrap();
        let leaves = waiter_of(&client, &read(&client)).await;
        let next = waiter(&behind).await;
        day.proxy.lose_reply(EVAL, afterwards);
        leaves.abort();
        assert!(leaves.await.unwrap_err().is_cancelled());
        day.proxy.wait_until_replies_are_lost();
        // Sooner than the reader's position would expire.
        within(LITTLE, "no reader", until_queued(&day.server, 1)).await;
        held.unlock().await.unwrap();
        serve(AT_ONCE, "the next writer's turn", next).await;
        end(day, &[&client, &holder, &behind]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_renewal_of_a_reader() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let guard = read(&client).lock().await.unwrap();
        let writer = waiter(&other).await;
        day.proxy.lose_reply(EVAL, afterwards);
        within(LIFE * 2, "the renewal", async {
            while day.proxy.count(EVAL) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        day.proxy.wait_until_replies_are_lost();
        until_renewed(&guard).await;
        guard.ensure_held().await.unwrap();
        assert!(!writer.is_finished(), "expected no writer beside the reader");
        guard.unlock().await.unwrap();
        serve(AT_ONCE, "the writer's turn", writer).await;
        end(day, &[&client, &other]).await;
    }
}

/// The reader hears nothing, and its lease ends: a writer enters then and not before, and the reader knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_cut_off_for_its_whole_lease_knows_of_the_end() {
    let day = Day::begin();
    let (proxy, client) = proxied(&day.server).await;
    let other = day.bystander().await;
    let guard = read(&client).lock().await.unwrap();
    let second = read(&client).lock().await.unwrap();
    proxy.silence(Way::ToServer);
    let writer = taker(&other);
    let guards = [guard, second];
    let came = within(LIFE * 4, "the end of the lease", writer).await.unwrap().unwrap();
    for guard in &guards {
        assert!(!guard.is_held(), "expected the guard to have lost its hold beside the writer");
        assert_eq!(guard.lost().await, LossReason::Unreachable);
    }
    proxy.heal();
    for guard in guards {
        let error = guard.unlock().await.unwrap_err();
        assert!(error.is_not_held() || error.is_release_pending(), "{error:?}");
    }
    came.ensure_held().await.unwrap();
    came.unlock().await.unwrap();
    end(day, &[&other, &client]).await;
}

/// A leaving reader does not end the others' reads: dropped, forgotten, or killed with its task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_client_go_one_by_one_over_links_that_are_cut() {
    let day = Day::begin();
    let (client, other) = (day.client().await, day.bystander().await);
    let me = client.owner();
    let stays = read(&client).lock().await.unwrap();
    read(&client).owned_by(&me).lock().await.unwrap().forget();
    let writer = waiter(&other).await;
    for _ in 0..5 {
        let killed = taker_of(&read(&client));
        day.proxy.cut(Cut::Reset);
        killed.abort();
        drop(killed.await);
        stays.ensure_held().await.unwrap();
    }
    assert!(!writer.is_finished(), "expected no writer beside the reader");
    drop(stays);
    assert!(read(&client).is_held_by(&me).await.unwrap());
    assert!(!writer.is_finished(), "expected no writer beside the forgotten reader");
    read(&client).unlock(&me).await.unwrap();
    serve(AT_ONCE, "the writer's turn", writer).await;
    end(day, &[&client, &other]).await;
}

/// Tries share the answer to one common attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_to_read_share_an_answer_though_its_reply_is_lost() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        day.proxy.lose_reply(EVAL, afterwards);
        let tries = tries(&client, 5);
        day.proxy.wait_until_replies_are_lost();
        let mut guards = Vec::new();
        for one in tries {
            match within(AT_ONCE, "an answer", one).await.unwrap() {
                Ok(guard) => guards.push(guard.expect("no writer is there")),
                // The answer took longer than a try waits.
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
        assert!(!guards.is_empty(), "expected a guard of a try that was sent again");
        assert_only_read(&other).await;
        for guard in guards {
            guard.ensure_held().await.unwrap();
            drop(guard);
        }
        end_free(day, &client, &other).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_attempts_over_a_silent_link_end_and_leave_nothing() {
    for way in [Way::ToServer, Way::ToClient] {
        let day = Day::begin();
        let (proxy, client) = proxied(&day.server).await;
        let other = day.bystander().await;
        proxy.silence(way);
        for one in tries(&client, 5) {
            let answer = within(LIFE, "an answer", one).await.unwrap();
            assert!(!matches!(answer, Ok(Some(_))), "{answer:?}");
        }
        proxy.heal();
        serve(AT_ONCE, "the writer's turn", taker(&other)).await;
        read(&client).try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
        end(day, &[&client, &other]).await;
    }
}

type Try = JoinHandle<Result<Option<Guard>, LockError>>;

fn tries(client: &LockClient, how_many: usize) -> Vec<Try> {
    let one = || {
        let read = read(client);
        tokio::spawn(async move { read.try_lock().await })
    };
    (0..how_many).map(|_| one()).collect()
}
