//! The operations, one shared access a step. [`settle`](crate::settle) is the part that they share.

use crate::memory::{E, Kind, Link, MAX_NODES, Memory, Node, NodeId, Permits, State};
use crate::mutants::Mutant;
use crate::programs::Operation;
use crate::settle::{Outcome, Settle};
use crate::spec::Answer;
use crate::violation::Violation;

/// The next shared access of a thread, and what the thread knows by then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum At {
    /// Between two operations. The first access of the next one calls it.
    Idle,
    /// All operations have returned.
    Finished,
    /// `acquire` has returned Pending. A poll reads the state of the thread's own node, and so does a cancellation.
    Parked {
        node: NodeId,
    },

    // acquire and try
    ReadFront,
    ReadE {
        front: Permits,
    },
    FreeReadS {
        e: E,
    },
    FreeTake {
        e: E,
    },
    FreePublish {
        e: E,
    },
    FreeStoreFront {
        node: NodeId,
    },
    QueuedReadFront {
        tail: NodeId,
    },
    QueuedReadS {
        front: Permits,
        tail: NodeId,
    },
    SettledReadS {
        tail: NodeId,
        end: Permits,
    },
    Take {
        tail: NodeId,
        end: Permits,
    },
    TakeStoreNext {
        tail: NodeId,
        node: NodeId,
    },
    Enqueue {
        tail: NodeId,
    },
    EnqueueStore {
        tail: NodeId,
    },
    EnqueueStoreNext {
        tail: NodeId,
        node: NodeId,
    },
    LookReadS {
        node: NodeId,
    },
    LookReadE {
        node: NodeId,
        s: Permits,
    },
    LookReadEFirst {
        node: NodeId,
    },
    LookThenReadS {
        node: NodeId,
        closed: bool,
    },
    LookReadFront {
        node: NodeId,
        s: Permits,
        closed: bool,
    },
    OwnState {
        node: NodeId,
    },

    // a woken poll
    GrantedReadS,
    GrantedReadFront {
        s: Permits,
    },
    VoidReadE {
        returns: Returns,
    },

    // release and add
    ReleaseAddS,
    ReleaseReadE,
    ReleaseReadDone {
        tail: NodeId,
    },

    // cancel
    CancelReadState {
        node: NodeId,
    },
    CancelCas {
        node: NodeId,
        state: State,
    },
    CancelReadS,
    CancelReadFront {
        s: Permits,
    },

    // lower
    LowerReadE,
    LowerFree {
        e: E,
    },
    LowerSettled {
        e: E,
        end: Permits,
    },
    LowerStoreNext {
        tail: NodeId,
        node: NodeId,
    },
    LowerBlocked {
        node: NodeId,
        state: State,
    },

    // available
    AvailableReadE,
    AvailableReadS {
        e: E,
        consumed: Permits,
    },
    AvailableReadEAgain {
        e: E,
        permits: Permits,
    },

    // notify
    NotifyReadE,
    NotifyReadS {
        e: E,
        consumed: Permits,
    },
    NotifyReadEAgain {
        e: E,
    },
    NotifyCredit {
        s: Permits,
    },

    /// In `settle`, and what for.
    Settle(Settle, Caller),
}

/// What the thread does when `settle` returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Caller {
    Acquire,
    Look {
        node: NodeId,
    },
    Available,
    Lower,
    Notify,
    /// Whatever the outcome, the operation returns this.
    Return(Returns),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Returns {
    Ok,
    Closed,
    Done,
}

/// What a step leads to.
pub(crate) enum Next {
    At(At),
    Return(Answer),
    /// `acquire` returns Pending, and the thread sleeps until its node is final, or cancels.
    Park(NodeId),
}

pub(crate) type Stepped = Result<Next, Violation>;

/// One thread's step.
pub(crate) struct Machine<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) operation: Operation,
    pub(crate) mutant: Option<Mutant>,
    /// Which of the [`ways`] on is taken.
    pub(crate) way: u8,
}

/// How many ways there are on from here: taking in a settled queue closes the session, or passes through.
pub(crate) fn ways(at: &At) -> u8 {
    if matches!(at, At::Take { .. }) { 2 } else { 1 }
}

fn go(at: At) -> Stepped {
    Ok(Next::At(at))
}

fn done() -> Stepped {
    Ok(Next::Return(Answer::Done))
}

