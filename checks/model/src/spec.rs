//! The specification: a FIFO semaphore with instantaneous operations, and the search for an order of
//! operations that explains the threads' answers.
//!
//! The search is just in time: beside the memory, each state has a set of [`Configuration`]s, the semaphore
//! after some of the operations under way have taken effect. When an operation returns, only configurations
//! remain in which the operation can have taken effect with this answer, before or after others under way. If
//! none remains, no order explains the answer.

use crate::operation::{Answer, Operation, Permits};

pub(crate) const MAX_THREADS: usize = 4;

pub(crate) type Operations = [Option<Operation>; MAX_THREADS];

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Phase {
    Idle,
    /// Called, without effect so far.
    Called,
    /// Taken effect, with an answer unknown to the thread.
    Acquired,
    Refused,
    NoPermits,
    Done,
    Available(Permits),
    Waiting,
    /// No longer queued.
    Granted,
    Closed,
    /// The cancellation is called, without effect so far; the waiter stays in place.
    CancelWaiting,
    CancelGranted,
    CancelClosed,
}

impl Phase {
    fn can_take_effect(self) -> bool {
        use Phase::{Called, CancelClosed, CancelGranted, CancelWaiting};
        matches!(self, Called | CancelWaiting | CancelGranted | CancelClosed)
    }

    fn explains(self, answer: Answer) -> bool {
        match answer {
            Answer::Ok => matches!(self, Phase::Acquired | Phase::Granted),
            Answer::Closed => matches!(self, Phase::Refused | Phase::Closed),
            Answer::NoPermits => self == Phase::NoPermits,
            Answer::Pending => matches!(self, Phase::Waiting | Phase::Granted | Phase::Closed),
            Answer::Done => self == Phase::Done,
            Answer::Available(permits) => self == Phase::Available(permits),
        }
    }
}

/// The semaphore after one order of the operations so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Configuration {
    free: Permits,
    closed: bool,
    /// Threads, oldest first.
    queue: [u8; MAX_THREADS],
    queued: u8,
    phases: [Phase; MAX_THREADS],
}

impl Configuration {
    pub(crate) fn new(permits: Permits) -> Self {
        Configuration {
            free: permits,
            closed: false,
            queue: [0; MAX_THREADS],
            queued: 0,
            phases: [Phase::Idle; MAX_THREADS],
        }
    }

    pub(crate) fn free(&self) -> Permits {
        self.free
    }

    /// Lets a thread call its next operation, or cancel its waiting one.
    pub(crate) fn call(&mut self, thread: usize) {
        let phase = &mut self.phases[thread];
        *phase = match *phase {
            Phase::Idle => Phase::Called,
            Phase::Waiting => Phase::CancelWaiting,
            Phase::Granted => Phase::CancelGranted,
            Phase::Closed => Phase::CancelClosed,
            phase => unreachable!("called in {phase:?}"),
        };
    }

    fn enqueue(&mut self, thread: usize) {
        self.queue[usize::from(self.queued)] = thread as u8;
        self.queued += 1;
        self.phases[thread] = Phase::Waiting;
    }

    fn dequeue(&mut self, place: usize) {
        self.queue.copy_within(place + 1.., place);
        // Equal configurations must be equal bit by bit.
        self.queue[MAX_THREADS - 1] = 0;
        self.queued -= 1;
    }

    fn grant_one(&mut self, operations: &Operations) -> bool {
        if self.queued == 0 {
            return false;
        }
        let oldest = usize::from(self.queue[0]);
        let need = weight(operations, oldest);
        if self.free < need {
            return false;
        }
        self.free -= need;
        self.dequeue(0);
        self.phases[oldest] = match self.phases[oldest] {
            Phase::CancelWaiting => Phase::CancelGranted,
            _ => Phase::Granted,
        };
        true
    }

    fn close(&mut self) {
        self.closed = true;
        for place in 0..usize::from(self.queued) {
            let waiter = usize::from(self.queue[place]);
            self.phases[waiter] = match self.phases[waiter] {
                Phase::CancelWaiting => Phase::CancelClosed,
                _ => Phase::Closed,
            };
        }
        self.queue = [0; MAX_THREADS];
        self.queued = 0;
    }

