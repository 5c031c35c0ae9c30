//! A server, or a proxy, whose every answer asks for more work. A call ends nevertheless, with an error.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latchwork::LockClient;
use latchwork::redis::Redis;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_ends_though_its_answer_is_always_that_there_is_more_to_do() {
    const AGAIN: &str = ":-3\r\n";
    // No writer, a next page, and no reader.
    const NEXT_PAGE: &str = "*4\r\n$-1\r\n$1\r\n7\r\n*0\r\n$-1\r\n";
    let server = RedisServer::start();
    let asks = Liar::before(&server, AGAIN).client().await.get_fair_lock("endless").unwrap();
    let lists = Liar::before(&server, NEXT_PAGE).client().await.get_read_write_lock("endless").unwrap();
    for error in [
        soon("an answer to an attempt", asks.try_lock()).await.map(drop).unwrap_err(),
        soon("an answer to a forced release", asks.force_unlock()).await.map(drop).unwrap_err(),
        soon("a list of readers", lists.read().holder()).await.map(drop).unwrap_err(),
    ] {
        let cause = error.backend_error().expect("the backend's own").to_string();
        assert!(cause.contains("times that there is more to do"), "{cause}");
    }
}
