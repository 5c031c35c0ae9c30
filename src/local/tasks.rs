//! [`Tasks`]: the detached tasks of a [`ThreadRuntime`](super::ThreadRuntime).

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use crate::foreign;
use crate::sync::Mutex;

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All tasks that are unfinished, and a queue of those that can go on.
#[derive(Default)]
pub(super) struct Tasks {
    unfinished: BTreeMap<u64, Arc<Task>>,
    queue: VecDeque<Arc<Task>>,
    next_number: u64,
}

/// Where a task that was woken goes to.
pub(super) trait Home: Send + Sync {
    fn woken(self: Arc<Self>, task: Arc<Task>);
}

/// A detached task.
pub(super) struct Task {
    number: u64,
    stage: Mutex<Stage>,
    home: Weak<dyn Home>,
}

enum Stage {
    /// Until it is woken.
    Waiting(Work),
    Queued(Work),
    /// A thread polls it, with no mutex locked. `again`: it was woken meanwhile.
    Polled {
        again: bool,
    },
    Finished,
}

impl Tasks {
    /// A task that can go on. It is to be [queued](Self::queue).
    pub(super) fn add(&mut self, work: Work, home: Weak<dyn Home>) {
        let number = self.next_number;
        self.next_number += 1;
        let task = Arc::new(Task { number, stage: Mutex::new(Stage::Queued(work)), home });
        self.unfinished.insert(number, Arc::clone(&task));
        self.queue.push_back(task);
    }

    pub(super) fn queue(&mut self, task: Arc<Task>) {
        self.queue.push_back(task);
    }

    pub(super) fn next(&mut self) -> Option<Arc<Task>> {
        self.queue.pop_front()
    }

    pub(super) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    fn remove(&mut self, number: u64) {
        // The caller has the task, too, so no foreign code runs by this.
        self.unfinished.remove(&number);
    }

    /// Takes out all of them, to be [dropped](Task::drop_unfinished). What is in the queue then does nothing
    /// any more.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Task>> {
        mem::take(&mut self.unfinished).into_values().collect()
    }
}

impl Task {
    /// Polls it once. A panic ends the task, and is reported.
    pub(super) fn run(self: &Arc<Self>, tasks: &Mutex<Tasks>) {
        let mut work = {
            let mut stage = self.stage.lock();
            match mem::replace(&mut *stage, Stage::Polled { again: false }) {
                Stage::Queued(work) => work,
                // It was dropped meanwhile.
                other => {
                    *stage = other;
                    return;
                }
            }
        };
        let waker = Waker::from(Arc::clone(self));
        let polled =
            foreign::call("a detached task", || work.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled == Some(Poll::Pending) {
            let queued = {
                let mut stage = self.stage.lock();
                match &*stage {
                    Stage::Polled { again } => {
                        let again = *again;
                        *stage = if again { Stage::Queued(work) } else { Stage::Waiting(work) };
                        again
                    }
                    // The runtime has ended meanwhile.
                    _ => {
                        drop(stage);
                        foreign::call("a detached task", || drop(work));
                        return;
                    }
                }
            };
            if queued {
                tasks.lock().queue(Arc::clone(self));
            }
            return;
        }
        *self.stage.lock() = Stage::Finished;
        tasks.lock().remove(self.number);
        foreign::call("a detached task", || drop(work));
    }

    /// The runtime has ended.
    pub(super) fn drop_unfinished(&self) {
        let stage = mem::replace(&mut *self.stage.lock(), Stage::Finished);
        foreign::call("a detached task", || drop(stage));
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        {
            let mut stage = self.stage.lock();
            match mem::replace(&mut *stage, Stage::Finished) {
                Stage::Waiting(work) => *stage = Stage::Queued(work),
                Stage::Polled { .. } => {
                    *stage = Stage::Polled { again: true };
                    return;
                }
                other => {
                    *stage = other;
                    return;
                }
            }
        }
        if let Some(home) = self.home.upgrade() {
            home.woken(Arc::clone(self));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    struct Nowhere;

    impl Home for Nowhere {
        fn woken(self: Arc<Self>, _task: Arc<Task>) {}
    }

    #[test]
    fn task_that_has_ended_is_forgotten() {
        let (tasks, home) = (Mutex::new(Tasks::default()), Arc::new(Nowhere));
        let works: [(Work, usize); 3] = [
            (Box::pin(future::ready(())), 0),
            (Box::pin(async { panic!("on purpose") }), 0),
            (Box::pin(future::pending()), 1),
        ];
        for (work, unfinished) in works {
            tasks.lock().add(work, Arc::downgrade(&home) as Weak<dyn Home>);
            let next = tasks.lock().next().expect("it was added");
            next.run(&tasks);
            assert_eq!(tasks.lock().unfinished.len(), unfinished);
        }
    }
}
