//! [`Reply`]: what the scripts answer that may find another kind of lock.

use ::redis::{FromRedisValue, ParsingError, Value};

/// What `acquire.lua` returns, if not nil, `force_release.lua`, and the scripts of fair locks.
pub(in super::super) enum Reply {
    Number(i64),
    /// The last of the tokens, or 0 if none were wanted: from an array of one, or of none.
    Token(u64),
    /// The text of the field `mode`, which names another kind of lock. Nothing was changed.
    Mode(String),
}

impl FromRedisValue for Reply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Ok(match value {
            Value::Array(_) => {
                Self::Token(Vec::from_redis_value(value)?.first().copied().unwrap_or_default())
            }
            Value::Int(number) => Self::Number(number),
            // A server or a proxy may say something beside any reply.
            Value::Attribute { data, .. } => Self::from_redis_value(*data)?,
            mode => Self::Mode(String::from_redis_value(mode)?),
        })
    }
}
