//! [`Memory`]: the threads' shared words, and their invariants.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::operation::Permits;
use crate::violation::Violation;

/// Limit on the nodes that a program may publish.
pub(crate) const MAX_NODES: usize = 10;

/// A node's index, in order of publication. Nodes are never reused here.
pub(crate) type NodeId = u8;

/// The number of bits in permit counters, which wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Words {
    /// For comparisons of order.
    pub(crate) ahead: u32,
    /// For comparisons of equality.
    pub(crate) same: u32,
}

impl Words {
    /// More than any program moves.
    pub(crate) const WIDE: Words = Words::of(Permits::BITS - 1);

    pub(crate) const fn of(bits: u32) -> Self {
        Words { ahead: bits, same: bits }
    }

    /// Returns the signed distance from `right` to `left`, modulo the words' range.
    fn ahead(self, left: Permits, right: Permits) -> Permits {
        let unused = Permits::BITS - self.ahead;
        left.wrapping_sub(right) << unused >> unused
    }

    fn are_same(self, left: Permits, right: Permits) -> bool {
        left.wrapping_sub(right) << (Permits::BITS - self.same) == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Waiting {
        need: Permits,
        debt: Permits,
    },
    /// Final.
    Granted {
        consumed: Permits,
        /// True if the granting thread knew of credit for nodes behind.
        of_more: bool,
    },
    /// Cancelled or closed; final.
    Void {
        consumed: Permits,
    },
}

impl State {
    pub(crate) fn is_final(self) -> bool {
        !matches!(self, State::Waiting { .. })
    }