impl Machine<'_> {
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// n
    fn weight(&self) -> Permits {
        self.operation.weight()
    }

    /// The next step, and then those that read what cannot change any more: as no other step can tell when they happen, it does not
    /// matter when they do.
    pub(crate) fn step(&mut self, at: At) -> Stepped {
        let mut next = self.access(at)?;
        while let Next::At(at) = next
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
        match at {
            At::Idle => self.call(),
            At::Parked { node } => match self.operation {
                Operation::AcquireCancel(_) => self.cancel_read_state(node),
                _ => self.own_state(node),
            },
            At::Finished => unreachable!("a thread that has finished takes no step"),

            At::ReadFront => self.read_front(),
            At::ReadE { front } => self.read_e(front),
            At::FreeReadS { e } => self.free_read_s(e),
            At::FreeTake { e } => self.free_take(e),
            At::FreePublish { e } => self.free_publish(e),
            At::FreeStoreFront { node } => {
                let consumed = self.memory.offset(node);
                self.store_front(consumed);
                self.published(node)
            }
            At::QueuedReadFront { tail } => go(At::QueuedReadS { front: self.memory.front, tail }),
            At::QueuedReadS { front, tail } => self.queued_read_s(front, tail),
            At::SettledReadS { tail, end } => self.settled_read_s(tail, end),
            At::Take { tail, end } => self.take(tail, end),
            At::TakeStoreNext { tail, node } => {
                self.memory.store_next(tail, node);
                Ok(Next::Return(Answer::Ok))
            }
            At::Enqueue { tail } => self.enqueue(tail),
            At::EnqueueStore { tail } => {
                let node = self.memory.push(self.waiting(tail));
                go(At::EnqueueStoreNext { tail, node })
            }
            At::EnqueueStoreNext { tail, node } => {
                self.memory.store_next(tail, node);
                self.published(node)
            }
            At::LookReadS { node } => go(At::LookReadE { node, s: self.memory.s }),
            At::LookReadE { node, s } => go(At::LookReadFront { node, s, closed: self.memory.e.closed }),
            At::LookReadEFirst { node } => go(At::LookThenReadS { node, closed: self.memory.e.closed }),
            At::LookThenReadS { node, closed } => go(At::LookReadFront { node, s: self.memory.s, closed }),
            At::LookReadFront { node, s, closed } => {
                let closed = closed && !self.has(Mutant::LookIgnoresClosed);
                if closed || s > self.memory.front {
                    self.settle(Caller::Look { node })
                } else {
                    go(At::OwnState { node })
                }
            }
            At::OwnState { node } => match self.memory.node(node).state {
                State::Granted { .. } if self.has(Mutant::LookReturnsAtOnce) => self.returns(Returns::Ok),
                _ => self.own_state(node),
            },

            At::GrantedReadS => go(At::GrantedReadFront { s: self.memory.s }),
            At::GrantedReadFront { s } => {
                if s > self.memory.front {
                    self.settle(Caller::Return(Returns::Ok))
                } else {
                    Ok(Next::Return(Answer::Ok))
                }
            }
            At::VoidReadE { returns } => match self.memory.e.kind {
                Kind::Queued(_) => self.settle(Caller::Return(returns)),
                Kind::Free(_) => self.returns(returns),
            },

            At::ReleaseAddS => {
                self.memory.s += self.weight();
                go(At::ReleaseReadE)
            }
            At::ReleaseReadE => match self.memory.e.kind {
                Kind::Free(_) => done(),
                Kind::Queued(tail) => go(At::ReleaseReadDone { tail }),
            },
            At::ReleaseReadDone { tail } => {
                let settled = self.memory.done == Some(tail);
                if settled || self.has(Mutant::ReleaseDoesNotSettle) {
                    done()
                } else {
                    self.settle(Caller::Return(Returns::Done))
                }
            }

            At::CancelReadState { node } => self.cancel_read_state(node),
            At::CancelCas { node, state } => self.cancel_cas(node, state),
            At::CancelReadS => go(At::CancelReadFront { s: self.memory.s }),
            At::CancelReadFront { s } => {
                if s > self.memory.front {
                    self.settle(Caller::Return(Returns::Done))
                } else {
                    done()
                }
            }

            At::LowerReadE => self.lower_read_e(),
            At::LowerFree { e } => self.lower_free(e),
            At::LowerSettled { e, end } => self.lower_settled(e, end),
            At::LowerStoreNext { tail, node } => {
                self.memory.store_next(tail, node);
                done()
            }
            At::LowerBlocked { node, state } => self.lower_blocked(node, state),

            At::AvailableReadE => self.available_read_e(),
            At::AvailableReadS { e, consumed } => {
                let permits = (self.memory.s - consumed).max(0);
                if self.has(Mutant::AvailableReadsEOnce) {
                    return Ok(Next::Return(Answer::Available(permits as u8)));
                }
                go(At::AvailableReadEAgain { e, permits })
            }
            At::AvailableReadEAgain { e, permits } => {
                if self.memory.e == e {
                    Ok(Next::Return(Answer::Available(permits as u8)))
                } else {
                    go(At::AvailableReadE)
                }
            }

            At::NotifyReadE => self.notify_read_e(),
            At::NotifyReadS { e, consumed } => {
                let s = self.memory.s;
                if s - consumed < 1 {
                    go(At::NotifyCredit { s })
                } else if self.has(Mutant::NotifyReadsEOnce) {
                    done()
                } else {
                    go(At::NotifyReadEAgain { e })
                }
            }
            At::NotifyReadEAgain { e } => {
                if self.memory.e == e {
                    done()
                } else {
                    go(At::NotifyReadE)
                }
            }
            At::NotifyCredit { s } => {
                if self.memory.s != s && !self.has(Mutant::NotifyAddsBlindly) {
                    return go(At::NotifyReadE);
                }
                self.memory.s += 1;
                go(At::ReleaseReadE)
            }

            At::Settle(settle, caller) => self.settle_access(settle, caller),
        }
    }

    /// The first access of an operation.
    fn call(&mut self) -> Stepped {
        match self.operation {
            Operation::Acquire(_) | Operation::AcquireCancel(_) | Operation::Try(_) => self.read_front(),
            Operation::Release(_) | Operation::Add(_) => self.access(At::ReleaseAddS),
            Operation::Lower(permits) => {
                if self.has(Mutant::LowerDecreasesS) {
                    self.memory.s -= permits;
                    return done();
                }
                self.lower_read_e()
            }
            Operation::Close => {
                self.memory.e.closed = true;
                match self.memory.e.kind {
                    Kind::Queued(_) => self.settle(Caller::Return(Returns::Done)),
                    Kind::Free(_) => done(),
                }
            }
            Operation::Available => self.available_read_e(),
            Operation::Notify => self.notify_read_e(),
        }
    }

    fn returns(&self, returns: Returns) -> Stepped {
        Ok(Next::Return(match returns {
            Returns::Ok => Answer::Ok,
            Returns::Closed => Answer::Closed,
            Returns::Done => Answer::Done,
        }))
    }

    fn settle(&self, caller: Caller) -> Stepped {
        go(At::Settle(Settle::ReadS, caller))
    }

    /// `settle` has returned.
    pub(crate) fn settled(&self, outcome: Outcome, caller: Caller) -> Stepped {
        match (caller, outcome) {
            (Caller::Return(returns), _) => self.returns(returns),
            (Caller::Look { node }, _) => go(At::OwnState { node }),

            (Caller::Acquire, Outcome::Free) => go(At::ReadFront),
            (Caller::Acquire, Outcome::Settled { e: E { closed: true, .. }, .. }) => go(At::ReadFront),
            (Caller::Acquire, Outcome::Settled { tail, end, .. }) => go(At::SettledReadS { tail, end }),
            (Caller::Acquire, Outcome::Blocked { tail, .. }) => self.wait_or_fail(tail),

            (Caller::Lower, Outcome::Free) => go(At::LowerReadE),
            (Caller::Lower, Outcome::Settled { e, end, .. }) => go(At::LowerSettled { e, end }),
            (Caller::Lower, Outcome::Blocked { node, state, .. }) => go(At::LowerBlocked { node, state }),

            (Caller::Available, Outcome::Free) => go(At::AvailableReadE),
            (Caller::Available, Outcome::Settled { e, end, .. }) => {
                go(At::AvailableReadS { e, consumed: end })
            }
            (Caller::Available, Outcome::Blocked { .. }) => Ok(Next::Return(Answer::Available(0))),

            (Caller::Notify, Outcome::Free) => go(At::NotifyReadE),
            (Caller::Notify, Outcome::Settled { e, end, .. }) => go(At::NotifyReadS { e, consumed: end }),
            (Caller::Notify, Outcome::Blocked { s, .. }) => go(At::NotifyCredit { s }),
        }
    }
}

