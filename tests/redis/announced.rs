//! A PING before a release makes the server write the message of a hand-off before the reply.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::by_hand::run;
use latchwork::lock::Mode;
use latchwork::redis::Redis;
use latchwork::{Guard, Lock, LockClient};
use latchwork_testkit::RedisServer;

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);

/// Marker commands around each release.
const FENCE: &str = "fence";

async fn lock(server: &RedisServer, mode: Mode) -> Lock {
    // No heartbeat sends another PING.
    let redis = Redis::builder().heartbeat(Duration::from_secs(600)).connect(&server.url()).await.unwrap();
    let client = LockClient::new(redis);
    match mode {
        Mode::Fair => client.get_fair_lock("announced").unwrap(),
        _ => client.get_read_write_lock("announced").unwrap().write().clone(),
    }
}

async fn release(server: &RedisServer, guard: Guard) {
    let _: String = run(server, &format!("ECHO {FENCE}")).await;
    guard.unlock().await.unwrap();
    let _: String = run(server, &format!("ECHO {FENCE}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_after_a_hand_off_is_announced() {
    for mode in [Mode::Fair, Mode::Write] {
        let server = RedisServer::start();
        let mut monitor = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        monitor.write_all(b"MONITOR\r\n").unwrap();
        let (one, other) = (lock(&server, mode).await, lock(&server, mode).await);
        let mut held = one.lock().await.unwrap();
        for next in [&other, &one, &other, &one] {
            let next = next.clone();
            let waiting = tokio::spawn(async move { next.lock().await.unwrap() });
            let queue = if mode == Mode::Fair { "fair" } else { "rw" };
            let queue = format!("ZCARD announced:latchwork:{{announced}}:{queue}_queue");
            eventually("queued", async || run::<usize>(&server, &queue).await == 1).await;
            release(&server, held).await;
            held = waiting.await.unwrap();
        }
        // The first release finds no waiter; the second follows a release without a hand-off.
        release(&server, held).await;
        release(&server, one.lock().await.unwrap()).await;
        let _: String = run(&server, "ECHO over").await;
        let lines = BufReader::new(monitor).lines().map(Result::unwrap);
        let lines: Vec<String> = lines.take_while(|line| !line.contains("\"over\"")).collect();
        let mut fenced = lines.split(|line| line.contains(&format!("\"{FENCE}\"")));
        let releases = std::iter::from_fn(|| {
            fenced.next();
            fenced.next()
        });
        let announced: Vec<bool> =
            releases.map(|lines| lines.iter().any(|line| line.ends_with("\"PING\""))).collect();
        assert_eq!(announced[..6], [false, false, true, true, true, false], "{mode:?}: {lines:#?}");
    }
}
