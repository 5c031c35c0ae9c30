//! [`Timing`]: how long the connections wait, and how often they ask; [`BackOff`]: how long to wait before
//! the next try; and the constants of a command's budget of time, which begins when the command has room:
//! dials, pauses and repetitions use up the rest of it.

use std::time::Duration;

/// The commands of each line that are under way at a time over one connection: enough to keep a server busy
/// that is some milliseconds away. A renewal, which passes both lines, comes behind twice as many.
pub(crate) const MAX_IN_FLIGHT: usize = 256;

/// The time that a caller which was called in from a line has before another caller is called in its place.
pub(super) const INVITATION_LIMIT: Duration = Duration::from_millis(100);

/// The shortest and the longest limit of the pause between two dials.
pub(crate) const DIAL_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The shortest and the longest limit of the pause before a command that did not run is tried again.
pub(crate) const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// The redirects that are followed without a pause: nodes that disagree send a command to and fro.
pub(crate) const MAX_REDIRECTS: u32 = 4;

/// The shortest time for which a renewal is tried, however short the lease.
pub(crate) const MIN_RENEWAL_LIMIT: Duration = Duration::from_millis(500);

/// The shortest and the longest time that one sending of a command is given, within its limit.
pub(super) const PATIENCE_RANGE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));

/// A longer time is as good as for ever, and cannot be reckoned with.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// The limits of the connections, and the intervals of their questions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// For a connection, the greeting included.
    pub(crate) connect: Duration,
    /// For a command, from the first sending to the reply.
    pub(crate) response: Duration,
    /// For a channel to be wanted again before it is unsubscribed from.
    pub(crate) linger: Duration,
    /// Between two heartbeats of a connection over which nothing comes.
    pub(crate) heartbeat: Duration,
    /// For how long nothing comes before the system probes the connection.
    pub(crate) keepalive: Duration,
}

impl Default for Timing {
    /// A second to connect, and three for a reply, as in Redisson. A second to linger: a waiter that comes
    /// back to a contended lock comes back sooner.
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
    /// With nothing longer than a year.
    pub(crate) fn bounded(mut self) -> Self {
        let Self { connect, response, linger, heartbeat, keepalive } = &mut self;
        for time in [connect, response, linger, heartbeat, keepalive] {
            *time = MAX_TIME.min(*time);
        }
        self
    }

    /// Gives nothing up on a machine that is busy. For tests.
    #[cfg(test)]
    pub(crate) fn unhurried() -> Self {
        Self { connect: Duration::from_secs(10), response: Duration::from_secs(30), ..Self::default() }
    }

    /// The limit of a heartbeat's reply.
    pub(crate) fn heartbeat_limit(&self) -> Duration {
        self.heartbeat * 4 / 5
    }

    /// Until the next heartbeat. Not the same for all, however many began at the same time. `random`: the
    /// runtime's.
    pub(crate) fn heartbeat_pause(&self, random: u64) -> Duration {
        self.heartbeat * 3 / 4 + random_part(self.heartbeat / 2, random)
    }

    /// Over how long a time the clients of a silent server come back to it. There is time left then for a
    /// command that waits for that.
    pub(crate) fn spread(&self) -> Duration {
        (self.heartbeat / 2).min(self.response / 6)
    }

    /// The limit of one sending of a command that has `limit` in all. Then the connection is
    /// taken for dead, and there is time left for another.
    pub(crate) fn patience(limit: Duration) -> Duration {
        (limit / 3).clamp(PATIENCE_RANGE.0, PATIENCE_RANGE.1).min(limit)
    }
}

/// The pauses between tries: a random time, up to a limit that doubles with each try.
#[derive(Debug)]
pub(crate) struct BackOff {
    range: (Duration, Duration),
    limit: Duration,
}

impl Default for BackOff {
    /// Between two tries to be connected.
    fn default() -> Self {
        Self::new(DIAL_PAUSES)
    }
}

impl BackOff {
    /// The limit begins at the one and stays at the other.
    pub(crate) fn new(range: (Duration, Duration)) -> Self {
        Self { range, limit: range.0 }
    }

    /// At least half of the limit, so that a fast failure is not repeated at once. `random`: the runtime's.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let limit = self.limit;
        self.limit = (limit * 2).min(self.range.1);
        limit / 2 + random_part(limit / 2, random)
    }

    /// The next wait is as short as the first one.
    pub(crate) fn reset(&mut self) {
        self.limit = self.range.0;
    }
}

/// A random duration below `whole`. `random`: the runtime's.
pub(crate) fn random_part(whole: Duration, random: u64) -> Duration {
    whole.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn clients_come_back_to_a_silent_server_before_a_heartbeat_or_a_command_is_over() {
        for (heartbeat, response, spread) in [(10, 60, 5), (100, 60, 10), (600, 30, 5)] {
            let timing =
                Timing { heartbeat: tenths(heartbeat), response: tenths(response), ..Timing::default() };
            assert_eq!(timing.spread(), tenths(spread));
        }
    }

    #[test]
    fn command_may_be_sent_three_times_but_is_waited_for_long_enough_each_time() {
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
        assert!(most > WHOLE / 10, "40 of 100 within {most:?}");
    }
}
