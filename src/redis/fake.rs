//! [`Fake`]: a server that answers as a test has it, and is to be found where Redis or a Sentinel would be.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// More than anything here takes, on a busy machine too.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Ends with the test's runtime.
pub(super) struct Fake {
    pub(super) port: u16,
    /// All commands so far.
    heard: watch::Sender<Vec<String>>,
    /// How often all connections were cut.
    cuts: watch::Sender<u32>,
}

/// What a command, its words in a line, is answered by, in the server's own spelling. Greetings are always
/// accepted.
type Answer = Arc<dyn Fn(&str) -> String + Send + Sync>;

impl Fake {
    pub(super) async fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, cuts) = (watch::Sender::new(Vec::new()), watch::Sender::new(0));
        let (answer, hears, cut): (Answer, _, _) = (Arc::new(answer), heard.clone(), cuts.subscribe());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // What comes from now on: the cuts so far were of others.
                let mut cut = cut.clone();
                cut.mark_unchanged();
                let (answer, hears) = (Arc::clone(&answer), hears.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = cut.changed() => {}
                        _ = serve(stream, answer, hears) => {}
                    }
                });
            }
        });
        Self { port, heard, cuts }
    }

    /// How many commands began so.
    pub(super) fn count(&self, begins: &str) -> usize {
        count(&self.heard.borrow(), begins)
    }

    /// Waits until so many commands began so.
    pub(super) async fn until(&self, begins: &str, times: usize) {
        let mut heard = self.heard.subscribe();
        let enough = heard.wait_for(|heard| count(heard, begins) >= times);
        timeout(SOON, enough).await.unwrap_or_else(|_| panic!("no {begins}, {times} times")).unwrap();
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

/// What a subscription is confirmed by, or its end.
pub(super) fn push(kind: &str, channel: &str) -> String {
    format!(">3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:1\r\n", kind.len(), channel.len())
}

fn count(heard: &[String], begins: &str) -> usize {
    heard.iter().filter(|heard| heard.starts_with(begins)).count()
}

/// `None`: the other side has ended the connection.
async fn serve(stream: TcpStream, answer: Answer, hears: watch::Sender<Vec<String>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut words = Vec::new();
        for _ in 0..number(&mut stream).await? {
            let mut word = vec![0; number(&mut stream).await? + "\r\n".len()];
            stream.read_exact(&mut word).await.ok()?;
            words.push(String::from_utf8(word).unwrap().trim_end().to_owned());
        }
        let command = words.join(" ");
        let answer = match &*words[0] {
            "HELLO" => "%0\r\n".to_owned(),
            "CLIENT" => "+OK\r\n".to_owned(),
            _ => answer(&command),
        };
        hears.send_modify(|heard| heard.push(command));
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

/// What stands behind the first character of the next line.
async fn number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim_end().parse().ok()
}
