//! [`Stage`]: the state that tasks share with the judges of their run, which inspect it between two polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use latchwork::{LockClient, LockError, LossReason, Metrics, Owner};

use crate::excuses::Excuses;
use crate::handle::Held;
use crate::leases::Leases;
use crate::program::{LockSide, OWNERS, Op, Permits, Program, Which};
use crate::store::{Store, StoredLease};
use crate::world::{Nanos, Process, World};

/// A run, as seen by its tasks. Clones share the run.
pub(crate) struct Stage<S: Store>(Arc<Shared<S>>);

pub(crate) struct Shared<S: Store> {
    pub(crate) world: World,
    pub(crate) program: Program,
    pub(crate) store: S,
    scene: Mutex<Scene>,
}

/// The state of a run between two polls.
pub(crate) struct Scene {
    /// All processes started so far, dead ones included, in order of start.
    pub(crate) members: Vec<Member>,
    pub(crate) holds: BTreeMap<u64, Hold>,
    /// By member and task.
    pub(crate) calls: BTreeMap<(usize, usize), Call>,
    /// Events since the judges last ran.
    pub(crate) events: Vec<Event>,
    /// Guards and clients of dead members. Destructors may run only after the end of the run.
    pub(crate) graveyard: Vec<Remains>,
    pub(crate) operations: u64,
    /// Next operation of each task, by plan and task, where the task continues after a restart.
    progress: BTreeMap<(usize, usize), usize>,
    pub(crate) failed_shutdowns: usize,
    holds_made: u64,
}

pub(crate) struct Remains {
    pub(crate) _guard: Option<Arc<Held>>,
    pub(crate) _client: Option<LockClient>,
}

pub(crate) struct Member {
    /// Index of the process in the program.
    pub(crate) plan: usize,
    pub(crate) process: Process,
    /// Absent before the process is connected.
    pub(crate) client: Option<LockClient>,
    pub(crate) client_id: String,
    pub(crate) owners: Vec<Owner>,
    pub(crate) is_shut_down: bool,
    /// Number of tasks that have not ended.
    pub(crate) tasks: usize,
    /// End of the latest known suspension.
    pub(crate) stood_still_until: Nanos,
}

impl Member {
    pub(crate) fn owner(&self, number: usize) -> Owner {
        self.owners[number % self.owners.len()]
    }

    pub(crate) fn is_in(&self, process: &Process) -> bool {
        self.process.index() == process.index()
    }
}

pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) member: usize,
    pub(crate) task: usize,
    pub(crate) lock: Which,
    pub(crate) permits: Permits,
    pub(crate) owner: Owner,
    /// Absent while the hold is being extended, and after the guard was forgotten.
    pub(crate) guard: Option<Arc<Held>>,
    pub(crate) token: Option<u64>,
    /// Number of the lease under the hold when last seen; 0 if never seen.
    pub(crate) number: u64,
    /// Time of the call that acquired.
    pub(crate) began: Nanos,
    pub(crate) granted: Nanos,
    /// The longest requested lease; absent if watched.
    pub(crate) lease: Option<Nanos>,
    /// Lifetime of the lease, according to the client, at the grant.
    pub(crate) left: Nanos,
    /// Outer: present once the hold is lost. Inner: the reason, if known.
    pub(crate) loss: Option<Option<LossReason>>,
    pub(crate) is_forgotten: bool,
}

impl Hold {
    pub(crate) fn is_held(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_held())
    }
}

#[allow(dead_code, reason = "judges take of it what they need")]
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) member: usize,
    pub(crate) task: usize,
    /// Index among the task's operations.
    pub(crate) at: usize,
    pub(crate) op: Op,
    pub(crate) lock: Option<Which>,
    pub(crate) hold: Option<u64>,
    pub(crate) began: Nanos,
    /// Time by which the call must have ended, if limited.
    pub(crate) due: Option<Nanos>,
    /// End of a stall, during which the future is not polled.
    pub(crate) stalled_until: Nanos,
    pub(crate) was_stalled: bool,
}

impl Call {
    /// True if the call is about this lock, perhaps beside others.
    pub(crate) fn is_about(&self, is_it: impl Fn(Which) -> bool) -> bool {
        self.lock.into_iter().chain(self.op.locks().iter().copied()).any(is_it)
    }

