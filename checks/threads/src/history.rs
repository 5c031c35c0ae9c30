//! [`History`]: the calls and answers of several threads, and the search for a sequential explanation.
//!
//! The search is Wing and Gong's (*Testing and verifying concurrent objects*, 1993): a call takes effect at
//! some moment between its beginning and its end, so the search visits all orders in which each call comes
//! after the calls that had ended when it began. No state is visited twice.
//!
//! A request that has to wait takes effect in two moments: when it enters the queue, and when it finds that
//! it was granted. `forget_permits`, `acquire_up_to` beyond its minimum, and `Latch::release` take and give
//! their permits in one or more moments. Other calls are indivisible.

#[path = "../../../fuzz/model/sequential.rs"]
mod sequential;

use std::collections::HashSet;
use std::task::Poll;

use latchwork::TryAcquireError;

use self::sequential::Model;
use crate::call::{Answer, Call};

/// A call with its times.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The calling thread.
    pub thread: usize,
    /// The hand of the call's request; another thread may poll the future later.
    pub hand: usize,
    /// The call.
    pub call: Call,
    /// `None` for an unanswered call, which may have taken effect, or not, or in part.
    pub answer: Option<Answer>,
    /// Time of the call, by one clock for all threads.
    pub from: u64,
    /// Time of the answer.
    pub to: u64,
}

/// All calls to a semaphore.
#[derive(Clone, Debug)]
pub struct History {
    start: Model,
    /// Indexed by thread, each in its order.
    threads: Vec<Vec<Event>>,
}

/// The part of a call that has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    NotYet,
    Waits,
    /// This number of permits was taken, or given.
    InPart(usize),
}

