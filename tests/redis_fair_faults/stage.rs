//! What fair locks are on trial with: who waits, what is done under the lock, and how long anything may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use latchwork::redis::Redis;
use latchwork::{FairBackend, Guard, Lease, Lock, LockClient, LockError};
use latchwork_testkit::{ChaosProxy, RedisServer};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::by_hand::run;
use crate::day::{Day, NAME, eventually};

/// For how long a position is kept: a third of the default watchdog's timeout.
pub(crate) const LIFE: Duration = Duration::from_secs(10);

/// What a loaded machine may add to that.
pub(crate) const LITTLE: Duration = Duration::from_secs(3);

/// Who waits for less was not held up by a position that nobody has any more.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(6);

/// More than all that is done here in a row.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn within<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

pub(crate) fn lock(client: &LockClient<Redis>) -> Lock<Redis> {
    client.fair_lock(NAME).unwrap()
}

/// A client through a proxy of its own.
pub(crate) async fn proxied(server: &RedisServer) -> (ChaosProxy, LockClient<Redis>) {
    let proxy = ChaosProxy::start(server.port());
    let client = LockClient::new(Redis::connect(&proxy.url()).await.unwrap());
    (proxy, client)
}

/// Whether the one of this client that competes has a position, listens, and sleeps.
pub(crate) fn sleeps(client: &LockClient<Redis>) -> bool {
    let channel = client.backend().grant_channel(lock(client).name(), client.id());
    client.registry().join(&channel).is_some_and(|look| look.latch().waiters() > 0)
}

pub(crate) type Waiter = JoinHandle<Result<Guard<Redis>, LockError>>;

/// Begins to take the lock.
pub(crate) fn taker(client: &LockClient<Redis>) -> Waiter {
    let lock = lock(client);
    tokio::spawn(async move { lock.lock().await })
}

/// The first of its client to wait. It has a position in the queue, and sleeps.
pub(crate) async fn waiter(client: &LockClient<Redis>) -> Waiter {
    let waiter = taker(client);
    eventually("sleep", async || sleeps(client)).await;
    waiter
}

/// Who gets the lock, and gives it back.
pub(crate) async fn serve(limit: Duration, what: &str, waiter: Waiter) {
    let guard = within(limit, what, waiter).await.unwrap().unwrap();
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
}

/// How many positions the server has.
pub(crate) async fn queued(server: &RedisServer) -> usize {
    run(server, &format!("ZCARD latchwork_fair_queue:{{{NAME}}}")).await
}

pub(crate) async fn until_queued(server: &RedisServer, how_many: usize) {
    eventually("positions", async || queued(server).await == how_many).await;
}

/// Waits until the server knows that they listen. Who does not is passed over.
pub(crate) async fn until_listening(server: &RedisServer, clients: &[&LockClient<Redis>]) {
    for client in clients {
        let channel = client.backend().grant_channel(lock(client).name(), client.id());
        let channel = format!("PUBSUB NUMSUB {channel}");
        eventually("listening", async || run::<(String, usize)>(server, &channel).await.1 == 1).await;
    }
}

/// How many listen for grants, as the server has it.
pub(crate) async fn listeners(server: &RedisServer) -> usize {
    run::<Vec<String>>(server, "PUBSUB CHANNELS latchwork_grant*").await.len()
}

/// As [`Day::end`], once the positions of those that died are over.
pub(crate) async fn end(day: Day, clients: &[&LockClient<Redis>]) {
    within(LIFE + LITTLE, "the end of dead positions", async {
        while day.run::<usize>("DBSIZE").await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    day.end(clients).await;
}

/// What comes out right only if one at a time does it.
#[derive(Debug, Default)]
pub(crate) struct Work {
    inside: AtomicBool,
    done: AtomicUsize,
}

impl Work {
    pub(crate) fn done(&self) -> usize {
        // Ordering: SeqCst, nothing here is to depend on the lock's own.
        self.done.load(Ordering::SeqCst)
    }

    pub(crate) async fn work(&self) {
        // Ordering: as above.
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two hold the lock");
        let done = self.done();
        tokio::task::yield_now().await;
        // Ordering: as above.
        self.done.store(done + 1, Ordering::SeqCst);
        assert!(self.inside.swap(false, Ordering::SeqCst), "two held the lock");
    }
}

/// Tasks of several clients that take the lock again and again.
pub(crate) struct Convoy {
    tasks: Vec<JoinHandle<()>>,
    work: Arc<Work>,
    rounds: usize,
}

impl Convoy {
    pub(crate) fn start(clients: &[LockClient<Redis>], tasks: usize, rounds: usize) -> Convoy {
        Convoy::of(clients.iter().map(lock).collect(), tasks, rounds)
    }

    /// `tasks` for each lock, each of which takes it so many times.
    pub(crate) fn of(locks: Vec<Lock<Redis>>, tasks: usize, rounds: usize) -> Convoy {
        let work = Arc::new(Work::default());
        let tasks = (0..tasks)
            .flat_map(|_| &locks)
            .map(|lock| tokio::spawn(takes_turns(lock.clone(), Arc::clone(&work), rounds)))
            .collect();
        Convoy { tasks, work, rounds }
    }

    pub(crate) fn done(&self) -> usize {
        self.work.done()
    }

    /// Waits until `more` have had a turn from now on, or all.
    pub(crate) async fn goes_on(&self, more: usize) {
        let enough = (self.done() + more).min(self.tasks.len() * self.rounds);
        within(LIFE + LITTLE, "the convoy's going on", async {
            while self.done() < enough {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Waits until all are done. Nobody was held up for longer than a position lasts.
    pub(crate) async fn ends(self) {
        let all = self.tasks.len() * self.rounds;
        let (mut before, mut since) = (self.done(), Instant::now());
        // A task that has panicked is found below.
        while self.done() < all && !self.tasks.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if self.done() > before {
                (before, since) = (self.done(), Instant::now());
            }
            assert!(since.elapsed() < LIFE + LITTLE, "the convoy stands still after {before} of {all}");
        }
        for task in self.tasks {
            within(LONG, "a task's end", task).await.unwrap();
        }
        assert_eq!(self.work.done(), all);
    }
}

async fn takes_turns(lock: Lock<Redis>, work: Arc<Work>, rounds: usize) {
    for _ in 0..rounds {
        // One that may wait for a server that is gone.
        let guard = lock.try_lock_for(LONG, Lease::Watched).await.unwrap().expect("its turn");
        work.work().await;
        if let Err(error) = guard.unlock().await {
            // It is repeated in the background.
            assert!(error.is_retryable(), "{error:?}");
        }
    }
}
