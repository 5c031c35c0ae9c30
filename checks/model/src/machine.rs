//! The operations, one shared access a step. [`settle`](mod@crate::settle) is their common part.

use crate::memory::{E, Link, Memory, Node, NodeId, QueueState, State};
use crate::mutants::{Mutant, Mutants};
use crate::operation::{Answer, Operation, Permits};
use crate::settle::{self, Outcome, Settle, Settler};
use crate::violation::Violation;

/// The next shared access of a thread, and the thread's knowledge at that point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum At {
    // Between two operations. The next operation's first access is also its call.
    Idle,
    Finished,
    // `acquire` has returned Pending. Next: a poll's access, once the node is final, or a cancellation's.
    Parked { node: NodeId },

    // acquire and try
    ReadFront,
    ReadE { front: Permits },
    FreeReadS { e: E },
    FreeTake { e: E },
    FreeStoreFront { e: E },
    FreePublish { e: E },
    QueuedReadFront { tail: NodeId },
    QueuedReadS { front: Permits, tail: NodeId },
    QueuedReadDone { tail: NodeId },
    SessionReadTail { tail: NodeId },
    SettledReadS { tail: NodeId, end: Permits },
    Take { tail: NodeId, end: Permits },
    TakeStoreNext { tail: NodeId, node: NodeId },
    Enqueue { tail: NodeId },
    EnqueueStore { tail: NodeId },
    EnqueueStoreNext { tail: NodeId, node: NodeId },

    // LOOK
    LookReadS { node: NodeId },
    LookReadE { node: NodeId, s: Permits },
    LookReadEFirst { node: NodeId },
    LookThenReadS { node: NodeId, closed: bool },
    LookReadFront { node: NodeId, s: Permits, closed: bool },
    LookReadState { node: NodeId },

    // a poll
    PollReadState { node: NodeId },
    GrantedReadS,
    GrantedReadFront { s: Permits },
    VoidReadE { returns: Answer },

    // release and add
    AddToS,
    ReleaseReadE,
    ReleaseReadDone { tail: NodeId },

    // cancel
    CancelReadState { node: NodeId },
    CancelCas { node: NodeId, state: State },
    CancelReadS,
    CancelReadFront { s: Permits },

    // close
    Close,

    // lower
    LowerReadE,
    LowerFree { e: E },
    LowerSettled { e: E, end: Permits },
    LowerStoreNext { tail: NodeId, node: NodeId },
    LowerBlocked { node: NodeId, state: State },

    // available
    AvailableReadE,
    AvailableReadS { e: E, consumed: Permits },
    AvailableReadEAgain { e: E, permits: Permits },

    // notify
    NotifyReadE,
    NotifyReadS { e: E, consumed: Permits },
    NotifyReadEAgain { e: E },
    NotifyCredit { s: Permits },

    // In `settle`, with the continuation.
    Settle(Settle, Caller),
}

/// The continuation of a thread after `settle`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Caller {
    Acquire,
    Look { node: NodeId },
    Available,
    Lower,
    Notify,
    // The operation returns this answer, for any outcome.
    Return(Answer),
}

pub(crate) enum StepOutcome {
    At(At),
    Return(Answer),
    /// `acquire` returns Pending, and the thread sleeps until its node is final, or cancels.
    Park(NodeId),
}

pub(crate) type Stepped = Result<StepOutcome, Violation>;

pub(crate) struct Machine<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) operation: Operation,
    pub(crate) mutants: Mutants,
    /// The chosen one of the [`ways`].
    pub(crate) way: u8,
}

/// Number of ways from here: taking permits in a settled queue closes the session, or passes through; and the
/// session is closed without settling if the only node was left.
pub(crate) fn ways(at: &At) -> u8 {
    if matches!(at, At::Take { .. } | At::SessionReadTail { .. }) { 2 } else { 1 }
}

