//! [`LateAttempts`]: attempts that may reach the server once more after their answer.
//!
//! If the server refuses to end a connection that was given up, an attempt may arrive after its own release,
//! and hold the lock unused until its lease ends. (A late release or renewal finds nothing: no id is used
//! twice.) Either kind of late attempt is undone by its id, as long as it may come: an unanswered attempt is
//! rolled back anyway; `Backend::may_run_again` tells of an answered attempt that was sent twice.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::lock::LeaseId;
use crate::support::sync::Mutex;

use super::connection::Common;
use super::topology::Sent;

const MAX_COUNT: usize = 10_000;
/// Each undoing costs the server a command a second, for two minutes.
const MAX_UNDONE: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct LateAttempts {
    /// Answered attempts that may come once more.
    answered: Mutex<HashSet<LeaseId>>,
    /// Attempts being undone, and the end of each undoing.
    undone: Mutex<HashMap<LeaseId, Instant>>,
}

impl LateAttempts {
    /// Remembers an attempt that was sent twice, if the server cannot end connections.
    pub(super) fn answered(&self, id: &LeaseId, sent: Sent, common: &Common) {
        if sent == Sent::Once || common.late_until().is_none() {
            return;
        }
        let mut ids = self.answered.lock();
        // Forgets ids that no client has asked for.
        if ids.len() == MAX_COUNT {
            ids.clear();
        }
        ids.insert(id.clone());
    }

    /// Returns true if an attempt by this id may come once more, and forgets the id.
    pub(super) fn take(&self, id: &LeaseId) -> bool {
        let mut ids = self.answered.lock();
        // Nearly always empty; then no id is hashed.
        !ids.is_empty() && ids.remove(id)
    }

    /// Begins to undo the attempt until `until`. False: the id's own undoing is prolonged, or too many run.
    pub(super) fn undo(&self, id: &LeaseId, until: Instant) -> bool {
        {
            let mut ids = self.undone.lock();
            if let Some(before) = ids.get_mut(id) {
                *before = until.max(*before);
                return false;
            }
            if ids.len() < MAX_UNDONE {
                ids.insert(id.clone(), until);
                return true;
            }
        }
        // Outside of the mutex: a tracing subscriber is foreign code.
        event!(WARN, %id, "too many attempts may come late: this one keeps its lock until its lease ends");
        false
    }

    /// True while the attempt is to be undone; ends the undoing afterwards.
    pub(super) fn is_undone(&self, id: &LeaseId, now: Instant) -> bool {
        let mut ids = self.undone.lock();
        let goes_on = ids.get(id).is_some_and(|until| now < *until);
        if !goes_on {
            ids.remove(id);
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::redis::RedisError;
    use uuid::Uuid;

    use super::super::connection::Timing;
    use super::*;
    use crate::support::runtime::TokioRuntime;

    fn id(number: u64) -> LeaseId {
        format!("{}:{number}", Uuid::max()).parse().unwrap()
    }

    fn common() -> Common {
        Common::new(Timing::default(), TokioRuntime::current())
    }

    #[tokio::test]
    async fn attempts_come_again_only_if_sent_twice_over_open_connections() {
        let (late, common) = (LateAttempts::default(), common());
        late.answered(&id(1), Sent::Again, &common);
        assert!(!late.take(&id(1)), "expected no late attempt of an ended connection");
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        late.answered(&id(2), Sent::Once, &common);
        late.answered(&id(3), Sent::Again, &common);
        late.answered(&id(4), Sent::Again, &common);
        let taken = [2, 3, 3, 4, 5].map(|number| late.take(&id(number)));
        assert_eq!(taken, [false, true, false, true, false]);
    }

    #[tokio::test]
    async fn late_attempts_that_no_client_asks_for_do_not_pile_up() {
        let (late, common) = (LateAttempts::default(), common());
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        for number in 0..=MAX_COUNT as u64 {
            late.answered(&id(number), Sent::Again, &common);
        }
        assert_eq!(late.answered.lock().len(), 1);
    }

    #[test]
    fn attempt_is_undone_by_one_task_and_tasks_are_limited() {
        let (late, begun) = (LateAttempts::default(), Instant::now());
        let until = begun + Duration::from_secs(1);
        let ids: Vec<LeaseId> = (0..=MAX_UNDONE as u64).map(id).collect();
        assert!(late.undo(&ids[0], until) && !late.undo(&ids[0], until));
        let others = ids[1..].iter().filter(|id| late.undo(id, until));
        assert_eq!(others.count(), MAX_UNDONE - 1);
        assert!(!late.is_undone(&ids[0], until));
        assert!(late.undo(&ids[MAX_UNDONE], until) && late.is_undone(&ids[MAX_UNDONE], begun));
    }

    #[test]
    fn attempt_rolled_back_again_is_undone_until_the_later_deadline() {
        let (late, begun, id) = (LateAttempts::default(), Instant::now(), id(1));
        let [soon, later] = [1, 2].map(|seconds| begun + Duration::from_secs(seconds));
        assert!(late.undo(&id, soon));
        for until in [later, soon] {
            assert!(!late.undo(&id, until));
            assert!(late.is_undone(&id, soon));
        }
        assert!(!late.is_undone(&id, later));
    }
}
