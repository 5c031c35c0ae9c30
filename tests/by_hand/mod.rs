//! A server, asked and told outside of the crate, and a client that connects to it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use latchwork::LockClient;
use latchwork::redis::Redis;
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
    run_on(&mut connection(server).await, words).await
}

pub(crate) async fn run_on<T: FromRedisValue>(raw: &mut MultiplexedConnection, words: &str) -> T {
    command(words).query_async(raw).await.unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// The number of connections that are subscribed to the channel.
pub(crate) async fn subscribers(server: &RedisServer, channel: &str) -> usize {
    run::<(String, usize)>(server, &format!("PUBSUB NUMSUB {channel}")).await.1
}

/// Another client holds the lock for ten minutes.
pub(crate) async fn another_holds(server: &RedisServer, name: &str) {
    run::<usize>(server, &format!("HSET {name} somebody:1 1")).await;
    run::<usize>(server, &format!("PEXPIRE {name} 600000")).await;
}

/// A client with the default options.
pub(crate) async fn client(url: &str) -> LockClient {
    LockClient::new(Redis::connect(url).await.unwrap())
}

/// The channel on which the client is called, if it waits for this plain lock. The name has no braces.
pub(crate) fn call_channel(client: &LockClient, name: &str) -> String {
    format!("{name}:latchwork:{{{name}}}:call:{}", client.id())
}

/// A key of the lock besides the lock itself, or a prefix of channels. The name has no braces.
pub(crate) fn companion(name: &str, what: &str) -> String {
    format!("{name}:latchwork:{{{name}}}:{what}")
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
