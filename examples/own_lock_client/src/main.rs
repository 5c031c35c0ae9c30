//! A lock client of one's own, over `LockEntry`: for a store, or a way of waiting, that the crate's own
//! client does not fit.
//!
//! ```sh
//! cargo run -p own_lock_client
//! ```
//!
//! The store here is a map of leases that threads share, as if each thread were a process; a channel carries
//! its messages. The client keeps one `LockEntry` for its one name. The queue head asks the store, all others
//! wait in memory. Nothing of it is async but the waiting, and any executor will do.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use latchwork::lock_entry::{
    Answer, AttemptOutcome, Effects, EnterOutcome, Grant, HeadTicket, LeaveOutcome, LockEntry, Moment,
    PendingRelease, Policy, Request, Rules, WaitOutcome,
};

const LEASE: Duration = Duration::from_secs(30);
const CLIENTS: u64 = 3;
const TASKS: u64 = 4;
const TURNS: u64 = 200;

fn now() -> Moment {
    Instant::now().into()
}

/// What a server would keep: which lease is on the lock, by the client's number and the lease's.
#[derive(Default)]
struct Store {
    lease: Mutex<Option<(u64, u64, Instant)>>,
    clients: Mutex<Vec<Arc<Client>>>,
}

impl Store {
    /// Leases the lock, if it is free or leased to the same.
    fn try_acquire(&self, client: u64, number: u64) -> Result<(), Duration> {
        let (mut lease, now) = (self.lease.lock().unwrap(), Instant::now());
        match *lease {
            Some((other, its, until)) if (other, its) != (client, number) && until > now => Err(until - now),
            _ => {
                *lease = Some((client, number, now + LEASE));
                Ok(())
            }
        }
    }

    /// Frees it, and tells one waiter of each client.
    fn release(&self, client: u64, number: u64) -> usize {
        {
            let mut lease = self.lease.lock().unwrap();
            if lease.is_none_or(|(other, its, _)| (other, its) != (client, number)) {
                return 0;
            }
            *lease = None;
        }
        let clients = self.clients.lock().unwrap().clone();
        clients.iter().for_each(|client| client.entry.latch().release(1));
        clients.len() - 1
    }
}

/// One process.
struct Client {
    id: u64,
    store: Arc<Store>,
    entry: LockEntry,
    next: AtomicU64,
}

impl Client {
    async fn lock(&self, owner: u64) -> Grant {
        let request = Request::new(owner);
        loop {
            let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
            let entered = self.event(|entry, effects| entry.enter(&request, Some(waker), now(), effects));
            let head = match entered {
                EnterOutcome::Reentered(grant, _) => return grant,
                EnterOutcome::Head(head) => head,
                EnterOutcome::Queued(ticket) => {
                    let told = poll_fn(|context| {
                        let waker = context.waker();
                        let told = self.event(|entry, effects| entry.poll(&ticket, waker, now(), effects));
                        told.map_or(Poll::Pending, Poll::Ready)
                    });
                    match told.await {
                        WaitOutcome::Granted(grant, _) => return grant,
                        WaitOutcome::Head(head) => head,
                        WaitOutcome::Superseded | WaitOutcome::Busy | WaitOutcome::Closed => continue,
                    }
                }
                EnterOutcome::Busy | EnterOutcome::Closed => {
                    unreachable!("it may wait, and the entry is not closed")
                }
            };
            if let Some(grant) = self.compete(&head).await {
                return grant;
            }
        }
    }

    /// As the queue head: the only one of this client that talks to the store.
    async fn compete(&self, head: &HeadTicket) -> Option<Grant> {
        tokio::time::sleep(head.back_off()).await;
        loop {
            // Ordering: Relaxed, only the number's being used once matters.
            let fresh = self.next.fetch_add(1, Ordering::Relaxed);
            let attempt = self.entry.attempt(head, fresh, now(), LEASE)?;
            let held = self.store.try_acquire(self.id, attempt.number()).err();
            let answer = match held {
                None => Answer::Granted { last_token: 0 },
                Some(_) => Answer::Held { kept: None },
            };
            match self.event(|entry, effects| entry.answered(head, attempt, answer, now(), effects)) {
                AttemptOutcome::Granted(grant) => return Some(grant),
                AttemptOutcome::Superseded => return None,
                AttemptOutcome::TooLate | AttemptOutcome::Refused => {}
            }
            // Until a message comes, or the lease is over.
            if let Some(left) = held
                && let Some(call) = self.entry.latch().wait_unless(tokio::time::sleep(left)).await
            {
                call.consume();
            }
        }
    }

    fn unlock(&self, grant: Grant) {
        match self.event(|entry, effects| entry.leave(grant, now(), effects)) {
            LeaveOutcome::Remains | LeaveOutcome::Passed => {}
            LeaveOutcome::Return(pending_release) => self.pending_release(pending_release),
            LeaveOutcome::Lost(reason) => panic!("it is not taken away: {reason}"),
            LeaveOutcome::NotHeld => unreachable!("only said of an owner's name"),
        }
    }

    /// A real store would be asked by a task of its own, again and again until it answers.
    fn pending_release(&self, pending_release: PendingRelease) {
        let heard = self.store.release(self.id, pending_release.number);
        self.event(|entry, effects| entry.returned(heard, now(), effects));
    }

    /// Runs an event, and does what it leaves to be done. A client that renews leases also calls `tick` when
    /// `look_at` says so.
    fn event<T>(&self, event: impl FnOnce(&LockEntry, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let outcome = event(&self.entry, &mut effects);
        for pending_release in [effects.pending_release(), effects.roll_back()].into_iter().flatten() {
            self.pending_release(pending_release);
        }
        if effects.calls() {
            self.entry.latch().release_all();
        }
        outcome
    }
}

#[tokio::main]
async fn main() {
    let store = Arc::new(Store::default());
    let number = Arc::new(AtomicU64::new(0));
    for id in 0..CLIENTS {
        let entry = LockEntry::new(Rules {
            policy: Policy::Exclusive { tenure: Duration::from_millis(2) },
            ..Rules::default()
        });
        let client = Client { id, store: Arc::clone(&store), entry, next: AtomicU64::new(1) };
        store.clients.lock().unwrap().push(Arc::new(client));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for client in store.clients.lock().unwrap().clone() {
        for task in 0..TASKS {
            let (client, number) = (Arc::clone(&client), Arc::clone(&number));
            tasks.spawn(async move {
                for turn in 0..TURNS {
                    // An owner for each turn: none is inside twice.
                    let grant = client.lock(task * TURNS + turn).await;
                    // Ordering: Relaxed, because only the lock may be what keeps the number right.
                    let read = number.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    // Ordering: Relaxed, as above.
                    number.store(read + 1, Ordering::Relaxed);
                    client.unlock(grant);
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // Ordering: Relaxed, the tasks have ended.
    let counted = number.load(Ordering::Relaxed);
    println!("{CLIENTS} clients of {TASKS} tasks added 1 {TURNS} times each: {counted}");
    assert_eq!(counted, CLIENTS * TASKS * TURNS, "two were inside at once");
}
