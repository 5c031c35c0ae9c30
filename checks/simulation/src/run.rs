//! [`run`]: plays a program over a store, with the judges after every step, to its end.

use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use latchwork::{Guard, LockClient, LossReason};

use crate::excuses::Excuses;
use crate::judge::{self, Finding, Judge};
use crate::leases::Leases;
use crate::program::{Incident, LockSide, Op, Program, Trouble, Which};
use crate::stage::{Event, Member, Phase, Scene, Stage, View};
use crate::store::{Harm, Store, duration};
use crate::task;
use crate::time;
use crate::world::{Clock, Executor, Nanos, SECOND, Step, World};

/// Limit on the end of all tasks, counted from the last fault and the end of all leases of dead processes:
/// each task waits for its turn once more, and releases its holds.
const SERVED_WITHIN: Nanos = 90 * SECOND;

/// Limit given to clients for their shutdown, when all holds are released.
const SHUTDOWN_LIMIT: Nanos = 60 * SECOND;

/// Limit on the end of a dropped client: its watchdog notices at its next round, and a connection at its next
/// heartbeat, which may be 75 s away.
const GONE_WITHIN: Nanos = 80 * SECOND;

/// Limit on steps at one moment of time; beyond the limit, a task spins.
const MOST_STEPS_AT_ONCE: u64 = 100_000;

/// Limit on the polls of a program, whose wakers may wake one another without end by trying a lock.
const MOST_POLLS: u64 = 1_000_000;

/// Not a judge's name: ends a run like a finding, but is not reported.
const CUT_SHORT: &str = "cut short";

#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) finding: Option<Finding>,
    /// Time of the finding, or of the end of the run.
    pub(crate) ended: Nanos,
    pub(crate) operations: u64,
    pub(crate) commands: u64,
    pub(crate) polls: u64,
    pub(crate) hash: u64,
    /// Empty unless history was requested.
    pub(crate) history: Vec<String>,
}

/// Plays `program`. `keeps_history`: keep lines for a human reader.
pub(crate) fn run<S: Store>(program: &Program, keeps_history: bool) -> Report {
    let program = &if S::APART { program.in_processes() } else { program.in_one_process() };
    let world = World::new(program.schedule, keeps_history);
    let store = S::new(&world, &program.network);
    let stage = Stage::new(&world, program, store);
    let mut run = Run {
        executor: Executor::new(&world),
        incidents: program.incidents.clone().into(),
        judges: judge::all(),
        leases: Leases::new(program),
        excuses: Excuses::default(),
        phase: Phase::Playing,
        finding: None,
        harms: 0,
        stage: stage.clone(),
        world: world.clone(),
    };
    run.play();
    let report = Report {
        finding: run.finding.take().filter(|finding| finding.judge != CUT_SHORT),
        ended: world.now(),
        operations: stage.scene().operations,
        commands: stage.store.commands(),
        polls: world.polls(),
        hash: world.hash(),
        history: world.history(),
    };
    world.catch(|| drop(run));
    clear(&world, stage);
    report
}

/// Drops the remaining values. No task runs, and tasks spawned by destructors are dropped as well.
fn clear<S: Store>(world: &World, stage: Stage<S>) {
    let (graveyard, holds, members) = {
        let mut scene = stage.scene();
        let holds = std::mem::take(&mut scene.holds);
        (std::mem::take(&mut scene.graveyard), holds, std::mem::take(&mut scene.members))
    };
    world.catch(|| drop((graveyard, holds)));
    world.catch(|| drop(members));
    world.catch(|| drop(stage));
    world.clear();
}

struct Run<S: Store> {
    /// Dropped first: from then on, destructors have no effect.
    executor: Executor,
    stage: Stage<S>,
    world: World,
    incidents: VecDeque<Incident>,
    judges: Vec<Box<dyn Judge<S>>>,
    leases: Leases,
    excuses: Excuses,
    phase: Phase,
    finding: Option<Finding>,
    harms: usize,
}

