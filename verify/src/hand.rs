//! [`Hand`]: what one thread of a round has in its hand.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use latchwork::{AcquireOwned, AsyncSemaphore, OwnedSemaphorePermit};

use crate::bell::Bell;
use crate::script::{Script, Step};

/// A thread's steps, and what came of them.
#[derive(Debug)]
pub struct Hand {
    semaphore: Arc<AsyncSemaphore>,
    script: Script,
    /// One for each step that asks for permits, in their order.
    requests: Vec<Request>,
    /// How many of them have been made.
    made: usize,
    /// Bells to come, and those that were replaced.
    spare: Vec<Bell>,
    replaced: Vec<Bell>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) stage: Stage,
    pub(crate) bell: Bell,
}

pub(crate) enum Stage {
    /// Not polled yet.
    New(AcquireOwned),
    Waits(AcquireOwned),
    Holds(OwnedSemaphorePermit),
    /// It was granted, and given back.
    GaveBack,
    /// It asks no more: cancelled, refused, or not to be had.
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
    fn poll(&mut self) {
        let (Stage::New(mut future) | Stage::Waits(mut future)) =
            std::mem::replace(&mut self.stage, Stage::Over)
        else {
            unreachable!("this is called for who waits")
        };
        self.stage = match self.bell.poll(&mut future) {
            Poll::Ready(Ok(permit)) => Stage::Holds(permit),
            Poll::Ready(Err(_closed)) => Stage::Over,
            Poll::Pending => Stage::Waits(future),
        };
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Waits(_))
    }

    /// Permits in its hand.
    pub(crate) fn held(&self) -> usize {
        if let Stage::Holds(permit) = &self.stage { permit.num_permits() } else { 0 }
    }
}

impl Hand {
    /// Makes all that the steps need beforehand, so that nothing stands between one and the next.
    pub fn new(semaphore: &Arc<AsyncSemaphore>, script: Script) -> Self {
        let requests = script.iter().filter_map(|step| match *step {
            Step::Acquire(n) => Some(Stage::New(Arc::clone(semaphore).acquire_weight_owned(n))),
            Step::TryAcquire(_) => Some(Stage::Over),
            _ => None,
        });
        let requests = requests.map(|stage| Request { stage, bell: Bell::new() }).collect();
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

    /// Does all steps.
    pub fn play(&mut self) {
        for index in 0..self.script.len() {
            self.step(self.script[index]);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Acquire(_) => {
                self.made += 1;
                self.requests[self.made - 1].poll();
            }
            Step::TryAcquire(n) => {
                self.made += 1;
                if let Ok(permit) = Arc::clone(&self.semaphore).try_acquire_weight_owned(n) {
                    self.requests[self.made - 1].stage = Stage::Holds(permit);
                }
            }
            Step::PassBy(n) => {
                // Not a bell, which would be freed here: of all that an `Arc` does, ThreadSanitizer does not understand that.
                let mut context = Context::from_waker(Waker::noop());
                drop(Pin::new(&mut self.semaphore.acquire_up_to(1..=n)).poll(&mut context));
            }
            Step::ChangeWaker(pick) => {
                if let Some(waiting) = pick_one(&mut self.requests[..self.made], Request::waits, pick) {
                    let bell = self.spare.pop().expect("one for each change");
                    self.replaced.push(std::mem::replace(&mut waiting.bell, bell));
                    waiting.poll();
                }
            }
            Step::Cancel(pick) => {
                if let Some(waiting) = pick_one(&mut self.requests[..self.made], Request::waits, pick) {
                    waiting.stage = Stage::Over;
                }
            }
            Step::Release(pick) => {
                if let Some(holding) =
                    pick_one(&mut self.requests[..self.made], |request| request.held() > 0, pick)
                {
                    holding.stage = Stage::GaveBack;
                }
            }
            Step::Add(n) => self.semaphore.add_permits(n),
            Step::SetCapacity(n) => self.semaphore.set_capacity(n),
            Step::Look => {
                std::hint::black_box((self.semaphore.waiters(), self.semaphore.held()));
            }
            Step::Close => self.semaphore.close(),
        }
    }

    /// What it is all about.
    pub fn semaphore(&self) -> &AsyncSemaphore {
        &self.semaphore
    }

    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Polls who waits, when all is quiet.
    ///
    /// # Errors
    ///
    /// If somebody was served and not woken, or woken and not served.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        for (number, request) in self.requests.iter_mut().enumerate().filter(|(_, request)| request.waits()) {
            let rung = request.bell.is_rung();
            request.poll();
            if !rung && !request.waits() {
                return Err(format!("request {number} was served, and sleeps: its waker was not called"));
            }
            if rung && request.waits() {
                return Err(format!("request {number} was woken for nothing"));
            }
        }
        Ok(())
    }

    /// Lets go of one request.
    pub(crate) fn let_go(&mut self, request: usize) {
        self.requests[request].stage = Stage::Over;
    }

    /// Wakers that somebody has kept.
    pub(crate) fn copies(&self) -> usize {
        let bells = self.requests.iter().map(|request| &request.bell).chain(&self.replaced);
        bells.map(Bell::copies).sum()
    }
}

/// Of those that are `eligible`, number `pick`, counted round.
fn pick_one(
    requests: &mut [Request],
    eligible: impl Fn(&Request) -> bool,
    pick: usize,
) -> Option<&mut Request> {
    let many = requests.iter().filter(|request| eligible(request)).count();
    let pick = pick.checked_rem(many)?;
    requests.iter_mut().filter(|request| eligible(request)).nth(pick)
}
