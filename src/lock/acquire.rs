//! Acquiring: in memory if this client has the lock, as the queue head at the store otherwise.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Duration;

use crate::lock_entry::{Entered, Extension, Grant, Moment, Request, Told};

use super::backend::Backend;
use super::entry::Entry;
use super::error::LockError;
use super::guard::Guard;
use super::head::{Competed, Head};
use super::lease::Lease;
use super::until::until;
use super::waiter::Waiter;

/// Whoever waits for less long than that cannot wait until the keeper verifies the lease anyway.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// What is asked for by one call.
pub(super) struct Wanted<'a, B: Backend> {
    pub(super) entry: &'a Arc<Entry<B>>,
    /// `None`: an owner of its own.
    pub(super) owner: Option<u64>,
    pub(super) lease: Lease,
    pub(super) fenced: bool,
    /// `None`: without a limit.
    pub(super) wait: Option<Duration>,
}

/// Takes the lock. `None` when the time to wait is over.
///
/// What the store has no part in, and one that answers at once, takes no room of its own. The rest is a future on the heap.
pub(super) struct Acquisition<'a, B: Backend> {
    wanted: Wanted<'a, B>,
    begun: Option<Moment>,
    at: At<'a, B>,
}

/// Where an acquisition stands, seen from outside.
enum At<'a, B: Backend> {
    Begin,
    /// Without a limit.
    Queue(Request, Waiter<'a, B>),
    Further(Pin<Box<dyn Future<Output = Acquired<B>> + Send + 'a>>),
}

type Acquired<B> = Result<Option<Guard<B>>, LockError>;

/// Where an acquisition stands.
enum Stage<'a, B: Backend> {
    /// Nowhere yet, or anywhere no more.
    Entering,
    Queued(Request, Waiter<'a, B>),
    Competing(Head<'a, B>, Moment),
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
    pub(super) fn new(wanted: Wanted<'a, B>) -> Self {
        Self { wanted, begun: None, at: At::Begin }
    }
}

impl<B: Backend> Future for Acquisition<'_, B> {
    type Output = Acquired<B>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Acquired<B>> {
        let Self { wanted, begun, at } = &mut *self;
        let begun = *begun.get_or_insert_with(|| wanted.entry.now());
        loop {
            let step = match at {
                At::Begin => wanted.begin(begun, task.waker())?,
                At::Queue(request, waiter) => {
                    let (told, now) = ready!(Pin::new(waiter).poll(task));
                    wanted.told(request, told, now)?
                }
                At::Further(future) => return future.as_mut().poll(task),
            };
            *at = match step {
                Step::Granted(guard) => {
                    wanted.count(&guard, begun);
                    return Poll::Ready(Ok(Some(guard)));
                }
                Step::Next(Stage::Queued(request, waiter)) if wanted.wait.is_none() => {
                    At::Queue(request, waiter)
                }
                step => At::Further(Box::pin(wanted.go_on(step, begun))),
            };
        }
    }
}

impl<B: Backend> Clone for Wanted<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Wanted<'_, B> {}

impl<'a, B: Backend> Wanted<'a, B> {
    /// Gets as far as it can at once.
    fn begin(&self, now: Moment, waker: &Waker) -> Result<Step<'a, B>, LockError> {
        self.entry.context.check()?;
        if let Lease::For(lease) = self.lease {
            Lease::check(lease)?;
        }
        self.enter(now, waker)
    }

    /// From stage to stage, until it has the lock or the time is over.
    async fn go_on(self, mut step: Step<'a, B>, begun: Moment) -> Acquired<B> {
        let context = &self.entry.context;
        let give_up = self.wait.map_or(Moment::NEVER, |wait| begun + wait);
        // A caller with a limit waits as long as that for a store that is gone. One without is told so, unless it has waited before.
        let mut patient = self.wait.is_some();
        loop {
            step = match step {
                Step::Next(Stage::Entering) => {
                    let enter = |waker: &Waker| self.enter(self.entry.now(), waker);
                    poll_fn(|task| Poll::Ready(enter(task.waker()))).await?
                }
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

    fn count(&self, guard: &Guard<B>, begun: Moment) {
        self.entry.context.recorder.waits.add(guard.since().saturating_duration_since(begun));
    }

    fn may_wait(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }

    /// A request, by the owner `fresh` if it is to have one of its own.
    fn request(&self, fresh: u64) -> Request {
        let request = match self.owner {
            Some(owner) => Request::new(owner).shared_owner(),
            None => Request::new(fresh),
        };
        let request = match self.lease {
            Lease::Watched => request,
            Lease::For(lease) => request.lease(lease),
        };
        if self.fenced { request.fenced() } else { request }
    }

    fn enter(&self, now: Moment, waker: &Waker) -> Result<Step<'a, B>, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        // An owner and a lease may have the same number.
        let number = context.number();
        let request = self.request(number);
        // Cloning it is foreign code, and so done beforehand.
        let waker = (self.may_wait() && entry.state.seems_busy()).then(|| waker.clone());
        let registered = waker.is_some();
        let asks = B::ANSWERS_AT_ONCE.then(|| (number, context.lease_of(&request)));
        let ((entered, attempt), actions) =
            entry.state.enter_with(&request, self.may_wait(), waker, asks, now);
        entry.carry_out(actions);
        Ok(match entered {
            Entered::Head(ticket) => {
                let mut head = Head::new(entry, ticket, request);
                let granted = attempt.map(|attempt| head.ask_at_once(attempt, now)).transpose()?.flatten();
                match granted {
                    Some(grant) => Step::Granted(self.guard(&request, grant, now)),
                    None => Step::Next(Stage::Competing(head, now)),
                }
            }
            Entered::Queued(ticket) => {
                Step::Next(Stage::Queued(request, Waiter::new(entry, ticket, registered)))
            }
            Entered::Reentered(grant, extension) => self.granted(&request, grant, extension, now),
            Entered::Busy => Step::Held,
            Entered::Closed => return Err(entry.context.closed()),
        })
    }

    async fn wait_queued(
        &self,
        request: Request,
        waiter: Waiter<'a, B>,
        give_up: Moment,
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

    fn told(&self, request: &Request, told: Told, now: Moment) -> Result<Step<'a, B>, LockError> {
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
        now: Moment,
        give_up: Moment,
        patient: bool,
    ) -> Result<Step<'a, B>, LockError> {
        let request = *head.request();
        // With no time to wait at all, the one question takes the round trip that it takes.
        let give_up = if self.may_wait() { give_up } else { Moment::NEVER };
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
        now: Moment,
    ) -> Step<'a, B> {
        let guard = self.guard(request, grant, now);
        match extension {
            None => Step::Granted(guard),
            Some(extension) => Step::GrantedShort(guard, extension),
        }
    }

    fn guard(&self, request: &Request, grant: Grant, now: Moment) -> Guard<B> {
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
