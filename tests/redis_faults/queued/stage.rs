//! The stage for locks with a queue: waiters, work under the lock, and time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use latchwork::redis::Redis;
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions};
use latchwork_testkit::{ChaosProxy, RedisServer};
use tokio::task::JoinHandle;

use super::kind::{WAITING, channels, named, sides};
use crate::by_hand::{companion, run, subscribers};
use crate::day::{Day, NAME, eventually};
pub(crate) use crate::waiting::{poll_within, within};

/// The default watchdog timeout: a dead holder keeps the lock this long.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Life of a position: a third of a lease.
pub(crate) const LIFE: Duration = Duration::from_secs(10);

/// Margin for a busy machine.
pub(crate) const LITTLE: Duration = Duration::from_secs(3);

/// A shorter wait was not held up by a position without a waiter.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(6);

/// Longer than any sequence of steps here.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn lock(client: &LockClient) -> Lock {
    named(client, NAME)
}

pub(crate) async fn proxied(server: &RedisServer) -> (ChaosProxy, LockClient) {
    proxied_for(server, LEASE).await
}

/// A client through a proxy of its own, with leases of that length.
pub(crate) async fn proxied_for(server: &RedisServer, lease: Duration) -> (ChaosProxy, LockClient) {
    let proxy = ChaosProxy::start(server.port());
    let options = LockOptions::default().watchdog_timeout(lease);
    let client = LockClient::with_options(Redis::connect(&proxy.url()).await.unwrap(), &options).unwrap();
    (proxy, client)
}

/// True if this client's queue head has a position, listens, and sleeps.
pub(crate) fn sleeps(client: &LockClient) -> bool {
    let heard = |channel: &String| client.registry().join(channel).is_some_and(|look| look.waiters() > 0);
    channels(client, NAME).iter().any(heard)
}

pub(crate) type Waiter = JoinHandle<Result<Guard, LockError>>;

#[track_caller]
pub(crate) fn assert_all_wait<T>(waiters: &[JoinHandle<T>]) {
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "expected one holder");
}

pub(crate) fn taker(client: &LockClient) -> Waiter {
    taker_of(&lock(client))
}

