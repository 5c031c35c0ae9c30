//! Draws programs by swarm testing: each program omits some operations, faults, kinds and leases entirely, so
//! that the rest meets more often than if each program had a little of everything.

use fastrand::Rng;

use super::{
    Care, How, Incident, LockSide, Op, Options, Permits, Plan, Program, Question, Stall, Trouble, WakerKind,
    Which,
};
use crate::store::{Harm, LATEST_RUN, Network};
use crate::world::{MS, Nanos, SECOND, US};

/// The choices of a program. Shares are weights.
struct Taste {
    locks: Vec<Which>,
    /// Ranges: from, to.
    leases: Vec<(Nanos, Nanos)>,
    sleeps: Vec<(Nanos, Nanos)>,
    operations: Vec<(u32, Draw)>,
    owners: usize,
    /// In hundredths of acquisitions.
    owned: u32,
    fenced: u32,
    hows: Vec<u32>,
    dropped: u32,
    stalled: u32,
    limited: u32,
    wakers: Vec<WakerKind>,
    hostile_wakers: u32,
    /// Share of stalled futures that are dropped after the stall, in hundredths.
    dropped_unpolled: u32,
    /// If not 0, all times are multiples of this time.
    beat: Nanos,
    /// Of each name as a semaphore.
    capacities: Vec<u32>,
    /// Shares, in hundredths, of acquisitions of several permits, and by handles of another capacity.
    heavy: u32,
    resized: u32,
}

type Draw = fn(&mut Rng, &Taste) -> Op;

/// Draws the seed's program. `longest`: limit on its leases, sleeps and end.
pub(crate) fn draw(seed: u64, longest: Nanos) -> Program {
    let rng = &mut Rng::with_seed(seed);
    // One program in twenty is large: many names, or many readers of one name, or many permits.
    let (many_names, many_readers) = match rng.u32(..40) {
        0 => (true, false),
        1 => (false, true),
        _ => (false, false),
    };
    let names = if many_names { (0..150).map(|name| format!("n{name}")).collect() } else { names(rng) };
    let beat = pick(rng, &[0, 0, 0, SECOND, 5 * SECOND]);
    // With a beat, some answers take no time, so that they arrive on the beat too.
    let latency = if beat > 0 && rng.bool() { 0 } else { pick(rng, &[100 * US, 2 * MS, 50 * MS, 200 * MS]) };
    let mut taste = Taste::draw(rng, &names, latency, beat, longest);
    if many_readers {
        let sides = [LockSide::Read, LockSide::Read, LockSide::Write];
        let sides = if rng.u32(..3) == 0 { [LockSide::Permits; 3] } else { sides };
        taste.locks = sides.map(|kind| Which { name: 0, kind }).to_vec();
    }
    let is_crowd = rng.u32(..8) == 0 || many_names || many_readers;
    // A crowd always has a waiter, and its waiting costs a command each second.
    let ends = if is_crowd { &[10, 30, 300][..] } else { &[10, 30, 300, 300, 3600, 3 * 3600] };
    let ends: Vec<Nanos> = ends.iter().map(|end| end * SECOND).filter(|end| *end <= longest).collect();
    let end = pick(rng, &ends);
    // Tasks of a crowd perform fewer operations each.
    let (processes, tasks, operations) = match is_crowd {
        _ if many_names => (2, 5, rng.usize(10..=20)),
        // More than a client queues at the store.
        _ if many_readers && taste.locks[0].kind == LockSide::Permits => (2, 40, rng.usize(2..=3)),
        _ if many_readers => (2, 30, rng.usize(2..=3)),
        true => (rng.usize(1..=2), rng.usize(5..=12), rng.usize(2..=6)),
        false => (rng.usize(1..=4), rng.usize(1..=4), rng.usize(3..=14)),
    };
    let clocks = rng.u32(..10) < 3;
    // A lease little longer than its renewal is lost time and again; many renewals take long to simulate.
    let may_be_short = latency < 10 * MS && end <= 300 * SECOND;
    let same_options = options(rng, may_be_short);
    let plan = |rng: &mut Rng| Plan {
        is_beside: false,
        clock_ppm: if clocks { rng.i64(-100..=100) * 100 } else { 0 },
        options: if rng.u32(..4) == 0 { options(rng, may_be_short) } else { same_options.clone() },
        tasks: (0..tasks).map(|_| (0..operations).map(|_| taste.operation(rng)).collect()).collect(),
    };
    let processes: Vec<Plan> = (0..processes).map(|_| plan(rng)).collect();
    let incidents = incidents(rng, processes.len(), &names, &taste, end);
    let network = network(rng, latency, end);
    let keeps_handles = rng.u32(..4) == 0;
    let mut program = Program {
        schedule: rng.u64(..),
        names,
        network,
        processes,
        incidents,
        end,
        beat,
        keeps_handles,
        prefix: String::new(),
    };
    match rng.u32(..12) {
        0 | 1 => end_under_a_command(rng, &taste, &mut program),
        2 => wait_for_two_in_braces(rng, &mut program),
        3 => take_several(rng, &taste, &mut program),
        _ => {}
    }
    if rng.u32(..8) == 0 {
        map_names(&mut program);
    }
    let beside = pick(rng, &[0, 0, 50, 100]);
    program.processes.iter_mut().skip(1).for_each(|plan| plan.is_beside = rng.u32(..100) < beside);
    program
}

