//! Acquiring: in memory if this client has the lock, as the queue head at the store otherwise.
//!
//! Each level has an answer of its own to the one above. From the store up:
//!
//! | answer | of | to | says |
//! |---|---|---|---|
//! | `AcquireOutcome` | the store | `Head::answered` | leased, or held for so long |
//! | `Answer` | `Head::answered` | the state machine | the same, or that the attempt did not run |
//! | `AttemptOutcome` | the state machine | `Head::answered` | what the answer is worth: granted, refused, too late, superseded |
//! | `Asked` | one question | `Head::compete`, `Wait::ask` | the competition is over, or why it is not |
//! | `Competed` | the queue head | `AcquireParams::compete` | granted, superseded, or the time is over |
//! | `EnterOutcome`, `WaitOutcome` | the state machine | `enter`, `told` | what becomes of a caller at its entry, and in the queue |
//! | `Step` | a stage | `Progress::drive` | the next stage, or the end |

mod head;
mod pace;
mod waiter;

use std::future::pending;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Duration;

use crate::lock_entry::{Attempt, EnterOutcome, Extension, Grant, Moment, Request, WaitOutcome};

use self::head::{Competed, Head};
use self::waiter::Waiter;
use crate::lock::backend::{AcquireOutcome, AcquireRequest, Mode};
use crate::lock::entry::attended::Attended;
use crate::lock::entry::{Entry, OnDrop};
use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::lease::{Lease, LeaseError};
use crate::lock::owner::LeaseId;

/// A waiter with a shorter limit than that cannot wait until the watchdog verifies the lease anyway.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// What is asked for by one call.
#[derive(Clone, Copy)]
pub(super) struct AcquireParams<'a> {
    pub(super) entry: &'a Arc<Entry>,
    /// `None`: an owner of its own.
    pub(super) owner: Option<u64>,
    pub(super) lease: Lease,
    pub(super) fenced: bool,
    /// `None`: without a limit.
    pub(super) wait: Option<Duration>,
}

/// What an acquisition that has met no error is to its caller.
pub(super) trait Outcome {
    fn granted(guard: Guard) -> Self;
    /// The time to wait is over.
    fn time_over() -> Self;
}

impl Outcome for Option<Guard> {
    fn granted(guard: Guard) -> Self {
        Some(guard)
    }

    fn time_over() -> Self {
        None
    }
}

impl Outcome for Guard {
    fn granted(guard: Guard) -> Self {
        guard
    }

    fn time_over() -> Self {
        unreachable!("only a wait with a limit ends without the lock")
    }
}

/// Takes the lock.
///
/// What the store has no part in, or answers at once, takes no future of its own.
pub(super) struct Acquisition<'a, O> {
    progress: Progress<'a>,
    outcome: PhantomData<fn() -> O>,
}

/// How far an acquisition is.
struct Progress<'a> {
    wanted: AcquireParams<'a>,
    begun: Option<Moment>,
    /// A caller with a limit waits as long as that for a store that is gone. One without is told so, unless
    /// it has waited before.
    patient: bool,
    stage: Stage<'a>,
    /// It has taken its part from tokio's budget, or has given way (`budget.rs`).
    #[cfg(feature = "tokio")]
    may_go_on: bool,
}

/// The end of an acquisition. `None`: the time to wait is over.
type Got = Result<Option<Guard>, LockError>;

/// Where an acquisition stands.
enum Stage<'a> {
    /// Nowhere yet, or anywhere no more.
    Entering,
    /// In the queue as this owner, without a limit.
    Queued(u64, Waiter<'a>),
    /// All that takes a timer, or a store that does not answer at once.
    Waiting(Pin<Box<dyn Future<Output = Result<Step<'a>, LockError>> + Send + 'a>>),
}