    /// Permits that the node has consumed for ever. A deficit counts once added.
    pub(crate) fn consumed(self) -> Permits {
        match self {
            State::Waiting { debt, .. } => debt,
            State::Granted { consumed, .. } | State::Void { consumed } => consumed,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// The node published before this one.
    Prev(NodeId),
    /// All nodes before this one are final, and have consumed this number of permits.
    Offset(Permits),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) state: State,
    pub(crate) link: Link,
    pub(crate) next: Option<NodeId>,
}

impl Node {
    pub(crate) fn new(state: State, link: Link) -> Self {
        Node { state, link, next: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum QueueState {
    /// Permits ever consumed; no waiter is queued.
    Free(Permits),
    Queued(NodeId),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct E {
    pub(crate) queue: QueueState,
    pub(crate) closed: bool,
}

impl E {
    pub(crate) fn open(queue: QueueState) -> Self {
        E { queue, closed: false }
    }

    /// The e of FREE(e).
    pub(crate) fn free(self) -> Permits {
        match self.queue {
            QueueState::Free(consumed) => consumed,
            QueueState::Queued(_) => unreachable!("read as FREE"),
        }
    }

    /// The t of QUEUED(t).
    pub(crate) fn tail(self) -> NodeId {
        match self.queue {
            QueueState::Queued(tail) => tail,
            QueueState::Free(_) => unreachable!("read as QUEUED"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) s: Permits,
    pub(crate) e: E,
    pub(crate) front: Permits,
    pub(crate) done: Option<NodeId>,
    words: Words,
    published: u8,
    nodes: [Node; MAX_NODES],
}

impl Memory {
    pub(crate) fn new(permits: Permits, words: Words) -> Self {
        let unused = Node::new(State::Void { consumed: 0 }, Link::Offset(0));
        Memory {
            s: permits,
            e: E::open(QueueState::Free(0)),
            front: 0,
            done: None,
            words,
            published: 0,
            nodes: [unused; MAX_NODES],
        }
    }

    pub(crate) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[usize::from(node)]
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes[..usize::from(self.published)]
    }

    pub(crate) fn ahead(&self, left: Permits, right: Permits) -> Permits {
        self.words.ahead(left, right)
    }

    pub(crate) fn credit_ahead_of(&self, consumed: Permits) -> Permits {
        self.ahead(self.s, consumed)
    }

    pub(crate) fn is_e(&self, word: E) -> bool {
        self.e.closed == word.closed
            && match (self.e.queue, word.queue) {
                (QueueState::Free(now), QueueState::Free(then)) => self.words.are_same(now, then),
                (now, then) => now == then,
            }
    }

    pub(crate) fn cas_e(&mut self, old: E, new: QueueState) -> bool {
        self.is_e(old) && self.store_e(new)
    }

    /// Stores E; only for mutants.
    pub(crate) fn store_e(&mut self, new: QueueState) -> bool {
        self.e.queue = new;
        true
    }

    /// compare_exchange on a free E that consumes permits.
    pub(crate) fn consume(&mut self, old: E, permits: Permits) -> bool {
        let QueueState::Free(consumed) = self.e.queue else { return false };
        self.cas_e(old, QueueState::Free(consumed + permits))
    }

    /// compare_exchange on E that publishes a node, which is completely written before.
    pub(crate) fn publish(&mut self, old: E, node: Node) -> Option<NodeId> {
        self.is_e(old).then(|| self.push(node))
    }

    /// Makes `node` the tail, whatever E is.
    pub(crate) fn push(&mut self, node: Node) -> NodeId {
        let id = self.published;
        self.nodes[usize::from(id)] = node;
        self.published += 1;
        self.e.queue = QueueState::Queued(id);
        id
    }

    pub(crate) fn cas_state(&mut self, node: NodeId, old: State, new: State) -> bool {
        let state = &mut self.nodes[usize::from(node)].state;
        if *state != old {
            return false;
        }
        *state = new;
        true
    }

    /// Stores a node's state; only for mutants.
    pub(crate) fn store_state(&mut self, node: NodeId, new: State) {
        self.nodes[usize::from(node)].state = new;
    }

    pub(crate) fn store_next(&mut self, node: NodeId, next: NodeId) {
        self.nodes[usize::from(node)].next = Some(next);
    }

    pub(crate) fn store_offset(&mut self, node: NodeId, offset: Permits) {
        self.nodes[usize::from(node)].link = Link::Offset(offset);
    }

    /// Permits consumed by all nodes before `node`, deficits included, even without an offset there.
    pub(crate) fn offset(&self, node: NodeId) -> Permits {
        match self.node(node).link {
            Link::Offset(offset) => offset,
            Link::Prev(prev) => self.offset(prev) + self.node(prev).state.consumed(),
        }
    }

    /// Permits consumed so far, deficits included.
    pub(crate) fn consumed(&self) -> Permits {
        match self.e.queue {
            QueueState::Free(consumed) => consumed,
            QueueState::Queued(tail) => self.offset(tail) + self.node(tail).state.consumed(),
        }
    }

    fn all_final_to(&self, node: NodeId) -> bool {
        self.nodes[..=usize::from(node)].iter().all(|node| node.state.is_final())
    }

    fn all_final_before(&self, node: NodeId) -> bool {
        self.nodes[..usize::from(node)].iter().all(|node| node.state.is_final())
    }

    /// Checks the invariants of a step from `before` to this memory.
    pub(crate) fn check_step(&self, before: &Memory) -> Result<(), Violation> {
        let broken = |what| Err(Violation::Invariant(what));
        if self.s < before.s {
            return broken("S has fallen");
        }
        if self.consumed() < before.consumed() {
            return broken("what is consumed has fallen");
        }
        if before.e.closed && !self.e.closed {
            return broken("E is open again");
        }
        if self.front != before.front && self.front > self.consumed() {
            return broken("front is above what is consumed");
        }
        if let Some(done) = self.done
            && self.done != before.done
            && !self.all_final_to(done)
        {
            return broken("done is not final, or a node before it is not");
        }
        for id in 0..self.published {
            let (old, new) = (before.node(id), self.node(id));
            if id >= before.published {
                if let State::Granted { .. } = new.state {
                    // The node passes through.
                    if !self.all_final_before(id) {
                        return broken("a node passed through a queue with waiters");
                    }
                }
                continue;
            }
            if old == new {
                continue;
            }
            if old.state.is_final() && old.state != new.state {
                return broken("a final state has changed");
            }
            if let State::Granted { .. } = new.state
                && !old.state.is_final()
            {
                if !self.all_final_before(id) {
                    return broken("a node was granted before one that is older");
                }
                if self.offset(id) + new.state.consumed() > self.s {
                    return Err(Violation::OverAdmission);
                }
            }
            if old.next.is_some() && old.next != new.next {
                return broken("next has changed");
            }
            if let Some(next) = new.next
                && next != id + 1
            {
                return broken("next is not the node published next");
            }
            match (old.link, new.link) {
                (old, new) if old == new => {}
                (Link::Prev(prev), Link::Offset(offset)) => {
                    if !self.all_final_to(prev) {
                        return broken("an offset was stored while a node before it was not final");
                    }
                    if offset != before.offset(id) {
                        return broken("an offset is not what the nodes before it have consumed");
                    }
                }
                _ => return broken("an offset has changed"),
            }
        }
        Ok(())
    }
}

impl Hash for Memory {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.s, self.e, self.front, self.done, self.published).hash(hasher);
        for node in self.nodes() {
            node.hash(hasher);
        }
    }
}

impl fmt::Display for E {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue {
            QueueState::Free(consumed) => write!(f, "FREE({consumed})")?,
            QueueState::Queued(tail) => write!(f, "QUEUED(#{tail})")?,
        }
        if self.closed { f.write_str("+CLOSED") } else { Ok(()) }
    }
}

impl fmt::Debug for E {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Waiting { need, debt: 0 } => write!(f, "Waiting({need})"),
            State::Waiting { need, debt } => write!(f, "Waiting({need}, debt {debt})"),
            State::Granted { consumed, of_more: false } => write!(f, "Granted({consumed})"),
            State::Granted { consumed, of_more: true } => write!(f, "Granted({consumed} of more)"),
            State::Void { consumed } => write!(f, "Void({consumed})"),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state)?;
        match self.link {
            Link::Prev(prev) => write!(f, " prev #{prev}")?,
            Link::Offset(offset) => write!(f, " @{offset}")?,
        }
        if let Some(next) = self.next { write!(f, " next #{next}") } else { Ok(()) }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S={} E={} front={}", self.s, self.e, self.front)?;
        if let Some(done) = self.done {
            write!(f, " done=#{done}")?;
        }
        for (id, node) in self.nodes().iter().enumerate() {
            write!(f, " | #{id} {node}")?;
        }
        Ok(())
    }
}
