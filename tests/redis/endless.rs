//! A server, or a proxy, whose every answer asks for more work. A call ends nevertheless, with an error.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockError};
use latchwork_testkit::RedisServer;

/// Far longer than ten thousand commands over the loopback take.
const SOON: Duration = Duration::from_secs(240);
crate::waiting::waiting_for!(SOON);

/// A proxy before a server; once `lies` is set, scripts reply with a fixed text.
struct Liar {
    port: u16,
    lies: Arc<AtomicBool>,
}

impl Liar {
    fn before(server: &RedisServer, reply: &'static str) -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), server.port());
        let lies = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&lies);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
                let (back, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let told = Arc::clone(&told);
                thread::spawn(move || {
                    forward(client, server, |bytes, from| {
                        let is_script = bytes.windows(4).any(|word| word == b"EVAL");
                        if !(is_script && told.load(Ordering::SeqCst)) {
                            return true;
                        }
                        from.write_all(reply.as_bytes()).is_err()
                    })
                });
                thread::spawn(move || forward(back, from, |_, _| true));
            }
        });
        Liar { port, lies }
    }

    /// Connects a client through the proxy; from then on the proxy lies.
    async fn client(&self) -> LockClient {
        let redis = Redis::connect(&format!("redis://127.0.0.1:{}", self.port)).await.unwrap();
        self.lies.store(true, Ordering::SeqCst);
        LockClient::new(redis)
    }
}

/// Forwards bytes if `is_sent_on` returns true for them; `is_sent_on` may write an answer.
fn forward(mut from: TcpStream, mut to: TcpStream, is_sent_on: impl Fn(&[u8], &mut TcpStream) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_sent_on(&bytes[..count], &mut from) && to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[track_caller]
fn assert_told_why(error: &LockError) {
    let cause = error.backend_error().expect("the backend's own").to_string();
    assert!(cause.contains("times that there is more to do"), "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_ends_though_its_answer_is_always_to_ask_again() {
    let server = RedisServer::start();
    let client = Liar::before(&server, ":-3\r\n").client().await;
    let lock = client.get_fair_lock("endless").unwrap();
    let error = soon("an answer", lock.try_lock()).await.unwrap_err();
    assert_told_why(&error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_release_ends_though_its_answer_is_always_to_ask_again() {
    let server = RedisServer::start();
    let client = Liar::before(&server, ":-3\r\n").client().await;
    let lock = client.get_fair_lock("endless").unwrap();
    let error = soon("an answer", lock.force_unlock()).await.unwrap_err();
    assert_told_why(&error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_readers_ends_though_there_is_always_a_next_page() {
    let server = RedisServer::start();
    // No writer, a next page, and no reader.
    let client =
        Liar::before(&server, "*4\r\n$-1\r\n*2\r\n$1\r\n7\r\n$1\r\n0\r\n*0\r\n$-1\r\n").client().await;
    let lock = client.get_read_write_lock("endless").unwrap();
    let error = soon("an answer", lock.read().holder()).await.unwrap_err();
    assert_told_why(&error);
}
