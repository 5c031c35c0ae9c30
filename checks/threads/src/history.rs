//! [`History`]: what several threads have asked and were answered, and whether a sequential semaphore
//! explains it.
//!
//! The search is Wing and Gong's (*Testing and verifying concurrent objects*, 1993): a call takes effect at
//! some moment between its beginning and its end, so it goes through all orders in which each call comes
//! after those that had ended when it began. States that were seen are not gone through again.
//!
//! A request that has to wait takes effect in two moments: when it enters the queue, and when it finds that
//! it was granted. What `forget_permits` takes, `acquire_up_to` beyond its least, and `Latch::release` gives,
//! is taken and given in one or more. No other call may be divided.

#[path = "../../../fuzz/model/sequential.rs"]
mod sequential;

use std::collections::HashSet;
use std::task::Poll;

use latchwork::TryAcquireError;

use self::sequential::Model;
use crate::call::{Answer, Call};

/// A call, and when.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The thread that calls.
    pub thread: usize,
    /// Whose requests the call is about; another thread may poll them later.
    pub hand: usize,
    /// The call.
    pub call: Call,
    /// `None` of one that was not answered: it may have taken effect, or not, or in part.
    pub answer: Option<Answer>,
    /// When it was made, and answered, by one clock for all threads.
    pub from: u64,
    /// See above.
    pub to: u64,
}

/// All that became of a semaphore.
#[derive(Clone, Debug)]
pub struct History {
    start: Model,
    /// By threads, each in its order.
    threads: Vec<Vec<Event>>,
}

/// How far a call has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    NotYet,
    Waits,
    /// So many permits were taken, or given.
    InPart(usize),
}

impl Phase {
    fn part(self) -> usize {
        if let Self::InPart(part) = self { part } else { 0 }
    }
}

/// A state of the search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    model: Model,
    /// Of each thread, its next call, and how far that has come.
    at: Vec<(usize, Phase)>,
}

impl History {
    /// The semaphore's beginning.
    pub fn of_permits(permits: usize) -> Self {
        Self { start: Model::new(permits), threads: Vec::new() }
    }

    /// A latch's semaphore.
    pub fn of_latch() -> Self {
        Self { start: Model::new_latch(), threads: Vec::new() }
    }

    /// Adds an event, behind those of its thread.
    pub fn add(&mut self, event: Event) {
        if self.threads.len() <= event.thread {
            self.threads.resize_with(event.thread + 1, Vec::new);
        }
        self.threads[event.thread].push(event);
    }

    /// Whether there is an order that explains all answers, and in which, in the end, at least so many wait.
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

    /// Whether all that was answered has taken effect.
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
                // Which thread wakes which is seen elsewhere.
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

/// Where a call's next moment leads: to what model, and which phase; `None` if that was its last.
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
        // It had too few, and then enough as soon as it was in the queue: it is told to wait, and woken.
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
            // It may find before it is answered that it was granted.
            if phase == Phase::NotYet && event.answer != Some(Answer::Pending) {
                go_to(model, Some(Phase::Waits));
            }
        }
        Poll::Ready(Ok(held)) if answers(Answer::Holds(held)) => go_to(model, None),
        Poll::Ready(Err(())) if answers(Answer::Closed) => go_to(model, None),
        Poll::Ready(_) => {}
    }
}

/// What it takes is not told, so any way is right that the model can go.
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

    /// A call of `thread`'s, with the time of its beginning and of its end.
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
        // One that was not answered may have been without effect.
        assert!(history(0, &[waits, Event { answer: None, to: u64::MAX, ..add }]).is_explained(1));
    }

    #[test]
    fn what_is_forgotten_was_free() {
        let forgets = |number| event(0, Call::ForgetPermits(3), Answer::Number(number), 0, 1);
        assert!(history(2, &[forgets(2)]).is_explained(0));
        assert!(!history(2, &[forgets(1)]).is_explained(0));
        assert!(!history(2, &[forgets(3)]).is_explained(0));
    }
}
