//! Ten thousand watched locks of one process.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, LockClient, LockOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::super::clients::{Client, Latchwork};
use super::super::figure::{Figure, Goal, Measurement};
use super::super::runtime;
use super::super::server::Server;

pub(super) const NAME: &str = "watched";

const LOCKS: usize = 10_000;
const LEASE: Duration = Duration::from_secs(3);
/// Length of a round: each lease is renewed when a third of it is over.
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 6;
/// Number of looks at all leases in a round.
const LOOKS: u32 = 10;

/// The shortest remaining lease in milliseconds, in one script; -2 if a lease is gone.
const LEAST_LEFT: &str = "
local least = redis.call('pttl', KEYS[1] .. 0)
for i = 1, ARGV[1] - 1 do
    least = math.min(least, redis.call('pttl', KEYS[1] .. i))
end
return least";

pub(super) fn measure(server: &mut Server, _rounds: usize) -> Measurement {
    let prefix = format!("{NAME}:");
    let mut seen = runtime().block_on(async {
        let began = Instant::now();
        let guards = take_all(&server.url(), &prefix).await;
        let took = began.elapsed();
        let seen = watch(server, &prefix, &guards).await;
        let lost = give_back(guards).await;
        Seen { took, lost, ..seen }
    });
    server.assert_empty(NAME);
    seen.rounds.sort_unstable();
    let commands = seen.rounds.last().copied().unwrap_or(u64::MAX);
    let mut measurement = Measurement::default();
    measurement.notes.push(format!(
        "{NAME}: taken within {:.0} ms; commands of each round: {:?}; least of {} s left here {:.2} s",
        seen.took.as_secs_f64() * 1e3,
        seen.rounds,
        LEASE.as_secs(),
        seen.least_here.as_secs_f64(),
    ));
    let mut push = |what, digits, goal, value| {
        let values = vec![(Latchwork::NAME, value)];
        measurement.figures.push(Figure { scenario: NAME, what, digits, goal: Some(goal), values });
    };
    push("commands of the largest round", 0, Goal::AtMost(150.0), commands as f64);
    let left = seen.least_on_server as f64 / LEASE.as_millis() as f64;
    push("least of a lease that was left", 2, Goal::AtLeast(0.33), left);
    push("leases lost", 0, Goal::AtMost(0.0), seen.lost as f64);
    measurement
}

#[derive(Default)]
struct Seen {
    took: Duration,
    /// Commands of each round.
    rounds: Vec<u64>,
    /// In milliseconds.
    least_on_server: i64,
    least_here: Duration,
    lost: usize,
}

async fn take_all(url: &str, prefix: &str) -> Vec<Guard> {
    let redis = Redis::connect(url).await.expect("a server");
    let options = LockOptions::default().watchdog_timeout(LEASE);
    let client = LockClient::with_options(redis, &options).expect("a lease");
    let mut taking = JoinSet::new();
    for number in 0..LOCKS {
        let lock = client.get_lock(&format!("{prefix}{number}")).expect("a name");
        taking.spawn(async move { lock.lock().await.expect("the lock") });
    }
    taking.join_all().await
}

/// Observes for [`ROUNDS`], by the server's count: only the watchdog sends EVALSHA; the observer, EVAL.
async fn watch(server: &mut Server, prefix: &str, guards: &[Guard]) -> Seen {
    let locks = LOCKS.to_string();
    let mut seen = Seen { least_on_server: i64::MAX, least_here: LEASE, ..Seen::default() };
    let mut calls = server.calls().remove("evalsha").unwrap_or(0);
    let mut next = Instant::now();
    for _ in 0..ROUNDS {
        for _ in 0..LOOKS {
            next += ROUND / LOOKS;
            sleep_until(next).await;
            let left = server.control(&["EVAL", LEAST_LEFT, "1", prefix, &locks]);
            seen.least_on_server = seen.least_on_server.min(left);
            for guard in guards {
                seen.least_here = seen.least_here.min(guard.remaining());
            }
        }
        let now = server.calls().remove("evalsha").unwrap_or(0);
        seen.rounds.push(now - calls);
        calls = now;
    }
    seen
}

/// Releases all, and counts the locks that were lost before.
async fn give_back(guards: Vec<Guard>) -> usize {
    let mut giving = JoinSet::new();
    for guard in guards {
        giving.spawn(guard.unlock());
    }
    giving.join_all().await.iter().filter(|given_back| given_back.is_err()).count()
}