/// Puts a name mapper's prefix before all names.
fn map_names(program: &mut Program) {
    "shop:".clone_into(&mut program.prefix);
    let mut names: Vec<&mut String> = program.names.iter_mut().collect();
    names.extend(program.incidents.iter_mut().filter_map(|incident| match &mut incident.what {
        Trouble::Harm(Harm::Evict { name, .. } | Harm::Storm { name, .. }) => Some(name),
        _ => None,
    }));
    names.into_iter().for_each(|name| name.insert_str(0, &program.prefix));
}

/// Releases a hold by its owner's name while a command of that hold is under way, and lets the next waiter
/// acquire under the same lease: within the tenure, for a lease of its own or a token. Sometimes the lock is
/// forced free meanwhile.
///
/// Independently drawn tasks meet in this way once in some ten thousand programs.
fn end_under_a_command(rng: &mut Rng, taste: &Taste, program: &mut Program) {
    let beat = if program.beat == 0 { SECOND } else { program.beat };
    program.beat = beat;
    let (at, owner) = (rng.usize(..program.processes.len()), rng.usize(..taste.owners));
    // No other operation uses this lock. Only these kinds pass from owner to owner under one lease.
    let kind = if rng.u32(..4) == 0 { LockSide::Read } else { LockSide::Plain };
    let lock = Which { name: program.names.len(), kind };
    program.names.push("y".to_owned());
    if rng.u32(..8) > 0 {
        program.processes[at].options.tenure = Some(3600 * SECOND);
    }
    // An answer that takes no time leaves no command under way.
    program.network.latency = program.network.latency.max(MS);
    let acquires = |owner, fenced, how| {
        let (permits, care) = (Permits::default(), Care::default());
        Op::Acquire { lock, owner, fenced, permits, how, care }
    };
    let is_fenced = rng.u32(..100) < taste.fenced;
    let by_owner = || acquires(Some(owner), is_fenced, How::Lock);
    // A waiter continues a lease only if its own is at least as long.
    let (lease, is_leased) = (between(rng, (SECOND, 120 * SECOND)), rng.bool());
    let lease = if is_leased { lease } else { lease.min(30 * SECOND) };
    let under_way = match rng.u32(..4) {
        0 => acquires(Some(owner), true, How::Lock),
        1 => acquires(Some(owner), rng.bool(), How::Leased(lease)),
        _ => Op::Extend { hold: 0, lease, care: Care::default() },
    };
    let meets = Op::Sleep(2 * beat);
    let holds = vec![by_owner(), meets.clone(), under_way];
    let mut gives_back = vec![by_owner(), meets.clone()];
    gives_back.extend((0..rng.usize(2..=3)).map(|_| Op::UnlockByOwner { care: Care::default() }));
    let waits_as = rng.bool().then(|| rng.usize(..taste.owners));
    let how = if is_leased { How::Leased(120 * SECOND + lease) } else { How::Lock };
    let fenced = !is_leased || rng.bool();
    let waits = vec![Op::Sleep(beat), acquires(waits_as, fenced, how), meets.clone()];
    begin_with(&mut program.processes[at], vec![holds, gives_back, waits]);
    let others: Vec<usize> = (0..program.processes.len()).filter(|other| *other != at).collect();
    if !others.is_empty() && rng.bool() {
        let forces = vec![meets, Op::ForceUnlock { lock, care: Care::default() }];
        begin_with(&mut program.processes[pick(rng, &others)], vec![forces]);
    }
}