impl Phase {
    fn part(self) -> usize {
        if let Self::InPart(part) = self { part } else { 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    model: Model,
    /// Each thread's next call, and the phase of that call.
    at: Vec<(usize, Phase)>,
}

impl History {
    /// A history that begins with `permits` free permits.
    pub fn of_permits(permits: usize) -> Self {
        Self { start: Model::new(permits), threads: Vec::new() }
    }

    /// A history of a latch's semaphore.
    pub fn of_latch() -> Self {
        Self { start: Model::new_latch(), threads: Vec::new() }
    }

    /// Appends an event to its thread's events.
    pub fn add(&mut self, event: Event) {
        if self.threads.len() <= event.thread {
            self.threads.resize_with(event.thread + 1, Vec::new);
        }
        self.threads[event.thread].push(event);
    }

    /// True if an order of the calls explains all answers, and leaves at least so many waiting in the end.
    pub fn is_explained(&self, waiting: usize) -> bool {
        let start = State { model: self.start.clone(), at: vec![(0, Phase::NotYet); self.threads.len()] };
        let mut seen = HashSet::new();
        let mut todo = vec![start];
        while let Some(state) = todo.pop() {
            if self.is_over(&state) && state.model.sleepers() >= waiting {
                return true;
            }
            if seen.insert(state.clone()) {
                self.go_on(&state, &mut todo);
            }
        }
        false
    }

    fn next(&self, state: &State, thread: usize) -> Option<&Event> {
        self.threads[thread].get(state.at[thread].0)
    }

    fn is_over(&self, state: &State) -> bool {
        (0..self.threads.len())
            .all(|thread| self.next(state, thread).is_none_or(|next| next.answer.is_none()))
    }

    fn go_on(&self, state: &State, todo: &mut Vec<State>) {
        for thread in 0..self.threads.len() {
            let Some(event) = self.next(state, thread) else { continue };
            let may_begin = (0..self.threads.len())
                .all(|other| self.next(state, other).is_none_or(|before| before.to >= event.from));
            if !may_begin {
                continue;
            }
            let mut go_to = |model: Model, phase: Option<Phase>| {
                let mut next = State { model, at: state.at.clone() };
                // Other checks see which thread wakes which.
                next.model.take_woken();
                match phase {
                    Some(phase) => next.at[thread].1 = phase,
                    None => next.at[thread] = (next.at[thread].0 + 1, Phase::NotYet),
                }
                todo.push(next);
            };
            step(event, state.at[thread].1, &state.model, &mut go_to);
        }
    }
}

/// Calls `go_to` with each model and phase that a call's next moment leads to; `None` after its last moment.
fn step(event: &Event, phase: Phase, before: &Model, go_to: &mut impl FnMut(Model, Option<Phase>)) {
    let mut model = before.clone();
    let answers = |answer| event.answer.is_none_or(|answered| answered == answer);
    let id = |request| event.hand << 16 | request;
    match event.call {
        Call::Poll { request, need } => poll(event, id(request), need, phase, model, go_to),
        Call::Cancel { request } => {
            model.cancel(id(request));
            go_to(model, None);
        }
        Call::Try { permits, .. } => {
            let answer = match model.take(permits, permits) {
                Ok(taken) => Answer::Holds(taken),
                Err(TryAcquireError::NoPermits) => Answer::NoPermits,
                Err(TryAcquireError::Closed) => Answer::Closed,
            };
            if answers(answer) {
                go_to(model, None);
            }
        }
        Call::ForgetPermits(most) => {
            let forgotten = phase.part();
            let more = model.forget_free(most - forgotten);
            if more > 0 && forgotten + more < most {
                go_to(model.clone(), Some(Phase::InPart(forgotten + more)));
            } else if answers(Answer::Number(forgotten + more)) {
                go_to(model, None);
            }
        }
        Call::Free => {
            if answers(Answer::Number(model.available())) {
                go_to(model, None);
            }
        }
        Call::PassBy(most) => pass_by(id(usize::from(u16::MAX)), most, phase, model, go_to),
        Call::PendingRelease { permits, .. } => {
            model.give_back(permits);
            go_to(model, None);
        }
        Call::Notify(n) => {
            let given = phase.part() + model.notify(n, n - phase.part());
            go_to(model.clone(), None);
            if given < n {
                go_to(model, Some(Phase::InPart(given)));
            }
        }
        Call::Add(n) => {
            model.add(n);
            go_to(model, None);
        }
        Call::SetCapacity(n) => {
            model.set_capacity(n);
            go_to(model, None);
        }
        Call::Close => {
            model.close();
            go_to(model, None);
        }
        Call::Look => go_to(model, None),
    }
}

fn poll(
    event: &Event,
    id: usize,
    need: usize,
    phase: Phase,
    mut model: Model,
    go_to: &mut impl FnMut(Model, Option<Phase>),
) {
    let answers = |answer| event.answer.is_none_or(|answered| answered == answer);
    if answers(Answer::Pending) {
        // The request had too few permits, and enough once in the queue: pending, and its waker is called.
        let mut granted = model.clone();
        if !granted.has(id) && granted.grant_at_once(id, need) {
            go_to(granted, None);
        }
    }
    match model.poll(id, need, need) {
        Poll::Pending => {
            if answers(Answer::Pending) {
                go_to(model.clone(), None);
            }
            // The request may find its grant before it is answered.
            if phase == Phase::NotYet && event.answer != Some(Answer::Pending) {
                go_to(model, Some(Phase::Waits));
            }
        }
        Poll::Ready(Ok(held)) if answers(Answer::Holds(held)) => go_to(model, None),
        Poll::Ready(Err(())) if answers(Answer::Closed) => go_to(model, None),
        Poll::Ready(_) => {}
    }
}

/// The answer does not tell the number of permits, so any step of the model is right.
fn pass_by(
    id: usize,
    most: usize,
    phase: Phase,
    mut model: Model,
    go_to: &mut impl FnMut(Model, Option<Phase>),
) {
    if phase == Phase::Waits {
        let mut given_up = model.clone();
        given_up.cancel(id);
        go_to(given_up, None);
    }
    match phase {
        Phase::NotYet | Phase::Waits => match model.poll(id, 1, 1) {
            Poll::Pending if phase == Phase::NotYet => go_to(model, Some(Phase::Waits)),
            Poll::Pending => {}
            Poll::Ready(Ok(held)) => go_to(model, Some(Phase::InPart(held))),
            Poll::Ready(Err(())) => go_to(model, None),
        },
        Phase::InPart(held) => match model.take(0, most - held).unwrap_or(0) {
            0 => {
                model.give_back(held);
                go_to(model, None);
            }
            more => go_to(model, Some(Phase::InPart(held + more))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(thread: usize, call: Call, answer: Answer, from: u64, to: u64) -> Event {
        Event { thread, hand: thread, call, answer: Some(answer), from, to }
    }

    fn history(permits: usize, events: &[Event]) -> History {
        let mut history = History::of_permits(permits);
        events.iter().for_each(|event| history.add(*event));
        history
    }

    const TRY: Call = Call::Try { request: 0, permits: 1 };
    const POLL: Call = Call::Poll { request: 0, need: 1 };

    #[test]
    fn two_takers_of_one_permit_are_one_too_many() {
        let taken = |thread| event(thread, TRY, Answer::Holds(1), 0, 9);
        assert!(history(2, &[taken(0), taken(1)]).is_explained(0));
        assert!(!history(1, &[taken(0), taken(1)]).is_explained(0));
    }

    #[test]
    fn try_may_fail_before_a_release_and_not_after_it() {
        let add = event(0, Call::Add(1), Answer::Done, 2, 4);
        let fails = |from, to| event(1, TRY, Answer::NoPermits, from, to);
        assert!(history(0, &[add, fails(3, 5)]).is_explained(0));
        assert!(!history(0, &[add, fails(5, 6)]).is_explained(0));
    }

    #[test]
    fn waiter_is_granted_by_a_later_release() {
        let waits = event(0, POLL, Answer::Pending, 0, 1);
        let add = event(1, Call::Add(1), Answer::Done, 2, 3);
        let ready = |from| event(0, POLL, Answer::Holds(1), from, 5);
        assert!(history(0, &[waits, add, ready(4)]).is_explained(0));
        assert!(!history(0, &[waits, ready(4)]).is_explained(0));
    }

    #[test]
    fn waiter_is_not_overtaken_in_a_history() {
        let waits = event(0, POLL, Answer::Pending, 0, 1);
        let add = event(1, Call::Add(1), Answer::Done, 2, 3);
        let taken = event(1, TRY, Answer::Holds(1), 4, 5);
        assert!(!history(0, &[waits, add, taken]).is_explained(0));
    }

    #[test]
    fn no_waiter_sleeps_beside_permits() {
        let waits = event(0, POLL, Answer::Pending, 0, 1);
        let add = event(1, Call::Add(1), Answer::Done, 2, 3);
        assert!(!history(0, &[waits, add]).is_explained(1));
        // An unanswered call may have had no effect.
        assert!(history(0, &[waits, Event { answer: None, to: u64::MAX, ..add }]).is_explained(1));
    }

    #[test]
    fn forgotten_permits_were_free() {
        let forgets = |number| event(0, Call::ForgetPermits(3), Answer::Number(number), 0, 1);
        assert!(history(2, &[forgets(2)]).is_explained(0));
        assert!(!history(2, &[forgets(1)]).is_explained(0));
        assert!(!history(2, &[forgets(3)]).is_explained(0));
    }
}
