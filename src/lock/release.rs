//! Giving a hold back: to a successor, to whoever asks first, or to the owner's own outer hold.

use std::sync::Arc;

use crate::runtime::Runtime;

use super::attempt::undo;
use super::backend::{Backend, HandedOver, HoldKey, Released};
use super::client::Shared;
use super::error::LockError;
use super::hold::{Hold, Lost};
use super::holds::Turn;
use super::owner::Owner;
use super::successors::Chosen;

impl<B: Backend> Shared<B> {
    /// Gives `hold` back. It is over for us whatever the store says; if it says nothing, the owner's next command states the
    /// right number, or the lease ends it.
    pub(super) async fn release(self: &Arc<Self>, hold: &Arc<Hold>) -> Result<(), LockError> {
        let turn = hold.key.owner.turn(&self.name).await;
        let had_it = turn.take(hold);
        let successors = &self.client.successors;
        let may_go_on = had_it && turn.holds() == 0 && self.may_stay(hold);
        let chosen = may_go_on.then(|| successors.choose(&self.name)).flatten();
        // Who found it here did not ask, and so must be told: it is subscribed, or it would have asked, and nothing was sent yet.
        successors.lets_go(hold);
        match chosen {
            Some(chosen) => self.hand_over(hold, &turn, chosen).await,
            None => self.give_back(hold, had_it, &turn).await,
        }
    }

    /// As [`release`](Self::release), but hands the lock to nobody in particular. A successor who is chosen waits for what comes of
    /// it, and so must not depend on who polls this.
    pub(super) async fn release_to_all(&self, hold: &Arc<Hold>) -> Result<(), LockError> {
        let turn = hold.key.owner.turn(&self.name).await;
        let had_it = turn.take(hold);
        self.client.successors.lets_go(hold);
        self.give_back(hold, had_it, &turn).await
    }

    /// Leaves the owner what it has without `hold`.
    async fn give_back(&self, hold: &Hold, had_it: bool, turn: &Turn) -> Result<(), LockError> {
        if !had_it {
            return Err(self.lost(hold));
        }
        match self.leave(&hold.key.owner, turn, turn.holds()).await {
            Err(LockError::NotHeld { .. }) => Err(self.lost(hold)),
            outcome => outcome,
        }
    }

    /// Gives a hold of `owner` back that has no guard. It is over when the store has said so, and not before: nobody but the
    /// caller can try again. An owner without any may still have what a guard could not give back.
    pub(super) async fn release_forgotten(&self, owner: &Owner) -> Result<(), LockError> {
        let turn = owner.turn(&self.name).await;
        self.leave(owner, &turn, turn.holds().saturating_sub(1)).await?;
        turn.take_forgotten();
        Ok(())
    }

    /// Leaves `owner` so many holds.
    async fn leave(&self, owner: &Owner, turn: &Turn, left: u64) -> Result<(), LockError> {
        match self.client.backend.release(&self.name, owner, left).await {
            Ok(Released::Free | Released::StillHeld) => {
                event!(DEBUG, lock = self.name.as_str(), owner = owner.as_str(), "released");
                Ok(())
            }
            Ok(Released::NotHeld) => {
                turn.lose_all();
                Err(LockError::NotHeld { name: self.name.clone(), owner: owner.clone() })
            }
            Err(error) => Err(LockError::backend(error)),
        }
    }

    /// Whether the lock may go to one more of this client's own before the others have a chance.
    fn may_stay(&self, hold: &Hold) -> bool {
        let limit = &self.client.hand_overs;
        let here = self.client.backend.runtime().now().saturating_duration_since(hold.tenure.since);
        hold.tenure.hand_overs < limit.at_most && here < limit.within
    }

    /// Gives the lock from `hold`, its owner's last one, to the chosen one.
    async fn hand_over(
        self: &Arc<Self>,
        hold: &Hold,
        turn: &Turn,
        chosen: Chosen<B>,
    ) -> Result<(), LockError> {
        let backend = &self.client.backend;
        let (owner, claim) = (&hold.key.owner, chosen.claim().clone());
        let sent = backend.runtime().now();
        let answer = backend.hand_over(&self.name, owner, claim.owner(), claim.lease(), claim.is_fenced());
        match answer.await {
            Ok(HandedOver::Done { token }) => {
                event!(
                    DEBUG,
                    lock = self.name.as_str(),
                    owner = owner.as_str(),
                    to = claim.owner().as_str(),
                    "handed over"
                );
                self.counters.hand_overs.add_one();
                self.client.recorder.hand_overs_local.add_one();
                let key = HoldKey { name: self.name.clone(), owner: claim.owner().clone() };
                let deadline = sent.checked_add(claim.lease());
                let tenure = hold.tenure.handed_over(sent, self.client.max_hold);
                let next = Hold::new(key, token, deadline, tenure, Arc::clone(&self.client.recorder));
                chosen.give(next);
                Ok(())
            }
            Ok(HandedOver::NotHeld) => Err(self.lost(hold)),
            Ok(HandedOver::Unsupported) => {
                chosen.reopen();
                self.give_back(hold, true, turn).await
            }
            // The chosen one finds out for itself whether it has the lock: its next attempt counts once. Only, it may be gone.
            Err(error) if backend.may_have_run(&error) => {
                if let Some(turn) = chosen.refuse() {
                    backend.runtime().spawn(undo(Arc::clone(self), claim.owner().clone(), turn));
                }
                Err(LockError::backend(error))
            }
            // A server that refuses this may still let the lock go.
            Err(_did_not_run) => {
                drop(chosen);
                self.give_back(hold, true, turn).await
            }
        }
    }

    /// A hold was to be given back that was not there.
    fn lost(&self, hold: &Hold) -> LockError {
        let why = hold.lost_at(self.client.backend.runtime().now()).unwrap_or_else(|| {
            hold.lose(Lost::Gone);
            Lost::Gone
        });
        LockError::lost(&hold.key, why)
    }
}
