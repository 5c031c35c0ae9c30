//! Acquiring: in memory if this client has the lock, as the queue head at the store otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lock_entry::{Entered, Extension, Grant, Request, Told};

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
enum Stage<'a, B: Backend> {
    /// Nowhere yet, or anywhere no more.
    Entering,
    Queued(Request, Waiter<'a, B>),
    Competing(Head<'a, B>, Instant),
}

/// How a stage ends.
enum Step<'a, B: Backend> {
    Next(Stage<'a, B>),
    Granted(Guard<B>),
    /// The lease in hand is not enough for it.
    GrantedShort(Guard<B>, Extension),
    /// The time to wait is over, and another acquisition has the lock.
    Held,
    /// The time to wait is over, and it is not known whether anybody has it.
    Unanswered,
}

impl<'a, B: Backend> Acquisition<'a, B> {
    /// Takes the lock. `None` when the time to wait is over.
    pub(super) async fn run(self) -> Result<Option<Guard<B>>, LockError> {
        let begun = self.entry.now();
        // What the store has no part in is done here, in one piece. The rest takes no room in this future.
        let step = match self.begin(begun)? {
            Step::Next(Stage::Queued(request, waiter)) if self.wait.is_none() => {
                let (told, now) = waiter.await;
                self.told(&request, told, now)?
            }
            step => step,
        };
        match step {
            Step::Granted(guard) => {
                self.count(&guard, begun);
                Ok(Some(guard))
            }
            step => Box::pin(self.go_on(step, begun)).await,
        }
    }

    /// Gets as far as it can at once.
    fn begin(&self, now: Instant) -> Result<Step<'a, B>, LockError> {
        self.entry.context.check()?;
        if let Lease::For(lease) = self.lease {
            Lease::check(lease)?;
        }
        self.enter(now)
    }

    /// From stage to stage, until it has the lock or the time is over.
    async fn go_on(&self, mut step: Step<'a, B>, begun: Instant) -> Result<Option<Guard<B>>, LockError> {
        let context = &self.entry.context;
        // A wait that ends further away than the clock can say has no end.
        let give_up = self.wait.and_then(|wait| begun.checked_add(wait));
        // A caller with a limit waits as long as that for a store that is gone. One without is told so, unless it has waited before.
        let mut patient = self.wait.is_some();
        loop {
            step = match step {
                Step::Next(Stage::Entering) => self.enter(self.entry.now())?,
                Step::Next(Stage::Queued(request, waiter)) => {
                    self.wait_queued(request, waiter, give_up).await?
                }
                Step::Next(Stage::Competing(head, now)) => self.compete(head, now, give_up, patient).await?,
                Step::GrantedShort(guard, extension) => Step::Granted(guard.extended_by(extension).await?),
                Step::Granted(guard) => {
                    self.count(&guard, begun);
                    return Ok(Some(guard));
                }
                Step::Held => {
                    context.recorder.given_up.add_one();
                    return Ok(None);
                }
                Step::Unanswered => {
                    let wait = self.wait.unwrap_or_default();
                    return Err(LockError::NoAnswer { name: self.entry.name.clone(), wait });
                }
            };
            patient = true;
        }
    }

    fn count(&self, guard: &Guard<B>, begun: Instant) {
        self.entry.counters.acquisitions.add_one();
        self.entry.context.recorder.waits.add(guard.since().saturating_duration_since(begun));
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

    fn enter(&self, now: Instant) -> Result<Step<'a, B>, LockError> {
        let (entry, request) = (self.entry, self.request());
        let (entered, actions) = entry.state.enter(&request, self.may_wait(), now);
        entry.carry_out(actions);
        Ok(match entered {
            Entered::Head(ticket) => {
                let mut head = Head::new(entry, ticket, request);
                match head.ask_at_once(now)? {
                    Some(grant) => Step::Granted(self.guard(&request, grant, now)),
                    None => Step::Next(Stage::Competing(head, now)),
                }
            }
            Entered::Queued(ticket) => Step::Next(Stage::Queued(request, Waiter::new(entry, ticket))),
            Entered::Reentered(grant, extension) => self.granted(&request, grant, extension, now),
            Entered::Busy => Step::Held,
            Entered::Closed => return Err(entry.context.closed()),
        })
    }

    async fn wait_queued(
        &self,
        request: Request,
        waiter: Waiter<'a, B>,
        give_up: Option<Instant>,
    ) -> Result<Step<'a, B>, LockError> {
        let entry = self.entry;
        if self.wait.is_some_and(|wait| wait < SHORT_WAIT) {
            entry.carry_out(entry.state.verify_soon(entry.now()));
        }
        match until(entry.context.backend.runtime(), give_up, waiter).await {
            Some((told, now)) => self.told(&request, told, now),
            None if entry.state.is_known_held() => Ok(Step::Held),
            None => Ok(Step::Unanswered),
        }
    }

    fn told(&self, request: &Request, told: Told, now: Instant) -> Result<Step<'a, B>, LockError> {
        let entry = self.entry;
        Ok(match told {
            Told::Granted(grant, extension) => self.granted(request, grant, extension, now),
            Told::Head(ticket) => Step::Next(Stage::Competing(Head::new(entry, ticket, *request), now)),
            Told::Superseded => Step::Next(Stage::Entering),
            Told::Closed => return Err(entry.context.closed()),
        })
    }

    async fn compete(
        &self,
        head: Head<'a, B>,
        now: Instant,
        give_up: Option<Instant>,
        patient: bool,
    ) -> Result<Step<'a, B>, LockError> {
        let request = *head.request();
        // With no time to wait at all, the one question takes the round trip that it takes.
        let give_up = give_up.filter(|_| self.may_wait());
        Ok(match head.compete(now, self.may_wait(), patient, give_up).await? {
            Competed::Granted(grant, at) => Step::Granted(self.guard(&request, grant, at)),
            Competed::Superseded => {
                self.entry.context.check()?;
                Step::Next(Stage::Entering)
            }
            Competed::Held => Step::Held,
            Competed::Unanswered => Step::Unanswered,
        })
    }

    fn granted(
        &self,
        request: &Request,
        grant: Grant,
        extension: Option<Extension>,
        now: Instant,
    ) -> Step<'a, B> {
        let guard = self.guard(request, grant, now);
        match extension {
            None => Step::Granted(guard),
            Some(extension) => Step::GrantedShort(guard, extension),
        }
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
