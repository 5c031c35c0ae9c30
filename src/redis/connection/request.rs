//! [`WireRequest`]: a command, and the means to have it answered.

use std::time::{Duration, Instant};

use ::redis::{Cmd, RedisError, RedisResult, Value, pipe};

use super::error::{Error, out_of_step};
use super::live::Unlimited;
use super::timing::Timing;

/// The line in which a command waits until there is room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// Of acquisitions and questions.
    Ask,
    /// Of releases: waiters of a name do not wait for its release behind acquisitions of other names.
    GiveBack,
    /// No line: renewals, whose leases would end there, and the few commands that concern no lock.
    Pass,
}

/// A command, and the means to have it answered. Passed on by reference, as each future between the
/// backend and the connection would have room for it twice.
#[derive(Clone)]
pub(crate) struct WireRequest<'a> {
    /// Says which node of a Cluster it goes to.
    pub(crate) key: &'a str,
    /// The hash and the text of the script that it calls, if it does.
    pub(crate) script: Option<(&'a str, &'a str)>,
    /// Writes the command as of the given time; of a script's call, the words behind the script.
    pub(crate) words: &'a (dyn Fn(&mut Cmd, Instant) + Sync),
    /// A command that is sent right behind this one, in one piece; the reply is then an array of both
    /// replies.
    pub(crate) followed_by: Option<Cmd>,
    /// It most likely publishes a message, which a waiter is to have as soon as can be. A server writes
    /// when it has run all that it has read, and begins with the client that it had the last *first* answer
    /// for: so a PING goes in front, and the message is written before the reply.
    pub(crate) announced: bool,
    /// The limit of the command in all, from when there is room for it.
    pub(crate) limit: Duration,
    /// The time that one sending takes beyond the usual.
    pub(crate) takes: Duration,
    /// True if the command is sent again when its reply is lost: it means the same when it runs twice.
    pub(crate) again: bool,
    /// True if the command waits for keys that are with two nodes just now.
    pub(crate) patient: bool,
    /// The line in which the command waits for room.
    pub(crate) line: Line,
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
            line: Line::Pass,
        }
    }

    /// The longest time without any reply, for a command that is sent again.
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

    /// The error of the command that has met `met` at the server with this address.
    pub(crate) fn error(&self, address: &str, now: Instant, met: RedisError) -> Error {
        let written = |in_full| {
            let mut command = Cmd::new();
            self.write(&mut command, in_full, now);
            command
        };
        let script = self.script.map(|_| written(true));
        Error::command(address, &written(false), script.as_ref(), met)
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
            // As `Cmd::query_async`, in no box of its own.
            return connection.send_packed_command(command).await?.extract_error();
        }
        let mut pipeline = pipe();
        // In one piece, as others use the connection, too: the permission is for the very next command.
        let in_front = if asking { Some("ASKING") } else { self.announced.then_some("PING") };
        in_front.into_iter().for_each(|name| _ = pipeline.cmd(name));
        pipeline.add_command(command.clone());
        self.followed_by.iter().for_each(|next| _ = pipeline.add_command(next.clone()));
        let replies: Vec<Value> = pipeline.ignore_errors().query_async(connection).await?;
        let mut replies = replies.into_iter();
        let mut next = || replies.next().ok_or_else(out_of_step);
        let answered = |reply| match reply {
            Value::ServerError(error) => Err(RedisError::from(error)),
            reply => Ok(reply),
        };
        let first = in_front.map(|_| next()).transpose()?;
        // A user that may not send ASKING is only sent back by the command itself. A PING is for nothing
        // else.
        let refused = first.filter(|_| asking).and_then(|reply| answered(reply).err());
        let reply = answered(next()?).map_err(|error| refused.unwrap_or(error))?;
        match self.followed_by {
            Some(_) => Ok(Value::Array(vec![reply, next()?])),
            None => Ok(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::cmd;

    use super::super::live::MultiplexedConnection;
    use super::*;

    const WORDS: &(dyn Fn(&mut Cmd, Instant) + Sync) = &|command, _| _ = command.arg("ECHO");

    fn plain() -> WireRequest<'static> {
        WireRequest::plain(WORDS, Duration::from_secs(3))
    }

    async fn query(request: &WireRequest<'_>, asking: bool, lines: &[&str]) -> (RedisResult<Value>, String) {
        let mut command = Cmd::new();
        request.write(&mut command, false, Instant::now());
        let asks = async |connection: &mut MultiplexedConnection| {
            request.query(&command, asking, &mut connection.unlimited()).await
        };
        MultiplexedConnection::answered(lines, asks).await
    }

    fn said(reply: &str) -> Value {
        Value::SimpleString(reply.to_owned())
    }

    #[tokio::test]
    async fn reply_is_the_commands_whatever_is_sent_before_and_behind_it() {
        let announced = WireRequest { announced: true, ..plain() };
        let followed = WireRequest { followed_by: Some(cmd("TIME")), ..plain() };
        let both = WireRequest { announced: true, ..followed.clone() };
        let (it, next) = ("+it", "+next");
        for (request, asking, sent, lines) in [
            (&plain(), false, "ECHO", &[it][..]),
            (&plain(), true, "ASKING ECHO", &["+OK", it]),
            (&announced, false, "PING ECHO", &["+PONG", it]),
            // A command that has to ask its way is not in time anyway.
            (&announced, true, "ASKING ECHO", &["+OK", it]),
            (&followed, false, "ECHO TIME", &[it, next]),
            (&followed, true, "ASKING ECHO TIME", &["+OK", it, next]),
            (&both, false, "PING ECHO TIME", &["+PONG", it, next]),
            (&both, true, "ASKING ECHO TIME", &["+OK", it, next]),
        ] {
            let is_followed = request.followed_by.is_some();
            let wanted = if is_followed { Value::Array(vec![said("it"), said("next")]) } else { said("it") };
            let (reply, went) = query(request, asking, lines).await;
            assert_eq!((reply.unwrap(), &*went), (wanted, sent));
        }
    }

    #[tokio::test]
    async fn refusal_is_the_commands_or_says_that_it_could_not_be_asked_for() {
        let code = |reply: RedisResult<Value>| reply.unwrap_err().code().map(str::to_owned);
        for (asking, lines, wanted) in [
            (false, &["-REFUSED"][..], "REFUSED"),
            (true, &["+OK", "-REFUSED"], "REFUSED"),
            (true, &["-NOPERM", "-MOVED"], "NOPERM"),
        ] {
            assert_eq!(code(query(&plain(), asking, lines).await.0).as_deref(), Some(wanted));
        }
        let announced = WireRequest { announced: true, ..plain() };
        assert_eq!(query(&announced, false, &["-NOPERM", "+it"]).await.0.unwrap(), said("it"));
    }

    #[test]
    fn command_that_takes_long_is_given_as_much_more_time() {
        let takes = Duration::from_millis(200);
        let request = WireRequest { takes, ..plain() };
        assert_eq!(request.patience(), plain().patience() + takes);
    }
}
