//! Settings of a service's operators besides the URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::by_hand;
use crate::by_hand::run;
use latchwork::backend::Backend as _;
use latchwork::redis::{Credentials, ErrorKind, Redis, RedisBuilder};
use latchwork::{LockClient, LockOptions};
use latchwork_testkit::{ChaosProxy, RedisCluster, RedisServer, SentinelSet};
use tokio::time::timeout;

const PASSWORD: &str = "hunter2/#?@";
const SOON: Duration = Duration::from_secs(60);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "configured";

async fn assert_works(redis: &Redis) {
    let lock = LockClient::new(redis.clone()).get_lock(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let subscription = redis.registry().subscribe(&format!("redisson_lock__channel:{{{NAME}}}"));
    subscription.subscribed().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn user_and_password_may_be_given_apart_from_the_url() {
    let server = RedisServer::start();
    let () = run(&server, &format!("ACL SETUSER locker on >{PASSWORD} ~* &* +@all")).await;
    let () = run(&server, "ACL SETUSER default off").await;
    let builder = || Redis::builder().username("locker").password(PASSWORD);
    assert!(!format!("{:?} {:#?}", builder(), builder()).contains("hunter2"));
    for url in [server.url(), server.url().replace("redis://", "redis://nobody:nothing@")] {
        let redis = builder().connect(&url).await.unwrap();
        assert!(!format!("{redis:?} {redis:#?}").contains("hunter2"));
        assert_works(&redis).await;
    }
    let error = builder().password("wrong").connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
}

#[test]
fn options_hold_for_a_connection_that_threads_make() {
    let server = RedisServer::start();
    let builder = Redis::builder().wait_for_replicas(1, Duration::from_millis(10)).client_name("a-thread");
    let redis = builder.blocking_connect(&server.url()).unwrap();
    let lock = latchwork::blocking::LockClient::new(redis).get_lock(NAME).unwrap();
    let error = lock.try_lock().expect_err("no replica has the lease");
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test]
async fn credentials_are_asked_for_at_each_connection() {
    let server = RedisServer::start();
    let () = run(&server, "ACL SETUSER locker on >token-0 ~* &* +@all").await;
    let (now, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let builder = Redis::builder().credentials({
        let (now, asked) = (Arc::clone(&now), Arc::clone(&asked));
        move || {
            asked.fetch_add(1, Ordering::SeqCst);
            let token = format!("token-{}", now.load(Ordering::SeqCst));
            async move { Ok(Credentials::new("locker", token)) }
        }
    });
    let redis = builder.connect(&server.url()).await.unwrap();
    assert_works(&redis).await;
    for token in 1..3 {
        now.store(token, Ordering::SeqCst);
        let () = run(&server, &format!("ACL SETUSER locker resetpass >token-{token}")).await;
        let before = asked.load(Ordering::SeqCst);
        let () = run(&server, "CLIENT KILL USER locker").await;
        assert_works(&redis).await;
        eventually("both connections", async || asked.load(Ordering::SeqCst) >= before + 2).await;
    }
}

#[tokio::test]
async fn credentials_that_cannot_be_had_are_told() {
    let server = RedisServer::start();
    let builder = Redis::builder().credentials(|| async { Err("the vault is sealed".into()) });
    let error = builder.connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("the vault is sealed"), "{error}");
    assert!(format!("{:?}", Credentials::new("me", PASSWORD)).contains("me"));
    assert!(!format!("{:?}", Credentials::new("me", PASSWORD)).contains("hunter2"));
    let builder = Redis::builder().credentials(std::future::pending);
    let error = timeout(SOON, builder.connect(&server.url())).await.expect("hangs").unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
}

/// The panic is an ordinary error, and the client pauses before the next call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callback_that_panics_is_told_and_asked_calmly() {
    let server = RedisServer::start();
    let (panics, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let builder = Redis::builder().credentials({
        let (panics, asked) = (Arc::clone(&panics), Arc::clone(&asked));
        move || {
            asked.fetch_add(1, Ordering::SeqCst);
            assert!(!panics.load(Ordering::SeqCst), "the vault fell over");
            async { Ok(Credentials::new("default", "")) }
        }
    });
    let redis = builder.connect(&server.url()).await.unwrap();
    assert_works(&redis).await;
    panics.store(true, Ordering::SeqCst);
    let before = asked.load(Ordering::SeqCst);
    let () = run(&server, "CLIENT KILL TYPE normal").await;
    let () = run(&server, "CLIENT KILL TYPE pubsub").await;
    let error = LockClient::new(redis.clone()).get_lock(NAME).unwrap().lock().await.unwrap_err();
    let cause = error.backend_error().expect("the backend's own").to_string();
    assert!(cause.contains("panicked: the vault fell over"), "{cause}");
    // Within the three seconds of a command.
    let asked_again = asked.load(Ordering::SeqCst) - before;
    assert!(asked_again < 30, "{asked_again} times");
    panics.store(false, Ordering::SeqCst);
    assert_works(&redis).await;
}

#[tokio::test]
async fn time_limits_may_be_as_long_as_can_be() {
    let server = RedisServer::start();
    let long = Duration::MAX;
    let limits = Redis::builder().connect_timeout(long).response_timeout(long).linger(long);
    let redis = limits.heartbeat(long).keepalive(long).connect(&server.url()).await.unwrap();
    assert_works(&redis).await;
}

/// A task blocks the only thread of the runtime for three leases. Renewals on this runtime cannot go out;
/// renewals of connections with a thread of their own do.
#[tokio::test]
async fn blocked_runtime_keeps_leases_only_with_a_connection_thread() {
    const LEASE: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let options = LockOptions::default().watchdog_timeout(LEASE);
    let url = server.url();
    let apart = tokio::task::spawn_blocking(move || Redis::builder().blocking_connect(&url));
    let apart = LockClient::with_options(apart.await.unwrap().unwrap(), &options).unwrap();
    let here = Redis::connect(&server.url()).await.unwrap();
    let here = LockClient::with_options(here, &options).unwrap();
    let kept = apart.get_lock("apart").unwrap().lock().await.unwrap();
    let lost = here.get_lock("here").unwrap().lock().await.unwrap();
    std::thread::sleep(3 * LEASE);
    assert!(kept.is_held() && !lost.is_held());
    kept.ensure_held().await.unwrap();
    kept.unlock().await.unwrap();
    assert!(lost.unlock().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn connections_have_the_clients_name() {
    let server = RedisServer::start();
    let redis = Redis::builder().client_name("orders-7").connect(&server.url()).await.unwrap();
    assert_works(&redis).await;
    let clients: String = run(&server, "CLIENT LIST").await;
    assert_eq!(clients.matches(" name=orders-7 ").count(), 2, "{clients}");
    let error = Redis::builder().client_name("or ders").connect(&server.url()).await.unwrap_err();
    assert!(error.to_string().contains("CLIENT SETNAME"), "{error}");
}

/// Asserts the time until the system probes both connections to `server`: timer 2 of /proc/net/tcp, in 10 ms.
#[cfg(target_os = "linux")]
async fn assert_probed_after(server: &RedisServer, time: Duration) {
    let to_server = format!(":{:04X}", server.port());
    let probed = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Remote address; established; timer.
        let is_ours = fields.len() > 5 && fields[2].ends_with(&to_server) && fields[3] == "01";
        let left = fields.get(5).filter(|_| is_ours)?.strip_prefix("02:")?;
        let left = Duration::from_millis(u64::from_str_radix(left, 16).unwrap() * 10);
        Some(left <= time && left > time.saturating_sub(SOON))
    };
    eventually("keepalive on both", async || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        sockets.lines().filter_map(probed).collect::<Vec<_>>() == [true; 2]
    })
    .await;
}

/// Each node announces an unreachable address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_a_cluster_behind_a_nat_are_mapped() {
    let cluster = RedisCluster::start_with(&[]);
    let inside: Vec<u16> = cluster.nodes().iter().map(RedisServer::port).collect();
    let outside: Vec<ChaosProxy> = inside.iter().map(|port| ChaosProxy::start(*port)).collect();
    let ports: Vec<(u16, u16)> = inside.iter().copied().zip(outside.iter().map(ChaosProxy::port)).collect();
    let builder = Redis::builder().map_addresses(move |host, port| {
        let mapped = ports.iter().find(|(inside, _)| *inside == port).map_or(port, |(_, outside)| *outside);
        (host.to_owned(), mapped)
    });
    let url = format!("redis-cluster://127.0.0.1:{}", outside[0].port());
    let client = LockClient::new(builder.connect(&url).await.unwrap());
    for number in 0..30 {
        let lock = client.get_lock(&format!("nat:{number}")).unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    for proxy in &outside {
        assert!(proxy.count("EVAL") > 0, "expected the commands through the node's proxy");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_the_sentinels_name_is_mapped() {
    let set = SentinelSet::start();
    set.be_patient();
    let proxy = ChaosProxy::start(set.servers[0].port());
    let (inside, outside) = (set.servers[0].port(), proxy.port());
    let builder = Redis::builder()
        .map_addresses(move |host, port| (host.to_owned(), if port == inside { outside } else { port }));
    assert_works(&builder.connect(&set.url()).await.unwrap()).await;
    assert!(proxy.count("EVAL") > 0);
}

struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        // With equal names the certificates would look self-signed.
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: rcgen::Issuer::new(params, key) }
    }

    fn certify(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Moves the server to TLS on the same port. `root` signs the certificates of clients, if it asks for any.
pub(crate) async fn to_tls(server: &RedisServer, [certificate, key, root]: [&str; 3], asks: &str) {
    let mut raw = by_hand::connection(server).await;
    let (_, folder): (String, String) = run(server, "CONFIG GET dir").await;
    let mut files = format!("CONFIG SET tls-auth-clients {asks}");
    for (setting, pem) in [("tls-cert-file", certificate), ("tls-key-file", key), ("tls-ca-cert-file", root)]
    {
        let path = format!("{folder}/{setting}.pem");
        std::fs::write(&path, pem).unwrap();
        files += &format!(" {setting} {path}");
    }
    for words in [files, "CONFIG SET port 0".to_owned(), format!("CONFIG SET tls-port {}", server.port())] {
        let () = by_hand::command(&words).query_async(&mut raw).await.unwrap();
    }
}

#[tokio::test]
async fn server_that_asks_for_a_certificate_gets_one() {
    let server = RedisServer::start();
    let authority = Authority::new();
    let (certificate, key) = authority.certify("127.0.0.1");
    to_tls(&server, [&certificate, &key, &authority.pem], "yes").await;
    let url = server.url().replace("redis://", "rediss://");
    let trusting = || -> RedisBuilder { Redis::builder().root_certificate(authority.pem.clone()) };
    let (certificate, key) = authority.certify("locker");
    let builder = trusting().client_certificate(certificate, key);
    let redis = builder.keepalive(Duration::from_secs(100)).connect(&url).await.unwrap();
    assert_works(&redis).await;
    #[cfg(target_os = "linux")]
    assert_probed_after(&server, Duration::from_secs(100)).await;

    // No certificate, and one of a foreign authority.
    assert_eq!(trusting().connect(&url).await.unwrap_err().kind(), ErrorKind::Connection);
    let (strangers, its_key) = Authority::new().certify("locker");
    let error = trusting().client_certificate(strangers, its_key).connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = Redis::builder().root_certificate(pem).connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Certificate, "{pem}: {error:?}");
    }
}