/// Lets a process wait for two names with one channel on Redis, while another process releases one.
fn wait_for_two_in_braces(rng: &mut Rng, program: &mut Program) {
    let beat = if program.beat == 0 { SECOND } else { program.beat };
    program.beat = beat;
    // No other operation uses these names.
    let names = [program.names.len(), program.names.len() + 1];
    program.names.extend(["z", "{z}"].map(str::to_owned));
    program.processes.resize(program.processes.len().max(2), Plan::default());
    let (first, second) = if rng.bool() { (names[0], names[1]) } else { (names[1], names[0]) };
    let acquires = |name| {
        let lock = Which { name, kind: LockSide::Plain };
        let (permits, care) = (Permits::default(), Care::default());
        Op::Acquire { lock, owner: None, fenced: false, permits, how: How::Lock, care }
    };
    let holds = |name, beats| vec![acquires(name), Op::Sleep(beats * beat), Op::Drop { hold: 0 }];
    let waits = |name| vec![Op::Sleep(beat), acquires(name)];
    begin_with(&mut program.processes[0], vec![holds(first, 3), holds(second, rng.u64(5..20))]);
    begin_with(&mut program.processes[1], vec![waits(first), waits(second)]);
}

/// Lets some acquisitions take further locks along with their own.
fn take_several(rng: &mut Rng, taste: &Taste, program: &mut Program) {
    for operation in program.processes.iter_mut().flat_map(|plan| &mut plan.tasks).flatten() {
        let Op::Acquire { lock, how, care, .. } = operation else { continue };
        if lock.kind == LockSide::Permits || rng.u32(..3) == 0 {
            continue;
        }
        let mut locks = vec![*lock];
        for _ in 0..rng.usize(1..=3) {
            let other = taste.lock(rng);
            if other.kind != LockSide::Permits && locks.iter().all(|lock| lock.name != other.name) {
                locks.push(other);
            }
        }
        rng.shuffle(&mut locks);
        *operation = Op::AcquireAll { locks, how: how.clone(), care: care.clone() };
    }
}

