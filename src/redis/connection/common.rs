//! [`Common`]: the state that all connections of one client share; and [`Timing`], their limits and pauses.
//!
//! A command's limit covers all dials, pauses and attempts. Time spent waiting for room does not count if the
//! command then gets room.
//!
//! If the server refuses to end a connection that was given up, an attempt may arrive after its own release,
//! and hold the lock unused until its lease ends. (A late release or renewal finds nothing: no id is used
//! twice.) Either kind of late attempt is undone by its id, as long as it may come: an unanswered attempt is
//! rolled back anyway; `Backend::may_run_again` tells of an answered attempt that was sent twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::RedisError;

use crate::backend::LATEST_RUN;
use crate::lock::LeaseId;
use crate::support::runtime::{Runtime, TokioRuntime};
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU64, Ordering};

/// Limit of each queue's commands in flight on one connection: enough to keep a server busy that is
/// milliseconds away. At most twice as many commands precede a renewal, which bypasses both queues.
pub(crate) const MAX_IN_FLIGHT: usize = 256;

/// Time for an invited caller to begin before another caller is invited instead.
pub(super) const INVITATION_LIMIT: Duration = Duration::from_millis(100);

/// First and largest limit of the pause between two dials.
pub(crate) const DIAL_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// First and largest limit of the pause before a command that did not run is retried.
pub(crate) const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// Number of redirects followed without a pause. Nodes that disagree redirect a command back and forth.
pub(crate) const MAX_REDIRECTS: u32 = 4;

pub(crate) const MIN_RENEWAL_LIMIT: Duration = Duration::from_millis(500);

/// Shortest and longest time for one sending of a command, within the command's limit.
pub(super) const PATIENCE_RANGE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));

/// Stands for longer times, which would overflow.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

const MAX_RESENT: usize = 10_000;
/// Each undoing costs the server a command a second, for two minutes.
const MAX_UNDONE: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) connect: Duration,
    /// Limit of a command with all its dials and attempts, without the waits for room.
    pub(crate) response: Duration,
    /// Time for which an unused channel stays subscribed.
    pub(crate) linger: Duration,
    pub(crate) heartbeat: Duration,
    /// Idle time after which the system probes the connection.
    pub(crate) keepalive: Duration,
}

impl Default for Timing {
    /// `response` is Redisson's. `linger`: a waiter usually comes back sooner to a contended lock.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            response: Duration::from_secs(3),
            linger: Duration::from_secs(1),
            heartbeat: Duration::from_secs(1),
            keepalive: Duration::from_secs(15),
        }
    }
}

impl Timing {
    /// For tests: limits that a busy machine does not reach.
    #[cfg(test)]
    pub(crate) fn unhurried() -> Self {
        Self { connect: Duration::from_secs(10), response: Duration::from_secs(30), ..Self::default() }
    }

    pub(crate) fn heartbeat_limit(&self) -> Duration {
        self.heartbeat * 4 / 5
    }

    /// Returns a random pause: clients that started together spread out.
    pub(crate) fn heartbeat_pause(&self, random: u64) -> Duration {
        self.heartbeat * 3 / 4 + random_part(self.heartbeat / 2, random)
    }

    /// Returns the time over which a silent server's clients redial: short, so that commands can be resent.
    pub(crate) fn spread(&self) -> Duration {
        (self.heartbeat / 2).min(self.response / 6)
    }

    /// Returns the time for one sending within `limit`; a limit above 500 ms leaves time for another one.
    pub(crate) fn patience(limit: Duration) -> Duration {
        (limit / 3).clamp(PATIENCE_RANGE.0, PATIENCE_RANGE.1).min(limit)
    }
}

/// Random pauses between attempts, up to a limit that doubles with each attempt.
#[derive(Debug)]
pub(crate) struct BackOff {
    range: (Duration, Duration),
    limit: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self::new(DIAL_PAUSES)
    }
}

impl BackOff {
    pub(crate) fn new(range: (Duration, Duration)) -> Self {
        Self { range, limit: range.0 }
    }

    /// Returns at least half the limit, so that a fast failure is not repeated immediately.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let limit = self.limit;
        self.limit = (limit * 2).min(self.range.1);
        limit / 2 + random_part(limit / 2, random)
    }

    pub(crate) fn reset(&mut self) {
        self.limit = self.range.0;
    }
}

