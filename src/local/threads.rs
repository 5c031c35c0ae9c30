//! [`Shared`]: the timers and tasks of a [`ThreadRuntime`](super::ThreadRuntime), and which of its threads
//! does what.
//!
//! Timers fire wakers, and tasks call some: foreign code, which may block. So at any time there is a
//! *leader*, which calls none: it sleeps until a timer is due or a task can go on. When there is work it
//! becomes the *worker*, after another thread has taken the lead. A worker that is inside of one and the same
//! call for longer than [`PATIENCE`], while other work waits, counts as stuck, and the leader takes its
//! place. So a waker that blocks delays others by that long, and the number of threads is that of the calls
//! that block, plus two.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::foreign;
use crate::lock::origin::Origin;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU64;

use super::tasks::{Home, Task, Tasks, Work};

/// How long the work behind a call waits for it to return.
const PATIENCE: Duration = Duration::from_millis(5);

/// No more threads than that. Should as many calls block, the others wait.
const MOST: usize = 128;

/// The timers and tasks of a runtime, and its threads.
pub(super) struct Shared {
    pub(super) tasks: Mutex<Tasks>,
    threads: Mutex<Threads>,
    pub(super) timers: Mutex<Timers>,
    pub(super) next_timer: AtomicU64,
    /// Its clock is paused, and it has no threads: `advance` drives.
    pub(super) by_hand: bool,
    pub(super) origin: Origin,
}

#[derive(Default)]
pub(super) struct Timers {
    /// By deadline; the number tells timers of the same instant apart.
    pub(super) pending: BTreeMap<(Instant, u64), Waker>,
    /// The stopped clock; `None` if time passes by itself.
    pub(super) paused_at: Option<Instant>,
}

/// Which thread does what.
#[derive(Default)]
struct Threads {
    /// The thread that sleeps until there is work.
    leader: Option<Thread>,
    /// The worker's number, unless there is none, or it is stuck.
    worker: Option<u64>,
    /// Rises with each call that the worker makes.
    calls: u64,
    /// A thread without work, which takes the lead next.
    spare: Option<Thread>,
    /// Not counted any more once it has ended.
    running: usize,
    last_worker: u64,
    ended: bool,
}

/// What the leader does next.
enum LeaderStep {
    /// Sleeps until there is work, or until then.
    Sleep(Option<Instant>),
    /// Works under this number.
    Work(u64),
    End,
}

impl Shared {
    pub(super) fn new(paused_at: Option<Instant>) -> Self {
        Self {
            tasks: Mutex::default(),
            threads: Mutex::default(),
            timers: Mutex::new(Timers { paused_at, ..Timers::default() }),
            next_timer: AtomicU64::new(0),
            by_hand: paused_at.is_some(),
            origin: Origin::here(),
        }
    }

    /// A task that can go on.
    pub(super) fn add(self: &Arc<Self>, task: Work) {
        self.tasks.lock().add(task, Arc::downgrade(self) as Weak<dyn Home>);
        self.kick();
    }

    pub(super) fn now(&self) -> Instant {
        self.timers.lock().paused_at.unwrap_or_else(Instant::now)
    }

    /// Not back: a waker, or another thread, may have let more time pass meanwhile.
    pub(super) fn set_paused(&self, now: Instant) {
        let mut timers = self.timers.lock();
        timers.paused_at = timers.paused_at.max(Some(now));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.lock().pending.keys().next().map(|(deadline, _)| *deadline)
    }

    /// Whether there is work at `now`, and when the next timer is due.
    fn look(&self, now: Instant) -> (bool, Option<Instant>) {
        let next = self.next_deadline();
        (next.is_some_and(|next| next <= now) || self.tasks.lock().has_next(), next)
    }