/// How a stage ends: what comes next.
enum Step<'a> {
    Enter,
    Queue(u64, Waiter<'a>),
    Compete(Head<'a>, Moment),
    /// Its owner writes, under this lease.
    ReadUnder(Request, LeaseId),
    Granted(Guard),
    /// The lease in hand is not enough for it.
    GrantedShort(Guard, Extension),
    /// The time to wait is over, and another acquisition has the lock.
    TimeOverHeld,
    /// The time to wait is over, and the store has not said meanwhile whether the lock is held.
    Unanswered,
}

impl<'a, O> Acquisition<'a, O> {
    pub(super) fn new(wanted: AcquireParams<'a>) -> Self {
        let patient = wanted.wait.is_some();
        let progress = Progress {
            wanted,
            begun: None,
            patient,
            stage: Stage::Entering,
            #[cfg(feature = "tokio")]
            may_go_on: false,
        };
        Self { progress, outcome: PhantomData }
    }
}

impl<O: Outcome> Future for Acquisition<'_, O> {
    type Output = Result<O, LockError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.progress.poll(task).map(|got| Ok(got?.map_or_else(O::time_over, O::granted)))
    }
}

impl Progress<'_> {
    #[cfg(feature = "tokio")]
    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Got> {
        // Before it has the lock: a future that is kept and not polled would hold it.
        if !std::mem::replace(&mut self.may_go_on, true) && !crate::budget::take_part() {
            // A limit counts from the first poll.
            self.begun = Some(self.wanted.entry.now());
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.drive(task)
    }

    #[cfg(not(feature = "tokio"))]
    #[inline(always)]
    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Got> {
        self.drive(task)
    }

    /// Not generic, and so compiled here, and not once more in each crate that takes a lock.
    fn drive(&mut self, task: &mut TaskContext<'_>) -> Poll<Got> {
        let Self { wanted, begun, patient, stage, .. } = self;
        loop {
            let step = match stage {
                Stage::Entering => {
                    let now = wanted.entry.now();
                    let begun = *begun.get_or_insert(now);
                    match wanted.check(now) {
                        Ok(None) => {
                            // An owner and a lease may have the same number.
                            let number = wanted.entry.context.number();
                            let request = wanted.request(number);
                            match wanted.entry.take_idle(&request, number, now) {
                                Ok(Some(grant)) => return wanted.granted_to(&request, grant, begun, now),
                                Ok(None) => wanted.enter(&request, now, task.waker()),
                                Err(error) => Err(error),
                            }
                        }
                        Ok(Some((owner, under))) => Ok(Step::ReadUnder(wanted.request(owner), under)),
                        Err(error) => Err(error),
                    }
                }
                Stage::Queued(owner, waiter) => {
                    if waiter.is_part_of_entering() {
                        return Poll::Pending;
                    }
                    let now = wanted.entry.now();
                    let request = wanted.request(*owner);
                    match waiter.hear(task, now) {
                        Some(WaitOutcome::Granted(grant, None)) => {
                            return wanted.granted_to(&request, grant, begun.unwrap_or(now), now);
                        }
                        Some(told) => wanted.told(&request, told, now),
                        None => return Poll::Pending,
                    }
                }
                Stage::Waiting(future) => ready!(future.as_mut().poll(task)),
            };
            let begun = begun.expect("it has entered");
            // Matched as it is: a `?` before would copy each guard once more.
            *stage = match step {
                Ok(Step::Granted(guard)) => {
                    wanted.waited(begun, guard.since().unwrap_or(begun));
                    return Poll::Ready(Ok(Some(guard)));
                }
                Ok(Step::Enter) => {
                    *patient = true;
                    Stage::Entering
                }
                Ok(Step::Queue(owner, waiter)) if wanted.wait.is_none() => {
                    *patient |= wanted.is_behind_a_holder();
                    Stage::Queued(owner, waiter)
                }
                Ok(Step::Queue(owner, waiter)) => {
                    Stage::Waiting(Box::pin(wanted.wait_queued(owner, waiter, begun)))
                }
                Ok(Step::Compete(head, now)) => {
                    Stage::Waiting(Box::pin(wanted.compete(head, now, begun, *patient)))
                }
                Ok(Step::ReadUnder(request, under)) => {
                    Stage::Waiting(Box::pin(wanted.read_under(request, under, begun, *patient)))
                }
                Ok(Step::GrantedShort(guard, extension)) => {
                    Stage::Waiting(Box::pin(wanted.extended(guard, extension, begun)))
                }
                // The end of the runtime ends its timers early.
                Ok(Step::TimeOverHeld | Step::Unanswered) if wanted.entry.context.has_ended() => {
                    return Poll::Ready(Err(LockError::RuntimeEnded));
                }
                Ok(Step::TimeOverHeld) => {
                    wanted.entry.context.recorder.given_up.add_one();
                    return Poll::Ready(Ok(None));
                }
                Ok(Step::Unanswered) => return Poll::Ready(Err(wanted.no_answer())),
                Err(error) => return Poll::Ready(Err(error)),
            };
        }
    }
}