/// Returns a random duration up to `whole`. `random`: from the runtime.
pub(crate) fn random_part(whole: Duration, random: u64) -> Duration {
    whole.mul_f64(random as f64 / u64::MAX as f64)
}

pub(crate) struct Common {
    pub(crate) timing: Timing,
    pub(crate) runtime: TokioRuntime,
    reconnects: AtomicU64,
    /// Cloned by each command that waits for room.
    waiting: Arc<()>,
    /// End of the time for late commands over connections that the server refused to close.
    late_until: Mutex<Option<Instant>>,
    /// Answered attempts that may come once more.
    resent: Mutex<HashSet<LeaseId>>,
    /// Attempts being undone.
    undone: Mutex<HashSet<LeaseId>>,
}

impl Common {
    pub(crate) fn new(timing: Timing, runtime: TokioRuntime) -> Self {
        Self {
            timing,
            runtime,
            reconnects: AtomicU64::new(0),
            waiting: Arc::default(),
            late_until: Mutex::default(),
            resent: Mutex::default(),
            undone: Mutex::default(),
        }
    }

    /// Counts a command as waiting for room until the returned handle is dropped.
    pub(super) fn waits_in_line(&self) -> Arc<()> {
        Arc::clone(&self.waiting)
    }

    pub(crate) fn commands_waiting(&self) -> u64 {
        Arc::strong_count(&self.waiting) as u64 - 1
    }

    /// Returns the number of connections that replaced an earlier connection.
    pub(crate) fn reconnects(&self) -> u64 {
        // Ordering: Relaxed, a statistic; no other memory is read through the count.
        self.reconnects.load(Ordering::Relaxed)
    }

