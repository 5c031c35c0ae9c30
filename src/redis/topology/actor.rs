//! Servers of the unit tests: they say what they are told to.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::super::connection::Timing;
use crate::sync::Mutex;

/// How often all tasks are polled until what waits for no time has been done.
const TURNS: usize = 500;

/// Gives nothing up on a machine that is busy.
pub(super) fn patient() -> Timing {
    Timing { connect: Duration::from_secs(10), response: Duration::from_secs(30), ..Timing::default() }
}

/// What becomes of `future` without waiting for any time to pass.
pub(super) async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..TURNS {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Answers one command after the other with what `answer` says to its words. Ends when that is `None`, or
/// when the other end does.
pub(super) async fn act(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut answer: impl FnMut(&str) -> Option<String>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut words = Vec::new();
        for _ in 0..line(&mut stream).await?.strip_prefix('*')?.parse().ok()? {
            let _length = line(&mut stream).await?;
            words.push(line(&mut stream).await?);
        }
        let reply = answer(&words.join(" "))?;
        stream.write_all(reply.as_bytes()).await.ok()?;
    }
}

/// Commands here have no line breaks in their words.
async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}

/// One that is to be reached over TCP, at a port that is its own from the beginning on.
pub(super) struct Actor {
    pub(super) port: u16,
    listener: Option<TcpListener>,
    heard: Arc<Mutex<Vec<String>>>,
    serves: Option<JoinHandle<()>>,
}

impl Actor {
    /// Takes connections, and is silent on them.
    pub(super) async fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { port, listener: Some(listener), heard: Arc::default(), serves: None }
    }

    /// From now on it answers the greeting, and with what `answer` says to all that comes behind that. `None`:
    /// the connection breaks.
    pub(super) fn answer(&mut self, answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        let (listener, answer) = (self.listener.take().unwrap(), Arc::new(answer));
        let heard = Arc::clone(&self.heard);
        self.serves = Some(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // Replies to a greeting that came in one piece are not to wait for each other.
                stream.set_nodelay(true).unwrap();
                let (answer, heard) = (Arc::clone(&answer), Arc::clone(&heard));
                tokio::spawn(act(stream, move |command| {
                    let reply = match command.split(' ').next().unwrap_or_default() {
                        "HELLO" => "%1\r\n+server\r\n+redis\r\n",
                        "CLIENT" => "+OK\r\n",
                        "PING" => "+PONG\r\n",
                        _ => {
                            heard.lock().push(command.to_owned());
                            return answer(command);
                        }
                    };
                    Some(reply.to_owned())
                }));
            }
        }));
    }

    /// What it was sent.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().clone()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Some(serves) = &self.serves {
            serves.abort();
        }
    }
}

/// A reply to CLUSTER SLOTS: the first and the last slot of each shard, and the ports of its nodes.
pub(super) fn layout(shards: &[(u16, u16, &[u16])]) -> String {
    let mut reply = format!("*{}\r\n", shards.len());
    for (first, last, ports) in shards {
        reply += &format!("*{}\r\n:{first}\r\n:{last}\r\n", 2 + ports.len());
        for port in *ports {
            reply += &format!("*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
        }
    }
    reply
}
