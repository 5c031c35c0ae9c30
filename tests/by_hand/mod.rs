//! Commands sent to a server outside of the crate.
#![allow(dead_code, reason = "each test file uses a part of it")]

use latchwork_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd};

use std::time::Duration;

pub(crate) async fn connection(server: &RedisServer) -> MultiplexedConnection {
    connect(&server.url()).await
}

/// Connects with timeouts for a busy machine; the redis crate's default is half a second.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let patient = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new().set_connection_timeout(patient).set_response_timeout(patient);
    Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

pub(crate) fn command(words: &str) -> Cmd {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command
}

pub(crate) async fn run<T: FromRedisValue>(server: &RedisServer, words: &str) -> T {
    command(words).query_async(&mut connection(server).await).await.unwrap()
}

/// Returns the server's number of calls of `command`, scripts included.
pub(crate) async fn calls(server: &RedisServer, command: &str) -> usize {
    calls_in(&run::<String>(server, "INFO commandstats").await, command)
}

/// Returns the number of calls of `command` in a reply to `INFO commandstats`.
pub(crate) fn calls_in(stats: &str, command: &str) -> usize {
    let calls = stats.split_once(&format!("cmdstat_{command}:calls=")).map_or("0", |(_, rest)| rest);
    calls.split(',').next().unwrap().parse().unwrap()
}