impl<S: Store> Run<S> {
    fn play(&mut self) {
        for plan in 0..self.stage.program.processes.len() {
            if self.stage.scene().member_of(plan).is_none() {
                self.start(plan);
            }
        }
        let program = &self.stage.program;
        let (end, faults_end) = (program.end, program.faults_end());
        self.go(end.max(faults_end), |run| run.incidents.is_empty() && run.tasks_left() == 0);
        self.next(Phase::Ending);
        // Until then, commands in flight from dead processes may prolong their leases.
        let heard = self.horizon();
        self.go(heard, |run| run.tasks_left() == 0);
        let limit = heard.max(self.horizon_of_dead()) + SERVED_WITHIN + self.stage.program.longest_stall();
        if !self.go(limit, |run| run.tasks_left() == 0) {
            let left = self.calls_left();
            self.finds("end", format!("expected the end of all tasks, saw that {left}"));
        }
        // By then, late commands and their rollbacks are over.
        let late = self.stage.program.network.late_by + 2 * self.stage.program.network.answer_limit;
        self.go(self.world.now().max(faults_end) + late + 10 * SECOND, |_| false);
        let dead = self.horizon_of_dead();
        self.go(dead, |_| false);
        self.look_at_store();
        self.next(Phase::Quiet);
        self.shut_down();
        self.next(Phase::Down);
        self.all_goes();
        self.next(Phase::Gone);
    }

    fn next(&mut self, phase: Phase) {
        if self.finding.is_some() {
            return;
        }
        self.ask_judges(|judge, view| judge.phase_ends(view));
        self.phase = phase;
    }

    fn finds(&mut self, judge: &'static str, text: String) {
        if self.finding.is_none() {
            self.world.note(|| format!("{judge}: {text}"));
            self.finding = Some(Finding { judge, text });
        }
    }

    /// Steps until `done` or until the limit. Returns false at the limit, true even after a finding.
    fn go(&mut self, limit: Nanos, done: impl Fn(&Self) -> bool) -> bool {
        let (mut moment, mut steps) = (self.world.now(), 0);
        loop {
            if self.finding.is_some() || done(self) {
                return true;
            }
            steps = if self.world.now() == moment { steps + 1 } else { 0 };
            moment = self.world.now();
            if self.world.polls() > MOST_POLLS {
                self.finds(CUT_SHORT, format!("expected the end within {MOST_POLLS} polls"));
            }
            if steps > MOST_STEPS_AT_ONCE {
                self.finds(
                    "spins",
                    "expected time to pass between polls, saw tasks polled without end".to_owned(),
                );
            }
            let incident = self.incidents.front().map_or(limit, |incident| incident.at.min(limit));
            if self.executor.step(incident) == Step::Idle {
                match self.incidents.front() {
                    Some(next) if next.at <= self.world.now() => {
                        let incident = self.incidents.pop_front();
                        incident.into_iter().for_each(|incident| self.befall(&incident));
                    }
                    _ => return done(self),
                }
            }
            self.judge();
        }
    }

    fn tasks_left(&self) -> usize {
        let scene = self.stage.scene();
        scene.members.iter().filter(|member| member.process.is_alive()).map(|member| member.tasks).sum()
    }

    fn calls_left(&self) -> String {
        let scene = self.stage.scene();
        let words = |call: &crate::stage::Call| {
            let what = task::operation_words(&self.stage.program, &call.op);
            format!("p{}t{} is at {what} since {}", call.member, call.task, time::seconds(call.began))
        };
        let calls: Vec<String> = scene.calls.values().map(words).collect();
        if calls.is_empty() { "without a call".to_owned() } else { calls.join("; ") }
    }

    /// Returns the time when all leases in the store will have expired, unless renewed.
    fn horizon(&mut self) -> Nanos {
        self.look_at_store();
        let ends = self.leases.all().map(|(_, lease)| lease.ends).max().unwrap_or(0);
        let network = &self.stage.program.network;
        ends.max(self.world.now()).max(self.stage.program.faults_end())
            + network.late_by
            + network.answer_limit
    }

