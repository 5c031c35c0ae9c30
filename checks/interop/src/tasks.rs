//! A task: acquires a random lock in a random way, holds it, releases it, and writes the journal.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use fleet::clock::{nanos, now};
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LossReason, Owner};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::history::{By, Event, FaultKind, Journal, Outcome, Why, Wish, Without};
use crate::names::{BESIDE_REDISSON, CROWDED, LEASE, LONG_LEASE, LockKind, NAMES, is_fenced, lock_name};
use crate::probe::{PULSE, STALL};

/// Number of tasks that use all locks, alone or beside Redisson, whose fair queue does not know ours: a queue
/// that never empties keeps the other side out.
const TASKS: [usize; 2] = [28, 10];
/// Number of further tasks for each crowded lock.
const CROWD: [usize; 2] = [4, 0];
/// Number of tasks with a private lock.
const REGULARS: [usize; 2] = [4, 0];
/// Time in which the tasks end without faults: a wait for a dead process's lease, and for all waiters ahead.
const TO_END: Duration = Duration::from_secs(30);
/// Time for the commands still in flight then.
const TO_BE_QUIET: Duration = Duration::from_secs(5);

struct Shared {
    client: LockClient,
    journal: Journal,
    names: Vec<u32>,
    stops: watch::Receiver<bool>,
    next: AtomicU64,
}

struct HeldLock {
    id: u64,
    guard: Guard,
}

