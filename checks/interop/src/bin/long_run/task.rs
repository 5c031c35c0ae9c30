//! A task: takes a lock at random, in any of the ways there are, keeps it for a while and gives it back in
//! any of the ways there are; and tells the journal.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use latchwork::{Lease, Lock, LockClient, LockError, LossReason, Owner};
use tokio::time::{sleep, timeout};

use crate::clock::{nanos, now, seconds};
use crate::history::{By, Event, Journal, Outcome, Why, Wish, Without};
use crate::names::{LEASE, LONG_LEASE, LockKind, NAMES, is_fenced, lock_name};

type Guard = latchwork::Guard;

/// What the tasks of a process share.
pub(crate) struct Shared {
    client: LockClient,
    journal: Arc<Journal>,
    ending: Arc<AtomicBool>,
    next: AtomicU64,
}

/// Where a task is, for the case that it never gets any further.
#[derive(Debug, Default)]
pub(crate) struct Place(Mutex<Option<(u64, String)>>);

impl Place {
    fn at(&self, what: String) {
        *self.0.lock().expect("no thread panics with it") = Some((now(), what));
    }

    fn leave(&self) {
        *self.0.lock().expect("no thread panics with it") = None;
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.0.lock().expect("no thread panics with it").is_some()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0.lock().expect("no thread panics with it") {
            Some((since, what)) => write!(f, "{what}, since {:.6}", seconds(*since)),
            None => f.write_str("nothing"),
        }
    }
}

/// A guard, and the acquisition's number.
struct HeldLock {
    id: u64,
    guard: Guard,
}

impl Shared {
    pub(crate) fn new(client: LockClient, journal: Arc<Journal>, ending: Arc<AtomicBool>) -> Self {
        Self { client, journal, ending, next: AtomicU64::new(0) }
    }

    /// With a lock of its `own`, it uses no other, and always by the same owner: so that what is left of its
    /// last hold on the way can meet the next one.
    pub(crate) async fn play(self: Arc<Self>, own: Option<u32>, place: Arc<Place>, mut rng: Rng) {
        let (me, home) = (self.client.owner(), own.unwrap_or_else(|| rng.u32(..NAMES / 2) * 2 + 1));
        // A release of its own whose outcome it does not know: that may still come while it has the lock
        // anew.
        let mut unknown = false;
        // Ordering: Relaxed; nothing else is told by it.
        while !self.ending.load(Ordering::Relaxed) {
            sleep(millis(&mut rng, 0, 30)).await;
            let again = own.is_some() || unknown || rng.u8(..100) < 10;
            let name = if again { home } else { rng.u32(..NAMES) };
            // On the odd ones some go out of line, as an owner does that was there before; on the even ones
            // all stand in it, so that none hides, by coming along, that the first one was not woken.
            if again {
                unknown = self.enter_again(name, &me, unknown, &place, &mut rng).await;
            } else {
                let wish = wish(name, name % 2 == 1, &mut rng);
                let lock = self.lock(name, &wish);
                if let Some(held) = self.take(name, &lock, wish, &place, &mut rng).await {
                    self.hold(&held, hold_time(&mut rng)).await;
                    self.give_back(held, &lock, &mut rng).await;
                }
            }
            place.leave();
        }
    }

    /// The lock called so, of its kind, for that wish.
    fn lock(&self, name: u32, wish: &Wish) -> Lock {
        let (client, text) = (&self.client, lock_name(name));
        let lock = match LockKind::of(name) {
            LockKind::Plain => client.get_lock(&text),
            LockKind::Fair => client.get_fair_lock(&text),
            LockKind::ReadWrite => client
                .get_read_write_lock(&text)
                .map(|both| if wish.reads { both.read() } else { both.write() }.clone()),
        };
        let lock = lock.expect("it is a name");
        if wish.fenced { lock.fenced() } else { lock }
    }

    /// One of a crowd before that lock: comes again at once.
    pub(crate) async fn crowd(self: Arc<Self>, name: u32, reads: bool, place: Arc<Place>, mut rng: Rng) {
        // Of two neighbours where the lock is granted, one asks for a token: what it is granted unasked does
        // not suffice for it.
        let fenced = !LockKind::of(name).queues() || rng.bool();
        // Ordering: Relaxed; nothing else is told by it.
        while !self.ending.load(Ordering::Relaxed) {
            let wish = Wish {
                wait: None,
                lease: nanos(LEASE),
                watched: true,
                explicit: false,
                fenced,
                unpolled: false,
                reads,
            };
            let lock = self.lock(name, &wish);
            match self.take(name, &lock, wish, &place, &mut rng).await {
                Some(held) => {
                    // Readers for so long that some of them always do.
                    self.hold(&held, millis(&mut rng, 0, if reads { 20 } else { 4 })).await;
                    // Not forgotten: all would wait for the lease.
                    let by = if rng.bool() { By::Unlock } else { By::Drop };
                    self.let_go(held, by).await;
                }
                // An error comes at once.
                None => sleep(millis(&mut rng, 5, 20)).await,
            }
            place.leave();
        }
    }