pub(crate) fn taker_of(lock: &Lock) -> Waiter {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// The first waiter of its client, with a position in the queue, asleep.
pub(crate) async fn waiter(client: &LockClient) -> Waiter {
    waiter_of(client, &lock(client)).await
}

pub(crate) async fn waiter_of(client: &LockClient, lock: &Lock) -> Waiter {
    let waiter = taker_of(lock);
    eventually("sleep", async || sleeps(client)).await;
    waiter
}

pub(crate) async fn serve(limit: Duration, what: &str, waiter: Waiter) {
    let guard = within(limit, what, waiter).await.unwrap().unwrap();
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
}

pub(crate) async fn now(server: &RedisServer) -> Duration {
    let (seconds, micros) = run(server, "TIME").await;
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

pub(crate) async fn queued(server: &RedisServer) -> usize {
    let mut all = 0;
    for key in WAITING {
        all += run::<usize>(server, &format!("ZCARD {}", companion(NAME, key))).await;
    }
    all
}

pub(crate) async fn until_queued(server: &RedisServer, how_many: usize) {
    eventually("positions", async || queued(server).await == how_many).await;
}

/// Waits until the server knows the clients' subscriptions. A client that does not listen is passed over.
pub(crate) async fn until_listening(server: &RedisServer, clients: &[&LockClient]) {
    for client in clients {
        let grants = channels(client, NAME).swap_remove(0);
        eventually("listening", async || subscribers(server, &grants).await == 1).await;
    }
}

/// The server's number of subscribed connections.
pub(crate) async fn listeners(server: &RedisServer) -> usize {
    run::<String>(server, "CLIENT LIST TYPE pubsub").await.lines().count()
}

/// Waits until the positions of dead waiters have expired.
pub(crate) async fn until_empty(server: &RedisServer) {
    let is_empty = async || run::<usize>(server, "DBSIZE").await == 0;
    poll_within(LIFE + LITTLE, "the end of dead positions", is_empty).await;
}

pub(crate) async fn end(day: Day, clients: &[&LockClient]) {
    until_empty(&day.server).await;
    day.end(clients).await;
}

/// A side of the lock: exclusive, or shared with other holders of the same side.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) lock: Lock,
    pub(crate) is_shared: bool,
}

/// All pairs of sides, of one client and of another, that exclude each other.
pub(crate) fn pairs(one: &LockClient, other: &LockClient) -> Vec<(Side, Side)> {
    let others = sides(other, NAME);
    let with_others = |side: Side| others.iter().map(move |theirs| (side.clone(), theirs.clone()));
    let pairs = sides(one, NAME).into_iter().flat_map(with_others);
    pairs.filter(|(one, other)| !one.is_shared || !other.is_shared).collect()
}

/// Work that detects a second holder beside an exclusive one.
#[derive(Debug, Default)]
pub(crate) struct Work {
    inside: AtomicUsize,
    done: AtomicUsize,
}

/// An exclusive holder's share in `inside`.
pub(crate) const ALONE: usize = 1 << 20;

impl Work {
    pub(crate) fn done(&self) -> usize {
        // Ordering: SeqCst, so the check does not depend on the lock's own ordering.
        self.done.load(Ordering::SeqCst)
    }

    pub(crate) async fn work(&self, is_shared: bool) {
        let (one, most_beside) = if is_shared { (1, ALONE - 1) } else { (ALONE, 0) };
        // Ordering: as above.
        assert!(
            self.inside.fetch_add(one, Ordering::SeqCst) <= most_beside,
            "a holder when the task entered"
        );
        let done = self.done();
        tokio::task::yield_now().await;
        if is_shared {
            // Ordering: as above.
            self.done.fetch_add(1, Ordering::SeqCst);
        } else {
            // Ordering: as above.
            self.done.store(done + 1, Ordering::SeqCst);
        }
        // Ordering: as above.
        assert!(
            self.inside.fetch_sub(one, Ordering::SeqCst) - one <= most_beside,
            "a holder when the task left"
        );
    }
}

/// Tasks of several clients that take the lock again and again, alternating between its sides.
pub(crate) struct Convoy {
    tasks: Vec<JoinHandle<()>>,
    work: Arc<Work>,
    rounds: usize,
}

impl Convoy {
    pub(crate) fn start(clients: &[LockClient], tasks: usize, rounds: usize) -> Convoy {
        Convoy::of(clients, NAME, tasks, rounds)
    }

    /// Starts `tasks` tasks for each client, each with `rounds` turns.
    pub(crate) fn of(clients: &[LockClient], name: &str, tasks: usize, rounds: usize) -> Convoy {
        let work = Arc::new(Work::default());
        let clients: Vec<_> = clients.iter().map(|client| sides(client, name)).collect();
        let tasks = (0..tasks)
            .flat_map(|_| &clients)
            .enumerate()
            .map(|(number, sides)| {
                // Not all tasks begin with the same side.
                let sides = sides.clone().into_iter().cycle().skip(number).take(rounds);
                tokio::spawn(takes_turns(sides, Arc::clone(&work)))
            })
            .collect();
        Convoy { tasks, work, rounds }
    }

    pub(crate) fn done(&self) -> usize {
        self.work.done()
    }

    /// Waits for `more` turns from now on, or for the last turn.
    pub(crate) async fn goes_on(&self, more: usize) {
        self.reaches((self.done() + more).min(self.tasks.len() * self.rounds)).await;
    }

    /// Asserts that no turn takes longer than a position lasts; all turns together may, on a busy machine.
    async fn reaches(&self, enough: usize) {
        let (mut before, mut since) = (self.done(), Instant::now());
        // A panicked task is found by the join at the end.
        while self.done() < enough && !self.tasks.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if self.done() > before {
                (before, since) = (self.done(), Instant::now());
            }
            assert!(since.elapsed() < LIFE + LITTLE, "still after {before} turns of {enough}");
        }
    }

    /// Waits for the end of all turns.
    pub(crate) async fn ends(self) {
        let all = self.tasks.len() * self.rounds;
        self.reaches(all).await;
        for task in self.tasks {
            within(LONG, "a task's end", task).await.unwrap();
        }
        assert_eq!(self.work.done(), all);
    }
}

async fn takes_turns(sides: impl Iterator<Item = Side>, work: Arc<Work>) {
    for Side { lock, is_shared } in sides {
        // Keeps waiting while the server is gone.
        let guard = lock.try_lock_for(LONG, Lease::Watched).await.unwrap().expect("the waiter has its turn");
        work.work(is_shared).await;
        if let Err(error) = guard.unlock().await {
            // The release is repeated in the background.
            assert!(error.is_release_pending(), "{error:?}");
        }
    }
}
