//! [`shrink`]: finds a smaller program in which the same judge fails under one of several schedules.

use std::time::{Duration, Instant};

use crate::program::{Care, How, Op, Program, Trouble};
use crate::run::Report;
use crate::store::Harm;
use crate::world::{MS, Nanos, SECOND};

const SCHEDULES: u64 = 12;

/// Returns the smaller program, and the number of runs.
pub(crate) fn shrink(
    program: &Program,
    judge: &str,
    limit: Duration,
    play: &dyn Fn(&Program) -> Report,
) -> (Program, u64) {
    let mut shrinker =
        Shrinker { smallest: program.clone(), judge, play, until: Instant::now() + limit, runs: 0 };
    while shrinker.pass() {}
    let mut without = shrinker.smallest.clone();
    without.leave_out_idle_tasks();
    if shrinker.fails(&mut without) {
        shrinker.smallest = without;
    }
    (shrinker.smallest, shrinker.runs)
}

#[derive(Clone, Copy, Debug)]
enum Edit {
    EmptyProcess(usize),
    EmptyTask(usize, usize),
    RemoveIncident(usize),
    RemoveOperation(usize, usize, usize),
    CalmNetwork,
    Network(usize),
    Process(usize, usize),
    End,
    Operation(usize, usize, usize, usize),
    Incident(usize),
}

struct Shrinker<'a> {
    smallest: Program,
    judge: &'a str,
    play: &'a dyn Fn(&Program) -> Report,
    until: Instant,
    runs: u64,
}

impl Shrinker<'_> {
    /// Tries each edit once. True if an edit succeeded.
    fn pass(&mut self) -> bool {
        let mut is_smaller = false;
        for edit in edits(&self.smallest) {
            let mut candidate = self.smallest.clone();
            if !apply(&mut candidate, edit) {
                continue;
            }
            if self.fails(&mut candidate) {
                self.smallest = candidate;
                is_smaller = true;
            }
            if Instant::now() > self.until {
                return false;
            }
        }
        is_smaller
    }

    /// True if the candidate fails in the same way under some schedule, which the candidate keeps.
    fn fails(&mut self, candidate: &mut Program) -> bool {
        let first = candidate.schedule;
        (0..SCHEDULES).any(|other| {
            candidate.schedule = first.wrapping_add(other);
            self.runs += 1;
            (self.play)(candidate).finding.is_some_and(|finding| finding.judge == self.judge)
        })
    }
}

/// Edits from the largest to the smallest, and from the last index to the first, so that indices stay valid.
fn edits(program: &Program) -> Vec<Edit> {
    let processes = || (0..program.processes.len()).rev();
    let tasks = || {
        processes().flat_map(|process| {
            (0..program.processes[process].tasks.len()).rev().map(move |task| (process, task))
        })
    };
    let operations = || {
        tasks().flat_map(|(process, task)| {
            let count = program.processes[process].tasks[task].len();
            (0..count).rev().map(move |operation| (process, task, operation))
        })
    };
    let incidents = || (0..program.incidents.len()).rev();
    let mut edits: Vec<Edit> = processes().map(Edit::EmptyProcess).collect();
    edits.extend(tasks().map(|(process, task)| Edit::EmptyTask(process, task)));
    edits.push(Edit::CalmNetwork);
    edits.extend(incidents().map(Edit::RemoveIncident));
    edits.extend(operations().map(|(process, task, at)| Edit::RemoveOperation(process, task, at)));
    edits.extend((0..NETWORK.len()).map(Edit::Network));
    edits.extend(processes().flat_map(|process| (0..7).map(move |part| Edit::Process(process, part))));
    edits.push(Edit::End);
    edits.extend(incidents().map(Edit::Incident));
    edits
        .extend(operations().flat_map(|(process, task, at)| {
            (0..6).map(move |part| Edit::Operation(process, task, at, part))
        }));
    edits
}

type NetworkEdit = fn(&mut crate::store::Network);

const NETWORK: [NetworkEdit; 10] = [
    |network| network.late = 0,
    |network| network.requests_lost = 0,
    |network| network.replies_lost = 0,
    |network| network.twice = 0,
    |network| network.refused = 0,
    |network| network.reordered = 0,
    |network| network.messages_cut = 0,
    |network| network.deaf = 0,
    |network| network.latency = network.latency.min(MS),
    |network| network.late_by = round(network.late_by),
];

