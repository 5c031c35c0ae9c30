//! Texts of errors and of `Debug`: each names the lock and the cause once, and says how to react.

use std::error::Error;
use std::fmt::Debug;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use latchwork::local::Local;
use latchwork::redis::{ErrorKind, Redis};
use latchwork::{Lease, LockClient, LockError, LockOptions, Owner, blocking};
use latchwork_testkit::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const NAME: &str = "orders:42";

/// Returns the texts of an error and its sources, outermost first.
fn texts(error: &dyn Error) -> Vec<String> {
    let (mut texts, mut next) = (Vec::new(), Some(error));
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts
}

/// Returns the URL of a peer that answers its first input with `answer`, or echoes the input.
async fn peer(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut asked = vec![0; 4096];
                while let Ok(length @ 1..) = connection.read(&mut asked).await {
                    let answer = answer.map_or(&asked[..length], str::as_bytes);
                    if connection.write_all(answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn peer_that_is_not_redis_is_said_to_be_none() {
    let http = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for answer in [
        Some(http),
        Some("SSH-2.0-OpenSSH_9.2\r\n"),
        Some("220 mail.example.com ESMTP\r\n"),
        Some("ERROR\r\n"),
        // A TLS alert, from a server that expects TLS.
        Some("\u{15}\u{3}\u{3}\0\u{2}\u{2}\n"),
        None,
    ] {
        let error = Redis::connect(&peer(answer).await).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{answer:?}: {error:?}");
        assert!(error.to_string().contains("no Redis server"), "{answer:?}: {:?}", texts(&error));
        assert!(!texts(&error).concat().contains("Parse error"), "{answer:?}: {:?}", texts(&error));
    }
    let url = peer(Some(http)).await.replace("redis://", "redis+sentinel://") + "/master";
    let error = Redis::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSentinel, "{error:?}");
    assert!(error.to_string().contains("no Redis server"), "{:?}", texts(&error));
}

#[test]
fn connecting_without_a_runtime_fails_naming_blocking_connect() {
    let connect = pin!(Redis::connect("redis://127.0.0.1:1"));
    let Poll::Ready(Err(error)) = connect.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("expected an error at once")
    };
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
    assert!(error.to_string().contains("blocking_connect"), "{error}");
}

#[track_caller]
fn assert_named<T: Debug>(answer: Result<T, LockError>, is_it: impl Fn(&LockError) -> bool) {
    let error = answer.unwrap_err();
    assert!(is_it(&error), "expected another kind of error, and got {error:?}");
    assert!(
        error.to_string().contains(&format!("{NAME:?}")),
        "expected the lock's name in the text, and got {error}"
    );
}

/// A value must fit a line of a log, even with a thousand locks.
#[track_caller]
fn assert_fits_a_line(value: &dyn Debug) {
    let text = format!("{value:?}");
    assert!(text.len() <= 200 && !text.contains('\n'), "{} bytes: {text:.300}", text.len());
}

mod needs_a_server {
    use super::*;

    #[tokio::test]
    async fn chain_of_causes_says_each_once() {
        let mut server = RedisServer::start();
        let client = LockClient::new(Redis::connect(&server.url()).await.unwrap());
        let wrong_type = async {
            let redis = redis::Client::open(server.url()).unwrap();
            let mut raw = redis.get_multiplexed_async_connection().await.unwrap();
            redis::cmd("SET").arg(NAME).arg("no lock").exec_async(&mut raw).await.unwrap();
            client.get_lock(NAME).unwrap().try_lock().await.unwrap_err()
        };
        let wrong_type = wrong_type.await;
        let refused = Redis::connect("redis://127.0.0.1:1").await.unwrap_err();
        server.kill_9();
        let gone = client.get_lock("gone").unwrap().try_lock().await.unwrap_err();
        let other_kind = {
            let client = LockClient::local();
            let _reader = client.get_fair_lock(NAME).unwrap().lock().await.unwrap();
            client.get_lock(NAME).unwrap().try_lock().await.unwrap_err()
        };
        let errors: [&dyn Error; 4] = [&wrong_type, &refused, &gone, &other_kind];
        for error in errors {
            let texts = texts(error);
            for (behind, text) in texts.iter().enumerate() {
                assert!(
                    !texts[..behind].iter().any(|said| said.contains(text)),
                    "expected each cause once in the texts, and got {texts:?}"
                );
            }
        }
        assert!(texts(&refused).concat().contains("refused"), "{:?}", texts(&refused));
        assert!(texts(&wrong_type).concat().contains("WRONGTYPE"), "{:?}", texts(&wrong_type));
    }

    #[tokio::test]
    async fn error_about_a_lock_has_its_name() {
        let mut server = RedisServer::start();
        let redis =
            Redis::builder().response_timeout(Duration::from_secs(1)).connect(&server.url()).await.unwrap();
        let client = LockClient::new(redis);
        let lock = client.get_lock(NAME).unwrap();
        let guard = client.get_fair_lock(NAME).unwrap().lock().await.unwrap();
        assert_named(lock.try_lock().await, LockError::is_other_kind);
        guard.unlock().await.unwrap();

        server.pause();
        assert_named(lock.try_lock().await, LockError::is_indeterminate);
        let wait = lock.try_lock_for(Duration::from_millis(100), Lease::Watched);
        assert_named(wait.await, |error| matches!(error, LockError::NoAnswer { .. }));
        server.kill_9();
        assert_named(lock.force_unlock().await, LockError::is_retryable);

        // A user without permission for the release channel.
        let server = RedisServer::start();
        let mut raw =
            redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        let mut user = redis::cmd("ACL");
        let user = user.arg(&["SETUSER", "deaf", "on", ">deaf", "~*", "&*", "+@all", "-subscribe"]);
        user.exec_async(&mut raw).await.unwrap();
        let url = server.url().replace("redis://", "redis://deaf:deaf@");
        let deaf = LockClient::new(Redis::connect(&url).await.unwrap());
        let _held = LockClient::new(Redis::connect(&server.url()).await.unwrap());
        let _held = _held.get_lock(NAME).unwrap().lock().await.unwrap();
        assert_named(deaf.get_lock(NAME).unwrap().lock().await, |error| {
            matches!(error, LockError::Subscribe(_))
        });

        let client = LockClient::local();
        let read_write = client.get_read_write_lock(NAME).unwrap();
        let (plain, owner) = (client.get_lock(NAME).unwrap(), client.owner());
        assert_named(plain.unlock(&owner).await, |error| matches!(error, LockError::NotHeld { .. }));
        let guard = plain.lock().await.unwrap();
        assert!(plain.force_unlock().await.unwrap());
        assert_named(guard.unlock().await, LockError::is_lost);
        let _reading = read_write.read().owned_by(&owner).lock().await.unwrap();
        let write = read_write.write().owned_by(&owner);
        assert_named(write.lock().await, LockError::is_upgrade);
        assert_named(plain.try_lock().await, LockError::is_other_kind);
    }

    #[tokio::test]
    async fn error_of_a_shutdown_says_what_is_left_and_no_more() {
        let client = LockClient::local();
        let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
        let error = client.shutdown(Duration::ZERO).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(NAME) && text.contains("held still"), "{text}");
        assert!(!text.contains("[]") && !text.contains("the release of"), "{text}");
        drop(guard);

        let server = RedisServer::start();
        let client = LockClient::new(Redis::connect(&server.url()).await.unwrap());
        let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
        let other = client.get_lock("other").unwrap().lock().await.unwrap();
        server.pause();
        drop(guard);
        let error = client.shutdown(Duration::ZERO).await.unwrap_err().to_string();
        assert!(
            error.contains("the release of [\"orders:42\"]") && error.contains("[\"other\"] are held"),
            "{error}"
        );
        drop(other);
        let error = client.shutdown(Duration::ZERO).await.unwrap_err().to_string();
        assert!(error.contains("other") && error.contains("the release of"), "{error}");
        assert!(!error.contains("[]") && !error.contains("held still"), "{error}");
    }

    #[test]
    fn debug_of_a_client_fits_a_line() {
        let server = RedisServer::start();
        let options = LockOptions::default();
        let client = blocking::LockClient::with_options(latchwork::local::Local::new(), &options).unwrap();
        let mut guards = Vec::new();
        for number in 0..1_000 {
            let lock = client.get_lock(&format!("a lock whose name is not the shortest:{number}")).unwrap();
            guards.push(lock.lock().unwrap());
        }
        assert_fits_a_line(&client);
        assert_fits_a_line(client.as_async());
        assert_fits_a_line(client.as_async().backend::<Local>().unwrap());
        assert_fits_a_line(client.as_async().registry());

        let redis = Redis::builder().blocking_connect(&server.url()).unwrap();
        let client = blocking::LockClient::from_async(LockClient::new(redis));
        let _subscriptions: Vec<_> = (0..100)
            .map(|number| {
                client.as_async().registry().subscribe(&format!("a channel that is subscribed to:{number}"))
            })
            .collect();
        assert_fits_a_line(&client);
        assert_fits_a_line(client.as_async().backend::<Redis>().unwrap());
        assert_fits_a_line(&Redis::builder());
        let owner: Owner = client.as_async().owner();
        let lock = client.get_lock(NAME).unwrap();
        assert_fits_a_line(&lock.owned_by(&owner));
        assert_fits_a_line(&lock.lock().unwrap());
    }
}
