//! `settle`: grants or closes the waiters at the front of the queue, as far as due. Any thread may settle.

use std::fmt;

use crate::memory::{E, Link, Memory, NodeId, QueueState, State};
use crate::mutants::{Mutant, Mutants};
use crate::operation::Permits;
use crate::violation::Violation;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Walk {
    s: Permits,
    tail: NodeId,
    closing: bool,
    /// The last final node passed.
    last: Option<NodeId>,
}

/// The next shared access of a settling thread. `n` is the current node of the walk, and `off` the permits
/// consumed by all nodes before `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Settle {
    ReadS,
    ReadDone { s: Permits },
    ReadE { s: Permits, done: Option<NodeId> },
    ReadDoneLink { walk: Walk, n: NodeId },
    BackReadLink { walk: Walk, y: NodeId },
    BackCompleteNext { walk: Walk, y: NodeId, prev: NodeId },
    ReadState { walk: Walk, n: NodeId, off: Permits },
    Close { walk: Walk, n: NodeId, off: Permits, state: State },
    ReadSAgain { walk: Walk, n: NodeId, off: Permits, state: State },
    BlockedStoreFront { walk: Walk, n: NodeId, off: Permits, state: State },
    BlockedStoreDone { walk: Walk, n: NodeId, state: State, done: NodeId },
    ReadEAgain { walk: Walk, n: NodeId, off: Permits, state: State },
    Grant { walk: Walk, n: NodeId, off: Permits, state: State },
    AtTailReadE { walk: Walk, n: NodeId, off: Permits },
    SettledStoreFront { e: E, end: Permits },
    SettledStoreDone { e: E, end: Permits },
    ReadNext { walk: Walk, n: NodeId, off: Permits },
    ReadLink { walk: Walk, x: NodeId, off: Permits },
    StoreOffset { walk: Walk, x: NodeId, off: Permits },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Free,
    /// `node` waits in `state`, and `s` does not cover its need.
    Blocked {
        tail: NodeId,
        node: NodeId,
        state: State,
        s: Permits,
    },
    Settled {
        e: E,
        end: Permits,
    },
}

impl Walk {
    fn blocked_by(self, node: NodeId, state: State) -> Outcome {
        Outcome::Blocked { tail: self.tail, node, state, s: self.s }
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Walk { s, tail, closing, last } = self;
        write!(f, "s={s} t=#{tail}")?;
        if *closing {
            f.write_str(" closing")?;
        }
        if let Some(last) = last { write!(f, " last=#{last}") } else { Ok(()) }
    }
}

impl Settle {
    /// True if the next access reads a constant: a final node's state, an offset, or a `next` that is set.
    pub(crate) fn reads_a_constant(self, memory: &Memory) -> bool {
        match self {
            Settle::ReadState { n, .. } => memory.node(n).state.is_final(),
            Settle::ReadDoneLink { n: node, .. }
            | Settle::BackReadLink { y: node, .. }
            | Settle::ReadLink { x: node, .. } => matches!(memory.node(node).link, Link::Offset(_)),
            Settle::ReadNext { n, .. } => memory.node(n).next.is_some(),
            _ => false,
        }
    }
}

pub(crate) enum AccessOutcome {
    At(Settle),
    Returns(Outcome),
}

pub(crate) struct Settler<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) mutants: Mutants,
}