    pub(super) fn reconnected(&self) {
        // Ordering: Relaxed, as above.
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cannot_end(&self, _refusal: &RedisError) {
        let before = self.late_until.lock().replace(self.runtime.now() + LATEST_RUN);
        // The time stays after its end, so a second refusal is not logged.
        if before.is_none() {
            event!(
                WARN,
                error = _refusal as &dyn std::error::Error,
                "CLIENT KILL is refused, so commands that come late over a lost connection are undone instead"
            );
        }
    }

    /// True while commands may come late over a lost connection.
    pub(crate) fn may_come_late(&self) -> bool {
        self.late_until.lock().is_some_and(|until| until > self.runtime.now())
    }

    /// Remembers an answered attempt that was sent twice, if the server cannot end connections.
    pub(crate) fn answered(&self, id: &LeaseId, resent: bool) {
        if !resent || !self.may_come_late() {
            return;
        }
        let mut ids = self.resent.lock();
        // Forgets ids that no client has asked for.
        if ids.len() == MAX_RESENT {
            ids.clear();
        }
        ids.insert(id.clone());
    }

    /// Returns true if an attempt by this id may come once more, and forgets the id.
    pub(crate) fn take_resent(&self, id: &LeaseId) -> bool {
        let mut ids = self.resent.lock();
        // Nearly always empty; then no id is hashed.
        !ids.is_empty() && ids.remove(id)
    }

    /// Begins to undo the attempt. False: another task undoes it already, or too many are being undone.
    pub(crate) fn begin_undoing(&self, id: &LeaseId) -> bool {
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

    pub(crate) fn end_undoing(&self, id: &LeaseId) {
        self.undone.lock().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use ::redis::ErrorKind as Kind;
    use uuid::Uuid;

    use super::*;

    fn common() -> Common {
        Common::new(Timing::default(), TokioRuntime::current())
    }

    fn refuse_to_end(common: &Common) {
        common.cannot_end(&RedisError::from((Kind::Client, "it is refused")));
    }

    fn id(number: u64) -> LeaseId {
        format!("{}:{number}", Uuid::max()).parse().unwrap()
    }

    #[tokio::test]
    async fn unendable_connection_may_deliver_until_the_latest_run() {
        let common = common();
        let runtime = &common.runtime;
        assert!(!common.may_come_late());
        for _ in 0..2 {
            let begun = runtime.now();
            refuse_to_end(&common);
            let until = common.late_until.lock().expect("it may come");
            assert!(common.may_come_late());
            assert!((begun + LATEST_RUN..=runtime.now() + LATEST_RUN).contains(&until), "{until:?}");
        }
        *common.late_until.lock() = Some(runtime.now() - Duration::from_millis(1));
        assert!(!common.may_come_late());
    }

    #[tokio::test]
    async fn attempts_come_again_only_if_sent_twice_over_open_connections() {
        let common = common();
        common.answered(&id(1), true);
        assert!(!common.take_resent(&id(1)), "expected no late attempt of an ended connection");
        refuse_to_end(&common);
        common.answered(&id(2), false);
        common.answered(&id(3), true);
        common.answered(&id(4), true);
        let taken = [2, 3, 3, 4, 5].map(|number| common.take_resent(&id(number)));
        assert_eq!(taken, [false, true, false, true, false]);
    }

    #[tokio::test]
    async fn late_attempts_that_no_client_asks_for_do_not_pile_up() {
        let common = common();
        refuse_to_end(&common);
        for number in 0..=MAX_RESENT as u64 {
            common.answered(&id(number), true);
        }
        assert_eq!(common.resent.lock().len(), 1);
    }

    #[tokio::test]
    async fn attempt_is_undone_by_one_task_and_tasks_are_limited() {
        let common = common();
        let ids: Vec<LeaseId> = (0..=MAX_UNDONE as u64).map(id).collect();
        assert!(common.begin_undoing(&ids[0]) && !common.begin_undoing(&ids[0]));
        let others = ids[1..].iter().filter(|id| common.begin_undoing(id));
        assert_eq!(others.count(), MAX_UNDONE - 1);
        common.end_undoing(&ids[0]);
        assert!(common.begin_undoing(&ids[MAX_UNDONE]) && !common.begin_undoing(&ids[0]));
    }

    const fn tenths(count: u64) -> Duration {
        Duration::from_millis(100 * count)
    }

    #[test]
    fn defaults_are_those_that_the_builder_names() {
        let Timing { connect, response, linger, heartbeat, keepalive } = Timing::default();
        assert_eq!([connect, response, linger, heartbeat, keepalive], [10, 30, 10, 10, 150].map(tenths));
    }

    #[test]
    fn heartbeats_reply_has_most_of_the_time_until_the_next_one() {
        for heartbeat in [tenths(10), tenths(600), MAX_TIME] {
            let limit = Timing { heartbeat, ..Timing::default() }.heartbeat_limit();
            assert!((heartbeat * 3 / 4..heartbeat).contains(&limit), "{limit:?} of {heartbeat:?}");
        }
    }

    #[test]
    fn clients_return_to_a_silent_server_within_all_its_limits() {
        for (heartbeat, response, spread) in [(10, 60, 5), (100, 60, 10), (600, 30, 5)] {
            let timing =
                Timing { heartbeat: tenths(heartbeat), response: tenths(response), ..Timing::default() };
            assert_eq!(timing.spread(), tenths(spread));
        }
    }

    #[test]
    fn command_sent_three_times_is_waited_for_long_enough_each_time() {
        for (limit, patience) in [(1, 1), (3, 3), (9, 5), (21, 7), (30, 10), (600, 10)] {
            assert_eq!(Timing::patience(tenths(limit)), tenths(patience));
        }
    }

    #[test]
    fn heartbeats_are_a_quarter_more_or_less_apart_than_is_said() {
        let timing = Timing { heartbeat: Duration::from_secs(8), ..Timing::default() };
        let [least, most] = [0, u64::MAX].map(|random| timing.heartbeat_pause(random));
        assert_eq!((least, most), (Duration::from_secs(6), Duration::from_secs(10)));
    }

    const WHOLE: Duration = Duration::from_secs(1);

    fn random() -> u64 {
        getrandom::u64().unwrap()
    }

    #[test]
    fn waits_double_up_to_the_limit_and_begin_anew_after_a_reset() {
        let [mut shortest, mut longest] = [BackOff::default(), BackOff::default()];
        for _ in 0..2 {
            for limit in [20, 40, 80, 160, 320, 640, 1000, 1000].map(Duration::from_millis) {
                assert_eq!((shortest.next(0), longest.next(u64::MAX)), (limit / 2, limit));
            }
            shortest.reset();
            longest.reset();
        }
    }

    #[test]
    fn many_that_fail_at_once_do_not_try_again_at_once() {
        let mut waits: Vec<_> = (0..100).map(|_| random_part(WHOLE, random())).collect();
        waits.sort();
        let most = waits.windows(40).map(|some| some[39] - some[0]).min().unwrap();
        assert!(most > WHOLE / 10, "expected spread pauses, and 40 of 100 lie within {most:?}");
    }
}
