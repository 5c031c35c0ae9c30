//! URLs of Clusters: accepted forms and refused ones.

use std::time::{Duration, Instant};

use latchwork::LockClient;
use latchwork::redis::{ErrorKind, Redis};
use latchwork_testkit::{RedisCluster, RedisServer};

use crate::errors::{PASSWORD, text};
use crate::nodes::{keys, name_at};

async fn refused(url: &str) -> (ErrorKind, String) {
    let error = Redis::connect(url).await.unwrap_err();
    text(&error);
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn contradictory_url_is_refused_with_advice() {
    let server = RedisServer::start();
    let host = format!("127.0.0.1:{}", server.port());
    let (kind, text) = refused(&format!("redis-cluster://{host}")).await;
    assert_eq!(kind, ErrorKind::NotACluster);
    assert!(text.contains("write redis:// instead"), "{text}");

    let (kind, text) = refused(&format!("redis-cluster://:{PASSWORD}@{host}/3")).await;
    assert_eq!(kind, ErrorKind::Url);
    assert!(text.contains("no database but 0"), "{text}");
    for url in
        ["redis-cluster://", "redis-cluster://a,,b", "redis-cluster://:hunter2/@a,b", "redis-cluster://a:x"]
    {
        assert_eq!(refused(url).await.0, ErrorKind::Url, "{url}");
    }

    let before = Instant::now();
    let (kind, text) = refused(&format!("redis-cluster://:{PASSWORD}@127.0.0.1:1,127.0.0.1:2")).await;
    assert_eq!(kind, ErrorKind::Connection);
    assert!(text.contains("127.0.0.1:"), "{text}");
    assert!(before.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn any_node_leads_to_all() {
    let cluster = RedisCluster::start_with(&[]);
    let seed = format!("127.0.0.1:{}", cluster.nodes()[1].port());
    for node in 0..3 {
        let () = cluster
            .ask(node, &["ACL", "SETUSER", "locker", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"]);
    }
    let url = format!("redis-cluster://locker:{PASSWORD}@127.0.0.1:1,{seed}");
    let client = LockClient::new(Redis::connect(&url).await.unwrap());
    for node in 0..3 {
        let lock = client.get_lock(&name_at(&cluster, node, "seeds")).unwrap();
        let guard = lock.lock().await.unwrap();
        assert_eq!(cluster.ask::<Vec<String>>(node, &["KEYS", "*"]), [lock.name().as_str()]);
        guard.unlock().await.unwrap();
    }
    assert!(!format!("{client:?} {:?}", client.backend::<Redis>().unwrap()).contains(PASSWORD));
    let (kind, text) = refused(&format!("redis-cluster://locker:{PASSWORD}wrong@{seed}")).await;
    assert_eq!(kind, ErrorKind::Connection);
    assert!(text.contains("the user or the password is wrong"), "{text}");

    let alone = LockClient::new(Redis::connect(&cluster.nodes()[0].url()).await.unwrap());
    // A single-server client cannot reach other nodes' slots; the error names the remedy.
    let elsewhere = alone.get_lock(&name_at(&cluster, 1, "alone")).unwrap();
    let error = elsewhere.lock().await.unwrap_err();
    assert!(error.to_string().contains("write redis-cluster:// into the URL"), "{error}");

    let url = cluster.url();
    tokio::task::spawn_blocking(move || {
        let client = latchwork::blocking::LockClient::connect(&url).unwrap();
        for name in ["a", "b", "c", "d", "e", "f"] {
            client.get_lock(name).unwrap().lock().unwrap().unlock().unwrap();
        }
    })
    .await
    .unwrap();
    assert_eq!(keys(&cluster), [""; 0]);
}

#[tokio::test]
async fn waiting_for_replicas_is_refused_before_anything_is_sent() {
    let builder = Redis::builder().wait_for_replicas(1, Duration::from_millis(1));
    let error = builder.connect("redis-cluster://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Url);
    assert!(error.to_string().contains("wait_for_replicas"), "{error}");
}
