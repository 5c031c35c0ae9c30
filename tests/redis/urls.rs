//! Every kind of URL, against a real server; no error shows the password.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::by_hand::{connection, run_on};
use crate::configuration::to_tls;
use crate::errors::{PASSWORD, assert_silent, text};
use latchwork::backend::Backend as _;
use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{LockClient, LockError};
use latchwork_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn folder(raw: &mut MultiplexedConnection) -> PathBuf {
    let (_, folder): (String, String) = run_on(raw, "CONFIG GET dir").await;
    folder.into()
}

/// Acquires a lock in `database`, and waits for it in vain, to use the subscriptions.
async fn assert_works(redis: Redis, raw: &mut MultiplexedConnection, database: &str) {
    let client = LockClient::new(redis.clone());
    let lock = client.get_lock("urls").unwrap();
    let guard = lock.lock().await.unwrap();
    let () = run_on(raw, &format!("SELECT {database}")).await;
    let ids: Vec<String> = run_on(raw, "HKEYS urls").await;
    assert!(ids.len() == 2 && ids.iter().any(|id| id.starts_with(client.id())), "{ids:?}");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
    let subscription = redis.registry().subscribe("redisson_lock__channel:{urls}");
    subscription.subscribed().await.unwrap();
    guard.unlock().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), waiter).await.expect("not woken").unwrap().unwrap();
    assert_silent(&client);
    assert_silent(&redis);
    assert_silent(redis.registry());
}

#[tokio::test]
async fn user_password_and_database() {
    let server = RedisServer::start();
    let mut raw = connection(&server).await;
    let password = format!("{PASSWORD}@/?#:%");
    let () = run_on(&mut raw, &format!("ACL SETUSER some:one on >{password} ~* &* +@all")).await;
    let host = format!("127.0.0.1:{}", server.port());
    let user = format!("some%3Aone:{PASSWORD}%40%2F%3F%23%3A%25");
    let redis = Redis::connect(&format!("redis://{user}@{host}/3")).await.unwrap();
    assert_works(redis, &mut raw, "3").await;

    let () = run_on(&mut raw, &format!("CONFIG SET requirepass {PASSWORD}")).await;
    let redis = Redis::connect(&format!("redis://:{PASSWORD}@{host}")).await.unwrap();
    assert_works(redis, &mut raw, "0").await;

    for (wrong, what_to_do) in [
        (format!("redis://{host}"), "it wants a password; write it into the URL"),
        (format!("redis://:not{PASSWORD}@{host}"), "the user or the password is wrong"),
        (format!("redis://nobody:{PASSWORD}@{host}"), "the user or the password is wrong"),
        (format!("redis://:{PASSWORD}@{host}/16"), ""),
    ] {
        let error = Redis::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{wrong}: {error:?}");
        assert!(error.to_string().contains(what_to_do), "{error}");
        assert!(error.source().is_some(), "{wrong}: expected a source of the error");
        text(&error);
    }
}