impl Machine<'_> {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutants.has(mutant)
    }

    fn settler(&mut self) -> Settler<'_> {
        Settler { memory: self.memory, mutants: self.mutants }
    }

    /// Makes the next step, including subsequent reads of constants, whose timing no other step can observe.
    pub(crate) fn step(&mut self, at: At) -> Stepped {
        let mut next = self.access(at)?;
        while let StepOutcome::At(at) = next
            && self.reads_a_constant(at)
        {
            next = self.access(at)?;
        }
        Ok(next)
    }

    fn reads_a_constant(&self, at: At) -> bool {
        match at {
            At::Settle(settle, _) => settle.reads_a_constant(self.memory),
            _ => false,
        }
    }

    fn access(&mut self, at: At) -> Stepped {
        let n = self.operation.weight();
        let is_try = matches!(self.operation, Operation::Try(_));
        match at {
            At::Idle => self.access(first_access(self.operation)),
            At::Parked { node } => self.access(match self.operation {
                Operation::AcquireCancel(_) => At::CancelReadState { node },
                _ => At::PollReadState { node },
            }),
            At::Finished => unreachable!("a thread that has finished takes no step"),

            // acquire and try: A
            At::ReadFront => go(At::ReadE { front: self.memory.front }),
            At::ReadE { front } => {
                let e = self.memory.e;
                match e.queue {
                    QueueState::Queued(_) if e.closed && !self.has(Mutant::ClosedDoesNotSettle) => {
                        settle(Caller::Return(Answer::Closed))
                    }
                    _ if e.closed => answer(Answer::Closed),
                    QueueState::Free(_) => go(At::FreeReadS { e }),
                    QueueState::Queued(tail) if self.has(Mutant::AcquireReadsFrontAfterE) => {
                        go(At::QueuedReadFront { tail })
                    }
                    QueueState::Queued(tail) => go(At::QueuedReadS { front, tail }),
                }
            }

            // ... FREE(e)
            At::FreeReadS { e } => {
                if self.memory.credit_ahead_of(e.free()) >= n {
                    go(At::FreeTake { e })
                } else if is_try {
                    answer(Answer::NoPermits)
                } else {
                    go(At::FreeStoreFront { e })
                }
            }
            At::FreeTake { e } => {
                let taken = if self.has(Mutant::TakeIsAStore) {
                    self.memory.store_e(QueueState::Free(e.free() + n))
                } else {
                    self.memory.consume(e, n)
                };
                if taken { self.taken(StepOutcome::Return(Answer::Ok)) } else { go(At::ReadFront) }
            }
            At::FreeStoreFront { e } => {
                self.settler().store_front(e.free());
                go(At::FreePublish { e })
            }
            At::FreePublish { e } => {
                // The offset is the permits consumed by now; a wrapped-around number is the same word.
                let QueueState::Free(consumed) = self.memory.e.queue else { return go(At::ReadFront) };
                let node = Node::new(State::Waiting { need: n, debt: 0 }, Link::Offset(consumed));
                match self.memory.publish(e, node) {
                    Some(node) => self.look(node),
                    None => go(At::ReadFront),
                }
            }

            // ... QUEUED(t)
            At::QueuedReadFront { tail } => go(At::QueuedReadS { front: self.memory.front, tail }),
            At::QueuedReadS { front, tail } => {
                if self.memory.credit_ahead_of(front) >= n {
                    go(if is_try { At::SessionReadTail { tail } } else { At::QueuedReadDone { tail } })
                } else if is_try {
                    answer(Answer::NoPermits)
                } else {
                    go(At::Enqueue { tail })
                }
            }
            At::QueuedReadDone { tail } => {
                if self.memory.done == Some(tail) {
                    go(At::SessionReadTail { tail })
                } else {
                    go(At::Enqueue { tail })
                }
            }
            // ... settles, or knows by the offset of a final tail that the queue is settled
            At::SessionReadTail { tail } => {
                let Node { state, link, .. } = *self.memory.node(tail);
                match link {
                    _ if self.way == 0 || !state.is_final() => settle(Caller::Acquire),
                    Link::Offset(offset) => go(At::SettledReadS { tail, end: offset + state.consumed() }),
                    Link::Prev(_) if self.has(Mutant::SessionEndsBehindWaiter) => {
                        go(At::SettledReadS { tail, end: self.memory.front })
                    }
                    Link::Prev(_) => settle(Caller::Acquire),
                }
            }
            At::SettledReadS { tail, end } => {
                if self.memory.credit_ahead_of(end) >= n {
                    go(At::Take { tail, end })
                } else if is_try {
                    answer(Answer::NoPermits)
                } else {
                    go(At::Enqueue { tail })
                }
            }
            // ... closes the session
            At::Take { tail, end } if self.way == 0 => {
                if self.memory.cas_e(E::open(QueueState::Queued(tail)), QueueState::Free(end + n)) {
                    self.taken(StepOutcome::Return(Answer::Ok))
                } else {
                    go(At::ReadFront)
                }
            }
            // ... passes through
            At::Take { tail, end } => {
                let node = Node::new(State::Granted { consumed: n, of_more: false }, Link::Offset(end));
                match self.memory.publish(E::open(QueueState::Queued(tail)), node) {
                    Some(node) => self.taken(StepOutcome::At(At::TakeStoreNext { tail, node })),
                    None => go(At::ReadFront),
                }
            }
            At::TakeStoreNext { tail, node } => {
                self.memory.store_next(tail, node);
                answer(Answer::Ok)
            }

            // ENQUEUE
            At::Enqueue { tail } if self.has(Mutant::EnqueueIsAStore) => {
                if self.memory.e == E::open(QueueState::Queued(tail)) {
                    go(At::EnqueueStore { tail })
                } else {
                    go(At::ReadFront)
                }
            }
            At::EnqueueStore { tail } => {
                let node = Node::new(State::Waiting { need: n, debt: 0 }, Link::Prev(tail));
                let node = self.memory.push(node);
                go(At::EnqueueStoreNext { tail, node })
            }
            At::Enqueue { tail } => {
                let node = Node::new(State::Waiting { need: n, debt: 0 }, Link::Prev(tail));
                match self.memory.publish(E::open(QueueState::Queued(tail)), node) {
                    Some(node) => go(At::EnqueueStoreNext { tail, node }),
                    None => go(At::ReadFront),
                }
            }
            At::EnqueueStoreNext { tail, node } => {
                self.memory.store_next(tail, node);
                self.look(node)
            }

            // LOOK: the recheck of a waiter that has published its node
            At::LookReadS { node } => go(At::LookReadE { node, s: self.memory.s }),
            At::LookReadE { node, s } => go(At::LookReadFront { node, s, closed: self.memory.e.closed }),
            At::LookReadEFirst { node } => go(At::LookThenReadS { node, closed: self.memory.e.closed }),
            At::LookThenReadS { node, closed } => go(At::LookReadFront { node, s: self.memory.s, closed }),
            At::LookReadFront { node, s, closed } => {
                let closed = closed && !self.has(Mutant::LookIgnoresClosed);
                if closed || self.memory.ahead(s, self.memory.front) > 0 {
                    settle(Caller::Look { node })
                } else {
                    go(At::LookReadState { node })
                }
            }
            At::LookReadState { node } => match self.memory.node(node).state {
                State::Granted { .. } if self.has(Mutant::LookReturnsAtOnce) => answer(Answer::Ok),
                _ => self.access(At::PollReadState { node }),
            },

            // a poll: the thread that made the node final may have stopped before the next node, so the poll
            // settles before returning, unless there was no credit for the next node
            At::PollReadState { node } => match self.memory.node(node).state {
                State::Waiting { .. } => Ok(StepOutcome::Park(node)),
                State::Granted { .. } if self.has(Mutant::GrantedPollDoesNotSettle) => answer(Answer::Ok),
                State::Granted { of_more: false, .. } => answer(Answer::Ok),
                State::Granted { of_more: true, .. } => go(At::GrantedReadS),
                State::Void { .. } if self.has(Mutant::ClosedPollDoesNotSettle) => answer(Answer::Closed),
                State::Void { .. } => go(At::VoidReadE { returns: Answer::Closed }),
            },
            At::GrantedReadS => go(At::GrantedReadFront { s: self.memory.s }),
            At::GrantedReadFront { s } => {
                if self.memory.ahead(s, self.memory.front) > 0 {
                    settle(Caller::Return(Answer::Ok))
                } else {
                    answer(Answer::Ok)
                }
            }
            At::VoidReadE { returns } => match self.memory.e.queue {
                QueueState::Queued(_) => settle(Caller::Return(returns)),
                QueueState::Free(_) => answer(returns),
            },

            // release and add
            At::AddToS => {
                self.memory.s += n;
                go(At::ReleaseReadE)
            }
            At::ReleaseReadE => match self.memory.e.queue {
                QueueState::Free(_) => answer(Answer::Done),
                QueueState::Queued(tail) => go(At::ReleaseReadDone { tail }),
            },
            At::ReleaseReadDone { tail } => {
                if self.memory.done == Some(tail) || self.has(Mutant::ReleaseDoesNotSettle) {
                    answer(Answer::Done)
                } else {
                    settle(Caller::Return(Answer::Done))
                }
            }

            // cancel
            At::CancelReadState { node } => match self.memory.node(node).state {
                state @ State::Waiting { .. } => go(At::CancelCas { node, state }),
                State::Granted { .. } => go(At::AddToS),
                State::Void { .. } if self.has(Mutant::CancelOfClosedDoesNotSettle) => answer(Answer::Done),
                State::Void { .. } => go(At::VoidReadE { returns: Answer::Done }),
            },
            At::CancelCas { node, state } => {
                let consumed = if self.has(Mutant::CancelLosesDebt) { 0 } else { state.consumed() };
                if !self.memory.cas_state(node, state, State::Void { consumed }) {
                    go(At::CancelReadState { node })
                } else if self.has(Mutant::CancelDoesNotLook)
                    || n == 1 && self.has(Mutant::CancelOfOneDoesNotLook)
                {
                    answer(Answer::Done)
                } else {
                    go(At::CancelReadS)
                }
            }
            At::CancelReadS => go(At::CancelReadFront { s: self.memory.s }),
            At::CancelReadFront { s } => {
                if self.memory.ahead(s, self.memory.front) > 0 {
                    settle(Caller::Return(Answer::Done))
                } else {
                    answer(Answer::Done)
                }
            }

            // close
            At::Close => {
                self.memory.e.closed = true;
                match self.memory.e.queue {
                    QueueState::Queued(_) => settle(Caller::Return(Answer::Done)),
                    QueueState::Free(_) => answer(Answer::Done),
                }
            }

            // lower
            At::LowerReadE if self.has(Mutant::LowerDecreasesS) => {
                self.memory.s -= n;
                answer(Answer::Done)
            }
            At::LowerReadE => {
                let e = self.memory.e;
                match e.queue {
                    QueueState::Free(_) => go(At::LowerFree { e }),
                    QueueState::Queued(_) => settle(Caller::Lower),
                }
            }
            At::LowerFree { e } => {
                if self.memory.consume(e, n) {
                    answer(Answer::Done)
                } else {
                    go(At::LowerReadE)
                }
            }
            At::LowerSettled { e, end } => {
                let node = Node::new(State::Granted { consumed: n, of_more: false }, Link::Offset(end));
                match self.memory.publish(e, node) {
                    Some(node) => go(At::LowerStoreNext { tail: e.tail(), node }),
                    None => go(At::LowerReadE),
                }
            }
            At::LowerStoreNext { tail, node } => {
                self.memory.store_next(tail, node);
                answer(Answer::Done)
            }
            At::LowerBlocked { node, state } => {
                let State::Waiting { need, debt } = state else { unreachable!("a blocked node waits") };
                let more = State::Waiting { need, debt: debt + n };
                if self.has(Mutant::DebtIsAStore) {
                    self.memory.store_state(node, more);
                    answer(Answer::Done)
                } else if self.memory.cas_state(node, state, more) {
                    answer(Answer::Done)
                } else {
                    go(At::LowerReadE)
                }
            }

            // available
            At::AvailableReadE => {
                let e = self.memory.e;
                match e.queue {
                    QueueState::Free(consumed) => go(At::AvailableReadS { e, consumed }),
                    QueueState::Queued(_) => settle(Caller::Available),
                }
            }
            At::AvailableReadS { e, consumed } => {
                let permits = self.memory.credit_ahead_of(consumed).max(0);
                if self.has(Mutant::AvailableReadsEOnce) {
                    return answer(Answer::Available(permits));
                }
                go(At::AvailableReadEAgain { e, permits })
            }
            At::AvailableReadEAgain { e, permits } => {
                if self.memory.is_e(e) {
                    answer(Answer::Available(permits))
                } else {
                    go(At::AvailableReadE)
                }
            }

            // notify
            At::NotifyReadE => {
                let e = self.memory.e;
                match e.queue {
                    QueueState::Free(consumed) => go(At::NotifyReadS { e, consumed }),
                    QueueState::Queued(_) => settle(Caller::Notify),
                }
            }
            At::NotifyReadS { e, consumed } => {
                let s = self.memory.s;
                if self.memory.ahead(s, consumed) < 1 {
                    go(At::NotifyCredit { s })
                } else if self.has(Mutant::NotifyReadsEOnce) {
                    answer(Answer::Done)
                } else {
                    go(At::NotifyReadEAgain { e })
                }
            }
            At::NotifyReadEAgain { e } => {
                if self.memory.is_e(e) {
                    answer(Answer::Done)
                } else {
                    go(At::NotifyReadE)
                }
            }
            At::NotifyCredit { s } => {
                if self.memory.ahead(self.memory.s, s) == 0 || self.has(Mutant::NotifyAddsBlindly) {
                    self.memory.s += 1;
                    go(At::ReleaseReadE)
                } else {
                    go(At::NotifyReadE)
                }
            }

            At::Settle(settle, caller) => match self.settler().access(settle)? {
                settle::AccessOutcome::At(settle) => go(At::Settle(settle, caller)),
                settle::AccessOutcome::Returns(outcome) => self.settled(outcome, caller),
            },
        }
    }

    /// Continues after `settle`.
    fn settled(&self, outcome: Outcome, caller: Caller) -> Stepped {
        let is_try = matches!(self.operation, Operation::Try(_));
        match (caller, outcome) {
            (Caller::Return(returns), _) => answer(returns),
            (Caller::Look { node }, _) => go(At::LookReadState { node }),

            (Caller::Acquire, Outcome::Free) => go(At::ReadFront),
            (Caller::Acquire, Outcome::Blocked { .. }) if is_try => answer(Answer::NoPermits),
            (Caller::Acquire, Outcome::Blocked { tail, .. }) => go(At::Enqueue { tail }),
            (Caller::Acquire, Outcome::Settled { e, .. }) if e.closed => go(At::ReadFront),
            (Caller::Acquire, Outcome::Settled { e, end }) => go(At::SettledReadS { tail: e.tail(), end }),

            (Caller::Lower, Outcome::Free) => go(At::LowerReadE),
            (Caller::Lower, Outcome::Blocked { node, state, .. }) => go(At::LowerBlocked { node, state }),
            (Caller::Lower, Outcome::Settled { e, end }) => go(At::LowerSettled { e, end }),

            (Caller::Available, Outcome::Free) => go(At::AvailableReadE),
            (Caller::Available, Outcome::Blocked { .. }) => answer(Answer::Available(0)),
            (Caller::Available, Outcome::Settled { e, end }) => go(At::AvailableReadS { e, consumed: end }),

            (Caller::Notify, Outcome::Free) => go(At::NotifyReadE),
            (Caller::Notify, Outcome::Blocked { s, .. }) => go(At::NotifyCredit { s }),
            (Caller::Notify, Outcome::Settled { e, end }) => go(At::NotifyReadS { e, consumed: end }),
        }
    }

    /// Continues after a CAS on E that took permits.
    fn taken(&self, next: StepOutcome) -> Stepped {
        if self.memory.consumed() > self.memory.s { Err(Violation::OverAdmission) } else { Ok(next) }
    }

    /// Continues after the thread's node was published.
    fn look(&self, node: NodeId) -> Stepped {
        if self.has(Mutant::NoLook) {
            go(At::LookReadState { node })
        } else if self.has(Mutant::LookReadsSAfterE) {
            go(At::LookReadEFirst { node })
        } else {
            go(At::LookReadS { node })
        }
    }
}

fn first_access(operation: Operation) -> At {
    match operation {
        Operation::Acquire(_) | Operation::AcquireCancel(_) | Operation::Try(_) => At::ReadFront,
        Operation::Release(_) | Operation::Add(_) => At::AddToS,
        Operation::Lower(_) => At::LowerReadE,
        Operation::Close => At::Close,
        Operation::Available => At::AvailableReadE,
        Operation::Notify => At::NotifyReadE,
    }
}

fn go(at: At) -> Stepped {
    Ok(StepOutcome::At(at))
}

fn settle(caller: Caller) -> Stepped {
    go(At::Settle(Settle::ReadS, caller))
}

fn answer(answer: Answer) -> Stepped {
    Ok(StepOutcome::Return(answer))
}
