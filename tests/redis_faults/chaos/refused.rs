//! Refusals of the server: the error names the remedy and shows no password, and no key is left.

use std::fmt::Debug;
use std::time::Duration;

use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{LockClient, LockError, LockOptions, LossReason};
use latchwork_testkit::{RedisServer, is_older_than_7};
use redis::cmd;

use crate::day::{Day, NAME, cause, eventually, soon};

const PASSWORD: &str = "hunter2";
const WATCHDOG: Duration = Duration::from_secs(30);

fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        text += &format!("\n{error}\n{error:?}");
        next = error.source();
    }
    text
}

#[track_caller]
fn assert_no_password(shown: &dyn Debug) {
    let shown = format!("{shown:?} {shown:#?}");
    assert!(!shown.contains(PASSWORD), "{shown}");
}

/// Asserts a refusal; the error names the remedy `what_to_do` and then `words` of the server.
#[track_caller]
fn assert_refused(error: &LockError, what_to_do: &str, words: &str) {
    let said = cause(error).to_string();
    assert_eq!(cause(error).kind(), ErrorKind::Refused, "{error:?}");
    assert!(said.contains(what_to_do), "{said}");
    assert!(text(error).contains(words), "{}", text(error));
    assert!(!text(error).contains(PASSWORD), "{}", text(error));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_servers_refusal_says_so() {
    let day = match is_older_than_7() {
        true => Day::begin(),
        false => Day::begin_with(&["--enable-debug-command", "yes"]),
    };
    let client = day.client().await;
    // A key is larger than the interval between two looks at the clients, and loading pauses for half a
    // millisecond after each key: the loading outlasts a command, and even a busy machine answers soon.
    let () = day.run("DEBUG POPULATE 40000 fill 1100").await;
    let () = day.run("CONFIG SET rdbcompression no").await;
    let () = day.run("CONFIG SET loading-process-events-interval-bytes 1024").await;
    let () = day.run("CONFIG SET key-load-delay 500").await;
    let mut raw = day.connection().await;
    raw.set_response_timeout(Duration::from_secs(60));
    let loading = tokio::spawn(async move { cmd("DEBUG").arg("RELOAD").exec_async(&mut raw).await });
    let lock = client.get_lock(NAME).unwrap();
    eventually("the loading", async || match lock.try_lock().await {
        Ok(guard) => {
            if let Some(guard) = guard {
                let _ = guard.unlock().await;
            }
            false
        }
        // Before loading, the server saves its data, and serves no commands meanwhile.
        Err(error) if cause(&error).kind() == ErrorKind::Unknown => false,
        Err(error) => {
            assert_refused(
                &error,
                "it is still loading its data; try again in a moment",
                "loading the dataset",
            );
            true
        }
    })
    .await;
    let late = day.client().await;
    assert_cannot_be_taken(&late, "it is still loading", "loading the dataset").await;
    loading.abort();
    let () = day.run("CONFIG SET key-load-delay 0").await;
    eventually("the end of the loading", async || {
        let flushed: Result<(), _> = cmd("FLUSHALL").query_async(&mut day.connection().await).await;
        flushed.is_ok()
    })
    .await;
    soon("the lock", lock.lock()).await.unwrap().unlock().await.unwrap();
    day.end(&[&client, &late]).await;
}

#[tokio::test]
async fn refusal_of_a_renamed_command_names_it() {
    let day = Day::begin_with(&["--rename-command", "EVALSHA", "", "--rename-command", "PUBLISH", ""]);
    let client = day.client().await;
    assert_cannot_be_taken(&client, "it does not know a command that locks need", "EVALSHA").await;
    day.end(&[&client]).await;
}

#[tokio::test]
async fn release_without_publish_is_refused_and_the_lease_ends() {
    let day = Day::begin_with(&["--rename-command", "PUBLISH", ""]);
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock_with_lease(Duration::from_millis(800)).await.unwrap();
    let error = guard.unlock().await.unwrap_err();
    assert_refused(&error, "it does not know a command that locks need", "Unknown");
    // The lock is not freed without a message to its waiters; its lease ends.
    assert!(lock.is_locked().await.unwrap());
    day.end(&[&client]).await;
}

async fn user(day: &Day, rules: &str, watchdog: Duration) -> LockClient {
    let () = day.run(&format!("ACL SETUSER user on >{PASSWORD} ~* &* +@all {rules}")).await;
    let url = day.proxy.url().replace("redis://", &format!("redis://user:{PASSWORD}@"));
    let options = LockOptions::default().watchdog_timeout(watchdog);
    LockClient::with_options(Redis::connect(&url).await.unwrap(), &options).unwrap()
}

#[tokio::test]
async fn refusal_to_a_user_without_scripts_shows_no_password() {
    let day = Day::begin();
    let client = user(&day, "-evalsha", WATCHDOG).await;
    let what_to_do =
        format!("refused EVALSHA on {NAME:?}: the user has no permission; let an ACL rule allow");
    assert_cannot_be_taken(&client, &what_to_do, "evalsha").await;
    assert_no_password(&client);
    assert_no_password(client.backend::<Redis>().unwrap());
    assert_no_password(client.registry());
    day.end(&[&client]).await;
}

#[tokio::test]
async fn refusal_to_a_user_without_the_key_names_the_key() {
    let day = Day::begin();
    let client = user(&day, "resetkeys ~other:*", WATCHDOG).await;
    assert_cannot_be_taken(&client, &format!("on {NAME:?}: the user has no permission"), "key").await;
    day.end(&[&client]).await;
}

#[tokio::test]
async fn refusal_to_a_user_without_publish_names_the_channel() {
    let day = Day::begin();
    let client = user(&day, "-publish", WATCHDOG).await;
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock_with_lease(Duration::from_millis(800)).await.unwrap();
    assert_no_password(&guard);
    assert_no_password(&lock);
    assert_refused(
        &guard.unlock().await.unwrap_err(),
        "the user has no permission",
        // The refused command of the script, in any wording of the server.
        "refused PUBLISH in EVAL",
    );
    assert!(lock.is_locked().await.unwrap());
    day.end(&[&client]).await;
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
    assert!(!text(&error).contains(PASSWORD));
    let () = day.run(&format!("DEL {NAME}")).await;
    day.end(&[&client]).await;
}

#[tokio::test]
async fn key_that_is_no_lock_is_refused_and_left_alone() {
    let day = Day::begin();
    let client = day.client().await;
    let () = day.run(&format!("SET {NAME} text")).await;
    assert_cannot_be_taken(&client, "what is kept there is no part of a lock", "WRONGTYPE").await;
    let untouched: String = day.run(&format!("GET {NAME}")).await;
    assert_eq!(untouched, "text");
    let () = day.run(&format!("DEL {NAME}")).await;
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_whose_key_became_another_type_is_refused_alone() {
    let day = Day::begin();
    let client = day.client_with(Duration::from_millis(900)).await;
    let spoilt = client.get_lock(NAME).unwrap().lock().await.unwrap();
    let neighbour = client.get_lock("neighbour").unwrap().lock().await.unwrap();
    let () = day.run(&format!("SET {NAME} text")).await;
    assert_eq!(soon("the loss", spoilt.lost()).await, LossReason::Gone);
    let renewed = day.proxy.count("EVALSHA") + 3;
    day.proxy.wait_for("EVALSHA", renewed);
    assert!(neighbour.is_held(), "{:?}", neighbour.lost().await);
    neighbour.unlock().await.unwrap();
    // No release is sent for a lost lock.
    assert!(spoilt.unlock().await.unwrap_err().is_lost());
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

#[tokio::test]
async fn refused_greeting_names_the_wrong_credential() {
    let server = RedisServer::start_with(&["--requirepass", PASSWORD]);
    let to = |credentials: &str| server.url().replace("redis://", &format!("redis://{credentials}"));
    for (url, what_to_do) in [
        (server.url(), "it wants a password; write it into the URL"),
        (to(":wrong@"), "the user or the password is wrong"),
        (to(&format!("nobody:{PASSWORD}@")), "the user or the password is wrong"),
    ] {
        let error = Redis::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert!(error.to_string().contains(what_to_do), "{}", text(&error));
        assert!(!text(&error).contains(PASSWORD), "{}", text(&error));
    }
    let connected = Redis::connect(&to(&format!(":{PASSWORD}@"))).await.unwrap();
    assert_no_password(&connected);
}

/// A server quotes an unknown command in its reply, and the greeting contains the password.
#[tokio::test]
async fn refused_unknown_greeting_shows_no_password() {
    let server = RedisServer::start_with(&["--requirepass", PASSWORD, "--rename-command", "HELLO", ""]);
    let url = server.url().replace("redis://", &format!("redis://:{PASSWORD}@"));
    let error = Redis::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("does not know a command that locks need"), "{}", text(&error));
    assert!(!text(&error).contains(PASSWORD), "{}", text(&error));
}
