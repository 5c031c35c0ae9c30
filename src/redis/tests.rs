//! The commands sent by calls of a [`Redis`], and the outcomes of replies from a scripted server.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::backend::{Redis, millis};
use super::builder::RedisBuilder;
use super::connection::{Error, ErrorKind, Timing};
use super::fake::{EVENT_LIMIT, Fake, alive, layout};
use super::topology::cluster::ShardedMessages;
use crate::backend::{
    AcquireOutcome, AcquireRequest, Backend, LeaseId, LeaseKey, LockName, Mode, NextWaiter, QueuePosition,
    ReleaseOutcome,
};
use crate::support::sync::Mutex;

/// An invalid reply: ends the connection, and the command is sent again.
const LOST: &str = "?\r\n";
const ACQUIRED: &str = "*0\r\n";
const AGAIN: &str = ":-3\r\n";
const NO: &str = ":0\r\n";
const YES: &str = ":1\r\n";
const SILENCE: &str = "";
const TWO_NODES: &str = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
const REFUSED: &str = "-NOPERM this user has no permissions\r\n";

const QUEUED: [Mode; 3] = [Mode::Fair, Mode::Write, Mode::Read];
const LEASE: Duration = Duration::from_secs(30);
const POSITION: QueuePosition = QueuePosition { waited: Duration::ZERO, kept: LEASE };
const NEVER: Duration = Duration::from_secs(3600);

/// A client, and a server that replies with each of `answers`, and with the last again and again.
async fn connect(builder: RedisBuilder, answers: &[&'static str]) -> (Redis, Fake) {
    let answers = Mutex::new(VecDeque::from(answers.to_vec()));
    let fake = Fake::start(alive(move |_| {
        let mut answers = answers.lock();
        let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0] };
        answer.to_owned()
    }))
    .await;
    let redis = builder.heartbeat(NEVER).connect(&fake.url()).await.unwrap();
    (redis, fake)
}

fn name() -> LockName {
    LockName::new("orders").unwrap()
}

