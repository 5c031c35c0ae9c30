//! Other locks of the same name, as Redisson's scripts leave them: we wait for some, and others are errors.

use std::sync::LazyLock;
use std::time::Duration;

use crate::by_hand;
use crate::kinds::{MODES, lock_of};
use latchwork::redis::ErrorKind;
use latchwork::{Lease, LeaseError, Lock, LockClient, LockError, LockKind};
use latchwork_testkit::RedisServer;
use redis::FromRedisValue;
use tokio::time::timeout;

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

const THEM: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:7";

async fn run<T: FromRedisValue>(words: &str) -> T {
    by_hand::run(&SERVER, words).await
}

async fn client() -> LockClient {
    by_hand::client(&SERVER.url()).await
}

async fn lock(name: &str) -> Lock {
    client().await.get_lock(name).unwrap()
}

#[track_caller]
fn assert_other_kind<T: std::fmt::Debug>(answer: Result<T, LockError>, expected: LockKind) {
    let error = answer.unwrap_err();
    assert!(error.is_other_kind() && !error.is_refused() && !error.is_retryable(), "{error:?}");
    let LockError::OtherKind { found, source } = &error else { panic!("{error:?}") };
    assert_eq!(*found, expected);
    assert!(error.to_string().contains("names of its own"), "{error}");
    let cause: &latchwork::redis::Error = source.downcast_ref().expect("the backend's own");
    assert_eq!(cause.kind(), ErrorKind::OtherKind(expected));
}

#[tokio::test]
async fn lock_of_another_kind_is_an_error_and_is_not_forced_free() {
    let cases = [
        ("read", THEM.to_owned(), LockKind::ReadWrite),
        ("write", format!("{THEM}:write"), LockKind::ReadWrite),
        ("fair", THEM.to_owned(), LockKind::Fair),
        ("tomorrow", THEM.to_owned(), LockKind::Unknown),
    ];
    for (mode, field, kind) in cases {
        let name = format!("kinds:{mode}");
        let () = run(&format!("HSET {name} mode {mode} {field} 1")).await;
        let () = run(&format!("PEXPIRE {name} 600000")).await;
        let lock = lock(&name).await;
        let wait = Duration::from_secs(5);
        let taken = timeout(wait, lock.lock()).await.expect("the lock is granted within the limit");
        assert_other_kind(taken, kind);
        assert_other_kind(lock.try_lock().await, kind);
        assert_other_kind(lock.fenced().try_lock_for(wait, wait).await, kind);
        assert_other_kind(lock.force_unlock().await, kind);
        assert_eq!(run::<usize>(&format!("HLEN {name}")).await, 2);
        // Only a fair lock names its holder here: a writer's field is not the id of a labelled lease.
        let holder = lock.holder().await.unwrap().expect("the lock is held");
        let named = (kind == LockKind::Fair).then(|| THEM.parse().expect("the text is an id"));
        assert_eq!(holder.id, named, "{mode}");
        assert!(holder.left > Duration::from_secs(500));
        let () = run(&format!("DEL {name}")).await;
        lock.try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
    }
}

#[tokio::test]
async fn waiter_is_told_that_the_lock_became_another_kind() {
    let name = "kinds:becomes";
    let () = run(&format!("HSET {name} mode lock {THEM} 1")).await;
    let () = run(&format!("PEXPIRE {name} 1500")).await;
    let client = client().await;
    let lock = client.get_lock(name).unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    while by_hand::subscribers(&SERVER, &by_hand::call_channel(&client, name)).await == 0 {}
    let () = run(&format!("PEXPIRE {name} 600000")).await;
    let () = run(&format!("HSET {name} mode read")).await;
    assert_other_kind(timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap(), LockKind::ReadWrite);
}

/// Redisson's fair and spin locks have no mode, and publish nothing on our channels.
#[tokio::test]
async fn waiter_finds_a_foreign_lock_free_without_a_message() {
    let name = "kinds:stranger";
    let () = run(&format!("HSET {name} {THEM} 1")).await;
    let () = run(&format!("PEXPIRE {name} 600000")).await;
    let client = client().await;
    let lock = client.get_lock(name).unwrap();
    let waiters = [(); 4].map(|()| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    });
    while by_hand::subscribers(&SERVER, &format!("redisson_lock__channel:{{{name}}}")).await == 0 {}
    let () = run(&format!("DEL {name}")).await;
    for waiter in waiters {
        timeout(Duration::from_secs(5), waiter).await.expect("the waiter sleeps beside a free lock").unwrap();
    }
}

