//! Acquiring: in memory if this client has the lock, as the queue head at the store otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lock_entry::{Entered, Extension, Grant, HeadTicket, Request, Ticket, Told};

use super::backend::Backend;
use super::entry::Entry;
use super::error::LockError;
use super::guard::Guard;
use super::head::{Competed, Head};
use super::lease::Lease;
use super::owner::Owner;
use super::until::until;
use super::waiter::Waiter;

/// Whoever waits for less long than that cannot wait until the keeper verifies the lease anyway.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// What is asked for by one call.
pub(super) struct Acquisition<'a, B: Backend> {
    pub(super) entry: &'a Arc<Entry<B>>,
    /// `None`: an owner of its own.
    pub(super) owner: Option<Owner>,
    pub(super) lease: Lease,
    pub(super) fenced: bool,
    /// `None`: without a limit.
    pub(super) wait: Option<Duration>,
}

/// Where an acquisition stands.
enum Stage {
    /// Nowhere yet, or anywhere no more.
    Entering,
    Queued(Request, Ticket),
    Competing(Request, HeadTicket, Instant),
}

/// How a stage ends.
enum Step<B: Backend> {
    Next(Stage),
    Granted(Guard<B>, Option<Extension>),
    /// The time to wait is over, and another acquisition has the lock.
    Held,
    /// The time to wait is over, and it is not known whether anybody has it.
    Unanswered,
}

impl<B: Backend> Acquisition<'_, B> {
    /// Takes the lock. `None` when the time to wait is over.
    pub(super) async fn run(&self) -> Result<Option<Guard<B>>, LockError> {
        let context = &self.entry.context;
        context.check()?;
        if let Lease::For(lease) = self.lease {
            Lease::check(lease)?;
        }
        let begun = self.entry.now();
        // A wait that ends further away than the clock can say has no end.
        let give_up = self.wait.and_then(|wait| begun.checked_add(wait));
        let step = match self.enter(begun)? {
            Step::Next(Stage::Queued(request, ticket)) => self.wait_queued(request, ticket, give_up).await?,
            Step::Next(Stage::Competing(request, head, now)) => {
                // Who has a limit waits as long as that for a store that is gone. Who has none is told so, unless it has waited before.
                self.compete(request, head, now, give_up, self.wait.is_some()).await?
            }
            step => step,
        };
        // Most are done by then. The others take no room in the futures of these.
        let step = match step {
            Step::Next(stage) => Box::pin(self.go_on(stage, give_up)).await?,
            step => step,
        };
        let outcome = match step {
            Step::Granted(guard, None) => Some(guard),
            Step::Granted(guard, Some(extension)) => Some(Box::pin(guard.extended_by(extension)).await?),
            Step::Held | Step::Next(_) => None,
            Step::Unanswered => {
                let wait = self.wait.unwrap_or_default();
                return Err(LockError::NoAnswer { name: self.entry.name.clone(), wait });
            }
        };
        match outcome {
            Some(guard) => {
                self.entry.counters.acquisitions.add_one();
                context.recorder.waits.add(guard.since().saturating_duration_since(begun));
                Ok(Some(guard))
            }
            None => {
                context.recorder.given_up.add_one();
                Ok(None)
            }
        }
    }

    /// The stages after the first one, until it has the lock or the time is over.
    async fn go_on(&self, mut stage: Stage, give_up: Option<Instant>) -> Result<Step<B>, LockError> {
        loop {
            let step = match stage {
                Stage::Entering => self.enter(self.entry.now())?,
                Stage::Queued(request, ticket) => self.wait_queued(request, ticket, give_up).await?,
                Stage::Competing(request, head, now) => {
                    self.compete(request, head, now, give_up, true).await?
                }
            };
            match step {
                Step::Next(next) => stage = next,
                step => return Ok(step),
            }
        }
    }

    fn may_wait(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }

    /// A request, by a fresh owner if it is to have one of its own.
    fn request(&self) -> Request {
        let request = match self.owner {
            Some(owner) => Request::new(owner.number()).shared_owner(),
            None => Request::new(self.entry.context.number()),
        };
        let request = match self.lease {
            Lease::Watched => request,
            Lease::For(lease) => request.lease(lease),
        };
        if self.fenced { request.fenced() } else { request }
    }

    fn enter(&self, now: Instant) -> Result<Step<B>, LockError> {
        let (entry, request) = (self.entry, self.request());
        let (entered, actions) = entry.state.enter(&request, self.may_wait(), now);
        entry.carry_out(actions);
        Ok(match entered {
            Entered::Reentered(grant, extension) => {
                Step::Granted(self.guard(&request, grant, now), extension)
            }
            Entered::Head(head) => Step::Next(Stage::Competing(request, head, now)),
            Entered::Queued(ticket) => Step::Next(Stage::Queued(request, ticket)),
            Entered::Busy => Step::Held,
            Entered::Closed => return Err(entry.context.closed()),
        })
    }

    async fn wait_queued(
        &self,
        request: Request,
        ticket: Ticket,
        give_up: Option<Instant>,
    ) -> Result<Step<B>, LockError> {
        let entry = self.entry;
        let waiter = Waiter::new(entry, ticket);
        if self.wait.is_some_and(|wait| wait < SHORT_WAIT) {
            entry.carry_out(entry.state.verify_soon(entry.now()));
        }
        let told = match give_up {
            None => Some(waiter.await),
            // A timer takes room, and seldom is there one.
            Some(_) => Box::pin(until(entry.context.backend.runtime(), give_up, waiter)).await,
        };
        let Some(told) = told else {
            return Ok(if entry.state.is_known_held() { Step::Held } else { Step::Unanswered });
        };
        Ok(match told {
            Told::Granted(grant, extension) => {
                Step::Granted(self.guard(&request, grant, entry.now()), extension)
            }
            Told::Head(head) => Step::Next(Stage::Competing(request, head, entry.now())),
            Told::Superseded => Step::Next(Stage::Entering),
            Told::Closed => return Err(entry.context.closed()),
        })
    }

    async fn compete(
        &self,
        request: Request,
        head: HeadTicket,
        now: Instant,
        give_up: Option<Instant>,
        patient: bool,
    ) -> Result<Step<B>, LockError> {
        // With no time to wait at all, the one question takes the round trip that it takes.
        let give_up = give_up.filter(|_| self.may_wait());
        let head = Head::new(self.entry, head, request);
        let competed = head.compete(now, self.may_wait(), patient, give_up).await?;
        Ok(match competed {
            Competed::Granted(grant, at) => Step::Granted(self.guard(&request, grant, at), None),
            Competed::Superseded => {
                self.entry.context.check()?;
                Step::Next(Stage::Entering)
            }
            Competed::Held => Step::Held,
            Competed::Unanswered => Step::Unanswered,
        })
    }

    fn guard(&self, request: &Request, grant: Grant, now: Instant) -> Guard<B> {
        let owner = self.entry.context.owner(request.owner());
        event!(
            DEBUG,
            lock = self.entry.name.as_str(),
            %owner,
            watched = grant.is_watched(),
            "acquired"
        );
        Guard::new(Arc::clone(self.entry), owner, grant, now)
    }
}
