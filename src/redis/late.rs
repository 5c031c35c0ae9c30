//! [`LateAttempts`]: attempts that may still come to the server when their callers have gone.
//!
//! An attempt that comes after its own release holds the lock unused, until its lease ends. That can happen
//! to one that was sent over a connection that was given up, if the server refuses to end that connection. (A
//! release that comes late finds nothing, as no id is used again; a renewal as well.) Its id says whose it
//! is, so it is undone: the release is sent again and again, as long as it may come.

use std::collections::HashSet;
use std::time::Instant;

use crate::fault::fault;
use crate::lock::LeaseId;
use crate::sync::Mutex;

use super::connection::Common;
use super::topology::Sent;

/// More than these are not remembered.
const MOST: usize = 10_000;

/// Ids of attempts that were sent more than once, or were not answered.
#[derive(Debug, Default)]
pub(super) struct LateAttempts(Mutex<HashSet<LeaseId>>);

/// An attempt under way. One that is dropped unanswered may come late.
pub(super) struct UnansweredAttempt<'a> {
    all: &'a LateAttempts,
    id: &'a LeaseId,
    unanswered: bool,
}

impl LateAttempts {
    pub(super) fn attempt<'a>(&'a self, id: &'a LeaseId) -> UnansweredAttempt<'a> {
        UnansweredAttempt { all: self, id, unanswered: true }
    }

    /// Until when an attempt by this id may come, now that its lease is given back.
    pub(super) fn may_come(&self, id: &LeaseId, common: &Common) -> Option<Instant> {
        let was_one = {
            let mut ids = self.0.lock();
            // Nearly always there are none, and nothing is hashed.
            !ids.is_empty() && ids.remove(id)
        };
        if was_one && !fault!(LateAttemptsForgotten) { common.late_until() } else { None }
    }
}

impl UnansweredAttempt<'_> {
    pub(super) fn answered(mut self, sent: Sent) {
        self.unanswered = sent == Sent::Again;
    }
}

impl Drop for UnansweredAttempt<'_> {
    fn drop(&mut self) {
        if self.unanswered {
            let mut ids = self.all.0.lock();
            // Those whose lease was never given back.
            if ids.len() == MOST {
                ids.clear();
            }
            ids.insert(self.id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::RedisError;
    use uuid::Uuid;

    use super::super::connection::{Timing, TokioRuntime};
    use super::*;

    fn id(number: u64) -> LeaseId {
        format!("{}:{number}", Uuid::max()).parse().unwrap()
    }

    /// Nothing is sent again for others, not even where the server ends no connection.
    #[tokio::test]
    async fn attempts_that_may_come_late_are_those_that_were_not_answered_or_were_sent_twice() {
        let late = LateAttempts::default();
        let common = Common::new(Timing::default(), TokioRuntime::current());
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        let (dropped, never_sent) = (id(1), id(9));
        drop(late.attempt(&dropped));
        late.attempt(&id(2)).answered(Sent::Once);
        late.attempt(&id(3)).answered(Sent::Again);
        assert!(late.may_come(&never_sent, &common).is_none());
        assert!(late.may_come(&id(2), &common).is_none());
        assert!(late.may_come(&dropped, &common).is_some() && late.may_come(&id(3), &common).is_some());
        assert!(late.may_come(&dropped, &common).is_none(), "it is undone already");
    }

    #[test]
    fn late_attempts_whose_leases_are_never_given_back_do_not_pile_up() {
        let late = LateAttempts::default();
        for number in 0..=MOST as u64 {
            drop(late.attempt(&id(number)));
        }
        assert_eq!(late.0.lock().len(), 1);
    }
}
