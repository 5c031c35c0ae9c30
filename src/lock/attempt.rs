//! One attempt to take a lock, which leaves nothing behind when it is abandoned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::Runtime;

use super::backend::{Backend, HoldKey, Tried};
use super::client::{Lock, Shared};
use super::error::LockError;
use super::guard::Guard;
use super::hold::Hold;
use super::lease::{Lease, LeaseError};
use super::owner::Owner;
use super::unbroken::Unbroken;
use super::until::until;

/// Who wants the lock, and for how long: the same for every attempt of one acquisition.
pub(super) struct Claim {
    owner: Owner,
    /// Nobody else acquires by this owner, so undoing can only undo what this claim did.
    sole: bool,
    lease: Duration,
    watched: bool,
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
            Lease::Watched => (lock.shared.client.watchdog_timeout, true),
            Lease::For(lease) => (Lease::check(lease)?, false),
        };
        let (owner, sole) = lock.acquiring_owner();
        Ok(Self { owner, sole, lease, watched })
    }

    /// Whether the owner can have the lock already, by another acquisition.
    pub(super) fn may_be_inside(&self) -> bool {
        !self.sole
    }

    /// Asks the backend once. `give_up`: when to stop waiting for its answer.
    pub(super) async fn attempt<B: Backend>(
        &self,
        shared: &Arc<Shared<B>>,
        give_up: Option<Instant>,
    ) -> Result<Attempt<B>, LockError> {
        let runtime = shared.client.backend.runtime();
        // Before the command is sent: the store counts the lease from later, so our deadline is never the later one.
        let sent = runtime.now();
        let command = {
            let (shared, owner, lease) = (Arc::clone(shared), self.owner.clone(), self.lease);
            async move { shared.client.backend.try_acquire(&shared.name, &owner, lease).await }
        };
        let undo = {
            let (shared, owner, sole) = (Arc::clone(shared), self.owner.clone(), self.sole);
            move |tried| async move {
                let took_it = match tried {
                    Ok(Tried::Acquired) => true,
                    Ok(Tried::Held { .. }) => false,
                    Err(error) => sole && shared.client.backend.may_have_run(&error),
                };
                if took_it {
                    give_back(shared, owner).await;
                }
            }
        };
        let command = Unbroken::new(Arc::clone(&shared.client), command, undo);
        match until(runtime, give_up, command).await {
            Some(Ok(Tried::Acquired)) => {
                shared.counters.acquisitions.add_one();
                let key = HoldKey { name: shared.name.clone(), owner: self.owner.clone() };
                let hold = Hold::new(key, sent.checked_add(self.lease));
                Ok(Attempt::Acquired(Guard::new(Arc::clone(shared), hold, self.watched)))
            }
            Some(Ok(Tried::Held { left })) => Ok(Attempt::Held(left)),
            Some(Err(error)) => {
                if self.sole && shared.client.backend.may_have_run(&error) {
                    runtime.spawn(give_back(Arc::clone(shared), self.owner.clone()));
                }
                Err(LockError::backend(error))
            }
            None => Ok(Attempt::OutOfTime),
        }
    }
}

/// Nobody is left to tell how this went. If it fails, the lease ends the hold.
async fn give_back<B: Backend>(shared: Arc<Shared<B>>, owner: Owner) {
    let _ = shared.release(&owner).await;
}
