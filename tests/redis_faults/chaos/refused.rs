//! Refusals of the server: the error names the remedy and shows no password, and no key is left.

use std::time::Duration;

use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{LockClient, LockError, LockOptions, LossReason};
use latchwork_testkit::is_older_than_7;

use crate::day::{Day, NAME, soon};
use crate::errors::{PASSWORD, assert_silent, cause, text};

const WATCHDOG: Duration = Duration::from_secs(30);

/// Asserts a refusal; the error names the remedy `what_to_do` and then `words` of the server.
#[track_caller]
fn assert_refused(error: &LockError, what_to_do: &str, words: &str) {
    let said = cause(error).to_string();
    assert_eq!(cause(error).kind(), ErrorKind::Refused, "{error:?}");
    assert!(said.contains(what_to_do), "{said}");
    assert!(text(error).contains(words), "{}", text(error));
}

/// Asserts that every way to acquire the lock fails with the same refusal.
async fn assert_cannot_be_taken(client: &LockClient, what_to_do: &str, words: &str) {
    let lock = client.get_lock(NAME).unwrap();
    let lease = Duration::from_secs(5);
    assert_refused(&soon("a refusal", lock.lock()).await.unwrap_err(), what_to_do, words);
    assert_refused(&soon("a refusal", lock.try_lock()).await.unwrap_err(), what_to_do, words);
    assert_refused(&soon("a refusal", lock.try_lock_for(lease, lease)).await.unwrap_err(), what_to_do, words);
}

#[tokio::test]
async fn replicas_refusal_names_the_master_as_the_remedy() {
    let day = Day::begin();
    let client = day.client().await;
    // Nothing listens at the master's address, but the server is a replica.
    let () = day.run("REPLICAOF 127.0.0.1 1").await;
    assert_cannot_be_taken(
        &client,
        "it is a replica, which takes no writes; connect to its master",
        "read only replica",
    )
    .await;
    let () = day.run("CONFIG SET replica-serve-stale-data no").await;
    assert_cannot_be_taken(&client, "a replica that has lost its master", "MASTER").await;
    let () = day.run("REPLICAOF NO ONE").await;
    day.end(&[&client]).await;
}

#[tokio::test]
async fn release_refused_by_a_demoted_master_is_retried() {
    let day = Day::begin();
    let client = day.client().await;
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    let () = day.run("REPLICAOF 127.0.0.1 1").await;
    assert_refused(&guard.unlock().await.unwrap_err(), "connect to its master", "read only replica");
    // The release succeeds once the server is a master again.
    let () = day.run("REPLICAOF NO ONE").await;
    day.end(&[&client]).await;
}

#[tokio::test]
async fn refusal_without_memory_leaves_no_key() {
    // Older servers still lease locks without memory; see the page of `redis`.
    if is_older_than_7() {
        return;
    }
    let day = Day::begin();
    let client = day.client().await;
    let guard = client.get_lock("before").unwrap().lock().await.unwrap();
    let () = day.run("CONFIG SET maxmemory 1").await;
    assert_cannot_be_taken(&client, "raise its maxmemory, or give the locks a server of their own", "OOM")
        .await;
    // A release needs no memory.
    guard.unlock().await.unwrap();
    day.end(&[&client]).await;
}

async fn user(day: &Day, rules: &str, watchdog: Duration) -> LockClient {
    let () = day.run(&format!("ACL SETUSER user on >{PASSWORD} ~* &* +@all {rules}")).await;
    let url = day.proxy.url().replace("redis://", &format!("redis://user:{PASSWORD}@"));
    let options = LockOptions::default().watchdog_timeout(watchdog);
    LockClient::with_options(Redis::connect(&url).await.unwrap(), &options).unwrap()
}

#[tokio::test]
async fn refusal_of_an_attempt_names_what_is_missing() {
    let renamed = ["--rename-command", "EVALSHA", "", "--rename-command", "PUBLISH", ""];
    let no_script = format!("refused EVALSHA on {NAME:?}: the user has no permission; let an ACL rule allow");
    let no_key = format!("on {NAME:?}: the user has no permission");
    for (args, rules, what_to_do, words) in [
        (&renamed[..], "", "it does not know a command that locks need", "EVALSHA"),
        (&[], "-evalsha", &no_script, "evalsha"),
        (&[], "resetkeys ~other:*", &no_key, "key"),
    ] {
        let day = Day::begin_with(args);
        let client = user(&day, rules, WATCHDOG).await;
        assert_cannot_be_taken(&client, what_to_do, words).await;
        assert_silent(&client);
        assert_silent(client.backend::<Redis>().unwrap());
        assert_silent(client.registry());
        day.end(&[&client]).await;
    }
}

/// The lock is not freed without a message to its waiters; its lease ends.
#[tokio::test]
async fn release_without_publish_is_refused_and_the_lease_ends() {
    for (args, rules, what_to_do, words) in [
        (
            &["--rename-command", "PUBLISH", ""][..],
            "",
            "it does not know a command that locks need",
            "Unknown",
        ),
        (&[], "-publish", "the user has no permission", "EVALSHA on"),
    ] {
        let day = Day::begin_with(args);
        let client = user(&day, rules, WATCHDOG).await;
        let lock = client.get_lock(NAME).unwrap();
        let guard = lock.lock_with_lease(Duration::from_millis(800)).await.unwrap();
        assert_silent(&guard);
        assert_silent(&lock);
        assert_refused(&guard.unlock().await.unwrap_err(), what_to_do, words);
        assert!(lock.is_locked().await.unwrap());
        day.end(&[&client]).await;
    }
}

#[tokio::test]
async fn refusal_to_a_user_without_subscribe_ends_the_wait() {
    let day = Day::begin();
    let client = user(&day, "resetchannels", WATCHDOG).await;
    day.another_holds_it().await;
    let error = soon("a refusal", client.get_lock(NAME).unwrap().lock()).await.unwrap_err();
    let LockError::Subscribe(refused) = &error else { panic!("{error:?}") };
    let cause: &Error = refused.reason().downcast_ref().expect("the backend's own");
    assert_eq!(cause.kind(), ErrorKind::Refused);
    let channel = format!("{NAME}:latchwork:{{{NAME}}}:call:{}", client.id());
    assert!(
        cause.to_string().contains(&format!("refused SUBSCRIBE on {channel:?}: the user has no permission"))
    );
    text(&error);
    let () = day.run(&format!("DEL {NAME}")).await;
    day.end(&[&client]).await;
}

/// A refusal says nothing about the lock's holder.
#[tokio::test]
async fn refusal_of_a_renewal_is_no_proof_of_a_loss() {
    let day = Day::begin();
    let client = user(&day, "", Duration::from_millis(900)).await;
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    let () = day.run("ACL SETUSER user -hget").await;
    assert_eq!(soon("the loss", guard.lost()).await, LossReason::Unreachable);
    drop(guard);
    day.end(&[&client]).await;
}
