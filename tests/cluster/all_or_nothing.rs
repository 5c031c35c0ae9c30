//! In the middle of a slot's move, each script that writes does all of its work or nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, LeaseKey, LockName, Mode, ReleaseOutcome};
use latchwork::redis::ShardedMessages;
use latchwork_testkit::RedisCluster;

use crate::nodes::{client, name_at, slot};
use latchwork_conformance::commands::Commands as _;

const LEASE: Duration = Duration::from_secs(600);
const FROM: usize = 0;
const TO: usize = 1;

/// The places of a lock's keys while its slot moves.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// The lock and its counter are at the same node.
    Together { moved: bool },
    /// The lock has moved; its counter has not.
    LockAhead,
    /// The counter has moved; the lock has not.
    CounterAhead,
}

const ALL: [Keys; 4] =
    [Keys::Together { moved: false }, Keys::Together { moved: true }, Keys::LockAhead, Keys::CounterAhead];

/// A lock whose slot is moving.
struct Moving<'a> {
    cluster: &'a RedisCluster,
    name: LockName,
    slot: u16,
}

impl<'a> Moving<'a> {
    fn begin(cluster: &'a RedisCluster, held_by: Option<&LeaseId>, keys: Keys) -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = &name_at(cluster, FROM, &format!("moving:{number}"));
        let slot = slot(cluster, name);
        let counter = format!("redisson_lock_token:{{{name}}}");
        let () = cluster.ask(FROM, &["SET", &counter, "7"]);
        if let Some(id) = held_by {
            let () = cluster.ask(FROM, &["HSET", name, "mode", "lock", &id.to_string(), "1"]);
            let () = cluster.ask(FROM, &["PEXPIRE", name, "60000"]);
        }
        cluster.begin_to_move(slot, FROM, TO);
        let (lock, tokens) = match keys {
            Keys::Together { moved } => (moved, moved),
            Keys::LockAhead => (true, false),
            Keys::CounterAhead => (false, true),
        };
        if lock && held_by.is_some() {
            cluster.move_key(name, FROM, TO);
        }
        if tokens {
            cluster.move_key(&counter, FROM, TO);
        }
        Self { cluster, name: LockName::new(name).unwrap(), slot }
    }

    /// Ends the move; returns the ids that hold the lock, its time to live, and the counter.
    fn end(self) -> (Vec<String>, i64, u64) {
        self.cluster.finish_to_move(self.slot, FROM, TO);
        let name = self.name.as_str();
        let fields: HashMap<String, String> = self.cluster.ask(TO, &["HGETALL", name]);
        let left = self.cluster.ask(TO, &["PTTL", name]);
        let counter = self.cluster.ask(TO, &["GET", &format!("redisson_lock_token:{{{name}}}")]);
        (fields.into_keys().filter(|field| field != "mode").collect(), left, counter)
    }
}

fn id(number: u64) -> LeaseId {
    format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_in_a_moving_slot_does_all_or_nothing() {
    let cluster = RedisCluster::start_with(&[]);
    let client = client(&cluster, ShardedMessages::Off).await;
    let backend = client.backend::<latchwork::redis::Redis>().unwrap();
    let (ours, other) = (id(1), id(2));
    let only = |id: &LeaseId| vec![id.to_string()];
    for keys in ALL {
        for tokens in [0, 3] {
            // The lock is free, ours, or another's. A refused script changes nothing; each lease expires.
            for had_by in [None, Some(&ours), Some(&other)] {
                let moving = Moving::begin(&cluster, had_by, keys);
                let taken = backend
                    .acquire(Mode::Plain, &moving.name, &backend.request(&ours, LEASE).tokens(tokens))
                    .await;
                let (has, left, counter) = moving.end();
                let what = format!("{keys:?}, {tokens} tokens, had by {had_by:?}: {taken:?}");
                match taken {
                    Ok(AcquireOutcome::Acquired { last_token }) => {
                        assert_eq!(has, only(&ours), "{what}");
                        assert!(left > 60_000, "{what}: {left}");
                        assert_eq!(
                            (counter, last_token),
                            if tokens > 0 { (10, 10) } else { (7, 0) },
                            "{what}"
                        );
                    }
                    Ok(AcquireOutcome::Held { .. } | AcquireOutcome::HeldUncalled { .. }) => {
                        assert_eq!((has, counter), (only(&other), 7), "{what}")
                    }
                    Err(_) => {
                        assert!(tokens > 0, "{what}");
                        assert_eq!((has, counter), (had_by.map_or(vec![], only), 7), "{what}");
                    }
                }
            }
        }
        for had_by in [&ours, &other] {
            let moving = Moving::begin(&cluster, Some(had_by), keys);
            let freed = backend.release(Mode::Plain, &moving.name, &ours, None).await.unwrap();
            let (has, ..) = moving.end();
            let expected = if had_by == &ours { vec![] } else { only(&other) };
            assert_eq!(has, expected, "{keys:?}");
            assert_eq!(matches!(freed, ReleaseOutcome::Released { .. }), had_by == &ours, "{keys:?}");
        }
        let moving = Moving::begin(&cluster, Some(&other), keys);
        assert!(backend.force_release(Mode::Plain, &moving.name).await.unwrap());
        assert_eq!(moving.end().0, [""; 0], "{keys:?}");
        for had_by in [&ours, &other] {
            let moving = Moving::begin(&cluster, Some(had_by), keys);
            let key = LeaseKey { name: moving.name.clone(), id: ours.clone() };
            let renewed = backend.renew(Mode::Plain, &[key], LEASE).await.unwrap();
            let (has, left, _) = moving.end();
            assert_eq!((has, renewed), (only(had_by), vec![had_by == &ours]), "{keys:?}");
            assert_eq!(left > 60_000, had_by == &ours, "{keys:?}: {left}");
        }
    }
}
