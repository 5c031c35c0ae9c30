//! One attempt to take a lock, which leaves nothing behind when it is abandoned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::Runtime;

use super::backend::{Backend, HoldKey, Released, Tried};
use super::client::{Lock, Shared};
use super::error::LockError;
use super::finished::finished;
use super::guard::Guard;
use super::hold::Hold;
use super::holds::Turn;
use super::lease::{Lease, LeaseError};
use super::owner::Owner;
use super::supervised::supervised;
use super::tenure::Tenure;
use super::until::until;

/// Who wants the lock, and for how long: the same for every attempt of one acquisition.
#[derive(Clone)]
pub(super) struct Claim {
    owner: Owner,
    /// The owner is the caller's, and not one of this acquisition's own.
    explicit: bool,
    lease: Duration,
    watched: bool,
    fenced: bool,
}

/// How an attempt ended.
pub(super) enum Attempt<B: Backend> {
    Acquired(Guard<B>),
    /// Another owner has it, for this long if nobody renews it.
    Held(Duration),
    /// The time was over before the answer came.
    OutOfTime,
}

impl Claim {
    pub(super) fn new<B: Backend>(lock: &Lock<B>, lease: Lease) -> Result<Self, LeaseError> {
        let (lease, watched) = match lease {
            Lease::Watched => (lock.shared.client.watched_lease(), true),
            Lease::For(lease) => (Lease::check(lease)?, false),
        };
        Ok(Self {
            owner: lock.acquiring_owner(),
            explicit: lock.owner.is_some(),
            lease,
            watched,
            fenced: lock.fenced,
        })
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Whether the owner can have the lock already, by another acquisition.
    pub(super) fn may_be_inside(&self) -> bool {
        self.explicit
    }

    /// Asks the backend once. `give_up`: when to stop waiting for its answer.
    pub(super) async fn attempt<B: Backend>(
        &self,
        shared: &Arc<Shared<B>>,
        give_up: Option<Instant>,
    ) -> Result<Attempt<B>, LockError> {
        let runtime = shared.client.backend.runtime();
        let ask = Box::pin(self.clone().ask(Arc::clone(shared)));
        // An attempt that nobody waits for any more ends in a guard that is dropped, and so gives back what it took.
        let answer = match self.explicit {
            true => until(runtime, give_up, supervised(runtime, ask)).await,
            // Nobody else has this owner, and so nobody waits for its turn.
            false => until(runtime, give_up, finished(runtime, ask)).await.map(Ok),
        };
        let attempt = match answer {
            Some(Ok(answer)) => answer.map_err(LockError::backend)?,
            Some(Err(ended)) => return Err(LockError::backend(ended)),
            None => Attempt::OutOfTime,
        };
        if let Attempt::Acquired(_) = attempt {
            shared.counters.acquisitions.add_one();
        }
        Ok(attempt)
    }

    async fn ask<B: Backend>(self, shared: Arc<Shared<B>>) -> Result<Attempt<B>, B::Error> {
        let turn = self.owner.turn(&shared.name).await;
        // All of an owner's holds are one acquisition to the outside, and have one token and one tenure.
        let mut known = turn.token().filter(|_| self.fenced);
        let mut tenure = turn.tenure();
        let (mut sent, mut tried) = self.send(&shared, turn.holds() + 1, known, tenure).await;
        if let Ok(Tried::Lost) = tried {
            turn.lose_all();
            (known, tenure) = (None, None);
            (sent, tried) = self.send(&shared, 1, None, None).await;
        }
        match tried {
            Ok(Tried::Acquired { token }) => {
                let key = HoldKey { name: shared.name.clone(), owner: self.owner };
                let tenure = tenure.unwrap_or_else(|| Tenure::new(sent.at, shared.client.max_hold));
                let (token, deadline) = (known.or(token), sent.at.checked_add(sent.lease));
                let recorder = Arc::clone(&shared.client.recorder);
                let hold = Arc::new(Hold::new(key, token, deadline, tenure, recorder));
                turn.add(&hold);
                Ok(Attempt::Acquired(Guard::new(shared, hold, self.watched)))
            }
            Ok(Tried::Held { left }) => {
                event!(
                    TRACE,
                    lock = shared.name.as_str(),
                    owner = self.owner.as_str(),
                    ?left,
                    "held by another"
                );
                // Somebody else has it, so whatever this owner had is over.
                turn.lose_all();
                Ok(Attempt::Held(left))
            }
            // A first hold has none before it that could be lost. Should a backend say so, the loop looks again.
            Ok(Tried::Lost) => Ok(Attempt::Held(Duration::ZERO)),
            Err(error) => {
                if shared.client.backend.may_have_run(&error) {
                    let client = Arc::clone(&shared.client);
                    client.backend.runtime().spawn(undo(shared, self.owner, turn));
                }
                Err(error)
            }
        }
    }

    /// The answer, and what it was the answer to.
    async fn send<B: Backend>(
        &self,
        shared: &Shared<B>,
        holds: u64,
        known: Option<u64>,
        tenure: Option<Tenure>,
    ) -> (Sent, Result<Tried, B::Error>) {
        let backend = &shared.client.backend;
        let at = backend.runtime().now();
        let lease = match tenure.filter(|_| self.watched) {
            Some(tenure) => tenure.cut(at, self.lease).max(Lease::MIN),
            None => self.lease,
        };
        let mint = self.fenced && known.is_none();
        let answer = backend.try_acquire(&shared.name, &self.owner, holds, lease, mint).await;
        (Sent { at, lease }, answer)
    }
}

/// A command that is to begin a lease.
struct Sent {
    /// Before it was sent: the store counts the lease from later, so a deadline counted from it is never the later one.
    at: Instant,
    lease: Duration,
}

/// Makes the store agree with us again after an attempt whose answer was lost. It still is the attempt's turn, so no other change
/// of this owner's can come in between. If it fails, the owner's next command states the right number, or the lease ends it.
pub(super) async fn undo<B: Backend>(shared: Arc<Shared<B>>, owner: Owner, turn: Turn) {
    if let Ok(Released::NotHeld) = shared.client.backend.take_back(&shared.name, &owner, turn.holds()).await {
        turn.lose_all();
    }
}
