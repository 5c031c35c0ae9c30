//! Commands that a test gives a server by hand.
#![allow(dead_code, reason = "each test file uses a part of it")]

use latchwork_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, FromRedisValue, cmd};

pub(crate) async fn connection(server: &RedisServer) -> MultiplexedConnection {
    Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Words with spaces between.
pub(crate) fn command(words: &str) -> Cmd {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command
}

pub(crate) async fn run<T: FromRedisValue>(server: &RedisServer, words: &str) -> T {
    command(words).query_async(&mut connection(server).await).await.unwrap()
}