fn id(number: u64) -> LeaseId {
    format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

fn lease(number: u64) -> LeaseKey {
    LeaseKey { name: name(), id: id(number) }
}

fn next() -> NextWaiter {
    NextWaiter { id: id(2), lease: LEASE, tokens: 0, position: POSITION }
}

async fn acquire(redis: &Redis, mode: Mode) -> Result<AcquireOutcome, Error> {
    let request = AcquireRequest::new(id(1), LEASE, Instant::now().into());
    redis.acquire(mode, &name(), &request).await
}

async fn release(redis: &Redis, mode: Mode) -> Result<ReleaseOutcome, Error> {
    redis.release(mode, &name(), &id(1), None).await
}

const RELEASED: ReleaseOutcome = ReleaseOutcome::Released { receivers: 0 };

#[tokio::test]
async fn call_is_repeated_while_there_is_more_to_do() {
    for mode in QUEUED {
        let (redis, _fake) = connect(Redis::builder(), &[AGAIN, ACQUIRED, AGAIN, YES, AGAIN, YES]).await;
        assert_eq!(acquire(&redis, mode).await.unwrap(), AcquireOutcome::Acquired { last_token: 0 });
        assert_eq!(release(&redis, mode).await.unwrap(), RELEASED, "{mode:?}");
        assert!(redis.force_release(mode, &name()).await.unwrap(), "{mode:?}");
    }
}

#[tokio::test]
async fn release_that_finds_no_hold_has_ended_it_if_it_was_sent_again() {
    for mode in QUEUED {
        let (redis, fake) = connect(Redis::builder(), &[NO, LOST, NO]).await;
        assert_eq!(release(&redis, mode).await.unwrap(), ReleaseOutcome::NotHeld, "{mode:?}");
        assert!(!redis.hand_off_stats.last_time(&name()), "{mode:?}");
        assert_eq!(release(&redis, mode).await.unwrap(), RELEASED, "{mode:?}");
        assert_eq!(fake.count("EVALSHA"), 3);
    }
}

#[tokio::test]
async fn forced_release_is_not_sent_again() {
    for mode in [Mode::Plain, Mode::Fair, Mode::Write] {
        let (redis, fake) = connect(Redis::builder(), &[LOST, YES]).await;
        let error = redis.force_release(mode, &name()).await.unwrap_err();
        assert_eq!((error.kind(), fake.count("EVALSHA")), (ErrorKind::Unknown, 1), "{mode:?}");
    }
}

#[tokio::test]
async fn only_releases_are_left_to_strangers_or_announced() {
    let (redis, fake) = connect(Redis::builder(), &[YES]).await;
    let stats = &redis.hand_off_stats;
    while !stats.is_enough(&name()) {
        stats.count(&name(), false);
    }
    fake.until("PING", 2).await;
    // Returns the argument to leave the lock to other clients, and the number of PINGs before the call.
    let pings = Cell::new(fake.count("PING"));
    let told = || {
        let before = pings.replace(fake.count("PING"));
        let last = fake.heard("EVALSHA").pop().unwrap();
        let spare = last.split(' ').skip_while(|word| *word != "granted:").nth(3).unwrap().to_owned();
        (spare == "1", fake.count("PING") - before)
    };
    for mode in [Mode::Write, Mode::Read] {
        acquire(&redis, mode).await.unwrap();
        assert_eq!(told(), (false, 0), "{mode:?}");
        release(&redis, mode).await.unwrap();
        assert_eq!(told(), (true, 1), "{mode:?}");
    }
    redis.force_release(Mode::Write, &name()).await.unwrap();
    assert_eq!(told(), (false, 0));
    redis.release(Mode::Write, &name(), &id(1), Some(&next())).await.unwrap();
    assert_eq!(told(), (true, 0));
}

#[tokio::test]
async fn grant_to_the_next_waiter_passes_the_lock_on() {
    let (redis, _fake) = connect(Redis::builder(), &["*1\r\n:7\r\n"]).await;
    let granted = redis.release(Mode::Fair, &name(), &id(1), Some(&next())).await.unwrap();
    assert_eq!(granted, ReleaseOutcome::GrantedToNext { last_token: 7 });
    assert!(redis.hand_off_stats.last_time(&name()));
}

#[tokio::test]
async fn acquisition_waits_for_replicas_and_a_refusal_needs_none() {
    let not_replicated = Err(ErrorKind::NotReplicated);
    for (reply, replicas, wanted) in [
        (ACQUIRED, ":2\r\n", Ok(AcquireOutcome::Acquired { last_token: 0 })),
        (ACQUIRED, YES, not_replicated),
        (ACQUIRED, REFUSED, not_replicated),
        (":5\r\n", NO, Ok(AcquireOutcome::Held { left: Duration::from_millis(5) })),
    ] {
        let builder = Redis::builder().wait_for_replicas(2, Duration::from_millis(10));
        let (redis, fake) = connect(builder, &[reply, replicas]).await;
        let outcome = acquire(&redis, Mode::Fair).await.map_err(|error| error.kind());
        assert_eq!(outcome, wanted, "{reply} {replicas}");
        assert_eq!(fake.count("WAIT 2 10"), 1);
        assert!(!redis.grants_suffice(), "expected grants not to suffice, as they wait for no replica");
    }
    // WAIT with 0 would block for ever.
    let builder = Redis::builder().wait_for_replicas(2, Duration::from_micros(1));
    let (redis, fake) = connect(builder, &[ACQUIRED, ":2\r\n"]).await;
    acquire(&redis, Mode::Fair).await.unwrap();
    assert_eq!(fake.count("WAIT 2 1"), 1);
    let (redis, _fake) = connect(Redis::builder(), &[YES]).await;
    assert!(redis.grants_suffice());
    let builder = Redis::builder().wait_for_replicas(1, Duration::from_millis(10));
    let error = builder.connect("redis-cluster://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Url);
}

#[tokio::test]
async fn attempt_that_was_answered_and_sent_once_does_not_come_late() {
    let replicas = Redis::builder().wait_for_replicas(1, Duration::from_millis(10));
    for builder in [Redis::builder(), replicas] {
        let (redis, _fake) = connect(builder.clone(), &[YES]).await;
        acquire(&redis, Mode::Fair).await.unwrap();
        assert!(!redis.may_run_again(&id(1)));
        for answer in [YES, NO, ":5\r\n"] {
            let (redis, _fake) = connect(builder.clone(), &[LOST, answer]).await;
            let _ = acquire(&redis, Mode::Fair).await;
            assert_eq!([id(2), id(1), id(1)].map(|id| redis.may_run_again(&id)), [false, true, false]);
        }
    }
}

/// The server does not reveal the connections' ids, so no connection is ended.
#[tokio::test]
async fn attempt_that_may_come_late_is_undone_after_its_rollback() {
    let undone = async |mode| {
        let (redis, fake) = connect(Redis::builder(), &[LOST, ACQUIRED, YES]).await;
        acquire(&redis, mode).await.unwrap();
        redis.roll_back(mode, &name(), &id(1)).await.unwrap();
        fake.until("EVALSHA", 4).await;
        let calls = fake.heard("EVALSHA");
        assert!(calls[0] == calls[1] && calls[2] == calls[3], "{mode:?}: {calls:?}");
    };
    tokio::join!(undone(Mode::Plain), undone(Mode::Fair), undone(Mode::Write), undone(Mode::Read));
}

#[tokio::test]
async fn failed_release_is_over_only_if_another_key_replaced_it() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    const ENDED: &str = "*1\r\n:0\r\n";
    const HELD: &str = "*1\r\n:1\r\n";
    for (met, lease, wanted) in [
        (WRONG, ENDED, Ok(ReleaseOutcome::NotHeld)),
        (WRONG, HELD, Err(ErrorKind::Refused)),
        (REFUSED, ENDED, Err(ErrorKind::Refused)),
    ] {
        let (redis, _fake) = connect(Redis::builder(), &[met, lease]).await;
        let outcome = release(&redis, Mode::Plain).await.map_err(|error| error.kind());
        assert_eq!(outcome, wanted, "{met} {lease}");
    }
}

#[tokio::test]
async fn leases_that_are_with_two_nodes_are_renewed_apart() {
    const HELD: &str = "*1\r\n:1\r\n";
    const ENDED: &str = "*1\r\n:0\r\n";
    let (one, two) = ([lease(1)], [lease(1), lease(2)]);
    for (leases, answers, wanted) in [
        (&two[..], &[TWO_NODES, TWO_NODES, HELD, ENDED][..], Ok(vec![true, false])),
        (&one, &[TWO_NODES, TWO_NODES, HELD], Ok(vec![true])),
        (&two, &[REFUSED, HELD], Err(ErrorKind::Refused)),
        (&two, &[TWO_NODES, HELD, REFUSED], Err(ErrorKind::Refused)),
    ] {
        let (redis, fake) = connect(Redis::builder(), answers).await;
        let renewed = redis.renew(Mode::Plain, leases, LEASE).await.map_err(|error| error.kind());
        assert_eq!(renewed, wanted, "{answers:?}");
        let sent = if answers[0] == REFUSED { 1 } else { answers.len() };
        assert_eq!(fake.count("EVALSHA"), sent, "{answers:?}");
    }
}

#[tokio::test]
async fn renewal_leaves_time_for_a_retry_and_takes_one_command_limit() {
    let fails_within = async |response, lasts, limit| {
        let (redis, _fake) = connect(Redis::builder().response_timeout(response), &[SILENCE]).await;
        let begun = Instant::now();
        let renewal = timeout(EVENT_LIMIT, redis.renew(Mode::Plain, &[lease(1)], lasts)).await;
        renewal.expect("it has a limit").unwrap_err();
        assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
    };
    let [tenth, short, second] = [100, 1500, 3000].map(Duration::from_millis);
    tokio::join!(fails_within(NEVER, short, second), fails_within(tenth, NEVER, second));
}

#[tokio::test]
async fn lease_query_and_renewal_of_a_short_lease_get_time_to_answer() {
    for lasts in [1, 300].map(Duration::from_millis) {
        let (redis, _fake) = connect(Redis::builder(), &[SILENCE]).await;
        let begun = Instant::now();
        redis.renew(Mode::Plain, &[lease(1)], lasts).await.unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(400), "{lasts:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn holders_are_asked_for_page_by_page() {
    const FIRST: &str = "*4\r\n_\r\n$1\r\n7\r\n*1\r\n*2\r\n$3\r\none\r\n:5\r\n_\r\n";
    const LAST: &str = "*4\r\n_\r\n$1\r\n0\r\n*1\r\n*2\r\n$3\r\ntwo\r\n:6\r\n_\r\n";
    let (redis, fake) = connect(Redis::builder(), &[FIRST, LAST]).await;
    assert_eq!(redis.holders(Mode::Read, &name()).await.unwrap().len(), 2);
    let asked = fake.heard("EVALSHA");
    assert!(asked.len() == 2 && asked[0].ends_with(" 0") && asked[1].ends_with(" 7"), "{asked:?}");
}

/// A Cluster of two nodes: the lower half of the slots, and half of the rest.
async fn cluster(builder: RedisBuilder) -> (Redis, [Fake; 2]) {
    let mut nodes = [Fake::silent().await, Fake::silent().await];
    let slots = layout(&[(0, 8191, &[nodes[0].port]), (8192, 12_287, &[nodes[1].port])]);
    for node in &mut nodes {
        let slots = slots.clone();
        node.answer(alive(
            move |command| {
                if command == "CLUSTER SLOTS" { slots.clone() } else { ACQUIRED.to_owned() }
            },
        ));
    }
    let url = format!("redis-cluster://127.0.0.1:{}", nodes[0].port);
    (builder.heartbeat(NEVER).connect(&url).await.unwrap(), nodes)
}

#[tokio::test]
async fn cluster_locks_are_renewed_per_node_and_names_have_a_slot() {
    let (redis, _nodes) = cluster(Redis::builder()).await;
    let group_of = |slots: Range<u16>| {
        let names = (0..).map(|number| LockName::new(&format!("name:{number}")).unwrap());
        let has = |name: &LockName| slots.contains(&redis.router.topology().slot(name.as_str()));
        let groups = names.filter(has).take(2).map(|name| redis.renewal_group(&name));
        groups.collect::<HashSet<_>>()
    };
    // No node has the last range.
    let groups = [group_of(0..8192), group_of(8192..12_288), group_of(12_288..16_384)];
    assert!(groups.iter().all(|group| group.len() == 1), "{groups:?}");
    assert_eq!(groups.iter().flatten().collect::<HashSet<_>>().len(), 3, "{groups:?}");
    assert!(redis.check_name(&LockName::new("{}orders").unwrap()).is_err());
    assert!(redis.check_name(&name()).is_ok());
}

/// The publishing command, and `1` if the node knows all listeners.
#[tokio::test]
async fn scripts_publish_in_the_kind_that_is_wanted() {
    for (sharded, wanted) in [(ShardedMessages::On, "spublish 1"), (ShardedMessages::Off, "publish 0")] {
        let (redis, nodes) = cluster(Redis::builder().sharded_messages(sharded)).await;
        release(&redis, Mode::Fair).await.unwrap();
        let heard = nodes.each_ref().map(|node| node.heard("EVALSHA")).concat();
        assert!(heard[0].contains(&format!(" {wanted} ")), "{sharded:?}: {heard:?}");
    }
    let (redis, fake) = connect(Redis::builder(), &[YES]).await;
    release(&redis, Mode::Fair).await.unwrap();
    assert!(fake.heard("EVALSHA")[0].contains(" publish 1 "));
}

#[test]
fn lease_ends_at_the_server_no_earlier_than_here() {
    for (lease, expected) in [
        (Duration::from_nanos(1), 1),
        (Duration::from_millis(1), 1),
        (Duration::from_micros(1_001), 2),
        (Duration::from_secs(30), 30_000),
        (Duration::MAX, u64::MAX),
    ] {
        assert_eq!(millis(lease), expected, "{lease:?}");
    }
}

/// A rollback must not overtake its attempt, which may be queued behind others.
#[tokio::test]
async fn rollback_uses_the_connection_of_attempts_unlike_a_release() {
    for mode in [Mode::Plain, Mode::Fair, Mode::Write, Mode::Read] {
        let builder = Redis::builder().wait_for_replicas(1, Duration::from_millis(10));
        let (redis, fake) = connect(builder, &[YES]).await;
        // Commands and subscriptions are connected. Attempts connect at the first attempt.
        fake.until("HELLO", 2).await;
        release(&redis, mode).await.unwrap();
        assert_eq!(fake.count("HELLO"), 2, "{mode:?}");
        redis.roll_back(mode, &name(), &id(1)).await.unwrap();
        assert_eq!(fake.count("HELLO"), 3, "{mode:?}");
        acquire(&redis, mode).await.unwrap();
        assert_eq!(fake.count("HELLO"), 3, "{mode:?}");
    }
}

#[tokio::test]
async fn connections_and_channels_use_the_builders_times() {
    let builder = Redis::builder().linger(NEVER).heartbeat(NEVER).keepalive(NEVER);
    let (redis, _fake) = connect(builder, &[YES]).await;
    let Timing { linger, heartbeat, keepalive, .. } = redis.common.timing;
    assert_eq!([linger, heartbeat, keepalive], [NEVER; 3]);
}