    /// Returns the end of all leases of dead processes, and of those restored by a fallback.
    fn horizon_of_dead(&mut self) -> Nanos {
        self.look_at_store();
        let (scene, now) = (self.stage.scene(), self.world.now());
        let lives = |client: &str| {
            scene.members.iter().any(|member| member.client_id == client && member.process.is_alive())
        };
        let excused = self
            .leases
            .all()
            .map(|(_, lease)| lease)
            .filter(|lease| !lives(&lease.client) || self.excuses.is_ghost(&lease.client, lease.number));
        excused.map(|lease| lease.ends + 1).max().unwrap_or(0).max(now)
    }

    fn shut_down(&mut self) {
        let members = self.stage.scene().members.len();
        for member in 0..members {
            let (client, process) = {
                let scene = self.stage.scene();
                let member = &scene.members[member];
                (member.client.clone(), member.process.clone())
            };
            let Some(client) = client else { continue };
            self.stage.scene().members[member].tasks += 1;
            let (stage, world) = (self.stage.clone(), self.world.clone());
            latchwork::backend::Runtime::spawn(&process, async move {
                let result = client.shutdown(duration(SHUTDOWN_LIMIT)).await;
                world.note(|| format!("p{member} is shut down: {}", result.is_ok()));
                let mut scene = stage.scene();
                scene.members[member].tasks -= 1;
                if result.is_err() {
                    scene.failed_shutdowns += 1;
                }
            });
        }
        if !self.go(self.world.now() + 2 * SHUTDOWN_LIMIT, |run| run.tasks_left() == 0) {
            self.finds("shutdown", "it does not return".to_owned());
        }
        if self.stage.scene().failed_shutdowns > 0 {
            self.finds("shutdown", "it waits for something, though all have let go".to_owned());
        }
    }

    fn all_goes(&mut self) {
        if self.finding.is_some() {
            return;
        }
        let (clients, registries): (Vec<_>, Vec<_>) = {
            let mut scene = self.stage.scene();
            let living = scene.members.iter_mut().filter(|member| member.process.is_alive());
            let clients: Vec<_> = living.filter_map(|member| member.client.take()).collect();
            let registries = clients.iter().map(|client| client.registry().clone()).collect();
            (clients, registries)
        };
        self.world.catch(|| drop(clients));
        let remembered = self.stage.program.longest_forgotten_permits();
        self.go(self.world.now() + remembered + GONE_WITHIN, |_| false);
        let channels: usize = registries.iter().map(latchwork::subscription::Registry::len).sum();
        if channels > 0 {
            self.finds(
                "left",
                format!("expected an empty registry after the last client, saw {channels} channels"),
            );
        }
        drop(registries);
        // A clock that was set back prolongs the leases of dead processes by as much. Late commands and late
        // replies may follow one another.
        let late = 3 * self.stage.program.network.late_by;
        let noticed = GONE_WITHIN + S::NOTICES_WITHIN + late + self.stage.program.set_back();
        self.go(self.world.now() + noticed, |_| false);
        let left = self.stage.store.left_over();
        if !left.is_empty() {
            self.finds("left", format!("the store has {}", left.join(", ")));
        }
        if self.executor.tasks() > 0 {
            self.finds(
                "left",
                format!("expected no task after the last client, saw {}", self.executor.tasks()),
            );
        }
    }

    /// Starts the process of a client, and all clients of this process.
    fn start(&mut self, plan: usize) {
        let (stage, program) = (self.stage.clone(), &self.stage.program);
        let plans = program.clients_beside(plan);
        let clock = Clock { faster_ppm: if S::APART { program.processes[plan].clock_ppm } else { 0 } };
        let process = self.world.process(clock);
        let first = stage.scene().members.len();
        stage.scene().members.extend(plans.clone().map(|plan| Member {
            plan,
            process: process.clone(),
            client: None,
            client_id: String::new(),
            owners: Vec::new(),
            is_shut_down: false,
            tasks: program.processes[plan].tasks.len(),
            stood_still_until: 0,
        }));
        let runtime = process.clone();
        latchwork::backend::Runtime::spawn(&process, async move {
            let backend = stage.store.connect(&runtime).await;
            for (member, plan) in (first..).zip(plans) {
                let options = stage.program.processes[plan].options.of_client(&stage.program.prefix);
                let client = LockClient::with_options(backend.clone(), &stage.store.options(options));
                let tasks = stage.connected(member, client.expect("the options are in range"));
                for (task, from) in tasks.into_iter().enumerate() {
                    let task = task::play(stage.clone(), member, task, from);
                    latchwork::backend::Runtime::spawn(&runtime, task);
                }
            }
        });
    }

