//! [`Fake`]: a server with scripted replies, in the place of Redis or a Sentinel.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::redis::{RedisError, Value, parse_redis_value};
use futures_util::FutureExt as _;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::sync::Mutex;

pub(super) const EVENT_LIMIT: Duration = Duration::from_secs(20);

/// Number of polls after which a future that waits for no timer has finished.
const TURNS: usize = 500;

/// Returns the output of `future` if the future finishes without waiting for a timer.
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

/// Lives until the test's runtime ends. A panic of the answer function resumes in the test.
pub(super) struct Fake {
    pub(super) port: u16,
    /// `Some` until the server begins to answer.
    listener: Option<TcpListener>,
    heard: watch::Sender<Vec<String>>,
    cuts: watch::Sender<u32>,
    panicked: Panicked,
}

/// The first panic of the server's tasks, which would else look like a broken connection.
type Panicked = Arc<Mutex<Option<Box<dyn Any + Send>>>>;

/// Maps a command's words to the reply on the wire; `None` breaks the connection. Greetings are accepted.
type Answer = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Fake {
    /// Accepts connections without answering, for answers that contain the server's port.
    pub(super) async fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, cuts) = (watch::Sender::new(Vec::new()), watch::Sender::new(0));
        Self { port, listener: Some(listener), heard, cuts, panicked: Panicked::default() }
    }

    pub(super) async fn start<A: Into<Option<String>>>(
        answer: impl Fn(&str) -> A + Send + Sync + 'static,
    ) -> Self {
        let mut fake = Self::silent().await;
        fake.answer(answer);
        fake
    }

    pub(super) fn answer<A: Into<Option<String>>>(
        &mut self,
        answer: impl Fn(&str) -> A + Send + Sync + 'static,
    ) {
        let listener = self.listener.take().expect("it does not answer yet");
        let answer: Answer = Arc::new(move |command| answer(command).into());
        let (hears, cut) = (self.heard.clone(), self.cuts.subscribe());
        let panicked = Arc::clone(&self.panicked);
        spawn(&self.panicked, async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // Nagle's algorithm would delay the replies to a greeting.
                stream.set_nodelay(true).unwrap();
                // Earlier cuts concern other connections.
                let mut cut = cut.clone();
                cut.mark_unchanged();
                let (answer, hears) = (Arc::clone(&answer), hears.clone());
                let acts = act(stream, move |command| {
                    let reply = match command.split(' ').next().unwrap_or_default() {
                        "HELLO" => Some("%0\r\n".to_owned()),
                        "CLIENT" => Some("+OK\r\n".to_owned()),
                        _ => answer(&command),
                    };
                    hears.send_modify(|heard| heard.push(command));
                    reply
                });
                spawn(&panicked, async move {
                    tokio::select! {
                        _ = cut.changed() => {}
                        _ = acts => {}
                    }
                });
            }
        });
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the commands received, without greetings and heartbeats.
    pub(super) fn calls(&self) -> Vec<String> {
        let heard = self.heard.borrow();
        let of_callers =
            |command: &&String| !["HELLO", "CLIENT", "PING"].iter().any(|it| command.starts_with(it));
        heard.iter().filter(of_callers).cloned().collect()
    }

    pub(super) fn count(&self, begins: &str) -> usize {
        count(&self.heard.borrow(), begins)
    }

    pub(super) fn heard(&self, begins: &str) -> Vec<String> {
        self.heard.borrow().iter().filter(|heard| heard.starts_with(begins)).cloned().collect()
    }

    pub(super) async fn until(&self, begins: &str, times: usize) {
        let mut heard = self.heard.subscribe();
        let enough = heard.wait_for(|heard| count(heard, begins) >= times);
        timeout(EVENT_LIMIT, enough).await.unwrap_or_else(|_| panic!("no {begins}, {times} times")).unwrap();
    }

    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(panic) = self.panicked.lock().take()
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

fn spawn(panicked: &Panicked, task: impl Future<Output = ()> + Send + 'static) {
    let panicked = Arc::clone(panicked);
    tokio::spawn(async move {
        if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
            panicked.lock().get_or_insert(panic);
        }
    });
}

pub(super) fn refusal(reply: &str) -> RedisError {
    match parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap() {
        Value::ServerError(error) => error.into(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

pub(super) fn push(kind: &str, channel: &str) -> String {
    format!(">3\r\n{}{}:1\r\n", bulk(kind), bulk(channel))
}

fn count(heard: &[String], begins: &str) -> usize {
    heard.iter().filter(|heard| heard.starts_with(begins)).count()
}

/// Answers commands, as lines of words, until `answer` returns `None` or the client disconnects.
pub(super) async fn act(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut answer: impl FnMut(String) -> Option<String>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let reply = answer(next_command(&mut stream).await?)?;
        stream.write_all(reply.as_bytes()).await.ok()?;
    }
}

/// Returns the words of the next command, joined by spaces; `None` if the client has disconnected.
pub(super) async fn next_command(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let length = number(stream).await?;
        let mut word = vec![0; length + "\r\n".len()];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words.join(" "))
}

async fn number(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim_end().parse().ok()
}

pub(super) fn alive<A: Into<Option<String>>>(
    answer: impl Fn(&str) -> A + Send + Sync + 'static,
) -> impl Fn(&str) -> Option<String> + Send + Sync + 'static {
    move |command| if command == "PING" { Some("+PONG\r\n".to_owned()) } else { answer(command).into() }
}

/// Encodes a reply to CLUSTER SLOTS: first slot, last slot and node ports of each shard.
pub(super) fn layout(shards: &[(u16, u16, &[u16])]) -> String {
    let mut reply = format!("*{}\r\n", shards.len());
    for (first, last, ports) in shards {
        reply += &format!("*{}\r\n:{first}\r\n:{last}\r\n", 2 + ports.len());
        for port in *ports {
            reply += &format!("*2\r\n{}:{port}\r\n", bulk("127.0.0.1"));
        }
    }
    reply
}

#[tokio::test]
#[should_panic = "no answer to that"]
async fn panic_of_an_answer_is_passed_on_to_the_test() {
    let fake = Fake::start(|_| -> String { panic!("no answer to that") }).await;
    let mut stream = TcpStream::connect(("127.0.0.1", fake.port)).await.unwrap();
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
    let ended = timeout(EVENT_LIMIT, stream.read(&mut [0])).await.expect("it hangs");
    assert_eq!(ended.unwrap(), 0, "expected the end of the connection");
}