    /// True if the call acquires several locks at once, in an order and in steps that only the client knows.
    pub(crate) fn takes_several(&self) -> bool {
        matches!(self.op, Op::AcquireAll { .. })
    }
}

#[allow(dead_code, reason = "judges take of it what they need")]
#[derive(Debug)]
pub(crate) enum Event {
    /// A task began an operation.
    Called(Call),
    /// The call ended with this answer.
    Answered(Call, Answer),
    /// A hold was made, and is in the scene.
    Granted(u64),
    /// A hold was unlocked or dropped, and is not in the scene.
    GivenBack { hold: u64, member: usize, lock: Which },
    /// A member was started and connected.
    Started(usize),
    /// A member was killed.
    Killed(usize),
    /// The program's harm of this index was done.
    Harmed(usize),
}

#[allow(dead_code, reason = "judges take of it what they need")]
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Got(u64),
    NotGot,
    Failed(LockError),
    Dropped,
    /// A waker's panic unwound through the poll.
    Panicked,
    Lost(LossReason),
    NotLost,
    Freed(bool),
    /// Client and number of the lease, if known, and the rest of its time.
    Holder(Option<(Option<(String, u64)>, Nanos)>),
    Remaining(Option<Nanos>),
    Usage(latchwork::lock::Usage),
    Yes(bool),
    Count(u64),
    Stats(latchwork::lock::LockStats),
    Metrics(Box<Metrics>),
    Listing(Vec<latchwork::lock::HeldLock>, Vec<latchwork::lock::WaitingLock>),
    Shutdown(Result<(), latchwork::ShutdownError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Operations begin, and incidents occur.
    Playing,
    /// Operations and incidents have stopped.
    Ending,
    /// All tasks have ended, and have released all holds.
    Quiet,
    Down,
    Gone,
}

#[allow(dead_code, reason = "judges take of it what they need")]
pub(crate) struct View<'a, S: Store> {
    pub(crate) now: Nanos,
    pub(crate) phase: Phase,
    pub(crate) world: &'a World,
    pub(crate) program: &'a Program,
    pub(crate) store: &'a S,
    pub(crate) scene: &'a Scene,
    pub(crate) leases: &'a Leases,
    /// Exceptions that the history justifies.
    pub(crate) excuses: &'a Excuses,
}

#[allow(dead_code, reason = "judges take of it what they need")]
impl<S: Store> View<'_, S> {
    /// Returns the store's current leases of a lock: of both sides, if a read-write lock.
    pub(crate) fn leases(&self, lock: Which) -> impl Iterator<Item = &StoredLease> {
        let now = self.now;
        self.leases.of(lock).iter().filter(move |lease| lease.ends > now)
    }

    /// True if the permits that a call wants are free at the store, and no more than its capacity.
    pub(crate) fn has_permits_for(&self, call: &Call) -> bool {
        let Op::Acquire { lock, permits, .. } = &call.op else { return false };
        self.leases(*lock).map(|lease| lease.permits).sum::<u32>() + permits.count <= permits.capacity
    }

    pub(crate) fn calls_of(&self, member: usize) -> impl Iterator<Item = &Call> {
        self.scene.calls.range((member, 0)..=(member, usize::MAX)).map(|(_, call)| call)
    }

    pub(crate) fn has_operation(&self, is_so: impl Fn(&Op) -> bool) -> bool {
        self.program.processes.iter().flat_map(|plan| &plan.tasks).flatten().any(is_so)
    }

    pub(crate) fn member(&self, hold: &Hold) -> &Member {
        &self.scene.members[hold.member]
    }

    pub(crate) fn name(&self, lock: Which) -> &str {
        &self.program.names[lock.name]
    }

    /// Returns the time by which a member may believe in a lease for longer than the store, if the member
    /// counts `time` by its own clock from the same moment.
    pub(crate) fn drift(&self, member: usize, time: Nanos) -> Nanos {
        let ppm = self.program.processes[self.scene.members[member].plan].clock_ppm;
        // A fast clock, too, lengthens the rest of a lease, in its own nanoseconds.
        u64::try_from(u128::from(time) * u128::from(ppm.unsigned_abs()) / 1_000_000).unwrap_or(Nanos::MAX)
    }

    pub(crate) fn words(&self, hold: &Hold) -> String {
        format!(
            "hold {} of p{}t{} on {} by owner {}",
            hold.id,
            hold.member,
            hold.task,
            self.lock_words(hold.lock),
            number_of(&hold.owner)
        )
    }

    pub(crate) fn lock_words(&self, lock: Which) -> String {
        lock_words(self.program, lock)
    }
}