/// Keys that remain after Redisson's read locks and unlocks.
#[tokio::test]
async fn leftovers_of_redisson_are_nobodys_lock() {
    let name = "kinds:leftovers";
    let leftovers = [
        format!("{{{name}}}:{THEM}:rwlock_timeout:1"),
        format!("redisson_unlock_latch:{{{name}}}:0123456789abcdef0123456789abcdef"),
    ];
    for key in &leftovers {
        let () = run(&format!("SET {key} 1 PX 60000")).await;
    }
    let lock = lock(name).await;
    assert!(!lock.is_locked().await.unwrap());
    assert!(!lock.force_unlock().await.unwrap());
    let guard = lock.try_lock().await.unwrap().expect("the lock is free");
    assert_eq!(lock.holder().await.unwrap().unwrap().id, Some(guard_id(&lock).await));
    guard.unlock().await.unwrap();
    assert_eq!(run::<usize>(&format!("EXISTS {} {}", leftovers[0], leftovers[1])).await, 2);
}

/// The id on the server, read without our scripts.
async fn guard_id(lock: &Lock) -> latchwork::LeaseId {
    let fields: Vec<String> = run(&format!("HKEYS {}", lock.name())).await;
    assert!(fields.len() == 2 && fields.contains(&"mode".to_owned()), "{fields:?}");
    fields.iter().find(|field| *field != "mode").unwrap().parse().unwrap()
}

#[tokio::test]
async fn longest_lease_ends_and_a_longer_one_is_refused() {
    let lock = lock("kinds:longest").await;
    let guard = lock.lock_with_lease(Lease::MAX).await.unwrap();
    assert!(run::<i64>("PTTL kinds:longest").await > 0, "expected a finite lease of the key");
    assert!(lock.remaining().await.unwrap().unwrap() > Lease::MAX / 2);
    guard.unlock().await.unwrap();
    let error = lock.lock_with_lease(Lease::MAX + Duration::from_nanos(1)).await.unwrap_err();
    assert!(matches!(error, LockError::Lease(LeaseError::TooLong)), "{error:?}");
    assert_eq!(run::<usize>("EXISTS kinds:longest").await, 0);
}

/// A repeated release would meet the same error until the lease ends.
#[tokio::test]
async fn release_of_a_lock_replaced_by_another_type_reports_a_loss() {
    let client = client().await;
    for mode in MODES {
        let name = &*format!("replaced:{mode}");
        let guard = lock_of(&client, mode, name).lock().await.unwrap();
        let () = run(&format!("SET {name} text")).await;
        let error = guard.unlock().await.unwrap_err();
        assert!(error.is_lost(), "{name}: {error:?}");
        assert_eq!(run::<String>(&format!("GET {name}")).await, "text");
        let () = run(&format!("DEL {name}")).await;
    }
}

/// All four kinds request tokens, each by its own script.
fn fenced_of_each_kind(client: &LockClient, name: &str) -> [Lock; 4] {
    MODES.map(|mode| lock_of(client, mode, name).fenced())
}

#[tokio::test]
async fn invalid_token_counter_fails_naming_its_key_and_takes_no_lock() {
    let counters = "18446744073709551615 -9 -1 00 07 00000000000000000000 text 9223372036854775806 \
                    9223372036854775807 9223372036854775808 list";
    let client = client().await;
    for value in counters.split(' ') {
        let put = if value == "list" { "RPUSH" } else { "SET" };
        let name = format!("counted:{value}");
        let key = format!("redisson_lock_token:{{{name}}}");
        for lock in fenced_of_each_kind(&client, &name) {
            let () = run(&format!("DEL {key}")).await;
            let () = run(&format!("{put} {key} {value}")).await;
            let error = lock.try_lock().await.expect_err(value);
            assert!(error.is_refused() && !error.is_retryable(), "{value}: {error:?}");
            let text = error.to_string();
            assert!(text.contains(&format!("{key:?}")) && text.contains("delete "), "{value}: {text}");
            assert!(!lock.is_locked().await.unwrap(), "{value}");
            if put == "SET" {
                assert_eq!(run::<String>(&format!("GET {key}")).await, value, "expected the value untouched");
            }
        }
    }
}

#[tokio::test]
async fn key_that_is_of_another_program_is_named_by_the_error() {
    let client = client().await;
    let key_of = |part: &str| format!("taken:latchwork:{{taken}}:{part}");
    let [_, fair, read, write] = fenced_of_each_kind(&client, "taken");
    let cases = [
        (&fair, "taken".to_owned()),
        (&write, "taken".to_owned()),
        (&read, "taken".to_owned()),
        (&fair, key_of("fair_queue")),
        (&write, key_of("rw_queue")),
        (&read, key_of("rw_turn")),
        (&read, key_of("rw_readers")),
    ];
    for (lock, key) in cases {
        let () = run(&format!("SET {key} 1")).await;
        let error = lock.try_lock().await.unwrap_err();
        let text = error.to_string();
        assert!(error.is_refused() && text.contains(&format!("{key:?}")), "{key}: {text}");
        assert!(text.contains("delete "), "{text}");
        let () = run(&format!("DEL {key}")).await;
    }
}
