//! Before a read-write lock, readers and writers take turns.

use std::time::Duration;

use super::Violation;
use crate::clock::{nanos, seconds};
use crate::names::LockKind;
use crate::spans::Spans;
use crate::story::{Acquisition, Story, TENURE};

/// A process that stands still for less than that does not say so, and begins to wait as much later than it
/// says.
const LIMIT: u64 = nanos(Duration::from_millis(200));

/// What was seen of it.
#[derive(Debug, Default)]
pub(crate) struct Alternation {
    /// How many reads were looked at, and how many writers the unluckiest of them saw come and go.
    pub(crate) reads: usize,
    pub(crate) most_writers: usize,
    /// How many writes were looked at, and by how much at most a reader came later that was served before,
    /// out of its turn.
    pub(crate) writes: usize,
    pub(crate) overtaken_by: u64,
}

/// An owner has the lock alone.
struct Writing<'a> {
    owner: &'a str,
    from: u64,
    /// It ends between these two.
    leaves: u64,
    to: u64,
    /// It was given back, and the readers were let in by that.
    ended_well: bool,
}

pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) -> Alternation {
    let mut seen = Alternation::default();
    let mut all: Vec<&Acquisition> =
        story.acquisitions.iter().filter(|it| LockKind::of(it.name) == LockKind::ReadWrite).collect();
    all.sort_by_key(|it| (it.name, it.acquired));
    for of_name in all.chunk_by(|a, b| a.name == b.name) {
        let (reads, writes): (Vec<&Acquisition>, Vec<&Acquisition>) =
            of_name.iter().partition(|it| it.wish.reads);
        let writing = writing(story, &writes);
        for read in &reads {
            judge_read(story, read, &writing, &mut seen, violations);
        }
        // What a process gives back may come to the store as much later, too.
        let ends = Spans::union(writing.iter().map(|it| (it.leaves, it.to + LIMIT)));
        for write in &writes {
            judge_write(story, write, &reads, &ends, &mut seen, violations);
        }
    }
    seen
}

/// By when they began. What an owner has several times is once.
fn writing<'a>(story: &Story, writes: &[&'a Acquisition]) -> Vec<Writing<'a>> {
    let mut all: Vec<Writing<'_>> = Vec::new();
    for write in writes {
        let (Some(from), Some((_, to))) = (write.acquired, story.may_be_held(write)) else { continue };
        let leaves = write.lets_go.map_or(to, |(at, _)| at.min(to));
        let ended_well = story.given_back(write).is_some();
        match all.iter_mut().rev().find(|it| it.owner == write.owner && it.to >= from) {
            Some(before) => {
                before.leaves = before.leaves.max(leaves);
                before.to = before.to.max(to);
                before.ended_well &= ended_well;
            }
            None => all.push(Writing { owner: &write.owner, from, leaves, to, ended_well }),
        }
    }
    all
}

/// A reader waits for one writer.
fn judge_read(
    story: &Story,
    read: &Acquisition,
    writing: &[Writing<'_>],
    seen: &mut Alternation,
    violations: &mut Vec<Violation>,
) {
    let Some(until) = story.in_line_until(read) else { return };
    seen.reads += 1;
    let known = read.wanted + LIMIT;
    let before = &writing[..writing.partition_point(|it| it.from < until)];
    let came = before.len().saturating_sub(writing.partition_point(|it| it.from <= known));
    if came == 0 {
        return;
    }
    // One that died, or lost the lock, has let no other in.
    let ended_badly = before.iter().filter(|it| !it.ended_well && read.wanted < it.to).count();
    seen.most_writers = seen.most_writers.max(came.saturating_sub(ended_badly));
    if came > 1 + ended_badly {
        let what = format!(
            "{} waited to read lock {} until {:.3} s, and {came} writers had it meanwhile, one after the other",
            read.tag(),
            read.name,
            seconds(until),
        );
        violations.push(Violation { at: read.wanted, what });
    }
}

/// No reader that comes later reads before a writer, but with those whose turn it is, or with present
/// readers.
fn judge_write(
    story: &Story,
    write: &Acquisition,
    reads: &[&Acquisition],
    ends: &Spans,
    seen: &mut Alternation,
    violations: &mut Vec<Violation>,
) {
    let Some(until) = story.in_line_until(write) else { return };
    seen.writes += 1;
    let known = write.wanted + LIMIT;
    let between = |from: u64, to: u64| {
        let first = reads.partition_point(|it| it.acquired <= Some(from));
        let last = reads.partition_point(|it| it.acquired < Some(to));
        reads[first..last.max(first)].iter()
    };
    // Its turn began with the end of a writer, while it waited.
    let is_let_in = |read: &Acquisition, at| ends.first_within(read.wanted, at).is_some();
    let later = between(known + TENURE, until).filter(|read| read.wanted > known && read.stands_in_line());
    let later = later.filter(|read| {
        let at = read.acquired.unwrap_or(read.wanted);
        let joins = |other: &Acquisition| {
            other.life == read.life && other.acquired.is_some_and(|at| is_let_in(other, at))
        };
        !is_let_in(read, at) && !between(at.saturating_sub(TENURE + LIMIT), at).any(|other| joins(other))
    });
    let Some(read) = later.max_by_key(|read| read.wanted) else { return };
    let by = read.wanted - write.wanted;
    seen.overtaken_by = seen.overtaken_by.max(by);
    let what = format!(
        "{} waited to write lock {}, and {}, which came {:.3} s later, reads before it out of its turn",
        write.tag(),
        write.name,
        read.tag(),
        seconds(by),
    );
    violations.push(Violation { at: write.wanted, what });
}
