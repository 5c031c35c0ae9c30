//! [`WireRequest`]: a command, and what may be done to have it answered.

use std::time::{Duration, Instant};

use ::redis::{Cmd, RedisError, RedisResult, Value, pipe};

use super::error::out_of_step;
use super::multiplexed::Unlimited;
use super::timing::Timing;

/// A command, and what may be done to have it answered. Passed on by reference, as each future between the
/// backend and the connection would have room for it twice.
#[derive(Clone)]
pub(crate) struct WireRequest<'a> {
    /// Says which node of a Cluster it goes to.
    pub(crate) key: &'a str,
    /// The hash and the text of the script that it calls, if it does.
    pub(crate) script: Option<(&'a str, &'a str)>,
    /// Writes it, as of then; if it calls a script, what comes behind that.
    pub(crate) words: &'a (dyn Fn(&mut Cmd, Instant) + Sync),
    /// Sent right behind it, in one piece; the reply is then an array of both replies.
    pub(crate) followed_by: Option<Cmd>,
    /// It most likely publishes a message, which a waiter is to have as soon as can be. A server writes
    /// when it has run all that it has read, and begins with the client that it had the last *first* answer
    /// for: so a PING goes in front, and the message is written before the reply.
    pub(crate) announced: bool,
    /// How long it may take in all.
    pub(crate) limit: Duration,
    /// How much longer than usual one sending takes.
    pub(crate) takes: Duration,
    /// Whether it is sent again if its reply is lost: it means the same when it runs twice.
    pub(crate) again: bool,
    /// Whether to wait for keys that are with two nodes just now.
    pub(crate) patient: bool,
}

impl<'a> WireRequest<'a> {
    /// A command without a script, and without a key unless one is set.
    pub(crate) fn plain(words: &'a (dyn Fn(&mut Cmd, Instant) + Sync), limit: Duration) -> Self {
        Self {
            key: "",
            script: None,
            words,
            followed_by: None,
            announced: false,
            limit,
            takes: Duration::ZERO,
            again: true,
            patient: true,
        }
    }

    /// How long one sending waits for its reply.
    pub(super) fn patience(&self) -> Duration {
        Timing::patience(self.limit) + self.takes
    }

    /// Writes the command as of `now`. `in_full`: with the text of its script, for a server that does not
    /// know it. That answers as it would have by hash, and knows it from then on.
    pub(super) fn write(&self, command: &mut Cmd, in_full: bool, now: Instant) {
        match self.script {
            Some((_, text)) if in_full => _ = command.arg("EVAL").arg(text),
            Some((hash, _)) => _ = command.arg("EVALSHA").arg(hash),
            None => {}
        }
        (self.words)(command, now);
    }

    /// The command, for an error.
    pub(crate) fn command(&self, in_full: bool, now: Instant) -> Cmd {
        let mut command = Cmd::new();
        self.write(&mut command, in_full, now);
        command
    }

    /// `asking`: to a node of a Cluster that is just taking the key's slot over, and serves it only after
    /// ASKING.
    pub(super) async fn query(
        &self,
        command: &Cmd,
        asking: bool,
        connection: &mut Unlimited,
    ) -> RedisResult<Value> {
        if !asking && self.followed_by.is_none() && !self.announced {
            // What `Cmd::query_async` does, in no box of its own.
            return connection.send_packed_command(command).await?.extract_error();
        }
        let mut pipeline = pipe();
        // In one piece, as others use the connection, too: the permission is for the very next command.
        if asking {
            pipeline.cmd("ASKING");
        } else if self.announced {
            pipeline.cmd("PING");
        }
        pipeline.add_command(command.clone());
        if let Some(next) = &self.followed_by {
            pipeline.add_command(next.clone());
        }
        let replies: Vec<Value> = pipeline.ignore_errors().query_async(connection).await?;
        let mut replies = replies.into_iter();
        let mut next = || replies.next().ok_or_else(out_of_step);
        let answered = |reply| match reply {
            Value::ServerError(error) => Err(RedisError::from(error)),
            reply => Ok(reply),
        };
        let asked = if asking { answered(next()?) } else { Ok(Value::Okay) };
        if self.announced && !asking {
            // Whatever it is: the command has its own.
            next()?;
        }
        // A user that may not send ASKING is only sent back by the command itself.
        let reply = answered(next()?).map_err(|error| asked.err().unwrap_or(error))?;
        match self.followed_by {
            Some(_) => Ok(Value::Array(vec![reply, next()?])),
            None => Ok(reply),
        }
    }
}