/// Plays until `stops`, then until nothing is in flight.
pub(crate) async fn play(
    client: LockClient,
    journal: &Path,
    (seed, place): (u64, usize),
    beside_redisson: bool,
    stops: &watch::Receiver<bool>,
) {
    let (journal, mut stops) = (Journal::create(journal), stops.clone());
    let names = if beside_redisson { BESIDE_REDISSON.to_vec() } else { (0..NAMES).collect() };
    let shared = Arc::new(Shared { client, journal, names, stops: stops.clone(), next: AtomicU64::new(0) });
    tokio::spawn(Arc::clone(&shared).feel_the_pulse());
    let (mut tasks, mut rng) = (JoinSet::new(), Rng::with_seed(seed));
    let [own_way, crowd, regulars] =
        [TASKS, CROWD, REGULARS].map(|count| count[usize::from(beside_redisson)]);
    for task in 0..own_way + CROWDED.len() * crowd {
        let (shared, rng) = (Arc::clone(&shared), rng.fork());
        if let Some(number) = task.checked_sub(own_way) {
            let name = CROWDED[number % CROWDED.len()];
            // A task of each process writes where the others read. If all alternated, no reader would be
            // left.
            let reads = LockKind::of(name) == LockKind::ReadWrite && number >= CROWDED.len();
            tasks.spawn(shared.crowd(name, reads, rng));
        } else {
            let own = (task < regulars).then(|| NAMES + (place * regulars + task) as u32);
            tasks.spawn(shared.play(own, rng));
        }
    }
    let _ = stops.wait_for(|stops| *stops).await;
    if timeout(TO_END, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
        // The journal tells the acquisitions.
        shared.journal.tell(Event::Stuck { what: format!("{} tasks of {:?}", tasks.len(), shared.client) });
    }
    // Dropped guards and abandoned acquisitions are still in flight.
    let since = Instant::now();
    loop {
        let stats = shared.client.registry().stats();
        let subscriptions =
            stats.subscriptions_begun - stats.subscriptions_ended - stats.subscriptions_failed;
        let (entries, interest) = (stats.entries, stats.interest);
        if (entries, interest, subscriptions) == (0, 0, 0) || since.elapsed() > TO_BE_QUIET {
            return shared.journal.tell(Event::Quiet { entries, interest, subscriptions });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

impl Shared {
    /// Records stalls of the runtime, because the machine is busy or the process was stopped.
    async fn feel_the_pulse(self: Arc<Self>) {
        loop {
            let before = now();
            sleep(PULSE).await;
            if now() - before > nanos(PULSE + STALL) {
                self.journal.tell(Event::Fault { kind: FaultKind::Stalled, member: None, since: before });
            }
        }
    }

    /// Plays with random locks, or with its `own` lock alone and always by the same owner, so that leftovers
    /// of the last hold in flight can meet the next one.
    async fn play(self: Arc<Self>, own: Option<u32>, mut rng: Rng) {
        let odd: Vec<u32> = self.names.iter().copied().filter(|name| name % 2 == 1).collect();
        let (me, home) =
            (self.client.owner(), own.unwrap_or_else(|| *rng.choice(&odd).expect("some are odd")));
        // True after a release of unknown outcome, which may take effect during this task's next hold.
        let mut unknown = false;
        while !*self.stops.borrow() {
            sleep(millis(&mut rng, 0, 30)).await;
            let again = own.is_some() || unknown || rng.u8(..100) < 10;
            let name = if again { home } else { *rng.choice(&self.names).expect("there are some") };
            // On odd names some acquisitions bypass the queue, like a returning owner's. On even names all
            // queue: no bypass can hide a lost wake-up of the first waiter.
            if again {
                unknown = self.enter_again(name, &me, unknown, &mut rng).await;
            } else {
                let wish = wish(name, name % 2 == 1, &mut rng);
                let lock = self.lock(name, &wish);
                if let Some(held) = self.take(name, &lock, wish, &mut rng).await {
                    self.hold(&held, hold_time(&mut rng)).await;
                    self.give_back(held, &lock, &mut rng).await;
                }
            }
        }
    }

    /// The lock of this number, of its kind, with the options of the wish.
    fn lock(&self, name: u32, wish: &Wish) -> Lock {
        let (client, text) = (&self.client, lock_name(name));
        let lock = match LockKind::of(name) {
            LockKind::Plain => client.get_lock(&text),
            LockKind::Fair => client.get_fair_lock(&text),
            LockKind::ReadWrite => client
                .get_read_write_lock(&text)
                .map(|both| if wish.reads { both.read() } else { both.write() }.clone()),
        };
        let lock = lock.expect("the name is valid");
        if wish.fenced { lock.fenced() } else { lock }
    }

    /// A task of a crowd: asks for the lock again at once.
    async fn crowd(self: Arc<Self>, name: u32, reads: bool, mut rng: Rng) {
        // Neighbours in the queue differ: a grant without a token does not suffice for a task that asks for
        // one.
        let fenced = !LockKind::of(name).queues() || rng.bool();
        while !*self.stops.borrow() {
            let wish = Wish { lease: nanos(LEASE), watched: true, fenced, reads, ..Wish::default() };
            let lock = self.lock(name, &wish);
            match self.take(name, &lock, wish, &mut rng).await {
                Some(held) => {
                    // Readers hold long enough for some of them to read at any time.
                    self.hold(&held, millis(&mut rng, 0, if reads { 20 } else { 4 })).await;
                    // Never forgotten: all waiters would wait for the lease.
                    let by = if rng.bool() { By::Unlock } else { By::Drop };
                    self.let_go(held, by).await;
                }
                // An error returns at once.
                None => sleep(millis(&mut rng, 5, 20)).await,
            }
        }
    }

    /// Nests holds of one owner, and releases them in any order: a writer that reads may read on. Returns
    /// true if the outcome of a release is unknown.
    async fn enter_again(&self, name: u32, me: &Owner, for_long: bool, rng: &mut Rng) -> bool {
        let mut inside = Vec::new();
        for _ in 0..rng.usize(1..=3) {
            let wish = Wish { explicit: true, ..wish(name, true, rng) };
            let lock = self.lock(name, &wish).owned_by(me);
            let Some(held) = self.take(name, &lock, wish, rng).await else { break };
            let longest = if for_long && inside.is_empty() { 3000 } else { 10 };
            self.hold(&held, millis(rng, 0, longest)).await;
            inside.push(held);
        }
        rng.shuffle(&mut inside);
        let mut unknown = false;
        for held in inside {
            self.hold(&held, millis(rng, 0, 10)).await;
            // Never forgotten: the hold would still be its owner's at the next acquisition.
            let by = if rng.bool() { By::Unlock } else { By::Drop };
            unknown |= self.let_go(held, by).await == Some(Outcome::Failed);
        }
        unknown
    }

    async fn take(&self, name: u32, lock: &Lock, wish: Wish, rng: &mut Rng) -> Option<HeldLock> {
        // Ordering: Relaxed, only the uniqueness of the number matters.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (length, wait) = (Duration::from_nanos(wish.lease), wish.wait.map(Duration::from_nanos));
        let (watched, unpolled) = (wish.watched, wish.unpolled);
        self.journal.tell(Event::Wants { id, name, wish });
        let wants = async {
            match wait {
                None if watched => lock.lock().await.map(Some),
                None => lock.lock_with_lease(length).await.map(Some),
                Some(wait) if watched => lock.try_lock_for(wait, Lease::Watched).await,
                Some(wait) => lock.try_lock_for(wait, Lease::For(length)).await,
            }
        };
        let drop_after = if rng.u8(..100) < 8 { millis(rng, 0, 200) } else { Duration::MAX };
        // Boxed, and dropped here: before the journal says so.
        let came = {
            let mut wants = Box::pin(wants);
            match poll_fn(|task| Poll::Ready(wants.as_mut().poll(task))).await {
                Poll::Ready(came) => Ok(came),
                Poll::Pending => {
                    if unpolled {
                        sleep(millis(rng, 0, 3000)).await;
                    }
                    timeout(drop_after, wants).await
                }
            }
        };
        let without = match came {
            Ok(Ok(Some(guard))) => {
                let (owner, token) = (guard.owner().to_string(), guard.fencing_token());
                self.journal.tell(Event::Acquired { id, owner, token });
                self.look(id, &guard);
                return Some(HeldLock { id, guard });
            }
            Ok(Ok(None)) if wait == Some(Duration::ZERO) => Without::Refused,
            Ok(Ok(None)) => Without::Late,
            Ok(Err(error)) if error.is_upgrade() => Without::Upgrade,
            Ok(Err(_)) => Without::Failed,
            Err(_) => Without::Dropped,
        };
        self.journal.tell(Event::Without { id, why: without });
        None
    }

    fn look(&self, id: u64, guard: &Guard) -> bool {
        // Read first: the lock was held at this time, and is held until `left` after it at least.
        let at = now();
        let left = guard.remaining();
        let held = guard.is_held();
        if held {
            self.journal.tell_of(at, Event::Believes { id, left: nanos(left) });
        }
        held
    }

    /// Holds the lock for a while, checking the guard all the time, or until the lock is lost.
    async fn hold(&self, held: &HeldLock, time: Duration) {
        const STEP: Duration = Duration::from_millis(10);
        let until = now() + nanos(time);
        loop {
            if !self.look(held.id, &held.guard) {
                let why = held.guard.lost().await;
                self.journal.tell(Event::Lost { id: held.id, why: reason(why) });
                return;
            }
            let left = Duration::from_nanos(until.saturating_sub(now()));
            if left.is_zero() {
                return;
            }
            sleep(left.min(STEP)).await;
        }
    }

    async fn give_back(&self, held: HeldLock, lock: &Lock, rng: &mut Rng) {
        match rng.u8(..100) {
            0 => {
                let (id, owner) = (held.id, *held.guard.owner());
                self.let_go(held, By::Forget).await;
                if rng.bool() {
                    sleep(millis(rng, 0, 20)).await;
                    self.journal.tell(Event::LetsGo { id, by: By::UnlockForgotten });
                    let outcome = outcome(&lock.unlock(&owner).await);
                    self.journal.tell(Event::LetGo { id, outcome });
                }
            }
            1..50 => _ = self.let_go(held, By::Drop).await,
            _ => _ = self.let_go(held, By::Unlock).await,
        }
    }

    async fn let_go(&self, HeldLock { id, guard }: HeldLock, by: By) -> Option<Outcome> {
        self.look(id, &guard);
        self.journal.tell(Event::LetsGo { id, by });
        match by {
            By::Unlock | By::UnlockForgotten => {
                let outcome = outcome(&guard.unlock().await);
                self.journal.tell(Event::LetGo { id, outcome });
                return Some(outcome);
            }
            By::Drop => drop(guard),
            By::Forget => guard.forget(),
        }
        None
    }
}

fn wish(name: u32, out_of_line: bool, rng: &mut Rng) -> Wish {
    let wait = match rng.u8(..100) {
        0..20 if out_of_line => Some(0),
        0..60 => None,
        _ => Some(nanos(millis(rng, 10, 1500))),
    };
    let watched = rng.u8(..100) < 65;
    let lease = match rng.u8(..100) {
        _ if watched => LEASE,
        0 => LONG_LEASE,
        _ => millis(rng, 80, 1500),
    };
    let unpolled = rng.u8(..100) < 6;
    // Most acquisitions of a read-write lock read.
    let reads = LockKind::of(name) == LockKind::ReadWrite && rng.u8(..3) > 0;
    Wish { wait, lease: nanos(lease), watched, explicit: false, fenced: is_fenced(name), unpolled, reads }
}

/// Mostly short, and now and then longer than any lease.
fn hold_time(rng: &mut Rng) -> Duration {
    match rng.u16(..1000) {
        0..4 => millis(rng, 2400, 4000),
        4..20 => millis(rng, 60, 500),
        20..300 => millis(rng, 10, 60),
        _ => millis(rng, 0, 10),
    }
}

fn millis(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_micros(rng.u64(from * 1000..=to * 1000))
}

fn reason(lost: LossReason) -> Why {
    match lost {
        LossReason::Expired => Why::Expired,
        LossReason::Gone => Why::Gone,
        LossReason::Unreachable => Why::Unreachable,
        other => panic!("a reason that the journal does not know: {other:?}"),
    }
}

fn outcome(result: &Result<(), LockError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Free,
        Err(error) if error.is_not_held() => Outcome::NotHeld,
        Err(_) => Outcome::Failed,
    }
}