impl Settler<'_> {
    pub(crate) fn access(&mut self, settle: Settle) -> Result<AccessOutcome, Violation> {
        let go = |settle| Ok(AccessOutcome::At(settle));
        let returns = |outcome| Ok(AccessOutcome::Returns(outcome));
        match settle {
            Settle::ReadS => go(Settle::ReadDone { s: self.memory.s }),
            Settle::ReadDone { s } => go(Settle::ReadE { s, done: self.memory.done }),
            Settle::ReadE { s, done } => {
                let E { queue, closed: closing } = self.memory.e;
                let QueueState::Queued(tail) = queue else { return returns(Outcome::Free) };
                let walk = Walk { s, tail, closing, last: None };
                go(match done {
                    Some(n) => Settle::ReadDoneLink { walk, n },
                    None => Settle::BackReadLink { walk, y: tail },
                })
            }
            Settle::ReadDoneLink { walk, n } => match self.memory.node(n).link {
                Link::Offset(off) => go(Settle::ReadState { walk, n, off }),
                Link::Prev(_) => Err(Violation::Invariant("done has no offset")),
            },

            // WALK_BACK: completes `next` on the way, since a publisher may have stopped before its own store
            Settle::BackReadLink { walk, y } => match self.memory.node(y).link {
                Link::Offset(off) => go(Settle::ReadState { walk, n: y, off }),
                Link::Prev(prev) => go(Settle::BackCompleteNext { walk, y, prev }),
            },
            Settle::BackCompleteNext { walk, y, prev } => {
                if self.memory.node(prev).next.is_none() {
                    self.memory.store_next(prev, y);
                }
                go(Settle::BackReadLink { walk, y: prev })
            }

            Settle::ReadState { walk, n, off } => {
                let state = self.memory.node(n).state;
                let State::Waiting { need, debt } = state else {
                    let off = off + state.consumed();
                    let walk = Walk { last: Some(n), ..walk };
                    return go(if n == walk.tail {
                        Settle::AtTailReadE { walk, n, off }
                    } else {
                        Settle::ReadNext { walk, n, off }
                    });
                };
                go(if walk.closing {
                    Settle::Close { walk, n, off, state }
                } else if self.memory.ahead(walk.s, off + debt) < need {
                    if self.has(Mutant::BlockedIsPassedOver) && n != walk.tail {
                        Settle::ReadNext { walk, n, off }
                    } else if self.has(Mutant::BlockedReadsSOnce) {
                        Settle::BlockedStoreFront { walk, n, off, state }
                    } else {
                        Settle::ReadSAgain { walk, n, off, state }
                    }
                } else if self.has(Mutant::GrantDoesNotReadE) {
                    Settle::Grant { walk, n, off, state }
                } else {
                    Settle::ReadEAgain { walk, n, off, state }
                })
            }
            Settle::Close { walk, n, off, state } => {
                let consumed = if self.has(Mutant::CloseLosesDebt) { 0 } else { state.consumed() };
                let void = State::Void { consumed };
                if self.has(Mutant::CloseIsAStore) {
                    self.memory.store_state(n, void);
                } else {
                    self.memory.cas_state(n, state, void);
                }
                go(Settle::ReadState { walk, n, off })
            }
            // ... blocked, if S is unchanged
            Settle::ReadSAgain { walk, n, off, state } => {
                let s = self.memory.s;
                go(if self.memory.ahead(s, walk.s) == 0 {
                    Settle::BlockedStoreFront { walk, n, off, state }
                } else {
                    Settle::ReadState { walk: Walk { s, ..walk }, n, off }
                })
            }
            Settle::BlockedStoreFront { walk, n, off, state } => {
                let State::Waiting { need, debt } = state else { unreachable!("a blocked node waits") };
                let front = off + debt;
                self.store_front(if self.has(Mutant::FrontTooHigh) { front + need } else { front });
                let done = if self.has(Mutant::DoneIsTheBlockedNode) { Some(n) } else { walk.last };
                match done {
                    Some(done) => go(Settle::BlockedStoreDone { walk, n, state, done }),
                    None => returns(walk.blocked_by(n, state)),
                }
            }
            Settle::BlockedStoreDone { walk, n, state, done } => {
                self.store_done(done);
                returns(walk.blocked_by(n, state))
            }
            // The node before this one may be final because the semaphore was closed. Then this node must not
            // be granted, even if the closer has not reached it yet.
            Settle::ReadEAgain { walk, n, off, state } => go(if self.memory.e.closed {
                Settle::ReadState { walk: Walk { closing: true, ..walk }, n, off }
            } else {
                Settle::Grant { walk, n, off, state }
            }),
            Settle::Grant { walk, n, off, state } => {
                let State::Waiting { need, debt } = state else { unreachable!("a node is granted once") };
                let consumed = if self.has(Mutant::GrantForgetsDebt) { need } else { need + debt };
                // With a deficit, which the engine does not record here, the poll rechecks in any case.
                let of_more = debt > 0 || self.memory.ahead(walk.s, off) > need;
                let of_more = of_more && !self.has(Mutant::GrantIsNeverOfMore);
                let granted = State::Granted { consumed, of_more };
                if self.has(Mutant::GrantIsAStore) {
                    self.memory.store_state(n, granted);
                } else {
                    self.memory.cas_state(n, state, granted);
                }
                go(Settle::ReadState { walk, n, off })
            }

            Settle::AtTailReadE { walk, n, off } => {
                let settled = |e| Settle::SettledStoreFront { e, end: off };
                if self.has(Mutant::TailReadsEOnce) {
                    let e = E { queue: QueueState::Queued(n), closed: walk.closing };
                    return go(settled(e));
                }
                let e = self.memory.e;
                match e.queue {
                    QueueState::Free(_) => returns(Outcome::Free),
                    QueueState::Queued(tail) if tail == n => go(settled(e)),
                    QueueState::Queued(tail) => {
                        let walk = Walk { tail, closing: e.closed, ..walk };
                        go(Settle::ReadNext { walk, n, off })
                    }
                }
            }
            Settle::SettledStoreFront { e, end } => {
                self.store_front(if self.has(Mutant::FrontTooHighWhenSettled) { end + 1 } else { end });
                go(Settle::SettledStoreDone { e, end })
            }
            Settle::SettledStoreDone { e, end } => {
                self.store_done(e.tail());
                returns(Outcome::Settled { e, end })
            }

            Settle::ReadNext { walk, n, off } => match self.memory.node(n).next {
                Some(x) => go(Settle::ReadLink { walk, x, off }),
                None if self.has(Mutant::NullNextIsTheEnd) => {
                    let e = E { queue: QueueState::Queued(n), closed: walk.closing };
                    go(Settle::SettledStoreFront { e, end: off })
                }
                None => go(Settle::BackReadLink { walk, y: walk.tail }),
            },
            Settle::ReadLink { walk, x, off } => match self.memory.node(x).link {
                Link::Offset(off) => go(Settle::ReadState { walk, n: x, off }),
                Link::Prev(_) => go(Settle::StoreOffset { walk, x, off }),
            },
            Settle::StoreOffset { walk, x, off } => {
                self.memory.store_offset(x, off);
                go(Settle::ReadState { walk, n: x, off })
            }
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutants.has(mutant)
    }

    /// A plain store of a hint: a late store may lower the hint.
    pub(crate) fn store_front(&mut self, front: Permits) {
        if !self.has(Mutant::HintsAreNeverStored) {
            self.memory.front = front;
        }
    }

    /// A plain store of a hint: a late store may set the hint back.
    fn store_done(&mut self, done: NodeId) {
        if !self.has(Mutant::HintsAreNeverStored) {
            self.memory.done = Some(done);
        }
    }
}