    /// The waker of a timer that is due. One at a time, and called when the mutex is free: it is foreign
    /// code.
    pub(super) fn take_due(&self, now: Instant) -> Option<Waker> {
        let mut timers = self.timers.lock();
        let first = timers.pending.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Polls a task that can go on. False if there is none.
    pub(super) fn run_task(&self) -> bool {
        let next = self.tasks.lock().next();
        next.map(|task| task.run(&self.tasks)).is_some()
    }

    /// Fires a timer that is due, or polls a task that can go on. False if there is neither.
    fn work_once(&self, now: Instant) -> bool {
        let Some(waker) = self.take_due(now) else { return self.run_task() };
        foreign::call("a timer's waker", || waker.wake());
        true
    }
}

impl Home for Shared {
    fn woken(self: Arc<Self>, task: Arc<Task>) {
        self.tasks.lock().queue(task);
        self.kick();
    }
}

// === Which thread does what ===

impl Shared {
    /// There is something new to do or to wait for: wakes the leader, or starts the first thread.
    pub(super) fn kick(self: &Arc<Self>) {
        if self.by_hand {
            return;
        }
        let refused = {
            let mut threads = self.threads.lock();
            if threads.ended {
                return;
            }
            let refused = if threads.leader.is_none() { self.find_leader(&mut threads).err() } else { None };
            if let Some(leader) = &threads.leader {
                leader.unpark();
            }
            refused.filter(|_| threads.running == 0)
        };
        if let Some(error) = refused {
            // No timer would fire, and no caller would know why it waits.
            panic!("the system refuses a thread for timers: {error}");
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
    fn find_leader(self: &Arc<Self>, threads: &mut Threads) -> io::Result<()> {
        if let Some(spare) = threads.spare.take() {
            spare.unpark();
            threads.leader = Some(spare);
        } else if threads.running < MOST {
            let shared = Arc::clone(self);
            let started =
                thread::Builder::new().name("latchwork-local".into()).spawn(move || shared.drive())?;
            threads.running += 1;
            threads.leader = Some(started.thread().clone());
        }
        Ok(())
    }

    /// A thread's life. It begins as the leader.
    fn drive(self: &Arc<Self>) {
        // How many calls the worker had made when work was first seen to wait for it, and when that was. What
        // this thread has worked since makes it more.
        let mut waits_since: Option<(u64, Instant)> = None;
        loop {
            match self.lead(&mut waits_since) {
                LeaderStep::Sleep(Some(until)) => {
                    thread::park_timeout(until.saturating_duration_since(Instant::now()));
                }
                LeaderStep::Sleep(None) => thread::park(),
                LeaderStep::Work(number) => {
                    self.work(number);
                    if !self.rest(number) {
                        return;
                    }
                }
                LeaderStep::End => return,
            }
        }
    }

    fn lead(self: &Arc<Self>, waits_since: &mut Option<(u64, Instant)>) -> LeaderStep {
        // A timer or task that comes after this look unparks the leader, so that `park` returns at once.
        let now = Instant::now();
        let (is_work, next) = self.look(now);
        let mut threads = self.threads.lock();
        if threads.ended {
            return LeaderStep::End;
        }
        if !is_work {
            *waits_since = None;
            return LeaderStep::Sleep(next);
        }
        if threads.worker.is_some() {
            let (calls, since) = *waits_since.get_or_insert((threads.calls, now));
            let patient_until = since + PATIENCE;
            if calls != threads.calls {
                *waits_since = Some((threads.calls, now));
                return LeaderStep::Sleep(Some(now + PATIENCE));
            }
            if now < patient_until {
                return LeaderStep::Sleep(Some(patient_until));
            }
            if threads.running >= MOST && threads.spare.is_none() {
                // Otherwise no thread would see what becomes due.
                *waits_since = None;
                return LeaderStep::Sleep(Some(now + PATIENCE));
            }
        }
        threads.last_worker += 1;
        let number = threads.last_worker;
        threads.worker = Some(number);
        threads.leader = None;
        // Should the system refuse, this thread takes the lead again when it is done, or the next kick finds
        // one.
        _ = self.find_leader(&mut threads);
        LeaderStep::Work(number)
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
            let threads = self.threads.lock();
            // At the end it leads, and ends by that.
            if threads.ended || threads.leader.as_ref().is_some_and(|leader| leader.id() == me.id()) {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if threads had been started: this one leads, the worker is inside of its first call, and a third
    /// one is without work.
    fn with_worker() -> Arc<Shared> {
        let shared = Arc::new(Shared::new(None));
        let (worker, spare) = (Some(1), Some(thread::current()));
        *shared.threads.lock() =
            Threads { worker, calls: 1, spare, running: 3, last_worker: 1, ..Threads::default() };
        shared
    }

    fn add_task(shared: &Arc<Shared>) {
        let home = Arc::downgrade(shared) as Weak<dyn Home>;
        shared.tasks.lock().add(Box::pin(async {}), home);
    }

    /// Until when it sleeps.
    fn sleeps(shared: &Arc<Shared>, waits_since: &mut Option<(u64, Instant)>) -> Option<Instant> {
        match shared.lead(waits_since) {
            LeaderStep::Sleep(until) => until,
            LeaderStep::Work(number) => panic!("it works as {number}"),
            LeaderStep::End => panic!("it ends"),
        }
    }

    fn works(shared: &Arc<Shared>, waits_since: &mut Option<(u64, Instant)>) -> u64 {
        match shared.lead(waits_since) {
            LeaderStep::Work(number) => number,
            LeaderStep::Sleep(until) => panic!("it sleeps until {until:?}"),
            LeaderStep::End => panic!("it ends"),
        }
    }

    #[test]
    fn leader_without_work_sleeps_until_the_next_timer() {
        let shared = with_worker();
        let mut waits_since = Some((1, Instant::now() - 2 * PATIENCE));
        assert_eq!((sleeps(&shared, &mut waits_since), waits_since), (None, None));
        let deadline = Instant::now() + Duration::from_secs(3600);
        shared.timers.lock().pending.insert((deadline, 0), Waker::noop().clone());
        assert_eq!((sleeps(&shared, &mut waits_since), waits_since), (Some(deadline), None));
        shared.end_threads();
        assert!(matches!(shared.lead(&mut waits_since), LeaderStep::End));
    }

    /// Otherwise there would be as many threads as there is work.
    #[test]
    fn leader_waits_for_a_worker_that_goes_on_and_replaces_one_that_does_not() {
        let (shared, begun, mut waits_since) = (with_worker(), Instant::now(), None);
        add_task(&shared);
        let is_patient = |until: Option<Instant>, waits_since: Option<(u64, Instant)>| {
            let (calls, since) = waits_since.expect("work waits");
            assert!(since >= begun && until == Some(since + PATIENCE), "{until:?}, since {since:?}");
            assert_eq!(calls, 1);
        };
        let until = sleeps(&shared, &mut waits_since);
        is_patient(until, waits_since);
        // It has made a call since.
        waits_since = Some((0, begun - 2 * PATIENCE));
        let until = sleeps(&shared, &mut waits_since);
        is_patient(until, waits_since);
        // It has not.
        waits_since = Some((1, begun - PATIENCE));
        assert_eq!(works(&shared, &mut waits_since), 2);
        let threads = shared.threads.lock();
        assert_eq!((threads.worker, threads.running), (Some(2), 3));
        assert!(threads.leader.is_some() && threads.spare.is_none(), "none leads");
    }

    #[test]
    fn leader_works_at_once_if_there_is_no_worker() {
        let shared = with_worker();
        add_task(&shared);
        shared.threads.lock().worker = None;
        assert_eq!(works(&shared, &mut None), 2);
    }

    /// Otherwise no thread would see what becomes due.
    #[test]
    fn last_thread_leads_on_beside_as_many_that_are_stuck() {
        let (shared, begun) = (with_worker(), Instant::now());
        add_task(&shared);
        {
            let mut threads = shared.threads.lock();
            (threads.running, threads.spare) = (MOST, None);
        }
        let mut waits_since = Some((1, begun - PATIENCE));
        let until = sleeps(&shared, &mut waits_since).expect("it looks again");
        assert!(until >= begun + PATIENCE && waits_since.is_none());
        // One is free again.
        shared.threads.lock().spare = Some(thread::current());
        assert_eq!(works(&shared, &mut Some((1, begun - PATIENCE))), 2);
    }

    #[test]
    fn worker_that_is_done_leads_or_ends() {
        let shared = with_worker();
        assert!(shared.rest(1), "it does not lead");
        let is_led = |by: &Shared| by.threads.lock().leader.as_ref().map(Thread::id);
        assert_eq!((is_led(&shared), shared.threads.lock().worker), (Some(thread::current().id()), None));
        // Another thread has taken its place, and there are a leader and a spare one.
        shared.threads.lock().worker = Some(2);
        assert!(!shared.rest(1), "it stays");
        let threads = shared.threads.lock();
        assert_eq!((threads.worker, threads.running), (Some(2), 2));
    }

    /// Otherwise two would call wakers, and each count as the one that goes on.
    #[test]
    fn worker_calls_no_more_once_another_has_its_place_or_the_last_handle_is_gone() {
        let shared = with_worker();
        add_task(&shared);
        shared.threads.lock().worker = Some(2);
        shared.work(1);
        assert!(shared.tasks.lock().has_next(), "its place is taken");
        shared.end_threads();
        shared.work(2);
        assert!(shared.tasks.lock().has_next(), "the runtime has ended");
    }

    #[test]
    fn leader_is_patient_with_a_worker_that_has_made_a_call_since() {
        let (shared, begun) = (with_worker(), Instant::now());
        add_task(&shared);
        shared.work(1);
        add_task(&shared);
        let until = sleeps(&shared, &mut Some((1, begun - PATIENCE))).expect("work waits");
        assert!(until >= begun + PATIENCE, "it takes the worker's place");
    }

    /// There are as many as may be, or the system refuses one.
    #[test]
    fn worker_that_finds_no_leader_leads_when_it_is_done() {
        let shared = with_worker();
        add_task(&shared);
        {
            let mut threads = shared.threads.lock();
            (threads.worker, threads.running, threads.spare) = (None, MOST, None);
            threads.leader = Some(thread::current());
        }
        assert_eq!(works(&shared, &mut None), 2);
        shared.kick();
        {
            let threads = shared.threads.lock();
            assert!(threads.leader.is_none() && threads.running == MOST, "{} run", threads.running);
        }
        assert!(shared.rest(2), "none leads");
    }

    #[test]
    fn thread_without_work_leads_when_it_is_to_and_not_when_it_is_woken_for_nothing() {
        let shared = with_worker();
        {
            let mut threads = shared.threads.lock();
            (threads.leader, threads.spare) = (Some(thread::current()), None);
        }
        let rests = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.rest(1)
        });
        let spare = loop {
            if let Some(spare) = shared.threads.lock().spare.clone() {
                break spare;
            }
            thread::yield_now();
        };
        for _ in 0..100 {
            spare.unpark();
            thread::yield_now();
        }
        assert!(!rests.is_finished(), "it leads beside another");
        shared.threads.lock().leader = None;
        shared.kick();
        assert!(rests.join().unwrap(), "it ends");
    }

    #[test]
    fn no_thread_is_started_once_the_last_handle_is_gone() {
        let shared = with_worker();
        shared.end_threads();
        shared.kick();
        assert!(shared.threads.lock().leader.is_none());
    }

    #[test]
    fn thread_without_work_is_woken_to_end() {
        const LONG: Duration = Duration::from_secs(30);
        let (shared, begun) = (with_worker(), Instant::now());
        shared.end_threads();
        // This one, which is the spare one.
        thread::park_timeout(LONG);
        assert!(begun.elapsed() < LONG, "it sleeps on");
    }
}
