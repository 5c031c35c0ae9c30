//! [`World`]: virtual time, tasks that run one at a time in an order drawn from a seed, and processes that
//! can die, be suspended, and have clocks of their own.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use latchwork::backend::Runtime;

/// Nanoseconds since the world began, by the world's own clock, which no process sees.
pub(crate) type Nanos = u64;

pub(crate) const US: Nanos = 1_000;
pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// Limit on requests to the world in one poll; a poll beyond the limit is an endless loop.
const MOST_REQUESTS_IN_A_POLL: u64 = 1_000_000;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The shared state of a simulation, except for the tasks in [`Executor`]. Clones share the state.
#[derive(Clone)]
pub(crate) struct World(Arc<Shared>);

struct Shared {
    /// Origin of [`Instant`]s. Only differences from the origin are ever used.
    base: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    now: Nanos,
    /// Timers by end, then by the order in which they were set.
    timers: BTreeMap<(Nanos, u64), Waker>,
    timers_set: u64,
    /// Sorted by id, since foreign code, such as tokio's `watch`, wakes tasks in an order of its own.
    ready: Vec<usize>,
    incoming: Vec<(usize, Option<usize>, Task)>,
    tasks_made: usize,
    processes: Vec<Life>,
    /// Decides the polling order.
    schedule: fastrand::Rng,
    /// Decides the behaviour of network and store.
    chance: fastrand::Rng,
    history: History,
    polls: u64,
    polls_of_processes: u64,
    jumps: u64,
    /// Requests to the world since the last poll began.
    requests: u64,
    panic: Option<String>,
    is_over: bool,
}

/// Payload of intended panics in wakers.
#[derive(Debug)]
pub(crate) struct WakerPanic;

struct Life {
    clock: Clock,
    is_alive: bool,
    runs_from: Nanos,
    random: fastrand::Rng,
}

/// A process's clock, relative to the world's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// Excess speed over the world's clock in millionths; negative if slow.
    pub(crate) faster_ppm: i64,
}

impl Clock {
    fn reads(self, now: Nanos) -> Nanos {
        scaled(now, 1_000_000 + self.faster_ppm, 1_000_000)
    }

    /// The first moment at which the clock reads `time`.
    fn moment(self, time: Nanos) -> Nanos {
        let mut at = scaled(time, 1_000_000, 1_000_000 + self.faster_ppm);
        while self.reads(at) < time {
            at += 1;
        }
        at
    }
}

fn scaled(time: Nanos, by: i64, of: i64) -> Nanos {
    u64::try_from(i128::from(time) * i128::from(by) / i128::from(of)).unwrap_or(u64::MAX / 4)
}

/// The events so far: as lines, if a reader wants them, and as a hash that is equal for equal histories.
#[derive(Default)]
struct History {
    lines: Option<Vec<String>>,
    hash: DefaultHasher,
}

impl World {
    /// `keeps_history`: keep lines for a human reader. The hash is always kept.
    pub(crate) fn new(seed: u64, keeps_history: bool) -> Self {
        let mut seeds = fastrand::Rng::with_seed(seed);
        Self(Arc::new(Shared {
            base: Instant::now(),
            inner: Mutex::new(Inner {
                now: 0,
                timers: BTreeMap::new(),
                timers_set: 0,
                ready: Vec::new(),
                incoming: Vec::new(),
                tasks_made: 0,
                processes: Vec::new(),
                schedule: seeds.fork(),
                chance: seeds.fork(),
                history: History { lines: keeps_history.then(Vec::new), ..History::default() },
                polls: 0,
                polls_of_processes: 0,
                jumps: 0,
                requests: 0,
                panic: None,
                is_over: false,
            }),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.inner.lock().expect("nothing panics under this lock");
        inner.requests += 1;
        if inner.requests > MOST_REQUESTS_IN_A_POLL {
            // Destructors that the panic runs request the time as well.
            inner.requests = 0;
            drop(inner);
            panic!("a poll does not come back: it has asked for the time, or the like, again and again");
        }
        inner
    }

    pub(crate) fn now(&self) -> Nanos {
        self.inner().now
    }

    pub(crate) fn chance<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.inner().chance)
    }

    pub(crate) fn sleep_until(&self, at: Nanos) -> Sleep {
        let mut inner = self.inner();
        inner.timers_set += 1;
        Sleep { world: self.clone(), key: (at, inner.timers_set) }
    }

    pub(crate) fn sleep(&self, time: Nanos) -> Sleep {
        self.sleep_until(self.now().saturating_add(time))
    }

    /// Spawns a task outside of all processes, such as a server or a message in flight.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner().take_in(None, Box::pin(task));
    }

    pub(crate) fn process(&self, clock: Clock) -> Process {
        let mut inner = self.inner();
        let random = inner.chance.fork();
        inner.processes.push(Life { clock, is_alive: true, runs_from: 0, random });
        Process { world: self.clone(), index: inner.processes.len() - 1 }
    }