/// Returns false if the edit changes nothing.
fn apply(program: &mut Program, edit: Edit) -> bool {
    let before = program.text();
    match edit {
        Edit::EmptyProcess(process) => program.processes[process].tasks.clear(),
        Edit::EmptyTask(process, task) => {
            if let Some(task) = program.processes[process].tasks.get_mut(task) {
                task.clear();
            }
        }
        Edit::RemoveIncident(at) => {
            if at < program.incidents.len() {
                program.incidents.remove(at);
            }
        }
        Edit::RemoveOperation(process, task, at) => {
            if let Some(task) = program.processes[process].tasks.get_mut(task).filter(|task| at < task.len())
            {
                task.remove(at);
            }
        }
        Edit::CalmNetwork => {
            NETWORK[..8].iter().for_each(|edit| edit(&mut program.network));
        }
        Edit::Network(part) => NETWORK[part](&mut program.network),
        Edit::Process(process, part) => simplify_process(program, process, part),
        Edit::End => {
            (program.end, program.beat, program.keeps_handles) = (round(program.end), 0, false);
            let prefix = std::mem::take(&mut program.prefix);
            program
                .names
                .iter_mut()
                .for_each(|name| *name = name.strip_prefix(&prefix).unwrap_or(name).to_owned());
        }
        Edit::Operation(process, task, at, part) => {
            let task = program.processes[process].tasks.get_mut(task);
            if let Some(operation) = task.and_then(|task| task.get_mut(at)) {
                simplify(operation, part);
            }
        }
        Edit::Incident(at) => {
            if let Some(incident) = program.incidents.get_mut(at) {
                incident.at = round(incident.at);
                if let Trouble::Suspend { lasts, .. }
                | Trouble::Harm(Harm::FallBack(lasts) | Harm::Silence { lasts, .. }) = &mut incident.what
                {
                    *lasts = round(*lasts);
                }
                if let Trouble::Harm(Harm::Storm { messages, .. }) = &mut incident.what {
                    *messages = (*messages / 2).max(1);
                }
                program.incidents.sort_by_key(|incident| incident.at);
            }
        }
    }
    program.text() != before
}

fn simplify_process(program: &mut Program, process: usize, part: usize) {
    let plan = &mut program.processes[process];
    match part {
        0 => plan.clock_ppm = 0,
        1 => plan.options.watchdog_timeout = None,
        2 => plan.options.tenure = None,
        3 => plan.options.max_hold = None,
        4 => plan.options.label = None,
        5 => plan.is_beside = false,
        _ => plan.options.unpolled_limit = None,
    }
}

fn simplify(operation: &mut Op, part: usize) {
    match (part, operation) {
        (0, Op::Acquire { fenced, .. }) => *fenced = false,
        (1, Op::Acquire { owner, .. }) => *owner = None,
        (3, Op::Acquire { permits, .. }) => permits.count = permits.count.min(1),
        (2, Op::Acquire { how, .. } | Op::AcquireAll { how, .. }) => *how = simpler(how),
        (3, Op::AcquireAll { locks, .. }) => locks.truncate(locks.len().saturating_sub(1).max(1)),
        (
            2,
            Op::Extend { lease: time, .. }
            | Op::Sleep(time)
            | Op::Run { work: time, .. }
            | Op::Lost { timeout: Some(time), .. },
        ) => {
            *time = round(*time);
        }
        (3, Op::Extend { hold, .. } | Op::Unlock { hold, .. } | Op::Drop { hold } | Op::Forget { hold }) => {
            *hold = 0
        }
        (3, Op::EnsureHeld { hold, .. } | Op::Lost { hold, .. } | Op::Run { hold, .. }) => *hold = 0,
        (4, Op::Acquire { how, .. } | Op::AcquireAll { how, .. }) if matches!(how, How::TryFor { .. }) => {
            *how = How::Lock;
        }
        (5, operation) => {
            if let Some(care) = care(operation) {
                *care = Care::default();
            }
        }
        _ => {}
    }
}

fn care(operation: &mut Op) -> Option<&mut Care> {
    match operation {
        Op::Acquire { care, .. }
        | Op::AcquireAll { care, .. }
        | Op::Extend { care, .. }
        | Op::Unlock { care, .. }
        | Op::UnlockByOwner { care }
        | Op::ForceUnlock { care, .. }
        | Op::EnsureHeld { care, .. }
        | Op::Lost { care, .. }
        | Op::Run { care, .. }
        | Op::Ask { care, .. } => Some(care),
        Op::Sleep(_)
        | Op::Drop { .. }
        | Op::Forget { .. }
        | Op::Shutdown(_)
        | Op::Drain(_)
        | Op::DropClient => None,
    }
}

fn simpler(how: &How) -> How {
    match how {
        How::Lock | How::Try => how.clone(),
        How::Leased(lease) => How::Leased(round(*lease)),
        How::TryFor { wait, lease } => How::TryFor { wait: round(*wait), lease: lease.map(round) },
    }
}

/// Rounds a time down to a readable one.
fn round(time: Nanos) -> Nanos {
    const ROUND: [Nanos; 8] =
        [MS, 10 * MS, 100 * MS, SECOND, 10 * SECOND, 60 * SECOND, 600 * SECOND, 3600 * SECOND];
    let unit = ROUND.into_iter().rev().find(|unit| *unit <= time).unwrap_or(1);
    time / unit * unit
}

impl Program {
    /// Removes idle tasks from the end of each process's list.
    fn leave_out_idle_tasks(&mut self) {
        for plan in &mut self.processes {
            while plan.tasks.last().is_some_and(Vec::is_empty) {
                plan.tasks.pop();
            }
        }
    }
}
