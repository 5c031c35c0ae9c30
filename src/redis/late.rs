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
