//! [`Stage`]: what tasks share with the judges of their run, which look at it between two polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use latchwork::{Guard, LockClient, LockError, LossReason, Metrics, Owner};

use crate::excuses::Excuses;
use crate::leases::Leases;
use crate::program::{LockSide, OWNERS, Op, Program, Which};
use crate::store::{Store, StoredLease};
use crate::world::{Nanos, Process, World};

/// A run, as its tasks have it. Clones are the same run.
pub(crate) struct Stage<S: Store>(Arc<Shared<S>>);

pub(crate) struct Shared<S: Store> {
    pub(crate) world: World,
    pub(crate) program: Program,
    pub(crate) store: S,
    scene: Mutex<Scene>,
}

/// What is the case between two polls.
pub(crate) struct Scene {
    /// Processes that were started, those included that are dead. By [`Member`]s' index.
    pub(crate) members: Vec<Member>,
    pub(crate) holds: BTreeMap<u64, Hold>,
    /// What tasks are doing, by member and task.
    pub(crate) calls: BTreeMap<(usize, usize), Call>,
    /// What has happened since judges were asked.
    pub(crate) events: Vec<Event>,
    /// What belongs to the dead. No destructor may run before all is over.
    pub(crate) graveyard: Vec<Remains>,
    pub(crate) operations: u64,
    /// With which operation a task goes on if its process is started again, by plan and task.
    progress: BTreeMap<(usize, usize), usize>,
    /// Of those at the end of the run.
    pub(crate) failed_shutdowns: usize,
    holds_made: u64,
}

/// What a process leaves that was killed.
pub(crate) struct Remains {
    pub(crate) _guard: Option<Arc<Guard>>,
    pub(crate) _client: Option<LockClient>,
}

/// A process that was started.
pub(crate) struct Member {
    /// Which of the program's it is.
    pub(crate) plan: usize,
    pub(crate) process: Process,
    /// Once it is connected.
    pub(crate) client: Option<LockClient>,
    /// As the store has it.
    pub(crate) client_id: String,
    /// Shared by its tasks.
    pub(crate) owners: Vec<Owner>,
    pub(crate) is_shut_down: bool,
    /// How many of its tasks have not ended.
    pub(crate) tasks: usize,
    /// The last moment at which it was suspended, as far as that is known.
    pub(crate) stood_still_until: Nanos,
}

impl Member {
    /// The owner that an operation names by this number.
    pub(crate) fn owner(&self, number: usize) -> Owner {
        self.owners[number % self.owners.len()]
    }
}

/// A hold that a task has.
pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) member: usize,
    pub(crate) task: usize,
    pub(crate) lock: Which,
    pub(crate) owner: Owner,
    /// Absent while it is being extended, and once it was forgotten.
    pub(crate) guard: Option<Arc<Guard>>,
    pub(crate) token: Option<u64>,
    /// The number of the lease that it stands on, as it was last seen; 0 if it was not.
    pub(crate) number: u64,
    /// When the acquisition was called.
    pub(crate) began: Nanos,
    pub(crate) granted: Nanos,
    /// The longest lease that was asked for it; absent if it is watched.
    pub(crate) lease: Option<Nanos>,
    /// For how long it was believed in when it was granted.
    pub(crate) left: Nanos,
    /// Why it is lost, if it is, and that is known.
    pub(crate) loss: Option<Option<LossReason>>,
    pub(crate) is_forgotten: bool,
}

impl Hold {
    /// Whether its guard says so.
    pub(crate) fn is_held(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_held())
    }
}

/// What a task is doing.
#[allow(dead_code, reason = "judges take of it what they need")]
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) member: usize,
    pub(crate) task: usize,
    /// Which of the task's operations it is.
    pub(crate) at: usize,
    pub(crate) op: Op,
    pub(crate) lock: Option<Which>,
    pub(crate) hold: Option<u64>,
    pub(crate) began: Nanos,
    /// When it must have ended, if there is such a moment.
    pub(crate) due: Option<Nanos>,
    /// It is kept and not polled until then.
    pub(crate) stalled_until: Nanos,
    /// It was kept and not polled at some time.
    pub(crate) was_stalled: bool,
}

/// What has happened.
#[allow(dead_code, reason = "judges take of it what they need")]
#[derive(Debug)]
pub(crate) enum Event {
    /// A task began an operation.
    Called(Call),
    /// An operation ended. What it was is in the call.
    Answered(Call, Answer),
    /// A hold was made; it is among the scene's.
    Granted(u64),
    /// A hold is no more among the scene's: it was unlocked or dropped.
    GivenBack { hold: u64, member: usize, lock: Which },
    /// A member was started and connected.
    Started(usize),
    /// A member was killed.
    Killed(usize),
    /// Harm of the program was done, by its index.
    Harmed(usize),
}

