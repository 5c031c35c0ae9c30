//! [`Monitor`]: counts the commands sent to the server, by MONITOR.
//!
//! `INFO commandstats` also counts the commands inside scripts, and cannot tell them from clients' commands.
//! MONITOR can. It slows the server down, so no run is both counted and timed.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};

use fleet::clock;
use redis::{Connection, FromRedisValue, cmd};

use super::server::{Server, connect};

/// Commands that belong to a connection and not to a lock: sent on connecting, or periodically. (The PING
/// before a release, which makes the server write the message first, is not counted either.)
const NOT_COUNTED: [&str; 4] = ["HELLO", "CLIENT", "PING", "SELECT"];

/// Counts until it is [ended](Self::end).
#[derive(Debug)]
pub struct Monitor {
    /// The last command to read.
    mark: String,
    reader: JoinHandle<Sent>,
}

/// Counts of the commands sent, without those inside scripts.
#[derive(Clone, Debug, Default)]
pub struct Sent(BTreeMap<String, u64>);

impl Monitor {
    /// Counts the commands from now until [`end`](Self::end).
    pub fn begin(server: &Server) -> Self {
        let mut connection = connect(&server.url());
        let mark = format!("mark-{}", clock::now());
        // The count begins after the reply.
        let () = cmd("MONITOR").query(&mut connection).expect("the server says what it is sent");
        let reader = thread::spawn({
            let mark = mark.clone();
            move || read(connection, &mark)
        });
        Self { mark, reader }
    }

    /// Ends, and returns the commands sent until now.
    pub fn end(self, server: &mut Server) -> Sent {
        let _: String = server.control(&["ECHO", &self.mark]);
        self.reader.join().expect("every line could be read")
    }
}

fn read(mut connection: Connection, mark: &str) -> Sent {
    let mut sent = Sent::default();
    loop {
        let line = connection.recv_response().expect("one more line");
        let line = String::from_redis_value(line).expect("a line of text");
        if line.contains(mark) {
            return sent;
        }
        sent.count(&line);
    }
}

impl Sent {
    /// Counts a line such as `1700000000.123456 [0 127.0.0.1:5000] "EVALSHA" "…"`; a script's has `[0 lua]`.
    fn count(&mut self, line: &str) {
        let Some((client, what)) = line.split_once("] \"") else { return };
        let name = what.split('"').next().unwrap_or_default().to_uppercase();
        if !client.ends_with(" lua") && !NOT_COUNTED.contains(&&*name) {
            *self.0.entry(name).or_default() += 1;
        }
    }

    /// The number of all commands.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each command's share of `events`, as in `EVALSHA 2.00, SUBSCRIBE 1.00`.
    pub fn per(&self, events: u64) -> String {
        let share = |(name, calls): (&String, &u64)| format!("{name} {:.2}", *calls as f64 / events as f64);
        self.0.iter().map(share).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Sent;

    #[test]
    fn scripts_and_connections_are_not_counted() {
        let mut sent = Sent::default();
        sent.count(r#"1.5 [0 127.0.0.1:5000] "evalsha" "abc" "1" "] \"x""#);
        sent.count(r#"1.5 [0 lua] "hset" "a" "b" "c""#);
        sent.count(r#"1.5 [0 127.0.0.1:5000] "PING""#);
        sent.count(r#"1.5 [0 unix:/tmp/a] "SUBSCRIBE" "a""#);
        assert_eq!(sent.per(1), "EVALSHA 1.00, SUBSCRIBE 1.00");
        assert_eq!(sent.total(), 2);
    }
}