pub(crate) fn lock_words(program: &Program, lock: Which) -> String {
    let name = &program.names[lock.name];
    match lock.kind {
        LockSide::Plain => format!("{name:?}"),
        LockSide::Fair => format!("fair {name:?}"),
        LockSide::Read => format!("read {name:?}"),
        LockSide::Write => format!("write {name:?}"),
        LockSide::Permits => format!("permits {name:?}"),
    }
}

/// Returns the owner's number. The full id contains the client's id, which differs between runs.
pub(crate) fn number_of(owner: &Owner) -> String {
    owner.to_string().rsplit(':').next().unwrap_or_default().to_owned()
}

impl<S: Store> Stage<S> {
    pub(crate) fn new(world: &World, program: &Program, store: S) -> Self {
        let scene = Scene {
            members: Vec::new(),
            holds: BTreeMap::new(),
            calls: BTreeMap::new(),
            events: Vec::new(),
            graveyard: Vec::new(),
            operations: 0,
            progress: BTreeMap::new(),
            failed_shutdowns: 0,
            holds_made: 0,
        };
        let (world, program) = (world.clone(), program.clone());
        Self(Arc::new(Shared { world, program, store, scene: Mutex::new(scene) }))
    }

    /// Never locked across a call of the API, since wakers and destructors may lock the scene themselves.
    pub(crate) fn scene(&self) -> MutexGuard<'_, Scene> {
        self.0.scene.lock().expect("nothing panics under this lock")
    }

    /// Records a member's client. Returns the operation with which each of its tasks begins.
    pub(crate) fn connected(&self, member: usize, client: LockClient) -> Vec<usize> {
        let owners = (0..OWNERS).map(|_| client.owner()).collect();
        let mut scene = self.scene();
        let scene = &mut *scene;
        let it = &mut scene.members[member];
        (it.client_id, it.owners, it.client) = (client.id().to_owned(), owners, Some(client));
        let (plan, tasks) = (it.plan, it.tasks);
        scene.events.push(Event::Started(member));
        (0..tasks).map(|task| scene.progress(plan, task)).collect()
    }

    /// Takes the client, unless the member has forgotten holds, which only a client can release.
    pub(crate) fn drop_client(&self, member: usize) -> Option<LockClient> {
        let mut scene = self.scene();
        let has_forgotten = scene.holds.values().any(|hold| hold.member == member && hold.is_forgotten);
        if has_forgotten { None } else { scene.members[member].client.take() }
    }

    pub(crate) fn client(&self, member: usize) -> Option<LockClient> {
        self.scene().members[member].client.clone()
    }
}

impl<S: Store> std::ops::Deref for Stage<S> {
    type Target = Shared<S>;

    fn deref(&self) -> &Shared<S> {
        &self.0
    }
}

impl<S: Store> Clone for Stage<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Scene {
    pub(crate) fn new_hold(&mut self) -> u64 {
        self.holds_made += 1;
        self.holds_made
    }

    pub(crate) fn begins(&mut self, plan: usize, task: usize, at: usize) {
        self.progress.insert((plan, task), at + 1);
    }

    pub(crate) fn progress(&self, plan: usize, task: usize) -> usize {
        self.progress.get(&(plan, task)).copied().unwrap_or(0)
    }

    /// Returns the current member for a process of the program.
    pub(crate) fn member_of(&self, plan: usize) -> Option<usize> {
        self.members.iter().rposition(|member| member.plan == plan)
    }

    /// Moves a dead member's guards and client into the graveyard.
    pub(crate) fn bury(&mut self, member: usize) {
        let dead: Vec<u64> =
            self.holds.iter().filter(|(_, hold)| hold.member == member).map(|(id, _)| *id).collect();
        for id in dead {
            let guard = self.holds.remove(&id).and_then(|hold| hold.guard);
            self.graveyard.push(Remains { _guard: guard, _client: None });
        }
        let client = self.members[member].client.take();
        self.graveyard.push(Remains { _guard: None, _client: client });
        self.calls.retain(|(of, _), _| *of != member);
    }
}