/// What an operation came to.
#[allow(dead_code, reason = "judges take of it what they need")]
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// Of an acquisition that got the lock: the hold.
    Got(u64),
    NotGot,
    Failed(LockError),
    /// The future was dropped before it was ready.
    Dropped,
    /// A waker's panic went on in it.
    Panicked,
    Lost(LossReason),
    NotLost,
    Freed(bool),
    /// The client and the number of the lease, and what is left of it.
    Holder(Option<(Option<(String, u64)>, Nanos)>),
    Remaining(Option<Nanos>),
    Yes(bool),
    Count(u64),
    Stats(latchwork::lock::LockStats),
    Metrics(Box<Metrics>),
    Listing(Vec<latchwork::lock::HeldLock>, Vec<latchwork::lock::WaitingLock>),
    Shutdown(Result<(), latchwork::ShutdownError>),
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Operations begin, and things go wrong.
    Playing,
    /// No operation begins any more, and nothing goes wrong any more.
    Ending,
    /// All tasks have ended, and have given back all that they had.
    Quiet,
    /// All clients are shut down.
    Down,
    /// All clients are gone.
    Gone,
}

/// What judges look at.
#[allow(dead_code, reason = "judges take of it what they need")]
pub(crate) struct View<'a, S: Store> {
    pub(crate) now: Nanos,
    pub(crate) phase: Phase,
    pub(crate) world: &'a World,
    pub(crate) program: &'a Program,
    pub(crate) store: &'a S,
    pub(crate) scene: &'a Scene,
    /// What the store has.
    pub(crate) leases: &'a Leases,
    /// What is excused.
    pub(crate) excuses: &'a Excuses,
}

#[allow(dead_code, reason = "judges take of it what they need")]
impl<S: Store> View<'_, S> {
    /// The leases that the store has of a lock now: of both sides, if it is a read-write lock.
    pub(crate) fn leases(&self, lock: Which) -> impl Iterator<Item = &StoredLease> {
        let now = self.now;
        self.leases.of(lock).iter().filter(move |lease| lease.ends > now)
    }

    /// What the tasks of a member are doing.
    pub(crate) fn calls_of(&self, member: usize) -> impl Iterator<Item = &Call> {
        self.scene.calls.range((member, 0)..=(member, usize::MAX)).map(|(_, call)| call)
    }

    /// Whether some operation of the program is so.
    pub(crate) fn has_operation(&self, is_so: impl Fn(&Op) -> bool) -> bool {
        self.program.processes.iter().flat_map(|plan| &plan.tasks).flatten().any(is_so)
    }

    pub(crate) fn member(&self, hold: &Hold) -> &Member {
        &self.scene.members[hold.member]
    }

    pub(crate) fn name(&self, lock: Which) -> &str {
        &self.program.names[lock.name]
    }

    /// How much longer than the store a member may believe in a lease by its clock, if it counts as many
    /// nanoseconds from the same moment.
    pub(crate) fn drift(&self, member: usize, time: Nanos) -> Nanos {
        let ppm = self.program.processes[self.scene.members[member].plan].clock_ppm;
        // A fast clock, too, makes what is left look longer in its own nanoseconds.
        u64::try_from(u128::from(time) * u128::from(ppm.unsigned_abs()) / 1_000_000).unwrap_or(Nanos::MAX)
    }

    /// Words for a hold, as histories have them.
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
    }
}

/// Owners are told apart by their number, as a client's id is not to be in a history.
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

    /// Never locked across a call of the API, which may call wakers and run destructors that come here.
    pub(crate) fn scene(&self) -> MutexGuard<'_, Scene> {
        self.0.scene.lock().expect("nothing panics under this lock")
    }

    /// A member's client is there. With which operation each of its tasks begins.
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

    /// The client, which the member has no more; unless that has forgotten holds, which only a client gives
    /// back.
    pub(crate) fn drop_client(&self, member: usize) -> Option<LockClient> {
        let mut scene = self.scene();
        let has_forgotten = scene.holds.values().any(|hold| hold.member == member && hold.is_forgotten);
        if has_forgotten { None } else { scene.members[member].client.take() }
    }

    /// Absent once it was dropped.
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

    /// A task begins its operation `at`.
    pub(crate) fn begins(&mut self, plan: usize, task: usize, at: usize) {
        self.progress.insert((plan, task), at + 1);
    }

    /// With which operation a task of a process goes on that is started.
    pub(crate) fn progress(&self, plan: usize, task: usize) -> usize {
        self.progress.get(&(plan, task)).copied().unwrap_or(0)
    }

    /// Which member is a process of the program now.
    pub(crate) fn member_of(&self, plan: usize) -> Option<usize> {
        self.members.iter().rposition(|member| member.plan == plan)
    }

    /// Takes what a dead member had out of the scene.
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
