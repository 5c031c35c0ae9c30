//! [`Wait`]: how many replicas must have what was just written.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, FromRedisValue, ParsingError, RedisError, Value, cmd, from_redis_value, pipe};

/// How many replicas must have what was just written, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) replicas: usize,
    pub(super) timeout: Duration,
}

/// What a script said, and how many replicas have what it wrote.
pub(super) struct Replicated<T> {
    pub(super) reply: T,
    pub(super) replicas: Result<usize, RedisError>,
}

impl Wait {
    /// Runs the script, and waits for the replicas: one round trip, as WAIT is about what its own connection wrote.
    pub(super) async fn after<T: FromRedisValue>(
        self,
        script: &Cmd,
        connection: &mut MultiplexedConnection,
    ) -> Result<T, RedisError> {
        // Zero would be for ever.
        let millis = self.timeout.as_millis().max(1) as u64;
        let mut wait = cmd("WAIT");
        wait.arg(self.replicas).arg(millis);
        let mut pipeline = pipe();
        pipeline.add_command(script.clone()).add_command(wait).ignore_errors();
        let (script, replicas): (Result<Value, RedisError>, Value) = pipeline.query_async(connection).await?;
        Ok(from_redis_value(Value::Array(vec![script?, replicas]))?)
    }
}

impl<T: FromRedisValue> FromRedisValue for Replicated<T> {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (reply, replicas) = from_redis_value(value)?;
        Ok(Self { reply, replicas })
    }
}
