//! [`Hand`]: the futures and permits of one thread of a round.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use latchwork::semaphore::AcquireOwned;
use latchwork::{AsyncSemaphore, OwnedSemaphorePermit, TryAcquireError};

use crate::bell::Bell;
use crate::call::{Answer, Call};
use crate::script::{Script, Step};

/// A thread's steps, and their results.
#[derive(Debug)]
pub struct Hand {
    semaphore: Arc<AsyncSemaphore>,
    script: Script,
    /// A request for each acquiring step, in order.
    requests: Vec<Request>,
    /// Number of requests made.
    made: usize,
    /// Unused bells, and replaced ones.
    spare: Vec<Bell>,
    replaced: Vec<Bell>,
}

#[derive(Debug)]
struct Request {
    need: usize,
    stage: Stage,
    bell: Bell,
}

enum Stage {
    /// Not polled yet.
    New(AcquireOwned),
    Waits(AcquireOwned),
    Holds(OwnedSemaphorePermit),
    /// Granted and released.
    GaveBack,
    /// Cancelled, refused or impossible.
    Over,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(_) => f.write_str("not begun"),
            Self::Waits(_) => f.write_str("waits"),
            Self::Holds(permit) => write!(f, "holds {}", permit.num_permits()),
            Self::GaveBack => f.write_str("gave back"),
            Self::Over => f.write_str("over"),
        }
    }
}

impl Request {
    fn poll(&mut self) -> Answer {
        let (Stage::New(mut future) | Stage::Waits(mut future)) =
            std::mem::replace(&mut self.stage, Stage::Over)
        else {
            unreachable!("this is called for a waiter")
        };
        let answer;
        (self.stage, answer) = match self.bell.poll(&mut future) {
            Poll::Ready(Ok(permit)) => {
                let held = permit.num_permits();
                (Stage::Holds(permit), Answer::Holds(held))
            }
            Poll::Ready(Err(_closed)) => (Stage::Over, Answer::Closed),
            Poll::Pending => (Stage::Waits(future), Answer::Pending),
        };
        answer
    }

    fn waits(&self) -> bool {
        matches!(self.stage, Stage::Waits(_))
    }

    fn held(&self) -> usize {
        if let Stage::Holds(permit) = &self.stage { permit.num_permits() } else { 0 }
    }
}

impl Hand {
    /// Creates all futures and bells beforehand, to keep the steps dense.
    pub fn new(semaphore: &Arc<AsyncSemaphore>, script: Script) -> Self {
        let requests = script.iter().filter_map(|step| match *step {
            Step::Acquire(n) => Some((n, Stage::New(Arc::clone(semaphore).acquire_weight_owned(n)))),
            Step::TryAcquire(n) => Some((n, Stage::Over)),
            _ => None,
        });
        let requests = requests.map(|(need, stage)| Request { need, stage, bell: Bell::new() }).collect();
        let changes = script.iter().filter(|step| matches!(step, Step::ChangeWaker(_))).count();
        Self {
            semaphore: Arc::clone(semaphore),
            script,
            requests,
            made: 0,
            spare: (0..changes).map(|_| Bell::new()).collect(),
            replaced: Vec::with_capacity(changes),
        }
    }

    /// The call of a step. `None` if the step picks a request, and there is none.
    pub fn plan(&self, step: Step) -> Option<Call> {
        let made = &self.requests[..self.made];
        let waits = |pick| pick_one(made, Request::waits, pick);
        Some(match step {
            Step::Acquire(need) => Call::Poll { request: self.made, need },
            Step::TryAcquire(permits) => Call::Try { request: self.made, permits },
            Step::PassBy(most) => Call::PassBy(most),
            Step::ChangeWaker(pick) => {
                let request = waits(pick)?;
                Call::Poll { request, need: made[request].need }
            }
            Step::Cancel(pick) => Call::Cancel { request: waits(pick)? },
            Step::Release(pick) => {
                let request = pick_one(made, |request| request.held() > 0, pick)?;
                Call::PendingRelease { request, permits: made[request].held() }
            }
            Step::Add(n) => Call::Add(n),
            Step::SetCapacity(n) => Call::SetCapacity(n),
            Step::ForgetPermits(most) => Call::ForgetPermits(most),
            Step::Notify(n) => Call::Notify(n),
            Step::Free => Call::Free,
            Step::Look => Call::Look,
            Step::Close => Call::Close,
        })
    }

