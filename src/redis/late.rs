//! [`LateAttempts`]: attempts that may reach the server once more after their answer.
//!
//! If the server refuses to end a connection that was given up, an attempt may arrive after its own release,
//! and hold the lock unused until its lease ends. (A late release or renewal finds nothing: no id is used
//! twice.) Either kind of late attempt is undone by its id, as long as it may come: an unanswered attempt is
//! rolled back anyway; `Backend::may_run_again` tells of an answered attempt that was sent twice.

use std::collections::HashSet;

use crate::lock::LeaseId;
use crate::support::sync::Mutex;

use super::connection::Common;

const MAX_COUNT: usize = 10_000;
/// Each undoing costs the server a command a second, for two minutes.
const MAX_UNDONE: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct LateAttempts {
    /// Answered attempts that may come once more.
    answered: Mutex<HashSet<LeaseId>>,
    /// Attempts being undone.
    undone: Mutex<HashSet<LeaseId>>,
}

impl LateAttempts {
    /// Remembers an attempt that was sent twice, if the server cannot end connections.
    pub(super) fn answered(&self, id: &LeaseId, resent: bool, common: &Common) {
        if !resent || !common.may_come_late() {
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

    /// Begins to undo the attempt. False: another task undoes it already, or too many are being undone.
    pub(super) fn begin_undoing(&self, id: &LeaseId) -> bool {
        {
            let mut ids = self.undone.lock();
            if ids.len() < MAX_UNDONE || ids.contains(id) {
                return ids.insert(id.clone());
            }
        }
        // Outside of the mutex: a tracing subscriber is foreign code.
        event!(WARN, %id, "too many attempts may come late: this one keeps its lock until its lease ends");
        false
    }

    pub(super) fn end_undoing(&self, id: &LeaseId) {
        self.undone.lock().remove(id);
    }
}

#[cfg(test)]
mod tests {
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
        late.answered(&id(1), true, &common);
        assert!(!late.take(&id(1)), "expected no late attempt of an ended connection");
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        late.answered(&id(2), false, &common);
        late.answered(&id(3), true, &common);
        late.answered(&id(4), true, &common);
        let taken = [2, 3, 3, 4, 5].map(|number| late.take(&id(number)));
        assert_eq!(taken, [false, true, false, true, false]);
    }

    #[tokio::test]
    async fn late_attempts_that_no_client_asks_for_do_not_pile_up() {
        let (late, common) = (LateAttempts::default(), common());
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        for number in 0..=MAX_COUNT as u64 {
            late.answered(&id(number), true, &common);
        }
        assert_eq!(late.answered.lock().len(), 1);
    }

    #[test]
    fn attempt_is_undone_by_one_task_and_tasks_are_limited() {
        let late = LateAttempts::default();
        let ids: Vec<LeaseId> = (0..=MAX_UNDONE as u64).map(id).collect();
        assert!(late.begin_undoing(&ids[0]) && !late.begin_undoing(&ids[0]));
        let others = ids[1..].iter().filter(|id| late.begin_undoing(id));
        assert_eq!(others.count(), MAX_UNDONE - 1);
        late.end_undoing(&ids[0]);
        assert!(late.begin_undoing(&ids[MAX_UNDONE]) && !late.begin_undoing(&ids[0]));
    }
}
