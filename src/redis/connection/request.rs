//! [`WireRequest`]: a command, and the way to its reply.

use std::time::{Duration, Instant};

use ::redis::{Cmd, RedisError, RedisResult, Value, pipe};

use super::common::Timing;
use super::error::{Error, out_of_step};
use super::live::Unlimited;

/// The queue in which a command waits for room on the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// For acquisitions and questions.
    Ask,
    /// For releases, which do not queue behind acquisitions.
    GiveBack,
    /// No queue: for renewals, whose leases would expire meanwhile, and for commands that concern no lock.
    Pass,
}

/// A command to send. Passed by reference, to keep the futures small.
#[derive(Clone)]
pub(crate) struct WireRequest<'a> {
    /// Determines the command's node in a Cluster.
    pub(crate) key: &'a str,
    /// Hash and text of the script that the command calls.
    pub(crate) script: Option<(&'a str, &'a str)>,
    /// Writes the command, or the words after the script, as of the given time.
    pub(crate) words: &'a (dyn Fn(&mut Cmd, Instant) + Sync),
    /// Command to send right behind this one. The reply is then an array of both replies.
    pub(crate) followed_by: Option<Cmd>,
    /// True if the command probably publishes a message: a PING goes in front. After running all commands it
    /// has read, a server writes to its clients, starting with the one whose output began last. PONG begins
    /// the sender's output before the message begins the receiver's, so the receiver is written to first.
    pub(crate) announced: bool,
    /// Limit of the whole command, without the waits for room.
    pub(crate) limit: Duration,
    /// Time for one sending in addition to the usual patience.
    pub(crate) takes: Duration,
    /// True if the command is sent again after a lost reply. Running twice must do no harm.
    pub(crate) again: bool,
    /// True if the command waits while its keys are split between two nodes.
    pub(crate) waits_for_slot: bool,
    pub(crate) line: Line,
}

impl<'a> WireRequest<'a> {
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
            waits_for_slot: true,
            line: Line::Pass,
        }
    }

    /// Longest time without any reply, for a command that is sent again.
    pub(super) fn patience(&self) -> Duration {
        Timing::patience(self.limit) + self.takes
    }

    /// Writes the command. `in_full`: with the script's text, for a server that lacks the script.
    pub(super) fn write(&self, command: &mut Cmd, in_full: bool, now: Instant) {
        match self.script {
            Some((_, text)) if in_full => _ = command.arg("EVAL").arg(text),
            Some((hash, _)) => _ = command.arg("EVALSHA").arg(hash),
            None => {}
        }
        (self.words)(command, now);
    }

    pub(crate) fn error(&self, address: &str, now: Instant, met: RedisError) -> Error {
        let mut command = Cmd::new();
        self.write(&mut command, false, now);
        Error::command(address, &command, met)
    }

    /// Sends the command. `asking`: with ASKING in front, for a Cluster node that is importing the slot.
    pub(super) async fn query(
        &self,
        command: &Cmd,
        asking: bool,
        connection: &mut Unlimited,
    ) -> RedisResult<Value> {
        if !asking && self.followed_by.is_none() && !self.announced {
            // Same as `Cmd::query_async`, without its box.
            return connection.send_packed_command(command).await?.extract_error();
        }
        let mut pipeline = pipe();
        // In one piece, because the connection is shared and ASKING covers only the next command.
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
        // Without permission for ASKING, the node redirects the command, which would hide that refusal.
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
            // A redirected command is late anyway: no PING.
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
    async fn refusal_comes_from_the_command_or_the_preceding_asking() {
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
