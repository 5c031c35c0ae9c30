//! A command on a plain lock has run, and its reply is lost.

use std::time::Duration;

use futures_util::StreamExt;
use latchwork::backend::{Backend as _, LockName, Mode, ReleaseOutcome};
use latchwork::redis::Redis;
use latchwork::{LeaseId, LockClient};
use latchwork_testkit::Afterwards::Reset;

use crate::day::{Day, EVAL, NAME, assert_unknown, eventually, refusing_server, soon};
use latchwork_conformance::commands::{Commands as _, is_acquired};

impl Day {
    /// A client; the server knows the scripts of acquisitions and releases.
    async fn known_client(&self) -> LockClient {
        let client = self.client().await;
        client.get_lock(NAME).unwrap().lock().await.unwrap().unlock().await.unwrap();
        client
    }

    /// Runs a call whose command runs without a reply, and whose repetition finds no server.
    async fn unanswered<T>(&self, call: impl Future<Output = T>) -> T {
        let gone = refusing_server();
        self.proxy.lose_reply("EVALSHA", Reset);
        self.proxy.lead_to(gone.port());
        let answer = soon("an answer", call).await;
        self.proxy.lead_to(self.server.port());
        answer
    }

    async fn until_free(&self) {
        eventually("a free lock", async || self.run::<usize>(&format!("EXISTS {NAME}")).await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_an_acquisition_leaves_one_hold() {
    let day = Day::begin();
    let client = day.client().await;
    let me = client.owner();
    let counter = format!("redisson_lock_token:{{{NAME}}}");
    let lock = client.get_lock(NAME).unwrap().owned_by(&me).fenced();
    let mut last = None;
    for script in [EVAL, "EVALSHA", "EVALSHA"] {
        day.proxy.lose_reply(script, Reset);
        let guard = soon("an answer", lock.lock()).await.unwrap();
        day.proxy.wait_until_replies_are_lost();
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
        assert!(guard.fencing_token() > last, "{:?} after {last:?}", guard.fencing_token());
        last = guard.fencing_token();
        assert_eq!(day.run::<Option<u64>>(&format!("GET {counter}")).await, last);
        guard.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap(), "expected a free lock, and a retry counted as a hold");
    }
    let () = day.run(&format!("DEL {counter}")).await;
    day.end(&[&client]).await;
}

/// The rollback runs at the next connection, well before the end of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indeterminate_acquire_is_rolled_back() {
    let day = Day::begin();
    let client = day.known_client().await;
    let lock = client.get_lock(NAME).unwrap();
    for lock in [&lock, &lock.owned_by(&client.owner())] {
        let error = day.unanswered(lock.lock()).await.unwrap_err();
        assert_unknown(&error);
        assert!(error.is_indeterminate() && error.is_retryable());
        day.until_free().await;
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_a_release_costs_a_retry_and_no_message() {
    let day = Day::begin();
    let client = day.known_client().await;
    let lock = client.get_lock(NAME).unwrap();
    let channel = format!("redisson_lock__channel:{{{NAME}}}");
    let mut messages = redis::Client::open(day.server.url()).unwrap().get_async_pubsub().await.unwrap();
    messages.subscribe(&channel).await.unwrap();
    for is_dropped in [false, true] {
        let guard = lock.lock().await.unwrap();
        day.proxy.lose_reply("EVALSHA", Reset);
        if is_dropped {
            drop(guard);
            day.until_free().await;
        } else {
            soon("an answer", guard.unlock()).await.unwrap();
            assert!(!lock.is_locked().await.unwrap());
        }
        day.proxy.wait_until_replies_are_lost();
        // One message for the waiters.
        let mut messages = messages.on_message();
        for said in ["0", "the-end"] {
            if said != "0" {
                let () = day.run(&format!("PUBLISH {channel} {said}")).await;
            }
            let message = soon("a message", messages.next()).await.unwrap();
            assert_eq!(message.get_payload::<String>().unwrap(), said);
        }
    }
    drop(messages);
    // This command may be the first to notice the broken link.
    let _ = lock.is_locked().await;
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indeterminate_release_is_repeated() {
    let day = Day::begin();
    let client = day.known_client().await;
    let me = client.owner();
    let lock = client.get_lock(NAME).unwrap().owned_by(&me);
    let guard = lock.lock().await.unwrap();
    assert_unknown(&day.unanswered(guard.unlock()).await.unwrap_err());
    assert!(client.metrics().releases_failed > 0);
    day.until_free().await;

    lock.lock().await.unwrap().forget();
    assert!(day.unanswered(lock.unlock(&me)).await.is_err());
    let again = lock.unlock(&me).await.unwrap_err();
    assert!(again.is_not_held(), "expected NotHeld for the second unlock of one hold, and got {again:?}");
    day.until_free().await;
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_of_a_lost_lease_reports_it_unless_its_reply_is_lost() {
    let day = Day::begin();
    let client = day.known_client().await;
    let (redis, name) = (client.backend::<Redis>().unwrap(), LockName::new(NAME).unwrap());
    let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
    let release = async || redis.release(Mode::Plain, &name, &id, None).await.unwrap();
    assert_eq!(release().await, ReleaseOutcome::NotHeld);
    for is_held in [false, true] {
        if is_held {
            let request = redis.request(&id, Duration::from_secs(30));
            assert!(is_acquired(redis.acquire(Mode::Plain, &name, &request).await.unwrap()));
        }
        day.proxy.lose_reply("EVALSHA", Reset);
        assert_eq!(release().await, ReleaseOutcome::Released { receivers: 0 });
        day.proxy.wait_until_replies_are_lost();
    }
    day.end(&[&client]).await;
}