/// acquire and try
impl Machine<'_> {
    fn read_front(&self) -> Stepped {
        go(At::ReadE { front: self.memory.front })
    }

    fn read_e(&self, front: Permits) -> Stepped {
        let e = self.memory.e;
        match e.kind {
            Kind::Queued(_) if e.closed && !self.has(Mutant::ClosedDoesNotSettle) => {
                self.settle(Caller::Return(Returns::Closed))
            }
            _ if e.closed => Ok(Next::Return(Answer::Closed)),
            Kind::Free(_) => go(At::FreeReadS { e }),
            Kind::Queued(tail) if self.has(Mutant::AcquireReadsFrontAfterE) => {
                go(At::QueuedReadFront { tail })
            }
            Kind::Queued(tail) => go(At::QueuedReadS { front, tail }),
        }
    }

    fn free_read_s(&self, e: E) -> Stepped {
        if self.memory.s - consumed_if_free(e) >= self.weight() {
            go(At::FreeTake { e })
        } else if self.is_try() {
            Ok(Next::Return(Answer::NoPermits))
        } else {
            go(At::FreePublish { e })
        }
    }

    fn free_take(&mut self, e: E) -> Stepped {
        let consumed = consumed_if_free(e) + self.weight();
        let e = if self.has(Mutant::TakeIsAStore) { self.memory.e } else { e };
        if self.memory.cas_e(e, Kind::Free(consumed)) {
            self.taken(Next::Return(Answer::Ok))
        } else {
            go(At::ReadFront)
        }
    }

    fn free_publish(&mut self, e: E) -> Stepped {
        let state = State::Waiting { need: self.weight(), debt: 0 };
        let node = Node::new(state, Link::Offset(consumed_if_free(e)));
        match self.publish(e, node)? {
            Some(node) => go(At::FreeStoreFront { node }),
            None => go(At::ReadFront),
        }
    }

    fn queued_read_s(&self, front: Permits, tail: NodeId) -> Stepped {
        if self.memory.s - front < self.weight() {
            self.wait_or_fail(tail)
        } else {
            self.settle(Caller::Acquire)
        }
    }

    fn settled_read_s(&self, tail: NodeId, end: Permits) -> Stepped {
        if self.memory.s - end < self.weight() { self.wait_or_fail(tail) } else { go(At::Take { tail, end }) }
    }

    fn take(&mut self, tail: NodeId, end: Permits) -> Stepped {
        let e = E::open(Kind::Queued(tail));
        let consumed = self.weight();
        if self.way == 0 {
            // Closes the session.
            if self.memory.cas_e(e, Kind::Free(end + consumed)) {
                self.taken(Next::Return(Answer::Ok))
            } else {
                go(At::ReadFront)
            }
        } else {
            // Passes through.
            let node = Node::new(State::Granted { consumed }, Link::Offset(end));
            match self.publish(e, node)? {
                Some(node) => self.taken(Next::At(At::TakeStoreNext { tail, node })),
                None => go(At::ReadFront),
            }
        }
    }

    /// Permits have been taken by a CAS on E.
    fn taken(&self, next: Next) -> Stepped {
        if self.memory.consumed() > self.memory.s { Err(Violation::OverAdmission) } else { Ok(next) }
    }

    fn wait_or_fail(&self, tail: NodeId) -> Stepped {
        if self.is_try() { Ok(Next::Return(Answer::NoPermits)) } else { go(At::Enqueue { tail }) }
    }

    fn waiting(&self, tail: NodeId) -> Node {
        Node::new(State::Waiting { need: self.weight(), debt: 0 }, Link::Prev(tail))
    }

    fn enqueue(&mut self, tail: NodeId) -> Stepped {
        let e = E::open(Kind::Queued(tail));
        if self.has(Mutant::EnqueueIsAStore) {
            return go(if self.memory.e == e { At::EnqueueStore { tail } } else { At::ReadFront });
        }
        match self.publish(e, self.waiting(tail))? {
            Some(node) => go(At::EnqueueStoreNext { tail, node }),
            None => go(At::ReadFront),
        }
    }

    /// The node is in the queue. LOOK comes next.
    fn published(&self, node: NodeId) -> Stepped {
        go(if self.has(Mutant::NoLook) {
            At::OwnState { node }
        } else if self.has(Mutant::LookReadsSAfterE) {
            At::LookReadEFirst { node }
        } else {
            At::LookReadS { node }
        })
    }

    fn publish(&mut self, e: E, node: Node) -> Result<Option<NodeId>, Violation> {
        if self.memory.nodes().len() == MAX_NODES {
            return Err(Violation::Invariant("more nodes are published than there are operations"));
        }
        Ok(self.memory.publish(e, node))
    }

    /// A plain store, which may come late.
    pub(crate) fn store_front(&mut self, front: Permits) {
        if !self.has(Mutant::HintsAreNeverStored) {
            self.memory.front = front;
        }
    }

    /// A plain store, which may come late.
    pub(crate) fn store_done(&mut self, done: NodeId) {
        if !self.has(Mutant::HintsAreNeverStored) {
            self.memory.done = Some(done);
        }
    }

    /// What a poll returns. It settles before, as the thread that has made this node final may have stopped before the next one.
    fn own_state(&self, node: NodeId) -> Stepped {
        match self.memory.node(node).state {
            State::Waiting { .. } => Ok(Next::Park(node)),
            State::Granted { .. } if self.has(Mutant::GrantedPollDoesNotSettle) => self.returns(Returns::Ok),
            State::Granted { .. } => go(At::GrantedReadS),
            State::Void { .. } if self.has(Mutant::ClosedPollDoesNotSettle) => self.returns(Returns::Closed),
            State::Void { .. } => go(At::VoidReadE { returns: Returns::Closed }),
        }
    }

    fn is_try(&self) -> bool {
        matches!(self.operation, Operation::Try(_))
    }
}

