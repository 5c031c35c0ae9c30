//! [`Threads`]: which thread of a [`ThreadRuntime`](super::ThreadRuntime) does what.
//!
//! Timers fire wakers, and tasks call some: foreign code, which may block. So at any time there is a *leader*, which calls none: it sleeps
//! until a timer is due or a task can go on. When there is work it becomes the *worker*, after another thread has taken the lead. A worker
//! that is inside of one and the same call for longer than [`PATIENCE`], while other work waits, counts as stuck, and the leader takes its
//! place. So a waker that blocks delays others by that long, and the number of threads is that of the calls that block, plus two.

use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::thread_runtime::Shared;

/// How long the work behind a call waits for it to return.
const PATIENCE: Duration = Duration::from_millis(5);

/// No more threads than that. Should as many calls block, the others wait.
const MOST: usize = 128;

/// Which thread does what.
#[derive(Default)]
pub(super) struct Threads {
    /// The thread that sleeps until there is work.
    leader: Option<Thread>,
    /// The worker's number, unless there is none, or it is stuck.
    worker: Option<u64>,
    /// Rises with each call that the worker makes.
    calls: u64,
    /// A thread without work, which takes the lead next.
    spare: Option<Thread>,
    running: usize,
    last_worker: u64,
    ended: bool,
}

/// What the leader does next.
enum Next {
    /// Sleeps until there is work, or until then.
    Sleep(Option<Instant>),
    /// Works under this number.
    Work(u64),
    End,
}

impl Shared {
    /// There is something new to do or to wait for: wakes the leader, or starts the first thread.
    pub(super) fn kick(self: &Arc<Self>) {
        if self.is_driven_by_hand() {
            return;
        }
        let mut threads = self.threads.lock();
        if threads.ended {
            return;
        }
        if threads.leader.is_none() {
            self.find_leader(&mut threads);
        }
        if let Some(leader) = &threads.leader {
            leader.unpark();
        }
    }

    /// The runtime's last handle is gone.
    pub(super) fn end_threads(&self) {
        let mut threads = self.threads.lock();
        threads.ended = true;
        let sleeping = [threads.leader.take(), threads.spare.take()];
        sleeping.into_iter().flatten().for_each(|thread| thread.unpark());
    }

    /// Another thread takes the lead, if there is one to be had.
    fn find_leader(self: &Arc<Self>, threads: &mut Threads) {
        if let Some(spare) = threads.spare.take() {
            spare.unpark();
            threads.leader = Some(spare);
            return;
        }
        if threads.running >= MOST {
            return;
        }
        let shared = Arc::clone(self);
        let started = thread::Builder::new().name("latchwork-local".into()).spawn(move || shared.drive());
        // Should the system refuse, the worker takes the lead again when it is done, or the next kick finds one.
        if let Ok(started) = started {
            threads.running += 1;
            threads.leader = Some(started.thread().clone());
        }
    }

    /// A thread's life. It begins as the leader.
    fn drive(self: &Arc<Self>) {
        // How many calls the worker had made when work was first seen to wait for it, and when that was.
        let mut waits_since: Option<(u64, Instant)> = None;
        loop {
            match self.lead(&mut waits_since) {
                Next::Sleep(Some(until)) => {
                    thread::park_timeout(until.saturating_duration_since(Instant::now()));
                }
                Next::Sleep(None) => thread::park(),
                Next::Work(number) => {
                    self.work(number);
                    if !self.rest(number) {
                        return;
                    }
                    waits_since = None;
                }
                Next::End => return,
            }
        }
    }

    fn lead(self: &Arc<Self>, waits_since: &mut Option<(u64, Instant)>) -> Next {
        // A timer or task that comes after this look unparks the leader, so that `park` returns at once.
        let now = Instant::now();
        let (is_work, next) = self.look(now);
        let mut threads = self.threads.lock();
        if threads.ended {
            threads.running -= 1;
            return Next::End;
        }
        if !is_work {
            *waits_since = None;
            return Next::Sleep(next);
        }
        if threads.worker.is_some() {
            let (calls, since) = *waits_since.get_or_insert((threads.calls, now));
            let patient_until = since + PATIENCE;
            if calls != threads.calls {
                *waits_since = Some((threads.calls, now));
                return Next::Sleep(Some(now + PATIENCE));
            }
            if now < patient_until {
                return Next::Sleep(Some(patient_until));
            }
        }
        if threads.worker.is_some() && threads.running >= MOST && threads.spare.is_none() {
            // Otherwise no thread would see what becomes due.
            *waits_since = None;
            return Next::Sleep(Some(now + PATIENCE));
        }
        threads.last_worker += 1;
        let number = threads.last_worker;
        threads.worker = Some(number);
        threads.leader = None;
        self.find_leader(&mut threads);
        Next::Work(number)
    }

    /// Works until there is nothing to do, or another thread has taken this one's place.
    fn work(self: &Arc<Self>, number: u64) {
        loop {
            {
                let mut threads = self.threads.lock();
                if threads.worker != Some(number) || threads.ended {
                    return;
                }
                threads.calls += 1;
            }
            if !self.work_once(Instant::now()) {
                return;
            }
        }
    }

    /// A worker is done: it leads, or waits to do so. False if the thread ends.
    fn rest(self: &Arc<Self>, number: u64) -> bool {
        let me = thread::current();
        self.threads.lock().worker.take_if(|worker| *worker == number);
        // What has come since the last call is the leader's, which may have left it to this thread.
        let (is_work, _) = self.look(Instant::now());
        {
            let mut threads = self.threads.lock();
            if let Some(leader) = threads.leader.as_ref().filter(|_| is_work) {
                leader.unpark();
            }
            if threads.ended || threads.leader.is_some() && threads.spare.is_some() {
                threads.running -= 1;
                return false;
            }
            if threads.leader.is_none() {
                threads.leader = Some(me);
                return true;
            }
            threads.spare = Some(me.clone());
        }
        loop {
            thread::park();
            let mut threads = self.threads.lock();
            if threads.ended {
                threads.running -= 1;
                return false;
            }
            if threads.leader.as_ref().is_some_and(|leader| leader.id() == me.id()) {
                return true;
            }
        }
    }
}