    /// Lets the operation of `thread` take effect. Adds the possible results to `results`.
    fn take_effect(mut self, thread: usize, operations: &Operations, results: &mut Vec<Configuration>) {
        let mut may_grant = false;
        let operation = operations[thread].expect("an operation is under way");
        self.phases[thread] = match self.phases[thread] {
            Phase::CancelWaiting => {
                let queue = &self.queue[..usize::from(self.queued)];
                let place = queue.iter().position(|&waiter| usize::from(waiter) == thread);
                self.dequeue(place.expect("a waiter is in the queue"));
                may_grant = true;
                Phase::Done
            }
            Phase::CancelGranted => {
                self.free += weight(operations, thread);
                may_grant = true;
                Phase::Done
            }
            Phase::CancelClosed => Phase::Done,
            _ => match operation {
                Operation::Acquire(_) | Operation::AcquireCancel(_) | Operation::Try(_) if self.closed => {
                    Phase::Refused
                }
                Operation::Acquire(need) | Operation::AcquireCancel(need) | Operation::Try(need)
                    if self.queued == 0 && self.free >= need =>
                {
                    self.free -= need;
                    Phase::Acquired
                }
                Operation::Try(_) => Phase::NoPermits,
                Operation::Acquire(_) | Operation::AcquireCancel(_) => {
                    self.enqueue(thread);
                    Phase::Waiting
                }
                Operation::Release(permits) | Operation::Add(permits) => {
                    self.free += permits;
                    may_grant = true;
                    Phase::Done
                }
                Operation::Lower(permits) => {
                    self.free -= permits;
                    Phase::Done
                }
                Operation::Close => {
                    self.close();
                    Phase::Done
                }
                Operation::Available if self.queued > 0 => Phase::Available(0),
                Operation::Available => Phase::Available(self.free.max(0)),
                Operation::Notify => {
                    if self.queued > 0 || self.free < 1 {
                        self.free += 1;
                        may_grant = true;
                    }
                    Phase::Done
                }
            },
        };
        if may_grant {
            self.overtaken_by_close(operations, results);
            while self.grant_one(operations) {}
        }
        results.push(self);
    }

    /// Adds results where a `close` under way comes between two grants of another operation.
    fn overtaken_by_close(self, operations: &Operations, results: &mut Vec<Configuration>) {
        for closer in 0..MAX_THREADS {
            if self.phases[closer] != Phase::Called || operations[closer] != Some(Operation::Close) {
                continue;
            }
            let mut granted = self;
            loop {
                let mut closed = granted;
                closed.close();
                closed.phases[closer] = Phase::Done;
                results.push(closed);
                if !granted.grant_one(operations) {
                    break;
                }
            }
        }
    }

    fn all_wait(&self, sleepers: u8) -> bool {
        (0..MAX_THREADS).all(|thread| sleepers >> thread & 1 == 0 || self.phases[thread] == Phase::Waiting)
    }
}

fn weight(operations: &Operations, thread: usize) -> Permits {
    operations[thread].expect("an operation is under way").weight()
}

/// Visits all configurations that may follow from `from`, as operations under way take effect in any order,
/// but none beyond a configuration where `stop` returns true.
fn explore(from: &[Configuration], operations: &Operations, mut stop: impl FnMut(&Configuration) -> bool) {
    let mut seen = from.to_vec();
    let mut results = Vec::new();
    let mut next = 0;
    while next < seen.len() {
        let configuration = seen[next];
        next += 1;
        if stop(&configuration) {
            continue;
        }
        for thread in 0..MAX_THREADS {
            if configuration.phases[thread].can_take_effect() {
                configuration.take_effect(thread, operations, &mut results);
                for result in results.drain(..) {
                    if !seen.contains(&result) {
                        seen.push(result);
                    }
                }
            }
        }
    }
}

/// Returns the configurations, sorted and distinct, in which `thread` can have got `answer`.
pub(crate) fn on_return(
    configurations: &[Configuration],
    thread: usize,
    answer: Answer,
    operations: &Operations,
) -> Vec<Configuration> {
    let mut explained = Vec::new();
    explore(configurations, operations, |configuration| {
        let phase = configuration.phases[thread];
        if phase.can_take_effect() || !phase.explains(answer) {
            return false;
        }
        let mut after = *configuration;
        if answer != Answer::Pending {
            after.phases[thread] = Phase::Idle;
        }
        explained.push(after);
        true
    });
    explained.sort_unstable();
    explained.dedup();
    explained
}

/// True if there is an order of the operations in which all `sleepers` wait.
pub(crate) fn all_can_wait(configurations: &[Configuration], sleepers: u8, operations: &Operations) -> bool {
    if configurations.iter().any(|configuration| configuration.all_wait(sleepers)) {
        return true;
    }
    let mut found = false;
    explore(configurations, operations, |configuration| {
        found |= configuration.all_wait(sleepers);
        found
    });
    found
}
