//! [`LateAttempts`]: attempts that may come to the server once more when they have been answered.
//!
//! An attempt that comes after its own release holds the lock unused, until its lease ends. That can happen
//! to one that was sent over a connection that was given up, if the server refuses to end that connection. (A
//! release that comes late finds nothing, as no id is used again; a renewal as well.) One that was not
//! answered is rolled back by its client; of one that was, after it was sent again, the client is told so by
//! `Backend::may_run_again`. Its id says whose it is, so it is undone: the release is sent again and again,
//! as long as it may come.

use std::collections::HashSet;

use crate::fault::fault;
use crate::lock::LeaseId;
use crate::sync::Mutex;

use super::connection::Common;
use super::topology::Sent;

/// More than these are not remembered.
const MOST: usize = 10_000;

/// Ids of attempts that were answered, and may come once more.
#[derive(Debug, Default)]
pub(super) struct LateAttempts(Mutex<HashSet<LeaseId>>);

impl LateAttempts {
    /// An attempt by this id was answered.
    pub(super) fn answered(&self, id: &LeaseId, sent: Sent, common: &Common) {
        if sent == Sent::Once || common.late_until().is_none() {
            return;
        }
        let mut ids = self.0.lock();
        // Those that no client has asked for.
        if ids.len() == MOST {
            ids.clear();
        }
        ids.insert(id.clone());
    }

    /// Whether an attempt by this id may come once more. It is forgotten by that.
    pub(super) fn take(&self, id: &LeaseId) -> bool {
        let mut ids = self.0.lock();
        // Nearly always there are none, and nothing is hashed.
        !ids.is_empty() && ids.remove(id) && !fault!(LateAttemptsForgotten)
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

    fn common() -> Common {
        Common::new(Timing::default(), TokioRuntime::current())
    }

    /// Nothing is sent again for others, not even where the server ends no connection.
    #[tokio::test]
    async fn attempts_that_may_come_once_more_are_those_that_were_sent_twice_where_nothing_is_ended() {
        let (late, common) = (LateAttempts::default(), common());
        late.answered(&id(1), Sent::Again, &common);
        assert!(!late.take(&id(1)), "its connection was ended");
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        late.answered(&id(2), Sent::Once, &common);
        late.answered(&id(3), Sent::Again, &common);
        assert_eq!([2, 3, 3, 4].map(|number| late.take(&id(number))), [false, true, false, false]);
    }

    #[tokio::test]
    async fn late_attempts_that_no_client_asks_for_do_not_pile_up() {
        let (late, common) = (LateAttempts::default(), common());
        common.cannot_end(&RedisError::from(std::io::Error::other("refused")));
        for number in 0..=MOST as u64 {
            late.answered(&id(number), Sent::Again, &common);
        }
        assert_eq!(late.0.lock().len(), 1);
    }
}