    /// Appends a line to the history. The line must not contain anything that differs between two runs of one
    /// seed: addresses, real times, the order of a map with random keys.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        // Before the lock is taken, since `line` may read the clock.
        let line = line();
        let mut inner = self.inner();
        let now = inner.now;
        inner.history.hash.write_u64(now);
        inner.history.hash.write(line.as_bytes());
        if let Some(lines) = &mut inner.history.lines {
            lines.push(format!("{:>12.6} {line}", now as f64 / SECOND as f64));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        let inner = self.inner();
        let mut hash = inner.history.hash.clone();
        hash.write_u64(inner.polls);
        hash.write_u64(inner.now);
        hash.finish()
    }

    pub(crate) fn history(&self) -> Vec<String> {
        self.inner().history.lines.clone().unwrap_or_default()
    }

    pub(crate) fn polls(&self) -> u64 {
        self.inner().polls
    }

    pub(crate) fn polls_of_processes(&self) -> u64 {
        self.inner().polls_of_processes
    }

    pub(crate) fn steps(&self) -> u64 {
        let inner = self.inner();
        inner.polls + inner.jumps
    }

    /// Calls code that may panic. Ignores a [`WakerPanic`]; records any other panic.
    pub(crate) fn catch(&self, foreign: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(foreign)) {
            self.panicked(&*panic);
        }
    }

    pub(crate) fn panicked(&self, panic: &(dyn Any + Send)) {
        if !panic.is::<WakerPanic>() {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said =
                said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
            self.inner().panic.get_or_insert(said.to_owned());
        }
    }

    pub(crate) fn panic(&self) -> Option<String> {
        self.inner().panic.clone()
    }

    /// Drops tasks that were spawned after the end.
    pub(crate) fn clear(&self) {
        loop {
            let incoming = std::mem::take(&mut self.inner().incoming);
            if incoming.is_empty() {
                break;
            }
        }
    }

    /// True once the run is over: destructors have no effect from then on.
    pub(crate) fn is_over(&self) -> bool {
        self.inner().is_over
    }
}

impl Inner {
    fn take_in(&mut self, process: Option<usize>, task: Task) {
        let id = self.tasks_made;
        self.tasks_made += 1;
        self.incoming.push((id, process, task));
    }

    fn runs(&self, process: Option<usize>) -> bool {
        process.is_none_or(|process| {
            let life = &self.processes[process];
            life.is_alive && life.runs_from <= self.now
        })
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// A process: the [`Runtime`] of its lock client. Clones denote the same process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    world: World,
    index: usize,
}

impl Process {
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// The number of the process, from 0. A restarted process has a new number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.world.inner().processes[self.index].is_alive
    }

    pub(crate) fn runs(&self) -> bool {
        self.world.inner().runs(Some(self.index))
    }

    /// Kills the process, like SIGKILL: neither tasks nor destructors run from then on.
    pub(crate) fn kill(&self) {
        self.world.inner().processes[self.index].is_alive = false;
    }

    /// Suspends the process until `then`, like SIGSTOP. Its clock continues.
    pub(crate) fn suspend_until(&self, then: Nanos) {
        {
            let life = &mut self.world.inner().processes[self.index];
            life.runs_from = life.runs_from.max(then);
        }
        // Creates an event at the end of the suspension.
        let sleep = self.world.sleep_until(then);
        self.world.spawn(sleep);
    }

    /// Converts a reading of this process's clock to the world's time.
    pub(crate) fn moment(&self, instant: Instant) -> Nanos {
        let time = instant.saturating_duration_since(self.world.0.base).as_nanos();
        let clock = self.world.inner().processes[self.index].clock;
        clock.moment(u64::try_from(time).unwrap_or(u64::MAX / 4).min(u64::MAX / 4))
    }
}

impl Runtime for Process {
    type Sleep = Sleep;

    fn now(&self) -> Instant {
        let inner = self.world.inner();
        self.world.0.base + Duration::from_nanos(inner.processes[self.index].clock.reads(inner.now))
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.world.sleep_until(self.moment(deadline))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.world.inner().take_in(Some(self.index), Box::pin(task));
    }

    fn random(&self) -> u64 {
        self.world.inner().processes[self.index].random.u64(..)
    }
}

#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Sleep {
    world: World,
    key: (Nanos, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let before = {
            let mut inner = self.world.inner();
            if inner.now >= self.key.0 {
                return Poll::Ready(());
            }
            inner.timers.insert(self.key, waker)
        };
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.world.inner().timers.remove(&self.key);
        drop(waker);
    }
}

