//! [`Shared`]: the timers, the tasks and the two threads of a [`ThreadRuntime`](super::ThreadRuntime).

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::lock::origin::Origin;
use crate::support::foreign;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::AtomicU64;

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) next_timer: AtomicU64,
    /// The clock is paused, and `advance` runs timers and tasks instead of threads.
    pub(super) by_hand: bool,
    pub(super) origin: Origin,
}

#[derive(Default)]
pub(super) struct State {
    /// The waker of each timer, by deadline; the number distinguishes equal deadlines.
    pub(super) timers: BTreeMap<(Instant, u64), Waker>,
    /// Stopped time; `None` if time passes by itself.
    pub(super) paused_at: Option<Instant>,
    tasks: BTreeMap<u64, Task>,
    queue: VecDeque<u64>,
    next_task: u64,
    /// Thread of each [`Job`]; `None` until there is work for the thread.
    threads: [Option<Thread>; 2],
    has_ended: bool,
}

struct Task {
    /// `None` during a poll, which runs without the mutex.
    work: Option<Work>,
    /// The task is in the queue, or enters it after the current poll.
    is_woken: bool,
    waker: Waker,
}

struct TaskWaker {
    number: u64,
    shared: Weak<Shared>,
}

#[derive(Clone, Copy)]
pub(super) enum Job {
    FireTimers,
    PollTasks,
}

impl Shared {
    pub(super) fn new(paused_at: Option<Instant>) -> Self {
        Self {
            state: Mutex::new(State { paused_at, ..State::default() }),
            next_timer: AtomicU64::new(0),
            by_hand: paused_at.is_some(),
            origin: Origin::here(),
        }
    }

    pub(super) fn add(self: &Arc<Self>, work: Work) {
        {
            let mut state = self.state.lock();
            let number = state.next_task;
            state.next_task += 1;
            let waker = Waker::from(Arc::new(TaskWaker { number, shared: Arc::downgrade(self) }));
            state.tasks.insert(number, Task { work: Some(work), is_woken: true, waker });
            state.queue.push_back(number);
        }
        self.kick(Job::PollTasks);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.state.lock().timers.keys().next().map(|(deadline, _)| *deadline)
    }

    /// Fires a timer due at `now`, if any. Like all foreign code here, the waker is called without the mutex.
    pub(super) fn fire_timer(&self, now: Instant) -> bool {
        let due = {
            let mut state = self.state.lock();
            state.timers.first_entry().filter(|first| first.key().0 <= now).map(|due| due.remove())
        };
        due.map(|waker| foreign::call("a timer's waker", || waker.wake())).is_some()
    }

    pub(super) fn poll_task(&self) -> bool {
        let next = self.state.lock().next_task();
        let Some((number, mut work, waker)) = next else { return false };
        let polled =
            foreign::call("a detached task", || work.as_mut().poll(&mut Context::from_waker(&waker)));
        let over = {
            let mut state = self.state.lock();
            match state.tasks.get_mut(&number) {
                Some(task) if polled == Some(Poll::Pending) => {
                    task.work = Some(work);
                    if task.is_woken {
                        state.queue.push_back(number);
                    }
                    return true;
                }
                // The task has finished, or the runtime has ended during the poll.
                _ => state.tasks.remove(&number),
            }
        };
        foreign::call("a detached task", || drop((work, over)));
        true
    }

    fn wake_task(self: &Arc<Self>, number: u64) {
        {
            let mut state = self.state.lock();
            let Some(task) = state.tasks.get_mut(&number) else { return };
            if mem::replace(&mut task.is_woken, true) || task.work.is_none() {
                return;
            }
            state.queue.push_back(number);
        }
        self.kick(Job::PollTasks);
    }

    /// Wakes or starts the thread of a job, after an earlier deadline or a runnable task.
    pub(super) fn kick(self: &Arc<Self>, job: Job) {
        let started = {
            let mut state = self.state.lock();
            if self.by_hand || state.has_ended {
                return;
            }
            let thread = &mut state.threads[job as usize];
            if let Some(thread) = thread {
                return thread.unpark();
            }
            let shared = Arc::clone(self);
            let started =
                thread::Builder::new().name("latchwork-local".into()).spawn(move || shared.drive(job));
            started.map(|started| *thread = Some(started.thread().clone()))
        };
        if let Err(error) = started {
            // Without the thread no timer would fire, and callers would wait for ever.
            panic!("the system refuses a thread for timers or tasks: {error}");
        }
    }

    fn drive(&self, job: Job) {
        loop {
            let next = match job {
                Job::FireTimers => {
                    while self.fire_timer(Instant::now()) {}
                    self.next_deadline()
                }
                Job::PollTasks => {
                    while self.poll_task() {}
                    None
                }
            };
            if self.state.lock().has_ended {
                return;
            }
            match next {
                Some(next) => thread::park_timeout(next.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }

    /// Ends the runtime after its last handle: drops unfinished tasks.
    pub(super) fn end(&self) {
        let unfinished = {
            let mut state = self.state.lock();
            state.has_ended = true;
            state.threads.iter().flatten().for_each(Thread::unpark);
            state.queue.clear();
            mem::take(&mut state.tasks)
        };
        unfinished.into_values().for_each(|task| _ = foreign::call("a detached task", || drop(task)));
    }
}

impl State {
    fn next_task(&mut self) -> Option<(u64, Work, Waker)> {
        let number = self.queue.pop_front()?;
        let task = self.tasks.get_mut(&number)?;
        task.is_woken = false;
        Some((number, task.work.take()?, task.waker.clone()))
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.wake_task(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    #[test]
    fn task_that_has_ended_is_forgotten() {
        let shared = Arc::new(Shared::new(Some(Instant::now())));
        let works: [(Work, usize); 3] = [
            (Box::pin(future::ready(())), 0),
            (Box::pin(async { panic!("on purpose") }), 0),
            (Box::pin(future::pending()), 1),
        ];
        for (work, unfinished) in works {
            shared.add(work);
            assert!(shared.poll_task());
            assert_eq!(shared.state.lock().tasks.len(), unfinished);
        }
    }

    #[test]
    fn no_thread_is_started_once_the_last_handle_is_gone() {
        let shared = Arc::new(Shared::new(None));
        shared.end();
        shared.kick(Job::FireTimers);
        assert!(shared.state.lock().threads[0].is_none());
    }
}
