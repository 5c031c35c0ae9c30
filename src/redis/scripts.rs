//! The Lua scripts, one file each, and their calls.

use std::sync::LazyLock;

use ::redis::{FromRedisValue, ParsingError, Value};

use crate::backend::LockName;

use super::connection::{Error, ErrorKind};

/// Joins files to scripts. The scripts of a kind: the kind's constants, perhaps the most frequent calls,
/// which need no functions, the common functions, the kind's functions, and the script.
macro_rules! scripts {
    ($($name:ident: $($part:literal)+;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+))
        });)+

        #[cfg(test)]
        static ALL: &[&LazyLock<Script>] = &[$(&$name),+];
    };
}

scripts! {
    ACQUIRE: "counter" "acquire";
    RELEASE: "call" "release";
    HOLDER: "holder";
    FORCE_RELEASE: "call" "force_release";
    RENEW: "steps" "renew";
    TAKE_FREE: "take_free";
    FAIR_ACQUIRE: "fair_kind" "counter" "queue" "fair" "queue_acquire";
    FAIR_RELEASE: "fair_kind" "hand_off" "counter" "queue" "fair" "queue_release";
    FAIR_FORCE_RELEASE: "fair_kind" "counter" "queue" "fair" "queue_force_release";
    WRITE_ACQUIRE: "read_write_kind" "counter" "queue" "read_write" "queue_acquire";
    WRITE_RELEASE: "read_write_kind" "hand_off" "counter" "queue" "read_write" "queue_release";
    WRITE_FORCE_RELEASE: "read_write_kind" "counter" "queue" "read_write" "queue_force_release";
    READ_FREE: "read_free";
    READ_ACQUIRE: "read_write_kind" "counter" "queue" "read_write" "read_acquire";
    READ_RELEASE: "read_write_kind" "read_alone" "counter" "queue" "read_write" "read_release";
    READ_WRITE_HOLDERS: "read_write_kind" "counter" "queue" "read_write" "read_write_holders";
    PERMITS_ACQUIRE: "permits_kind" "steps" "permits_enqueue" "queue" "permits" "permits_acquire";
    PERMITS_RELEASE: "permits_kind" "steps" "permits_hand_off" "queue" "permits" "permits_release";
    PERMITS_FORCE_RELEASE: "permits_kind" "steps" "queue" "permits" "permits_force_release";
    PERMITS_HOLDERS: "permits_holders";
}

/// The scripts that take, release and force free, by `QueueKind`.
pub(super) static QUEUES: [[&LazyLock<Script>; 3]; 3] = [
    [&FAIR_ACQUIRE, &FAIR_RELEASE, &FAIR_FORCE_RELEASE],
    [&WRITE_ACQUIRE, &WRITE_RELEASE, &WRITE_FORCE_RELEASE],
    [&PERMITS_ACQUIRE, &PERMITS_RELEASE, &PERMITS_FORCE_RELEASE],
];

/// The reply of `acquire.lua` unless nil, of `force_release.lua`, and of the scripts with a queue.
pub(super) enum Reply {
    Number(i64),
    /// The last token, from an array of one element; 0 from an empty array.
    Token(u64),
    /// The lock's field `mode`, which names another kind of lock. The script changed nothing.
    Mode(String),
}

impl FromRedisValue for Reply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Ok(match value {
            Value::Array(_) => {
                Self::Token(Vec::from_redis_value(value)?.first().copied().unwrap_or_default())
            }
            Value::Int(number) => Self::Number(number),
            // A server or a proxy may add attributes to any reply.
            Value::Attribute { data, .. } => Self::from_redis_value(*data)?,
            mode => Self::Mode(String::from_redis_value(mode)?),
        })
    }
}

/// The reply of a script that has looked at a whole batch of waiters or readers, and only removed the dead:
/// the client repeats the call. Also of a short script that leaves the decision to the kind's full script.
pub(super) const AGAIN: i64 = -3;

/// Reply of a call that has ended the id's lease of permits, or all leases, and has more waiters to serve:
/// the client calls `permits_release.lua`.
pub(super) const ENDED_AND_AGAIN: i64 = -4;

/// The greatest reply of `acquire.lua` about a held lock whose release does not call the client. The lease's
/// remaining ms are subtracted.
pub(super) const UNCALLED: i64 = -1000;

/// Limit of calls until a script has an answer, each for a hundred waiters or readers.
pub(super) const MAX_CALLS: usize = 10_000;

pub(super) fn endless(name: &LockName) -> Error {
    let context = format!(
        "the server has answered {MAX_CALLS} times that there is more to do for {name:?}, as none does that \
         runs the scripts it was sent: see what stands between it and this client"
    );
    Error::new(ErrorKind::Refused, context, None)
}

pub(super) struct Script {
    /// The source without comments.
    text: String,
    sha1: String,
}

impl Script {
    fn new(source: &str) -> Self {
        let text = without_comments(source);
        let sha1 = ::redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha1 }
    }

    /// Returns the SHA-1 hash, which suffices for a server that knows the script, and the text.
    pub(super) fn hash_and_text(&self) -> (&str, &str) {
        (&self.sha1, &self.text)
    }
}

/// The code lines of a script, without indentation. (No string in a script spans lines.)
fn without_comments(source: &str) -> String {
    let lines =
        source.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for script in ALL {
            assert!(script.text.lines().all(|line| !line.starts_with([' ', '-']) && !line.is_empty()));
            assert!(!script.text.contains("[[") && !script.text.contains("[="));
        }
    }
}