impl<'a> AcquireParams<'a> {
    fn no_answer(&self) -> LockError {
        LockError::NoAnswer { name: self.entry.name.clone(), wait: self.wait.unwrap_or_default() }
    }

    /// Whether it waits for a holder, here or elsewhere: when that leaves, the store may be gone. And not for
    /// a queue head that has not reached the store, and is told so.
    fn is_behind_a_holder(&self) -> bool {
        // A store that answers at once is never gone.
        !self.entry.context.at_once && self.entry.state.is_known_held()
    }

    /// When to give up.
    fn limit(&self, begun: Moment) -> Moment {
        self.wait.map_or(Moment::NEVER, |wait| begun + wait)
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

    /// Its wait is over.
    #[inline]
    fn waited(&self, begun: Moment, now: Moment) {
        self.entry.context.recorder.waits.add(now.micros_since(begun));
    }

    /// Whether it may enter. An explicit owner that is to read beside itself need not: that is, and under
    /// which lease it writes.
    #[inline(always)]
    fn check(&self, now: Moment) -> Result<Option<(u64, LeaseId)>, LockError> {
        self.entry.context.check()?;
        if let Lease::For(lease) = self.lease {
            Lease::check(lease)?;
        }
        match self.owner {
            Some(owner) => Ok(self.beside_itself(owner, now)?.map(|under| (owner, under))),
            None => Ok(None),
        }
    }

    /// Gets as far as it can at once.
    fn enter(&self, request: &Request, now: Moment, waker: &Waker) -> Result<Step<'a>, LockError> {
        let entry = self.entry;
        // Cloning it is foreign code, and so done beforehand.
        let waker = self.may_wait().then(|| waker.clone());
        let registered = waker.is_some();
        let entered = entry.event(|state, effects| state.enter(request, waker, now, effects));
        self.entered(request, entered, registered, now)
    }

