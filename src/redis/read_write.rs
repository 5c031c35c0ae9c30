//! Read-write locks of [`Redis`].

use std::collections::HashSet;
use std::time::Instant;

use ::redis::Cmd;

use crate::backend::{AcquireOutcome, AcquireRequest, LockName, ReleaseOutcome};
use crate::lock::{Holder, LeaseId};

use super::backend::{Redis, duration, millis};
use super::connection::Error;
use super::keys::{self, QueueKind};
use super::queue::counter;
use super::scripts::{MAX_CALLS, READ_ACQUIRE, READ_FREE, READ_RELEASE, READ_WRITE_HOLDERS, Reply, endless};
use super::topology::Router;

impl Redis {
    /// Takes a lease for reading, or has the store remember a waiter that has a position.
    pub(super) async fn read(
        &self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let AcquireRequest { id, lease, tokens, position, under, sent, .. } = request;
        let words = |command: &mut Cmd, _: Instant| {
            let [queue, _] = QueueKind::ReadWrite.queue(name.as_str());
            command.arg(5).arg(name.as_str()).arg(queue).arg(&keys::waiting_readers(name.as_str()));
            command.arg(keys::read_lease(name.as_str(), id)).arg(millis(*lease)).arg(keys::Shown(id));
        };
        let script = &*READ_FREE;
        let is_simple = self.is_simple(name, request);
        if is_simple && let Some(outcome) = self.attempt_simple(script, name, request, &words).await? {
            return Ok(outcome);
        }
        let under = under.as_ref().map(LeaseId::to_string).unwrap_or_default();
        let fenced = match *tokens > 0 {
            true => "1",
            // `read_free.lua` has left the attempt to this script.
            false if is_simple => "0",
            false => "",
        };
        let mut call = self.call(QueueKind::ReadWrite, name, false);
        call.keys.push(keys::read_lease(name.as_str(), id));
        call.keys.extend(counter(name, *tokens));
        call.args.extend([millis(*lease).to_string(), keys::id(id), under, fenced.to_owned()]);
        call.args.extend(position.map(|position| millis(position.kept).to_string()));
        call.enqueue(*position, *sent);
        self.attempt_words(&READ_ACQUIRE, &call, name, id).await
    }

    /// The readers of the lock, or else its writer, whom each page has.
    pub(super) async fn read_write_holders(
        &self,
        name: &LockName,
        reads: bool,
    ) -> Result<Vec<Holder>, Error> {
        let leases = keys::read_leases(name.as_str());
        let holder = |(id, left): (String, _)| Holder::new(id.parse().ok(), duration(left));
        let (mut seen, mut holders, mut from) = (HashSet::new(), Vec::new(), "0".to_owned());
        for _ in 0..MAX_CALLS {
            // Arguments of changes only are empty.
            let args = ["", "", "", "", "", "", "", &*leases, "", &*from];
            let words = |command: &mut Cmd, _: Instant| _ = command.arg(1).arg(name.as_str()).arg(&args);
            let request = self.request(&READ_WRITE_HOLDERS, name, &words);
            let ((writer, next, readers, other), _): (Page, bool) = self.router.send(&request).await?;
            if let Some(mode) = other {
                return Err(Error::other_kind(name, &mode));
            }
            if !reads {
                return Ok(writer.map(holder).into_iter().collect());
            }
            // While the hash changes, a field may come twice, but no field that stays is skipped.
            let new = readers.into_iter().filter(|(id, _)| seen.insert(id.clone()));
            holders.extend(new.map(holder));
            if next == "0" {
                return Ok(holders);
            }
            from = next;
        }
        Err(endless(name))
    }

    pub(super) async fn end_read(
        &self,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, Error> {
        let mut call = self.call(QueueKind::ReadWrite, name, true);
        call.keys.push(keys::read_lease(name.as_str(), id));
        call.args.push(keys::id(id));
        let (reply, resent) = self.send_words(router, name, &READ_RELEASE, &call, true).await?;
        let ended = matches!(reply, Reply::Number(reply) if self.released(name, reply));
        // Or the first sending ended the hold. (Or the lease was lost before: the effect is the same.)
        let did_read = ended || resent;
        Ok(if did_read { ReleaseOutcome::Released { receivers: 0 } } else { ReleaseOutcome::NotHeld })
    }
}

/// The reply of `read_write_holders.lua`: the writer and the remaining ms of its lease, the cursor of the
/// next page, the same of the readers as of the writer, and the field `mode` of another kind of lock.
type Page = (Option<(String, i64)>, String, Vec<(String, i64)>, Option<String>);

#[cfg(test)]
mod tests {
    use ::redis::FromRedisValue as _;

    use super::super::hostile::{WORDS, attack, reply};
    use super::*;

    #[test]
    fn hostile_pages_of_holders_are_read_or_refused() {
        attack("holders", &WORDS, |input| {
            if let Ok((writer, _, readers, _)) = Page::from_redis_value(reply(input)) {
                for (id, left) in writer.into_iter().chain(readers) {
                    let (id, left) = (id.parse::<LeaseId>().ok(), duration(left));
                    let _ = Holder::new(id, left);
                }
            }
        });
    }
}
