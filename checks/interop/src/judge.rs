//! The judgement of a history, from the journals alone: tests judge made-up histories.

mod alternation;
mod exclusion;
mod losses;
mod order;
mod patience;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fleet::clock::{nanos, seconds};

use crate::history::{Event, History};
use crate::names::{CROWDED, LEASE};
use crate::spans::Spans;
use crate::story::{Acquisition, Story};

/// A shorter standstill is not reported; a wait may begin as much later than the journal says.
const UNNOTICED: u64 = nanos(Duration::from_millis(200));

/// Limit of a wait in a crowd: some three times the promise of five tenures of 30 ms for each of the four
/// processes, on a busy machine whose connections are killed meanwhile.
const TURN: u64 = nanos(Duration::from_secs(2));

#[derive(Debug)]
pub(crate) struct Violation {
    at: u64,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.3} s: {}", seconds(self.at), self.what)
    }
}

struct Judge<'a> {
    story: &'a Story,
    violations: Vec<Violation>,
    /// Number of cases that each rule has checked: without cases, finding no violation proves nothing.
    seen: BTreeMap<&'static str, u64>,
}

/// Returns a summary, and all violations. Redisson wakes its waiters when it likes, and has queues of its
/// own, so the judge checks no wait times and no order beside its processes.
pub(crate) fn judge(history: &History) -> (String, Vec<Violation>) {
    let story = Story::of(history);
    let mut judge = Judge { story: &story, violations: Vec::new(), seen: BTreeMap::new() };
    judge.exclusion();
    judge.tokens();
    judge.losses();
    if history.lives.iter().all(|life| !life.is_redisson) {
        judge.patience();
        judge.order();
        judge.alternation();
        judge.turns();
    }
    judge.leftovers(history);
    judge.violations.sort_by_key(|violation| violation.at);
    (judge.summary(history), judge.violations)
}

impl Judge<'_> {
    fn wrong(&mut self, at: u64, what: String) {
        self.violations.push(Violation { at, what });
    }

    /// In a crowd, whose queue is never empty, every process gets its turn.
    fn turns(&mut self) {
        // Any process may hold the lock, so one process's fault delays all; its stranded commands, by a
        // lease.
        let troubles = Spans::union(self.story.troubles.iter().map(|trouble| {
            let left = if trouble.kind.strands_commands() { nanos(LEASE) } else { 0 };
            (trouble.from, trouble.to + trouble.kind.recovery() + left)
        }));
        for acquisition in self.story.acquisitions.iter().filter(|it| CROWDED.contains(&it.name)) {
            let waited = Spans::union(acquisition.waited()).without(&troubles).total();
            *self.seen.entry("ms waited in crowds").or_default() += waited / 1_000_000;
            if waited > TURN {
                let (tag, name, waited) = (acquisition.tag(), acquisition.name, seconds(waited));
                let what = format!(
                    "{tag} was kept waiting for {waited:.3} s before lock {name}, and no fault is to blame"
                );
                self.wrong(acquisition.wanted, what);
            }
        }
    }

    fn leftovers(&mut self, history: &History) {
        let mut left = Vec::new();
        let mut was_looked_at = false;
        for record in &history.stage {
            match &record.event {
                Event::Stuck { what } => left.push(what.clone()),
                Event::Remains { what } => {
                    was_looked_at = true;
                    left.extend(what.iter().map(|what| format!("left on the server: {what}")));
                }
                _ => {}
            }
        }
        if !was_looked_at {
            left.push("the server was not looked at in the end".to_owned());
        }
        for (number, life) in history.lives.iter().enumerate() {
            let mut is_quiet = life.killed.is_some();
            for record in &life.records {
                match &record.event {
                    Event::Stuck { what } => left.push(format!("did not come to an end: {what}")),
                    Event::Quiet { entries: 0, interest: 0, subscriptions: 0 } => is_quiet = true,
                    Event::Quiet { .. } => {
                        is_quiet = true;
                        left.push(format!("left in the registry of process {number}: {:?}", record.event));
                    }
                    _ => {}
                }
            }
            if !is_quiet {
                left.push(format!("process {number} did not become quiet"));
            }
        }
        left.into_iter().for_each(|what| self.wrong(self.story.end, what));
    }

    fn summary(&mut self, history: &History) -> String {
        let of = |is_redisson: bool| {
            let had = |it: &&Acquisition| it.acquired.is_some() && it.is_redisson == is_redisson;
            self.story.acquisitions.iter().filter(had).count() as u64
        };
        let (ours, theirs) = (of(false), of(true));
        self.seen.extend([("acquisitions of ours", ours), ("acquisitions of Redisson's", theirs)]);
        self.seen.extend([("processes", history.lives.len() as u64)]);
        let mut faults = BTreeMap::<_, u64>::new();
        for trouble in &self.story.troubles {
            *faults.entry(trouble.kind).or_default() += 1;
        }
        format!("{:.1} s\n{:?}\n{faults:?}", seconds(self.story.end), self.seen)
    }
}