    /// What an acquisition has found. From now on it has an owner.
    #[inline(always)]
    fn entered(
        &self,
        request: &Request,
        entered: EnterOutcome,
        registered: bool,
        now: Moment,
    ) -> Result<Step<'a>, LockError> {
        let (entry, request) = (self.entry, *request);
        match entered {
            EnterOutcome::Head(ticket) => {
                let head = Head::new(entry, ticket, request, self.may_wait());
                self.recall_if_beside_itself(now);
                Ok(Step::Compete(head, now))
            }
            EnterOutcome::Queued(ticket) => {
                let waiter = Waiter::new(entry, ticket, registered);
                self.recall_if_beside_itself(now);
                Ok(Step::Queue(request.owner(), waiter))
            }
            EnterOutcome::Reentered(grant, extension) => Ok(self.granted(&request, grant, extension, now)),
            EnterOutcome::Busy => Ok(Step::TimeOverHeld),
            EnterOutcome::Closed => Err(entry.context.closed()),
        }
    }

    /// The lease under which an explicit owner has the other side of the same read-write lock, if it reads
    /// beside that.
    fn beside_itself(&self, owner: u64, now: Moment) -> Result<Option<LeaseId>, LockError> {
        let entry = self.entry;
        let Some(under) = entry.other_side_of(owner, now) else { return Ok(None) };
        // It has this side as well.
        if !entry.state.holds_of(owner, now).is_empty() {
            return Ok(None);
        }
        match entry.mode {
            Mode::Read => Ok(Some(under)),
            _ => Err(LockError::Upgrade { name: entry.name.clone(), owner: entry.context.owner(owner) }),
        }
    }

    /// Its owner may have got the other side since [`beside_itself`](Self::beside_itself) looked, when there
    /// was no waiter here to be told. From now on there is.
    fn recall_if_beside_itself(&self, now: Moment) {
        if let Some(owner) = self.owner
            && self.entry.other_side_of(owner, now).is_some()
        {
            self.entry.event(|state, effects| state.evict_owner(owner, now, effects));
        }
    }

    /// A waiter of this owner for the other side would wait for itself: to read it need not wait any
    /// more, and to write it is told that it cannot.
    fn tell_other_side(&self, owner: u64, now: Moment) {
        if let Some(other) = self.entry.other_side() {
            other.event(|state, effects| state.evict_owner(owner, now, effects));
        }
    }

    /// Reads beside itself, as the owner of `under` that writes. There is no other to be waited for.
    async fn read_under(
        self,
        request: Request,
        under: LeaseId,
        begun: Moment,
        asked_before: bool,
    ) -> Result<Step<'a>, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        let (number, lease, sent) = (context.number(), context.lease_of(&request), entry.now());
        let attempt = Attempt::outside_of_queue(number, &request, sent, lease);
        let (id, tokens) = (context.lease_id(number), attempt.tokens());
        let (writes, under) = (under.number(), Some(under));
        let asked = AcquireRequest::new(id, lease, sent).tokens(tokens).under(under);
        let pending_release = attempt.rollback();
        let asks = Arc::clone(entry);
        let rolls_back = move || asks.release_in_background(pending_release);
        let attended = Attended::new(entry, OnDrop(Some(rolls_back)));
        let answer = entry.acquire(&asked);
        let give_up = if self.may_wait() { self.limit(begun) } else { Moment::NEVER };
        let answered = attended.until_answered(pin!(context.until(give_up, answer))).await;
        let Some((mut unfinished, answer)) = answered else { return Ok(Step::Enter) };
        let Some(outcome) = answer else { return Ok(Step::Unanswered) };
        let may_run_yet = entry.may_run_yet(&asked.id, &outcome);
        match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => {
                unfinished.0 = None;
                let now = entry.now();
                let grant = entry.event(|state, effects| {
                    let grant = state.adopt(&request, attempt.copy(), last_token, now, effects);
                    if may_run_yet {
                        // Before wakers are called, whose calls are to find it.
                        state.may_run_again(attempt.rollback(), effects);
                    }
                    grant
                });
                if !request.is_watched() && sent + lease <= now {
                    return Err(LockError::Lease(LeaseError::OverBeforeAnswer));
                }
                Ok(grant.map_or(Step::Enter, |grant| Step::Granted(self.guard(&request, grant, now))))
            }
            Ok(AcquireOutcome::Held { .. }) => {
                if !may_run_yet {
                    unfinished.0 = None;
                }
                // It does not write any more, unless its lease was begun anew meanwhile: it asks again then.
                // By a clock that stands still it would do so for ever.
                if let Some(other) = entry.other_side()
                    && !other.gone(writes, sent)
                    && asked_before
                    && other.state.lease_numbers().contains(&writes)
                {
                    context.until(sent + Duration::from_nanos(1), pending::<()>()).await;
                }
                Ok(Step::Enter)
            }
            Err(error) => {
                if !may_run_yet {
                    unfinished.0 = None;
                }
                Err(context.failed(&entry.name, error))
            }
        }
    }

    /// In the queue, with a limit.
    async fn wait_queued(self, owner: u64, waiter: Waiter<'a>, begun: Moment) -> Result<Step<'a>, LockError> {
        let entry = self.entry;
        if self.wait.is_some_and(|wait| wait < SHORT_WAIT) {
            entry.event(|state, effects| state.verify_soon(entry.now(), effects));
        }
        // A try is here for an answer that another caller has asked for.
        let limit = if self.may_wait() { self.limit(begun) } else { begun + SHORT_WAIT };
        match entry.context.until(limit, waiter).await {
            Some((told, now)) => self.told(&self.request(owner), told, now),
            None => Ok(self.at_the_end(begun)),
        }
    }

    #[inline]
    fn told(&self, request: &Request, told: WaitOutcome, now: Moment) -> Result<Step<'a>, LockError> {
        let entry = self.entry;
        match told {
            WaitOutcome::Granted(grant, extension) => Ok(self.granted(request, grant, extension, now)),
            WaitOutcome::Head(ticket) => {
                Ok(Step::Compete(Head::new(entry, ticket, *request, self.may_wait()), now))
            }
            WaitOutcome::Superseded => Ok(Step::Enter),
            WaitOutcome::Busy => Ok(Step::TimeOverHeld),
            WaitOutcome::Closed => Err(entry.context.closed()),
        }
    }

    async fn compete(
        self,
        head: Head<'a>,
        now: Moment,
        begun: Moment,
        patient: bool,
    ) -> Result<Step<'a>, LockError> {
        let request = *head.request();
        // With no time to wait at all, the one question takes the round trip that it takes.
        let give_up = if self.may_wait() { self.limit(begun) } else { Moment::NEVER };
        Ok(match head.compete(now, patient, give_up).await? {
            Competed::Granted(grant, at) => Step::Granted(self.guard(&request, grant, at)),
            Competed::Superseded => Step::Enter,
            Competed::TimeOverHeld => Step::TimeOverHeld,
            Competed::Unanswered => self.at_the_end(begun),
        })
    }

    /// The time to wait is over without an answer to this call. A queue head before it may have had one.
    fn at_the_end(&self, begun: Moment) -> Step<'a> {
        if self.entry.state.was_known_held(begun) { Step::TimeOverHeld } else { Step::Unanswered }
    }

    /// Asks for what the lease in hand lacks, for as long as the caller waits. What is dropped then leaves
    /// the hold as any other guard does.
    async fn extended(
        self,
        guard: Guard,
        extension: Extension,
        begun: Moment,
    ) -> Result<Step<'a>, LockError> {
        let give_up = if self.may_wait() { self.limit(begun) } else { Moment::NEVER };
        let (owner, grant) = (*guard.owner(), guard.grant().copy());
        let extended = pin!(self.entry.extend(owner, &grant, extension));
        let attended = Attended::new(self.entry, guard);
        let answered = attended.until_answered(pin!(self.entry.context.until(give_up, extended))).await;
        let Some((mut guard, answer)) = answered else { return Ok(Step::Enter) };
        let Some(extended) = answer else { return Ok(Step::Unanswered) };
        guard.set_token(extended?);
        guard.lasts()?;
        Ok(Step::Granted(guard))
    }

    #[inline]
    fn granted(
        &self,
        request: &Request,
        grant: Grant,
        extension: Option<Extension>,
        now: Moment,
    ) -> Step<'a> {
        match extension {
            None => Step::Granted(self.guard(request, grant, now)),
            Some(extension) => Step::GrantedShort(self.guard(request, grant, now), extension),
        }
    }

    /// The end of a wait since `begun`. Not by a step: to move a guard costs as much as to make it.
    #[inline(always)]
    fn granted_to(
        &self,
        request: &Request,
        grant: Grant,
        begun: Moment,
        now: Moment,
    ) -> Poll<Result<Option<Guard>, LockError>> {
        self.waited(begun, now);
        if self.owner.is_none() {
            return Poll::Ready(Ok(Some(self.new_guard(request, grant, now))));
        }
        Poll::Ready(Ok(Some(self.guard(request, grant, now))))
    }

    #[inline(always)]
    fn new_guard(&self, request: &Request, grant: Grant, now: Moment) -> Guard {
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

    fn guard(&self, request: &Request, grant: Grant, now: Moment) -> Guard {
        let guard = self.new_guard(request, grant, now);
        if self.owner.is_some() {
            self.tell_other_side(request.owner(), now);
        }
        guard
    }
}