struct TaskWaker {
    id: usize,
    is_queued: AtomicBool,
    world: World,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: SeqCst, for simplicity: there is only one thread.
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            let mut inner = self.world.inner();
            let at = inner.ready.partition_point(|id| *id < self.id);
            inner.ready.insert(at, self.id);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Polled,
    Jumped,
    Idle,
}

struct Running {
    process: Option<usize>,
    task: Task,
    waker: Arc<TaskWaker>,
}

pub(crate) struct Executor {
    world: World,
    tasks: BTreeMap<usize, Running>,
    /// Tasks of killed processes. Their destructors may run only after the end of the run.
    graveyard: Vec<Task>,
}

impl Executor {
    pub(crate) fn new(world: &World) -> Self {
        Self { world: world.clone(), tasks: BTreeMap::new(), graveyard: Vec::new() }
    }

    /// Polls one task, or advances the clock to the next event, but not beyond `limit`.
    pub(crate) fn step(&mut self, limit: Nanos) -> Step {
        self.take_in();
        let Some(id) = self.pick() else { return self.jump(limit) };
        let Some(mut running) = self.tasks.remove(&id) else { return Step::Polled };
        running.waker.is_queued.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&running.waker));
        let poll = || running.task.as_mut().poll(&mut Context::from_waker(&waker));
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => drop(self.tasks.insert(id, running)),
            Ok(Poll::Ready(())) => self.world.catch(|| drop(running)),
            // A panic ends only its own task.
            Err(panic) => {
                self.world.panicked(&*panic);
                self.world.catch(|| drop(running));
            }
        }
        Step::Polled
    }

    fn take_in(&mut self) {
        let incoming = std::mem::take(&mut self.world.inner().incoming);
        for (id, process, task) in incoming {
            let waker = Arc::new(TaskWaker { id, is_queued: true.into(), world: self.world.clone() });
            self.tasks.insert(id, Running { process, task, waker });
            self.world.inner().ready.push(id);
        }
    }

    /// Chooses a ready task of a running process, by the seed.
    fn pick(&mut self) -> Option<usize> {
        let mut inner = self.world.inner();
        let inner = &mut *inner;
        let runs = |id: &usize| self.tasks.get(id).is_none_or(|task| inner.runs(task.process));
        let may: Vec<usize> = (0..inner.ready.len()).filter(|at| runs(&inner.ready[*at])).collect();
        let at = *may.get(inner.schedule.usize(..may.len().max(1)))?;
        (inner.polls, inner.requests) = (inner.polls + 1, 0);
        let id = inner.ready.remove(at);
        let is_of_process = self.tasks.get(&id).is_some_and(|task| task.process.is_some());
        inner.polls_of_processes += u64::from(is_of_process);
        Some(id)
    }

    fn jump(&mut self, limit: Nanos) -> Step {
        let due = {
            let mut inner = self.world.inner();
            let at = match inner.timers.first_key_value() {
                Some((&(at, _), _)) if at <= limit => at,
                Some(_) | None => {
                    inner.now = inner.now.max(limit);
                    return Step::Idle;
                }
            };
            inner.now = inner.now.max(at);
            (inner.jumps, inner.requests) = (inner.jumps + 1, 0);
            let later = inner.timers.split_off(&(at + 1, 0));
            std::mem::replace(&mut inner.timers, later)
        };
        // The panic of one waker must not keep other timers from firing.
        due.into_values().for_each(|waker| self.world.catch(|| waker.wake()));
        Step::Jumped
    }

    /// Moves tasks of killed processes into the graveyard.
    pub(crate) fn bury(&mut self) {
        self.take_in();
        let dead = {
            let inner = self.world.inner();
            let is_dead = |task: &Running| task.process.is_some_and(|it| !inner.processes[it].is_alive);
            self.tasks.iter().filter(|(_, task)| is_dead(task)).map(|(id, _)| *id).collect::<Vec<_>>()
        };
        for id in dead {
            self.graveyard.extend(self.tasks.remove(&id).map(|running| running.task));
        }
    }

    pub(crate) fn tasks(&self) -> usize {
        let inner = self.world.inner();
        let lives = |task: &&Running| task.process.is_none_or(|process| inner.processes[process].is_alive);
        self.tasks.values().filter(lives).count()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.world.inner().is_over = true;
        // Destructors may spawn tasks, which are dropped unpolled.
        let tasks = std::mem::take(&mut self.tasks);
        drop((tasks, std::mem::take(&mut self.graveyard)));
        self.world.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_that_asks_for_the_time_for_ever_ends_and_is_told() {
        let world = World::new(0, false);
        let process = world.process(Clock::default());
        let clock = process.clone();
        process.spawn(async move {
            loop {
                let _ = clock.now();
            }
        });
        let mut executor = Executor::new(&world);
        assert_eq!(executor.step(0), Step::Polled);
        assert!(world.panic().is_some_and(|said| said.contains("does not come back")));
        assert_eq!(executor.tasks(), 0);
    }
}
