//! The Lua scripts, one file each, and how they are called.

use ::redis::{FromRedisValue, ParsingError, Value};

use crate::backend::LockName;

use super::connection::{Error, ErrorKind};

pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) holder: Script,
    pub(super) force_release: Script,
    pub(super) renew: Script,
    /// Of fair locks, and of the write half of read-write locks.
    pub(super) queues: [QueueScripts; 2],
    pub(super) read_acquire: Script,
    pub(super) read_release: Script,
    pub(super) read_write_holders: Script,
}

/// For exclusive locks that have a queue.
pub(super) struct QueueScripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) force_release: Script,
}

/// A script of a kind of locks that has a queue: what the kind is, what is common to all of them, and what
/// the kind does differently, stand in front. A release has its most frequent case before all that it needs
/// for the others.
macro_rules! of_kind {
    ($kind:literal, $file:literal $(, $first:literal)?) => {
        Script::new(concat!(
            include_str!(concat!("scripts/", $kind, "_kind.lua")),
            $(include_str!(concat!("scripts/", $first)),)?
            include_str!("scripts/counter.lua"),
            include_str!("scripts/queue.lua"),
            include_str!(concat!("scripts/", $kind, ".lua")),
            include_str!(concat!("scripts/", $file)),
        ))
    };
}

macro_rules! queue_scripts {
    ($kind:literal) => {
        QueueScripts {
            acquire: of_kind!($kind, "queue_acquire.lua"),
            release: of_kind!($kind, "queue_release.lua", "hand_off.lua"),
            force_release: of_kind!($kind, "queue_force_release.lua"),
        }
    };
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            acquire: Script::new(concat!(
                include_str!("scripts/counter.lua"),
                include_str!("scripts/acquire.lua")
            )),
            release: Script::new(include_str!("scripts/release.lua")),
            holder: Script::new(include_str!("scripts/holder.lua")),
            force_release: Script::new(include_str!("scripts/force_release.lua")),
            renew: Script::new(include_str!("scripts/renew.lua")),
            queues: [queue_scripts!("fair"), queue_scripts!("read_write")],
            read_acquire: of_kind!("read_write", "read_acquire.lua"),
            read_release: of_kind!("read_write", "read_release.lua"),
            read_write_holders: of_kind!("read_write", "read_write_holders.lua"),
        }
    }
}

/// The reply of `acquire.lua`, if not nil, of `force_release.lua`, and of the scripts of fair locks.
pub(super) enum Reply {
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

/// The answer of a queue's script that has looked at as many waiters or readers as it
/// may hold up the server for, and does not know its answer yet: to be called again, with the same words. It
/// has taken out what it found dead, and done nothing else.
pub(super) const AGAIN: i64 = -3;

/// The limit of repetitions of a call, each for a hundred waiters or readers. A server that would go on after
/// a million is none that runs these scripts.
pub(super) const MAX_CALLS: usize = 10_000;

/// A call was answered [`MAX_CALLS`] times that it must be repeated to see the rest.
pub(super) fn endless(name: &LockName) -> Error {
    let context = format!(
        "the server has answered {MAX_CALLS} times that there is more to do for {name:?}, as none does that \
         runs the scripts it was sent: see what stands between it and this client"
    );
    Error::new(ErrorKind::Refused, context, None)
}

pub(super) struct Script {
    /// As it goes to the server: without what only its readers need.
    text: String,
    sha1: String,
}

impl Script {
    fn new(source: &str) -> Self {
        let text = without_comments(source);
        let sha1 = ::redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha1 }
    }

    /// By its hash, which is all that a server needs which knows it, and its text.
    pub(super) fn hash_and_text(&self) -> (&str, &str) {
        (&self.sha1, &self.text)
    }
}

/// The lines of a script that do something, without the white space in front of them. (No text in a script
/// goes on over a line's end.)
fn without_comments(source: &str) -> String {
    let lines =
        source.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Script> {
        let all = Scripts::new();
        let queues = all.queues.map(|it| [it.acquire, it.release, it.force_release]);
        let plain = [all.acquire, all.release, all.holder, all.force_release, all.renew];
        let read = [all.read_acquire, all.read_release, all.read_write_holders];
        queues.into_iter().flatten().chain(plain).chain(read)
    }

    #[test]
    fn call_that_has_no_end_says_how_often_it_was_repeated() {
        let error = endless(&LockName::new("orders").unwrap()).to_string();
        assert!(error.contains("10000 times") && error.contains("orders"), "{error}");
    }

    #[test]
    fn text_that_goes_to_the_server_is_the_code_of_the_source() {
        let source =
            "-- Says so.\nlocal a = 1 -- one\n\n    -- Twice.\n    if a then\n        return '--'\n    end\n";
        assert_eq!(without_comments(source), "local a = 1 -- one\nif a then\nreturn '--'\nend\n");
        for script in all() {
            assert!(script.text.lines().all(|line| !line.starts_with([' ', '-']) && !line.is_empty()));
            // A long text or comment would go on over the end of a line.
            assert!(!script.text.contains("[[") && !script.text.contains("[="));
        }
    }
}
