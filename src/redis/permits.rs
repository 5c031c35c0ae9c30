//! Semaphores of [`Redis`]: permits with leases, and a queue of waiters.

use std::time::Instant;

use ::redis::Cmd;

use crate::backend::{LockName, Mode, ReleaseOutcome};
use crate::lock::{Holder, LeaseId};

use super::backend::{Redis, duration};
use super::connection::Error;
use super::keys::{self, QueueKind};
use super::scripts::{
    ENDED_AND_AGAIN, MAX_CALLS, PERMITS_HOLDERS, PERMITS_RELEASE, Reply, endless, other_kind,
};
use super::topology::Router;

impl Redis {
    /// Ends the lease of `id`, or its position, and grants the free permits to the first waiters.
    pub(super) async fn give_permits_back(
        &self,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, Error> {
        let had_it = self.serve(router, name, &keys::id(id)).await?;
        Ok(if had_it { ReleaseOutcome::Released { receivers: 0 } } else { ReleaseOutcome::NotHeld })
    }

    /// Ends a lease or a position, if the id has one, and serves the waiters. True if the id had a lease.
    pub(super) async fn serve(&self, router: &Router, name: &LockName, id: &str) -> Result<bool, Error> {
        let mut call = self.call(QueueKind::Permits, name, true);
        call.args.push(id.to_owned());
        let mut had_it = false;
        for _ in 0..MAX_CALLS {
            let (reply, resent) = self.send_words(router, name, &PERMITS_RELEASE, &call, true).await?;
            // The first sending ended the lease. (Or the lease was lost before: the effect is the same.)
            had_it |= resent || matches!(reply, Reply::Number(1 | ENDED_AND_AGAIN));
            if !matches!(reply, Reply::Number(ENDED_AND_AGAIN)) {
                return Ok(had_it);
            }
        }
        Err(endless(name))
    }

    pub(super) async fn permits_holders(&self, name: &LockName) -> Result<Vec<Holder>, Error> {
        let words = |command: &mut Cmd, _: Instant| _ = command.arg(1).arg(name.as_str());
        let request = self.request(&PERMITS_HOLDERS, name, &words);
        let ((holders, other), _): (Found, bool) = self.router.send(&request).await?;
        if let Some(mode) = other {
            return Err(other_kind(name, &mode));
        }
        let holder = |(id, left, permits): (String, i64, u32)| {
            Holder::new(id.parse().ok(), duration(left)).mode(Mode::Permits).permits(permits)
        };
        Ok(holders.into_iter().map(holder).collect())
    }
}

/// The reply of `permits_holders.lua`: each lease with its rest in ms and its permits, and the field `mode`
/// of another kind of lock.
type Found = (Vec<(String, i64, u32)>, Option<String>);
