//! [`Reply`]: what the scripts answer that may find another kind of lock.

use ::redis::{FromRedisValue, ParsingError, Value};

/// What `acquire.lua` returns, if not nil, and `force_release.lua`.
pub(in super::super) enum Reply {
    Number(i64),
    Token(u64),
    /// The text of the field `mode`, which names another kind of lock. Nothing was changed.
    Mode(String),
}

impl FromRedisValue for Reply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Ok(match value {
            Value::Array(_) => Self::Token(<(u64,)>::from_redis_value(value)?.0),
            Value::Int(number) => Self::Number(number),
            mode => Self::Mode(String::from_redis_value(mode)?),
        })
    }
}