/// cancel
impl Machine<'_> {
    fn cancel_read_state(&mut self, node: NodeId) -> Stepped {
        match self.memory.node(node).state {
            state @ State::Waiting { .. } => go(At::CancelCas { node, state }),
            State::Granted { .. } => go(At::ReleaseAddS),
            State::Void { .. } if self.has(Mutant::CancelOfClosedDoesNotSettle) => done(),
            State::Void { .. } => go(At::VoidReadE { returns: Returns::Done }),
        }
    }

    fn cancel_cas(&mut self, node: NodeId, state: State) -> Stepped {
        let consumed = if self.has(Mutant::CancelLosesDebt) { 0 } else { state.consumed() };
        if !self.memory.cas_state(node, state, State::Void { consumed }) {
            return go(At::CancelReadState { node });
        }
        let no_look = self.has(Mutant::CancelDoesNotLook)
            || self.has(Mutant::CancelOfOneDoesNotLook) && self.weight() == 1;
        if no_look { done() } else { go(At::CancelReadS) }
    }
}

/// lower
impl Machine<'_> {
    fn lower_read_e(&self) -> Stepped {
        let e = self.memory.e;
        match e.kind {
            Kind::Free(_) => go(At::LowerFree { e }),
            Kind::Queued(_) => self.settle(Caller::Lower),
        }
    }

    fn lower_free(&mut self, e: E) -> Stepped {
        let consumed = consumed_if_free(e) + self.weight();
        if self.memory.cas_e(e, Kind::Free(consumed)) { done() } else { go(At::LowerReadE) }
    }

    fn lower_settled(&mut self, e: E, end: Permits) -> Stepped {
        let Kind::Queued(tail) = e.kind else { unreachable!("a settled queue has a tail") };
        let node = Node::new(State::Granted { consumed: self.weight() }, Link::Offset(end));
        match self.publish(e, node)? {
            Some(node) => go(At::LowerStoreNext { tail, node }),
            None => go(At::LowerReadE),
        }
    }

    fn lower_blocked(&mut self, node: NodeId, state: State) -> Stepped {
        let State::Waiting { need, debt } = state else { unreachable!("a blocked node waits") };
        let more = State::Waiting { need, debt: debt + self.weight() };
        if self.has(Mutant::DebtIsAStore) {
            self.memory.store_state(node, more);
            return done();
        }
        if self.memory.cas_state(node, state, more) { done() } else { go(At::LowerReadE) }
    }
}

/// available and notify
impl Machine<'_> {
    fn available_read_e(&self) -> Stepped {
        let e = self.memory.e;
        match e.kind {
            Kind::Free(consumed) => go(At::AvailableReadS { e, consumed }),
            Kind::Queued(_) => self.settle(Caller::Available),
        }
    }

    fn notify_read_e(&self) -> Stepped {
        let e = self.memory.e;
        match e.kind {
            Kind::Free(consumed) => go(At::NotifyReadS { e, consumed }),
            Kind::Queued(_) => self.settle(Caller::Notify),
        }
    }
}

fn consumed_if_free(e: E) -> Permits {
    match e.kind {
        Kind::Free(consumed) => consumed,
        Kind::Queued(_) => unreachable!("read as free"),
    }
}
