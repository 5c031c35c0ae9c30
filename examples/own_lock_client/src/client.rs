//! The client: one `LockEntry`, for its only name.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use latchwork::lock_entry::{
    Answer, Effects, Grant, HeadTicket, LockEntry, Moment, PendingRelease, Policy, Request, Rules, Turn,
};
use tokio::sync::Notify;

use crate::store::{LEASE, Store};

fn now() -> Moment {
    Instant::now().into()
}

pub(crate) struct Client {
    id: u64,
    store: Arc<Store>,
    pub(crate) entry: LockEntry,
    next: AtomicU64,
    /// Time of the next look at the entry, and a notification that the time has changed.
    look_at: (Mutex<Moment>, Notify),
}

impl Client {
    pub(crate) fn new(id: u64, store: Arc<Store>) -> Self {
        let policy = Policy::Exclusive { tenure: Duration::from_millis(2) };
        let entry = LockEntry::new(Rules { policy, ..Rules::default() });
        Self {
            id,
            store,
            entry,
            next: AtomicU64::new(1),
            look_at: (Mutex::new(Moment::NEVER), Notify::new()),
        }
    }

    pub(crate) async fn lock(&self, owner: u64) -> Grant {
        let request = Request::new(owner);
        loop {
            let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
            let mut turn = self.event(|entry, effects| entry.enter(&request, Some(waker), now(), effects));
            if let Turn::Queued(ticket) = turn {
                let told = poll_fn(|context| {
                    let waker = context.waker();
                    let told = self.event(|entry, effects| entry.poll(&ticket, waker, now(), effects));
                    told.map_or(Poll::Pending, Poll::Ready)
                });
                turn = told.await;
            }
            let head = match turn {
                Turn::Granted(grant, _) => return grant,
                Turn::Head(head) => head,
                Turn::Superseded => continue,
                Turn::Queued(_) | Turn::Busy | Turn::Closed => {
                    unreachable!("the caller may wait, and the entry is not closed")
                }
            };
            // An unpolled head is superseded, and learns so here.
            let mut competes = pin!(self.compete(&head));
            let got = poll_fn(|context| {
                match self.event(|entry, effects| entry.poll_head(&head, context.waker(), effects)) {
                    true => competes.as_mut().poll(context),
                    false => Poll::Ready(None),
                }
            });
            if let Some(grant) = got.await {
                return grant;
            }
        }
    }

    /// Competes as the queue head: the only task of this client that talks to the store.
    async fn compete(&self, head: &HeadTicket) -> Option<Grant> {
        tokio::time::sleep(head.back_off()).await;
        loop {
            // Ordering: Relaxed, only the uniqueness of the number matters.
            let fresh = self.next.fetch_add(1, Ordering::Relaxed);
            let attempt = self.entry.attempt(head, fresh, now(), LEASE)?;
            let held = self.store.try_acquire(self.id, attempt.number()).err();
            let answer = match held {
                None => Answer::Granted { last_token: 0 },
                Some(_) => Answer::Held { kept: None },
            };
            match self.event(|entry, effects| entry.answered(head, attempt, answer, now(), effects)) {
                Some(Turn::Granted(grant, _)) => return Some(grant),
                None | Some(Turn::Head(_)) => {}
                Some(_) => return None,
            }
            // Sleeps until a message arrives, or the lease expires.
            if let Some(left) = held
                && let Ok(call) = tokio::time::timeout(left, self.entry.latch().wait()).await
            {
                call.consume();
            }
        }
    }

    pub(crate) fn unlock(&self, grant: Grant) {
        match self.event(|entry, effects| entry.leave(grant, now(), effects)) {
            Ok(None) => {}
            Ok(Some(release)) => self.release(release),
            Err(reason) => panic!("it is not taken away: {reason}"),
        }
    }

    /// With a real store, a task of its own would repeat the command until the store answers.
    fn release(&self, release: PendingRelease) {
        let heard = self.store.release(self.id, release.number);
        if release.appoints {
            self.event(|entry, effects| entry.appoint_next(heard, now(), effects));
        } else {
            self.entry.note_receivers(heard, now());
        }
    }

    /// Looks at the entry when it is due: renews the lease, or supersedes a waiter.
    pub(crate) async fn keep(&self) {
        loop {
            let at = self.look_at.0.lock().unwrap().instant();
            let due = async { tokio::time::sleep_until(at.unwrap_or_else(Instant::now).into()).await };
            tokio::select! {
                () = self.look_at.1.notified() => continue,
                () = due, if at.is_some() => {}
                () = pending(), if at.is_none() => {}
            }
            *self.look_at.0.lock().unwrap() = Moment::NEVER;
            if let Some(renewal) = self.event(|entry, effects| entry.tick(now(), effects)) {
                let (sent, held) = (now(), self.store.renew(self.id, renewal.number));
                self.event(|entry, effects| entry.renewed(renewal, Some(held), sent, now(), effects));
            }
        }
    }

    /// Runs an event, and carries out its effects.
    fn event<T>(&self, event: impl FnOnce(&LockEntry, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let outcome = event(&self.entry, &mut effects);
        effects.releases().for_each(|(release, _)| self.release(release));
        if effects.wakes_sleepers() {
            self.entry.latch().release_all();
        }
        let mut look_at = self.look_at.0.lock().unwrap();
        if effects.look_at < *look_at {
            *look_at = effects.look_at;
            self.look_at.1.notify_one();
        }
        outcome
    }
}