    fn befall(&mut self, incident: &Incident) {
        self.world.note(|| format!("{:?}", incident.what));
        match &incident.what {
            Trouble::Harm(harm) => self.harm(harm),
            Trouble::Kill { process, restarts_after } => {
                let alive = self.stage.scene().member_of(*process);
                let Some(member) = alive.filter(|_| S::APART) else { return };
                if self.stage.scene().members[member].process.is_alive() {
                    self.kill(member);
                    let restart = restarts_after.map(|after| incident.at + after);
                    restart.into_iter().for_each(|at| self.restart_at(*process, at));
                } else if *restarts_after == Some(0) {
                    self.start(*process);
                }
            }
            Trouble::Suspend { process, lasts } => {
                let mut scene = self.stage.scene();
                let Some(member) = scene.member_of(*process) else { return };
                let process = scene.members[member].process.clone();
                let until = self.world.now() + lasts;
                process.suspend_until(until);
                for member in scene.members.iter_mut().filter(|member| member.is_in(&process)) {
                    member.stood_still_until = member.stood_still_until.max(until);
                }
            }
        }
    }

    fn kill(&mut self, member: usize) {
        let process = self.stage.scene().members[member].process.clone();
        process.kill();
        self.stage.store.died(&process);
        self.executor.bury();
        let mut scene = self.stage.scene();
        let members = 0..scene.members.len();
        let dead: Vec<usize> = members.filter(|at| scene.members[*at].is_in(&process)).collect();
        for member in dead {
            scene.bury(member);
            scene.events.push(Event::Killed(member));
        }
    }

    /// Schedules a kill of a dead process with an immediate restart, which only starts the process.
    fn restart_at(&mut self, process: usize, at: Nanos) {
        let what = Trouble::Kill { process, restarts_after: Some(0) };
        let place =
            self.incidents.iter().position(|incident| incident.at > at).unwrap_or(self.incidents.len());
        self.incidents.insert(place, Incident { at, what });
    }

    /// Does harm. Comparing the store's leases before and after shows which ones the harm concerns.
    fn harm(&mut self, harm: &Harm) {
        self.look_at_store();
        let before: Vec<_> = self.leases.all().map(|(_, lease)| lease.clone()).collect();
        if let Harm::Cut { process } | Harm::Silence { process: Some(process), .. } = harm
            && *process >= self.stage.program.processes.len()
        {
            return;
        }
        let harm_here = self.of_members(harm);
        // Cutting a link may wake its waiters, and a waker may panic.
        let mut is_done = true;
        self.world.catch(|| is_done = self.stage.store.harm(&harm_here));
        if !is_done {
            return;
        }
        let (program, now) = (&self.stage.program, self.world.now());
        let excuses = &mut self.excuses;
        self.leases.look_anyway(&self.stage.store, program, |gone| excuses.lose(gone.lock, &gone.lease, now));
        for (_, lease) in self.leases.all() {
            let same = before.iter().find(|old| old.client == lease.client && old.number == lease.number);
            if same.is_none_or(|old| old.ends < lease.ends) {
                excuses.add_ghost(lease);
            }
        }
        if let Harm::Forget | Harm::FallBack(_) | Harm::Evict { .. } = harm {
            program.locks().into_iter().for_each(|lock| excuses.lose_tokens(lock, now));
        }
        if let Harm::FallBack(_) | Harm::SetClock(_) = harm {
            excuses.fell_back = Some(now);
        }
        if !matches!(harm, Harm::Storm { .. }) {
            excuses.last_harm = Some(now);
        }
        self.stage.scene().events.push(Event::Harmed(self.harms));
        self.harms += 1;
    }