    /// Holds inside of holds of one owner, given back in any order, so that a writer that reads may read on.
    /// Says whether the outcome of any of that is unknown.
    async fn enter_again(&self, name: u32, me: &Owner, for_long: bool, place: &Place, rng: &mut Rng) -> bool {
        let mut inside = Vec::new();
        for _ in 0..rng.usize(1..=3) {
            let wish = Wish { explicit: true, ..wish(name, true, rng) };
            let lock = self.lock(name, &wish).owned_by(me);
            let Some(held) = self.take(name, &lock, wish, place, rng).await else { break };
            let longest = if for_long && inside.is_empty() { 3000 } else { 10 };
            self.hold(&held, millis(rng, 0, longest)).await;
            inside.push(held);
        }
        rng.shuffle(&mut inside);
        let mut unknown = false;
        for held in inside {
            self.hold(&held, millis(rng, 0, 10)).await;
            // Not forgotten: it would still be its owner's when that comes again.
            let by = if rng.bool() { By::Unlock } else { By::Drop };
            unknown |= self.let_go(held, by).await == Some(Outcome::Failed);
        }
        unknown
    }

    async fn take(
        &self,
        name: u32,
        lock: &Lock,
        wish: Wish,
        place: &Place,
        rng: &mut Rng,
    ) -> Option<HeldLock> {
        // Ordering: Relaxed; only that it is used once matters.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let lease = if wish.watched { Lease::Watched } else { Lease::For(Duration::from_nanos(wish.lease)) };
        let wait = wish.wait.map(Duration::from_nanos);
        let unpolled = wish.unpolled;
        place.at(format!("acquisition {id} of lock {name}: {wish:?}"));
        self.journal.tell(Event::Wants { id, name, wish });
        let wants = async {
            match wait {
                None if lease == Lease::Watched => lock.lock().await.map(Some),
                None => lock.lock_with_lease(Duration::from_nanos(nanos_of(lease))).await.map(Some),
                Some(wait) => lock.try_lock_for(wait, lease).await,
            }
        };
        let drop_after = if rng.u8(..100) < 8 { millis(rng, 0, 200) } else { Duration::MAX };
        // Boxed, and dropped here: before the line that says so.
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
                self.acquired(id, &guard);
                place.at(format!("holds, by acquisition {id}, lock {name}"));
                return Some(HeldLock { id, guard });
            }
            Ok(Ok(None)) if wait == Some(Duration::ZERO) => Without::Refused,
            Ok(Ok(None)) => Without::Late,
            Ok(Err(error)) if error.is_upgrade() => Without::Upgrade,
            Ok(Err(_)) => Without::Failed,
            Err(_) => Without::Dropped,
        };
        self.journal.tell(Event::Without { id, why: without });
        place.leave();
        None
    }

    fn acquired(&self, id: u64, guard: &Guard) {
        let (owner, token) = (guard.owner().to_string(), guard.fencing_token());
        self.journal.tell(Event::Acquired { id, owner, token });
        self.look(id, guard);
    }

    /// Whether the guard still believes in it.
    fn look(&self, id: u64, guard: &Guard) -> bool {
        // Taken before it is asked: then, at least, it believed, and until so much later it is sure.
        let at = now();
        let left = guard.remaining();
        let held = guard.is_held();
        if held {
            self.journal.tell_of(at, Event::Believes { id, left: nanos(left) });
        }
        held
    }

    /// Keeps it for a while, looking at it all the time, or until it is lost.
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
    let unpolled = rng.u8(..100) < 3;
    let reads = may_read(name, rng);
    Wish { wait, lease: nanos(lease), watched, explicit: false, fenced: is_fenced(name), unpolled, reads }
}

/// Most do, where that is something else than to have the lock alone.
fn may_read(name: u32, rng: &mut Rng) -> bool {
    LockKind::of(name) == LockKind::ReadWrite && rng.u8(..3) > 0
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

fn nanos_of(lease: Lease) -> u64 {
    match lease {
        Lease::For(lease) => nanos(lease),
        _ => nanos(LEASE),
    }
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