/// Puts a scene before the operations of each of the first tasks.
fn begin_with(plan: &mut Plan, scenes: Vec<Vec<Op>>) {
    plan.tasks.resize(scenes.len().max(plan.tasks.len()), Vec::new());
    for (task, scene) in plan.tasks.iter_mut().zip(scenes) {
        task.splice(..0, scene);
    }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// Chooses some of the elements, at least one.
fn some<T: Clone>(rng: &mut Rng, of: &[T], hundredths: u32) -> Vec<T> {
    let chosen: Vec<T> = of.iter().filter(|_| rng.u32(..100) < hundredths).cloned().collect();
    if chosen.is_empty() { vec![of[rng.usize(..of.len())].clone()] } else { chosen }
}

fn names(rng: &mut Rng) -> Vec<String> {
    // Some names differ only by a suffix that the store adds to keys and channels, or by braces.
    const POOLS: [&[&str]; 11] = [
        &["a"],
        &["a"],
        &["a", "b"],
        &["a", "{a}"],
        &["a", "a:1", "b"],
        &["{a}", "{a}:b"],
        &["x{a}", "y{a}"],
        &["{a}", "a", "{{a}}"],
        &["a", "a:", ":a"],
        &["a", "b", "c", "d", "e"],
        &["a", "b", "c", "d", "e"],
    ];
    pick(rng, &POOLS).iter().map(|name| (*name).to_owned()).collect()
}

/// Draws a time, rounded to a unit, so that histories are readable.
fn between(rng: &mut Rng, (from, to): (Nanos, Nanos)) -> Nanos {
    let time = rng.u64(from..to);
    let unit = match time {
        0..MS => US,
        MS..SECOND => MS,
        SECOND.. => 10 * MS,
    };
    (time / unit * unit).max(from)
}

impl Taste {
    fn draw(rng: &mut Rng, names: &[String], latency: Nanos, beat: Nanos, longest: Nanos) -> Self {
        const LEASES: [(Nanos, Nanos); 6] = [
            (MS, 50 * MS),
            (50 * MS, 2 * SECOND),
            (2 * SECOND, 10 * SECOND),
            (10 * SECOND, 120 * SECOND),
            (120 * SECOND, 3600 * SECOND),
            (3600 * SECOND, 10 * 3600 * SECOND),
        ];
        const SLEEPS: [(Nanos, Nanos); 4] =
            [(0, 300 * MS), (0, 10 * SECOND), (0, 120 * SECOND), (0, 2 * 3600 * SECOND)];
        let within = |range: &&(Nanos, Nanos)| range.1 <= longest;
        let sleeps: Vec<_> = SLEEPS.iter().filter(within).copied().collect();
        // A lease that expires before its grant is known would be requested again and again.
        let shortest = usize::from(latency >= MS) + usize::from(latency >= 10 * MS);
        let leases: Vec<_> = LEASES[shortest..].iter().filter(within).copied().collect();
        let hostile_wakers = pick(rng, &[0, 0, 0, 5, 30, 80]);
        // Many wakers that try the lock would wake one another without end.
        let kinds: &[WakerKind] = &[WakerKind::Panics, WakerKind::Looks, WakerKind::Tries];
        let wakers = if hostile_wakers > 30 { &kinds[..1] } else { kinds };
        Self {
            locks: locks(rng, names),
            leases: some(rng, &leases, 45),
            sleeps: some(rng, &sleeps, 50),
            operations: operations(rng),
            owners: rng.usize(1..=super::OWNERS),
            owned: pick(rng, &[0, 30, 70, 100]),
            fenced: pick(rng, &[0, 30, 100]),
            hows: (0..4).map(|_| pick(rng, &[0, 1, 1, 3])).collect(),
            dropped: pick(rng, &[0, 0, 8, 30]),
            stalled: pick(rng, &[0, 0, 4, 20]),
            limited: pick(rng, &[0, 0, 10]),
            wakers: some(rng, wakers, 50),
            hostile_wakers,
            dropped_unpolled: pick(rng, &[0, 30, 100]),
            beat,
            capacities: names.iter().map(|_| pick(rng, &[1, 2, 2, 3, 5, 8])).collect(),
            heavy: pick(rng, &[0, 20, 70]),
            resized: pick(rng, &[0, 0, 0, 30]),
        }
    }

    fn operation(&self, rng: &mut Rng) -> Op {
        let all: u32 = self.operations.iter().map(|(share, _)| share).sum();
        let mut at = rng.u32(..all);
        for (share, draw) in &self.operations {
            if at < *share {
                return draw(rng, self);
            }
            at -= share;
        }
        unreachable!("the shares add up")
    }

    fn lock(&self, rng: &mut Rng) -> Which {
        // Prefer the first locks, so that tasks meet; if there are many, a task may hold several at once.
        let at = rng.usize(..self.locks.len());
        let at = if self.locks.len() >= 5 { at } else { at.min(rng.usize(..self.locks.len())) };
        self.locks[at]
    }

    fn permits(&self, rng: &mut Rng, name: usize) -> Permits {
        let is = |rng: &mut Rng, hundredths: u32| rng.u32(..100) < hundredths;
        let capacity = self.capacities[name];
        let capacity = if is(rng, self.resized) { rng.u32(1..=2 * capacity) } else { capacity };
        let count = match rng.u32(..50) {
            0 => pick(rng, &[0, capacity + 1]),
            _ if is(rng, self.heavy) => rng.u32(1..=capacity),
            _ => 1,
        };
        Permits { count, capacity }
    }

    fn lease(&self, rng: &mut Rng) -> Nanos {
        let range = pick(rng, &self.leases);
        self.between(rng, range)
    }

    /// Draws a time, rounded to the beat if there is one.
    fn between(&self, rng: &mut Rng, range: (Nanos, Nanos)) -> Nanos {
        match (self.beat, between(rng, range)) {
            (0, time) => time,
            // Short times are the more frequent.
            (beat, time) if rng.bool() => (time % (4 * beat)).next_multiple_of(beat).max(beat),
            (beat, time) => time.next_multiple_of(beat).max(beat),
        }
    }

    fn between_some(&self, rng: &mut Rng, of: &[(Nanos, Nanos)]) -> Nanos {
        let range = pick(rng, of);
        self.between(rng, range)
    }

    fn care(&self, rng: &mut Rng) -> Care {
        let is = |rng: &mut Rng, hundredths: u32| rng.u32(..100) < hundredths;
        Care {
            drop_after: is(rng, self.dropped).then(|| rng.u32(1..6)),
            stall: is(rng, self.stalled).then(|| Stall {
                polls: rng.u32(1..4),
                lasts: self
                    .between_some(rng, &[(0, SECOND), (0, 5 * SECOND), (0, 60 * SECOND), (0, 300 * SECOND)]),
                drops: is(rng, self.dropped_unpolled),
            }),
            limit: is(rng, self.limited).then(|| self.between(rng, (MS, 5 * SECOND))),
            waker: if is(rng, self.hostile_wakers) { pick(rng, &self.wakers) } else { WakerKind::Plain },
        }
    }
}

fn between_some(rng: &mut Rng, of: &[(Nanos, Nanos)]) -> Nanos {
    let range = pick(rng, of);
    between(rng, range)
}

/// Assigns kinds to names: one kind each, for the most part.
fn locks(rng: &mut Rng, names: &[String]) -> Vec<Which> {
    const SIDES: [&[LockSide]; 4] =
        [&[LockSide::Plain], &[LockSide::Fair], &[LockSide::Write, LockSide::Read], &[LockSide::Permits]];
    let mixed = rng.u32(..12) == 0;
    let first = pick(rng, &SIDES);
    let mut locks = Vec::new();
    for name in 0..names.len() {
        let kinds: Vec<LockSide> = match (mixed, rng.bool()) {
            (true, _) => some(rng, &SIDES, 60).concat(),
            (false, true) => first.to_vec(),
            (false, false) => pick(rng, &SIDES).to_vec(),
        };
        locks.extend(kinds.into_iter().map(|kind| Which { name, kind }));
    }
    locks
}

fn operations(rng: &mut Rng) -> Vec<(u32, Draw)> {
    const ALL: [(u32, Draw); 13] = [
        (12, |rng, taste| Op::Extend {
            hold: rng.usize(..4),
            lease: taste.lease(rng),
            care: taste.care(rng),
        }),
        (10, |rng, taste| Op::Unlock { hold: rng.usize(..4), care: taste.care(rng) }),
        (12, |rng, _| Op::Drop { hold: rng.usize(..4) }),
        (5, |rng, _| Op::Forget { hold: rng.usize(..4) }),
        (6, |rng, taste| Op::UnlockByOwner { care: taste.care(rng) }),
        (3, |rng, taste| Op::ForceUnlock { lock: taste.lock(rng), care: taste.care(rng) }),
        (5, |rng, taste| Op::EnsureHeld { hold: rng.usize(..4), care: taste.care(rng) }),
        (4, |rng, taste| Op::Lost { hold: rng.usize(..4), timeout: None, care: taste.care(rng) }),
        (4, |rng, taste| {
            let timeout = Some(taste.between(rng, (0, 20 * SECOND)));
            Op::Lost { hold: rng.usize(..4), timeout, care: taste.care(rng) }
        }),
        (6, ask),
        (4, |rng, taste| Op::Run {
            hold: rng.usize(..4),
            work: taste.between_some(rng, &taste.sleeps),
            looks: rng.bool(),
            care: taste.care(rng),
        }),
        (1, |rng, _| {
            let limit = between(rng, (0, 30 * SECOND));
            if rng.bool() { Op::Drain(limit) } else { Op::Shutdown(limit) }
        }),
        (1, |_, _| Op::DropClient),
    ];
    let mut operations = some(rng, &ALL, 55);
    // Some programs often shut down or drop clients; most never do.
    operations.retain(|(share, _)| *share > 1 || rng.u32(..4) == 0);
    // Some programs consist mostly of queries.
    if rng.u32(..10) == 0 {
        operations.push((150, ask));
    }
    // Every program acquires locks, and lets time pass.
    operations.push((rng.u32(20..50), acquire));
    operations.push((rng.u32(3..25), |rng, taste| {
        let range = pick(rng, &taste.sleeps);
        Op::Sleep(taste.between(rng, range))
    }));
    operations
}

fn acquire(rng: &mut Rng, taste: &Taste) -> Op {
    let owner = (rng.u32(..100) < taste.owned).then(|| rng.usize(..taste.owners));
    let all: u32 = taste.hows.iter().sum();
    let mut at = rng.u32(..all.max(1));
    let mut chosen = 0;
    for (how, share) in taste.hows.iter().enumerate() {
        if at < *share {
            chosen = how;
            break;
        }
        at -= share;
    }
    let how = match chosen {
        0 => How::Lock,
        1 => How::Leased(taste.lease(rng)),
        2 => How::Try,
        _ => How::TryFor {
            wait: match rng.u32(..8) {
                0 => 0,
                1 => between(rng, (US, 50 * MS)),
                2..=5 => taste.between(rng, (MS, 10 * SECOND)),
                _ => taste.between(rng, (SECOND, 300 * SECOND)),
            },
            lease: rng.bool().then(|| taste.lease(rng)),
        },
    };
    let fenced = rng.u32(..100) < taste.fenced;
    let (lock, care) = (taste.lock(rng), taste.care(rng));
    match lock.kind {
        LockSide::Permits => {
            let permits = taste.permits(rng, lock.name);
            Op::Acquire { lock, owner: None, fenced: false, permits, how, care }
        }
        _ => Op::Acquire { lock, owner, fenced, permits: Permits::default(), how, care },
    }
}

fn ask(rng: &mut Rng, taste: &Taste) -> Op {
    Op::Ask { lock: taste.lock(rng), what: question(rng, taste), care: taste.care(rng) }
}

fn question(rng: &mut Rng, taste: &Taste) -> Question {
    match rng.u32(..9) {
        0 => Question::Holder,
        1 => Question::IsLocked,
        2 => Question::Remaining,
        3 => Question::HoldCount(rng.usize(..taste.owners)),
        4 => Question::IsHeldBy(rng.usize(..taste.owners)),
        5 => Question::Stats,
        6 => Question::Waiters,
        7 => Question::Listing,
        _ => Question::Metrics,
    }
}

fn options(rng: &mut Rng, may_be_short: bool) -> Options {
    let is = |rng: &mut Rng, hundredths: u32| rng.u32(..100) < hundredths;
    let shortest = if may_be_short && rng.u32(..4) == 0 { 200 * MS } else { 2 * SECOND };
    Options {
        watchdog_timeout: is(rng, 30).then(|| match shortest {
            SECOND.. => between(rng, (2 * SECOND, 60 * SECOND)),
            _ => between(rng, (shortest, 2 * SECOND)),
        }),
        tenure: is(rng, 40).then(|| pick(rng, &[0, MS, SECOND, 4 * SECOND, 3600 * SECOND])),
        max_hold: is(rng, 15).then(|| between(rng, (shortest.min(SECOND), 100 * SECOND))),
        unpolled_limit: is(rng, 20).then(|| between(rng, (10 * MS, 5 * SECOND))),
        label: is(rng, 10).then(|| pick(rng, &["worker", "host:1/{a}"]).to_owned()),
    }
}

fn network(rng: &mut Rng, latency: Nanos, end: Nanos) -> Network {
    let answer_limit = pick(rng, &[SECOND, 3 * SECOND, 3 * SECOND, 5 * SECOND]);
    let calm = Network { latency, answer_limit, faults_end: end, ..Network::default() };
    if rng.u32(..4) == 0 {
        return calm;
    }
    let rate = |rng: &mut Rng| if rng.u32(..5) < 2 { pick(rng, &[5, 20, 60, 150]) } else { 0 };
    Network {
        late: rate(rng),
        late_by: pick(rng, &[500 * MS, 3 * SECOND, 20 * SECOND, LATEST_RUN]),
        requests_lost: rate(rng),
        replies_lost: rate(rng),
        twice: rate(rng),
        refused: rate(rng),
        reordered: rate(rng),
        messages_cut: rate(rng),
        deaf: if rng.u32(..8) == 0 { pick(rng, &[100, 400]) } else { 0 },
        ..calm
    }
}

type DrawTrouble = fn(&mut Rng, usize, &[String], &Taste) -> Trouble;

fn incidents(rng: &mut Rng, processes: usize, names: &[String], taste: &Taste, end: Nanos) -> Vec<Incident> {
    const ALL: [DrawTrouble; 9] = [
        |rng, processes, _, _| Trouble::Kill {
            process: rng.usize(..processes),
            restarts_after: rng.bool().then(|| between(rng, (MS, 60 * SECOND))),
        },
        |rng, processes, _, taste| {
            let lasts = taste.between_some(rng, &[(MS, 5 * SECOND), (MS, 120 * SECOND)]);
            Trouble::Suspend { process: rng.usize(..processes), lasts }
        },
        |_, _, _, _| Trouble::Harm(Harm::Forget),
        |rng, _, _, _| Trouble::Harm(Harm::FallBack(between(rng, (MS, 3 * SECOND)))),
        |rng, _, names, taste| {
            let lock = taste.lock(rng);
            Trouble::Harm(Harm::Evict { kind: lock.kind.of_store(), name: names[lock.name].clone() })
        },
        |rng, _, _, _| {
            let by = i64::try_from(between(rng, (MS, 100 * SECOND))).expect("seconds");
            Trouble::Harm(Harm::SetClock(if rng.bool() { by } else { -by }))
        },
        |rng, processes, _, _| Trouble::Harm(Harm::Cut { process: rng.usize(..processes) }),
        |rng, processes, _, _| {
            let process = rng.bool().then(|| rng.usize(..processes));
            Trouble::Harm(Harm::Silence { process, lasts: between(rng, (100 * MS, 40 * SECOND)) })
        },
        |rng, _, names, taste| {
            let (name, messages) = (names[taste.lock(rng).name].clone(), 1 << rng.u32(..10));
            Trouble::Harm(Harm::Storm { name, messages })
        },
    ];
    if rng.u32(..5) < 2 {
        return Vec::new();
    }
    let kinds = some(rng, &ALL, 25);
    let mut incidents: Vec<Incident> = (0..rng.usize(1..=4))
        .map(|_| {
            // Many programs are over long before their end.
            let at = between_some(rng, &[(0, end), (0, end.min(30 * SECOND)), (0, end.min(SECOND))]);
            let at = if taste.beat > 0 && rng.bool() { at.next_multiple_of(taste.beat) } else { at };
            Incident { at, what: pick(rng, &kinds)(rng, processes, names, taste) }
        })
        .collect();
    incidents.sort_by_key(|incident| incident.at);
    incidents
}