    /// Makes a planned call.
    pub fn make(&mut self, call: Call) -> Answer {
        match call {
            Call::Poll { request, .. } => return self.poll(request),
            Call::Try { request, permits } => {
                self.made = request + 1;
                match Arc::clone(&self.semaphore).try_acquire_weight_owned(permits) {
                    Ok(permit) => {
                        self.requests[request].stage = Stage::Holds(permit);
                        return Answer::Holds(permits);
                    }
                    Err(TryAcquireError::NoPermits) => return Answer::NoPermits,
                    Err(TryAcquireError::Closed) => return Answer::Closed,
                }
            }
            Call::PassBy(n) => {
                // Not a bell: freeing it here involves an `Arc`, which ThreadSanitizer does not understand.
                let mut context = Context::from_waker(Waker::noop());
                drop(Pin::new(&mut self.semaphore.acquire_up_to(1..=n)).poll(&mut context));
            }
            Call::Cancel { request } => self.requests[request].stage = Stage::Over,
            Call::PendingRelease { request, .. } => self.requests[request].stage = Stage::GaveBack,
            Call::Add(n) => self.semaphore.add_permits(n),
            Call::SetCapacity(n) => self.semaphore.set_capacity(n),
            Call::ForgetPermits(most) => return Answer::Number(self.semaphore.forget_permits(most)),
            Call::Notify(n) => notify(&self.semaphore, n),
            Call::Free => return Answer::Number(self.semaphore.available_permits()),
            Call::Look => {
                std::hint::black_box((self.semaphore.waiters(), self.semaphore.held()));
            }
            Call::Close => self.semaphore.close(),
        }
        Answer::Done
    }

    /// Polls for the first time with the request's own bell, then with a spare bell while the script has one.
    fn poll(&mut self, request: usize) -> Answer {
        if request == self.made {
            self.made += 1;
        } else if let Some(bell) = self.spare.pop() {
            self.replaced.push(std::mem::replace(&mut self.requests[request].bell, bell));
        }
        self.requests[request].poll()
    }

    /// The polls of woken futures.
    pub fn woken(&self) -> impl Iterator<Item = Call> {
        let woken = |(_, request): &(usize, &Request)| request.waits() && request.bell.is_rung();
        let poll = |(number, request): (usize, &Request)| Call::Poll { request: number, need: request.need };
        self.requests.iter().enumerate().filter(woken).map(poll)
    }

    /// The calls that cancel all pending futures and release all permits.
    pub fn last_calls(&self) -> impl Iterator<Item = Call> {
        self.requests.iter().enumerate().filter_map(|(request, of)| match &of.stage {
            Stage::Waits(_) => Some(Call::Cancel { request }),
            Stage::Holds(permit) => Some(Call::PendingRelease { request, permits: permit.num_permits() }),
            _ => None,
        })
    }

    /// The number of pending futures.
    pub fn waiting(&self) -> usize {
        self.requests.iter().filter(|request| request.waits()).count()
    }

    /// The steps.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// The number of leaked wakers.
    pub fn copies(&self) -> usize {
        let bells = self.requests.iter().map(|request| &request.bell).chain(&self.replaced);
        bells.map(Bell::copies).sum()
    }
}

/// Request number `pick`, modulo their number, of the `eligible` ones.
fn pick_one(requests: &[Request], eligible: impl Fn(&Request) -> bool, pick: usize) -> Option<usize> {
    let many = requests.iter().filter(|request| eligible(request)).count();
    let pick = pick.checked_rem(many)?;
    (0..requests.len()).filter(|request| eligible(&requests[*request])).nth(pick)
}

#[cfg(latchwork_suspend)]
fn notify(latch: &AsyncSemaphore, n: usize) {
    latchwork::suspension::notify(latch, n);
}

#[cfg(not(latchwork_suspend))]
fn notify(_latch: &AsyncSemaphore, _n: usize) {
    unreachable!("only where threads are suspended, latches take part");
}