#[tokio::test]
async fn address_is_shown_and_no_more() {
    // Port 1 is reserved, so nothing listens there.
    let error = Redis::connect(&format!("redis://user:{PASSWORD}@127.0.0.1:1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    let refused = "cannot connect to Redis at 127.0.0.1:1: Connection refused (os error 111); \
                   see whether a Redis server runs there";
    assert_eq!(error.to_string(), refused);
    assert!(error.source().is_none(), "expected the cause once, and got {:?}", error.source());
    text(&error);
    assert_eq!(LockError::from(error).to_string(), refused);
}

#[tokio::test]
async fn unix_socket() {
    let server = RedisServer::start();
    let mut raw = connection(&server).await;
    let (_, name): (String, String) = run_on(&mut raw, "CONFIG GET unixsocket").await;
    let socket = folder(&mut raw).await.join(name);
    let socket = socket.display();
    let redis = Redis::connect(&format!("unix://{socket}")).await.unwrap();
    assert_works(redis, &mut raw, "0").await;

    let () = run_on(&mut raw, &format!("ACL SETUSER someone on >{PASSWORD}@# ~* &* +@all")).await;
    let query = format!("db=3&user=someone&pass={PASSWORD}%40%23");
    for scheme in ["unix", "redis+unix"] {
        let redis = Redis::connect(&format!("{scheme}://{socket}?{query}")).await.unwrap();
        assert_works(redis, &mut raw, "3").await;
    }

    let error = Redis::connect(&format!("unix://{socket}.not?pass={PASSWORD}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    let missing = "No such file or directory (os error 2); see whether a Redis server runs there";
    assert_eq!(error.to_string(), format!("cannot connect to Redis at {socket}.not: {missing}"));
    text(&error);
}

#[tokio::test]
async fn tls() {
    let server = RedisServer::start();
    let mut raw = connection(&server).await;
    let made = rcgen::generate_simple_self_signed(["localhost".into(), "127.0.0.1".into()]).unwrap();
    let pem = made.cert.pem();
    to_tls(&server, [&pem, &made.signing_key.serialize_pem(), &pem], "no").await;
    let () = run_on(&mut raw, &format!("CONFIG SET requirepass {PASSWORD}")).await;
    let port = server.port();
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("rediss://:{PASSWORD}@{host}:{port}/3");
        let builder = Redis::builder().root_certificate(pem.clone());
        assert_silent(&builder);
        assert_works(builder.connect(&url).await.unwrap(), &mut raw, "3").await;
    }

    // Signed by an unknown issuer; for another host name; and no TLS.
    let url = format!("rediss://:{PASSWORD}@127.0.0.1:{port}");
    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".into()]).unwrap().cert.pem();
    for refused in [
        Redis::connect(&url).await,
        Redis::builder().root_certificate(stranger).connect(&url).await,
        Redis::builder().root_certificate(pem.clone()).connect(&url.replace("127.0.0.1", "127.0.0.2")).await,
        Redis::connect(&url.replace("rediss", "redis")).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.to_string().contains(&format!(":{port}: ")), "expected the cause, and got {error}");
        text(&error);
    }
}

/// A plain server waits for the end of the line, or answers in plain text.
#[tokio::test]
async fn port_without_tls_is_named() {
    let server = RedisServer::start();
    let talks = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let talking = talks.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = talks.accept().await {
            stream.write_all(b"-ERR unknown command\r\n").await.unwrap();
            open.push(stream);
        }
    });
    for port in [server.port(), talking] {
        let error = Redis::connect(&format!("rediss://127.0.0.1:{port}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert!(error.to_string().contains("does not speak TLS there"), "{error}");
    }
}

/// Errors of different parsers, each of which might quote the URL.
#[tokio::test]
async fn url_that_cannot_be_meant_is_refused_in_silence() {
    for url in [
        "",
        PASSWORD,
        "http://user:hunter2@localhost",
        "redis://user:hunter2@localhost:nowhere/",
        "redis://user:hunter2%zz@[::1",
        "unix://user:hunter2@localhost/nowhere",
        "redis-cluster://:hunter2@127.0.0.1:7000,127.0.0.1:70000",
        "redis+sentinel://:hunter2@127.0.0.1:26379,127.0.0.1:99999/master",
    ] {
        let error = Redis::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Url, "{url}: {error:?}");
        text(&error);
    }
}

/// No error shows a password or a part of it: a server quotes the first hundred bytes or so.
#[tokio::test]
async fn server_that_repeats_the_greeting_is_not_repeated() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let host = format!("127.0.0.1:{}", server.port());
    for times in [1, 10, 20, 100] {
        let password = PASSWORD.repeat(times);
        let error = Redis::connect(&format!("redis://:{password}@{host}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert!(error.to_string().contains("renamed"), "{error}");
        text(&error);
    }
}

/// The error of a greeting with this password; `answer` builds the server's reply from the greeting.
async fn refused_greeting(password: &str, answer: impl FnOnce(&str) -> String) -> Error {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://user:{password}@{}", proxy.local_addr().unwrap());
    let refuses = async {
        let (mut connection, _) = proxy.accept().await.unwrap();
        let mut greeting = vec![0; 2048];
        let length = connection.read(&mut greeting).await.unwrap();
        let said = String::from_utf8_lossy(&greeting[..length]).replace("\r\n", " ");
        // One reply to each command: the redis crate looks at the first reply after reading all of them.
        let replies = format!("-{}\r\n", answer(&said)).repeat(1 + said.matches("SETINFO").count());
        connection.write_all(replies.as_bytes()).await.unwrap();
        while connection.read(&mut greeting).await.is_ok_and(|length| length > 0) {}
    };
    let connects = tokio::time::timeout(Duration::from_secs(10), Redis::connect(&url));
    let (connected, ()) = tokio::join!(connects, refuses);
    let error = connected.expect("the server answers").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    let why = error.source().expect("the error has a source").to_string();
    assert!(!why.contains("in time"), "{why}");
    text(&error);
    error
}

/// Servers and proxies refuse in their own words, under any code, and may cut the text anywhere.
#[tokio::test]
async fn refusal_of_the_greeting_is_told_in_words_of_ours() {
    for refusal in ["ERR unknown command, with args beginning with:", "NOAUTH for", "DENIED", "WRONGPASS"] {
        refused_greeting(&PASSWORD.repeat(50), |said| {
            let from = said.find(PASSWORD).expect("the client sends its password");
            format!("{refusal} {}", &said[from..from + 107])
        })
        .await;
    }
    // The answer of servers before 6.0.
    let too_old = |_: &str| {
        format!("ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `user`, `{PASSWORD}`, ")
    };
    let error = refused_greeting(PASSWORD, too_old).await;
    assert!(error.to_string().contains("too old"), "{error}");
}

#[tokio::test]
async fn connect_gives_up_in_time() {
    let server = RedisServer::start();
    server.pause();
    let begin = Instant::now();
    let patience = Duration::from_millis(100);
    let error = Redis::builder().connect_timeout(patience).connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    // The default is a second.
    assert!((patience..Duration::from_millis(900)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}
