//! Readers and writers of a read-write lock take turns.

use fleet::clock::seconds;

use super::{Judge, UNNOTICED};
use crate::names::LockKind;
use crate::spans::Spans;
use crate::story::{Acquisition, Story, TENURE};

/// The time in which an owner has the lock alone.
struct Writing<'a> {
    owner: &'a str,
    from: u64,
    /// The write ends between `leaves` and `to`.
    leaves: u64,
    to: u64,
    /// The writer released the lock, which let the readers in.
    ended_well: bool,
}

impl Judge<'_> {
    pub(super) fn alternation(&mut self) {
        for of_name in self.story.of_names(|it| LockKind::of(it.name) == LockKind::ReadWrite) {
            let (reads, writes): (Vec<_>, Vec<_>) = of_name.iter().partition(|it| it.wish.reads);
            let writing = writing(self.story, &writes);
            for read in &reads {
                self.read(read, &writing);
            }
            // The release may reach the store as much later, too.
            let ends = Spans::union(writing.iter().map(|it| (it.leaves, it.to + UNNOTICED)));
            for write in &writes {
                self.write(write, &reads, &ends);
            }
        }
    }

    /// A reader waits for at most one writer.
    fn read(&mut self, read: &Acquisition, writing: &[Writing<'_>]) {
        let Some(until) = self.story.in_line_until(read) else { return };
        *self.seen.entry("reads").or_default() += 1;
        let known = read.wanted + UNNOTICED;
        let before = &writing[..writing.partition_point(|it| it.from < until)];
        let came = before.len().saturating_sub(writing.partition_point(|it| it.from <= known));
        // A writer that died, or lost the lock, has let no reader in.
        let ended_badly = before.iter().filter(|it| !it.ended_well && read.wanted < it.to).count();
        if came > 1 + ended_badly {
            let what = format!(
                "{} waited to read lock {} until {:.3} s, and {came} writers had it meanwhile, one after the other",
                read.tag(),
                read.name,
                seconds(until),
            );
            self.wrong(read.wanted, what);
        }
    }

    /// No later reader passes a waiting writer, except in a turn of readers, or with present readers.
    fn write(&mut self, write: &Acquisition, reads: &[&Acquisition], ends: &Spans) {
        let Some(until) = self.story.in_line_until(write) else { return };
        *self.seen.entry("writes").or_default() += 1;
        let known = write.wanted + UNNOTICED;
        let between = |from: u64, to: u64| {
            let first = reads.partition_point(|it| it.acquired <= Some(from));
            let last = reads.partition_point(|it| it.acquired < Some(to));
            reads[first..last.max(first)].iter()
        };
        // The reader's turn began with the end of a writer, while the reader waited.
        let is_let_in = |read: &Acquisition, at| ends.first_within(read.wanted, at).is_some();
        let later =
            between(known + TENURE, until).filter(|read| read.wanted > known && read.stands_in_line());
        let later = later.filter(|read| {
            let at = read.acquired.unwrap_or(read.wanted);
            let joins = |other: &Acquisition| {
                other.life == read.life && other.acquired.is_some_and(|at| is_let_in(other, at))
            };
            !is_let_in(read, at)
                && !between(at.saturating_sub(TENURE + UNNOTICED), at).any(|other| joins(other))
        });
        let Some(read) = later.max_by_key(|read| read.wanted) else { return };
        let what = format!(
            "{} waited to write lock {}, and {}, which came {:.3} s later, reads before it out of its turn",
            write.tag(),
            write.name,
            read.tag(),
            seconds(read.wanted - write.wanted),
        );
        self.wrong(write.wanted, what);
    }
}

/// The writes, ordered by their beginning. Overlapping holds of one owner count as one.
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