    fn of_members(&self, harm: &Harm) -> Harm {
        let scene = self.stage.scene();
        let number = |plan: usize| scene.member_of(plan).map_or(0, |at| scene.members[at].process.index());
        match harm {
            Harm::Cut { process } => Harm::Cut { process: number(*process) },
            Harm::Silence { process, lasts } => Harm::Silence { process: process.map(number), lasts: *lasts },
            other => other.clone(),
        }
    }

    fn look_at_store(&mut self) {
        let (excuses, now) = (&mut self.excuses, self.world.now());
        self.leases.look(&self.stage.store, &self.stage.program, |gone| {
            // Counts as forced even if another cause took the lease: the client may not know.
            if gone.lease.ends > now && excuses.may_be_forced(gone.lock, now) {
                excuses.add_victim(&gone.lease, now);
            }
        });
        // A queue position that fell back may last for a shorter or a longer time than its client knows, and
        // so may the lease granted to that position.
        if excuses.has_old_places(now) {
            let queued = |lock: Which| !matches!(lock.kind, LockSide::Plain);
            let granted = self.leases.all().filter(|(lock, _)| queued(*lock));
            granted.for_each(|(_, lease)| {
                excuses.add_victim(lease, now);
                excuses.add_ghost(lease);
            });
        }
    }

    fn judge(&mut self) {
        if let Some(said) = self.world.panic() {
            return self.finds("panic", said);
        }
        let events = std::mem::take(&mut self.stage.scene().events);
        self.note_excuses(&events);
        self.look_at_store();
        self.number_holds();
        if !events.is_empty() {
            self.ask_judges(|judge, view| events.iter().find_map(|event| judge.hear(event, view)));
        }
        self.ask_judges(|judge, view| judge.look(view));
    }

    fn ask_judges(&mut self, mut ask: impl FnMut(&mut dyn Judge<S>, &View<'_, S>) -> Option<String>) {
        let scene = self.stage.scene();
        let view = View {
            now: self.world.now(),
            phase: self.phase,
            world: &self.world,
            program: &self.stage.program,
            store: &self.stage.store,
            scene: &scene,
            leases: &self.leases,
            excuses: &self.excuses,
        };
        let mut judges = self.judges.iter_mut();
        let found = judges.find_map(|judge| Some((judge.name(), ask(&mut **judge, &view)?)));
        drop(scene);
        found.into_iter().for_each(|(judge, text)| self.finds(judge, text));
    }

    fn note_excuses(&mut self, events: &[Event]) {
        let network = &self.stage.program.network;
        for event in events {
            match event {
                Event::Called(call) if forced(&call.op).is_some() => {
                    forced(&call.op).into_iter().for_each(|lock| self.excuses.force_begins(lock));
                }
                Event::Answered(call, _) if forced(&call.op).is_some() => {
                    // The command may run once more, even after its reply.
                    let now = self.world.now();
                    let until =
                        now.max(self.stage.program.faults_end()) + network.late_by + network.answer_limit;
                    forced(&call.op).into_iter().for_each(|lock| self.excuses.force_ended(lock, now, until));
                }
                _ => {}
            }
        }
    }

    fn number_holds(&mut self) {
        let mut scene = self.stage.scene();
        let Scene { holds, members, .. } = &mut *scene;
        for hold in holds.values_mut() {
            let Some(guard) = &hold.guard else { continue };
            match guard.lease_number() {
                Some(number) => hold.number = number,
                None => {
                    // Once: a lost hold stays lost.
                    let loss = *hold.loss.get_or_insert_with(|| loss(guard));
                    if loss == Some(LossReason::Gone) {
                        self.excuses.is_known_lost(&members[hold.member].client_id, hold.number);
                    }
                }
            }
        }
    }
}

/// Returns the loss reason, which is known at once.
fn loss(guard: &Guard) -> Option<LossReason> {
    match pin!(guard.lost()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reason) => Some(reason),
        Poll::Pending => None,
    }
}

fn forced(operation: &Op) -> Option<Which> {
    match operation {
        Op::ForceUnlock { lock, .. } => Some(*lock),
        _ => None,
    }
}
