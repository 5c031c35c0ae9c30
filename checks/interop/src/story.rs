//! [`Story`]: a history put together: the course of each acquisition, and the faults meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use fleet::clock::nanos;

use crate::history::{By, Event, FaultKind, History, Life, Outcome, Record, Why, Wish, Without};
use crate::names::LONG_LEASE;
use crate::spans::Spans;

/// Time in which an undisturbed process releases a dropped guard or rolls back an abandoned acquisition.
/// Short: most abandoned acquisitions are queued and hold nothing, and they are many beside a stuck lock.
const CLEANING_UP: u64 = nanos(Duration::from_millis(50));
/// How long readers of a process join its present readers.
pub(crate) const TENURE: u64 = nanos(Duration::from_millis(30));
/// Time in which a process with waiters, which ask each second, learns that its lease is gone.
const TO_NOTICE: u64 = nanos(Duration::from_millis(1500));
/// Difference between two clocks' readings of the same lease.
const SLACK: u64 = nanos(Duration::from_millis(100));

/// One acquisition, from its first event to its last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acquisition {
    /// Index of the process in the history.
    pub(crate) life: usize,
    pub(crate) member: usize,
    pub(crate) is_redisson: bool,
    pub(crate) id: u64,
    pub(crate) name: u32,
    pub(crate) wish: Wish,
    pub(crate) wanted: u64,
    pub(crate) acquired: Option<u64>,
    pub(crate) owner: String,
    pub(crate) token: Option<u64>,
    /// The first and the last moment at which the guard said that the lock is held. The lock was held in
    /// between, too: a guard never takes a loss back.
    pub(crate) beliefs: Option<(u64, u64)>,
    /// Time until which the owner was sure to exclude all others.
    pub(crate) deadline: u64,
    pub(crate) lost: Option<(u64, Why)>,
    pub(crate) lets_go: Option<(u64, By)>,
    pub(crate) let_go: Option<(u64, Outcome)>,
    pub(crate) without: Option<(u64, Without)>,
    /// Time at which the process was killed, or else the end of the run.
    cut_short: u64,
}

/// A fault, and the process that it disturbs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: FaultKind,
    /// `None`: all members.
    member: Option<usize>,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The times in which a member is disturbed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Woes {
    /// The member may be late with anything.
    pub(crate) any: Spans,
    /// The member may be late with commands.
    pub(crate) commands: Spans,
    /// The member's commands may outlive their callers.
    stranded: Spans,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) acquisitions: Vec<Acquisition>,
    /// Indices of the acquisitions of each name.
    by_name: HashMap<u32, Vec<usize>>,
    pub(crate) troubles: Vec<Trouble>,
    /// Indexed by member.
    pub(crate) woes: Vec<Woes>,
    /// The times in which all members are disturbed.
    common: Spans,
    /// Removals of locks: the name, or `None` for all locks of the server, and the earliest and latest time.
    pub(crate) cuts: Vec<(Option<u32>, u64, u64)>,
    pub(crate) end: u64,
}

impl Story {
    pub(crate) fn of(history: &History) -> Self {
        let all = history.lives.iter().flat_map(|life| &life.records).chain(&history.stage);
        let end = all.map(|record| record.at).max().unwrap_or(0);
        let mut story = Self { end, ..Self::default() };
        story.read_stage(&history.stage);
        for (number, life) in history.lives.iter().enumerate() {
            story.read_life(number, life);
        }
        let members = history.lives.iter().map(|life| life.member + 1).max().unwrap_or(0);
        story.common = story.spans(|trouble| trouble.member.is_none());
        story.woes = (0..members).map(|member| story.woes_of(member)).collect();
        story
    }

    fn read_stage(&mut self, records: &[Record]) {
        for Record { at, event } in records {
            match *event {
                Event::Fault { kind, member, since } => self.suffers(kind, member, since, *at),
                Event::Forced { name, since } => self.cuts.push((Some(name), since, *at)),
                _ => {}
            }
        }
        self.cuts.sort_unstable_by_key(|(_, from, _)| *from);
    }

    fn suffers(&mut self, kind: FaultKind, member: Option<usize>, from: u64, to: u64) {
        self.troubles.push(Trouble { kind, member, from, to });
        if kind == FaultKind::ServerKilled {
            self.cuts.push((None, from, to));
        }
    }

    fn read_life(&mut self, number: usize, life: &Life) {
        let mut by_id: HashMap<u64, usize> = HashMap::new();
        let cut_short = life.killed.unwrap_or(self.end);
        for Record { at, event } in &life.records {
            let at = *at;
            let id = match event {
                Event::Wants { id, name, wish } => {
                    by_id.insert(*id, self.acquisitions.len());
                    self.by_name.entry(*name).or_default().push(self.acquisitions.len());
                    self.acquisitions.push(Acquisition {
                        life: number,
                        member: life.member,
                        is_redisson: life.is_redisson,
                        id: *id,
                        name: *name,
                        wish: wish.clone(),
                        wanted: at,
                        cut_short,
                        ..Acquisition::default()
                    });
                    continue;
                }
                Event::Fault { kind, since, .. } => {
                    self.suffers(*kind, Some(life.member), *since, at);
                    continue;
                }
                Event::Acquired { id, .. }
                | Event::Believes { id, .. }
                | Event::Lost { id, .. }
                | Event::LetsGo { id, .. }
                | Event::LetGo { id, .. }
                | Event::Without { id, .. } => id,
                _ => continue,
            };
            if let Some(place) = by_id.get(id) {
                self.acquisitions[*place].hear(at, event);
            }
        }
    }

    /// The time from the beginning of each fault to its last effect.
    fn spans(&self, counts: impl Fn(&Trouble) -> bool) -> Spans {
        let troubles = self.troubles.iter().filter(|trouble| counts(trouble));
        Spans::union(troubles.map(|trouble| (trouble.from, trouble.to + trouble.kind.recovery())))
    }

    fn woes_of(&self, member: usize) -> Woes {
        let spans = |counts: fn(FaultKind) -> bool| {
            self.spans(|trouble| trouble.member.is_none_or(|it| it == member) && counts(trouble.kind))
        };
        Woes {
            any: spans(|_| true),
            commands: spans(|kind| !kind.spares_commands()),
            stranded: spans(FaultKind::strands_commands),
        }
    }

    /// The acquisitions that `counts` accepts, grouped by name, ordered by acquisition time.
    pub(crate) fn of_names(&self, counts: impl Fn(&Acquisition) -> bool) -> Vec<Vec<&Acquisition>> {
        let mut all: Vec<_> = self.acquisitions.iter().filter(|it| counts(it)).collect();
        all.sort_by_key(|it| (it.name, it.acquired));
        all.chunk_by(|a, b| a.name == b.name).map(<[_]>::to_vec).collect()
    }

    /// The first removal of `name`, certain or possible, that overlaps `from..=to`.
    pub(crate) fn cut_within(&self, name: u32, from: u64, to: u64) -> Option<(u64, u64)> {
        let of_name = self.cuts.iter().filter(|(cut, ..)| cut.is_none_or(|cut| cut == name));
        let mut of_name = of_name.map(|(_, from, to)| (*from, *to));
        of_name.find(|(begin, end)| *end >= from && *begin <= to)
    }

    /// The first removal until `to`, certain or possible, of the lease that `acquisition` holds. The lease
    /// may be older than the acquisition, which may have joined its owner's or other readers' lease.
    pub(crate) fn taken_away_by(&self, acquisition: &Acquisition, to: u64) -> Option<(u64, u64)> {
        let cut = |since| self.cut_within(acquisition.name, since, to);
        let may_join = acquisition.wish.explicit || acquisition.wish.reads;
        cut(acquisition.wanted).or_else(|| {
            // Spares most acquisitions the search below.
            cut(acquisition.wanted.saturating_sub(nanos(LONG_LEASE))).filter(|_| may_join)?;
            let others = self.by_name.get(&acquisition.name)?.iter().map(|place| &self.acquisitions[*place]);
            let joined = others.filter(|it| {
                it.life == acquisition.life && it.goes_with(acquisition) && it.acquired.is_some()
            });
            let joined =
                joined.filter(|it| it.acquired <= acquisition.acquired && it.deadline >= acquisition.wanted);
            let since = joined.map(|it| it.wanted).min()?;
            // The joined acquisitions may have joined departed ones.
            cut(since.min(acquisition.wanted.saturating_sub(TENURE)))
        })
    }

    /// End of the undisturbed time in the queue. A position is lost with the server, and a message with the
    /// link of a disconnected process; disturbed waiters let others go first.
    pub(crate) fn in_line_until(&self, acquisition: &Acquisition) -> Option<u64> {
        let (from, to) = acquisition.waited().filter(|_| acquisition.stands_in_line())?;
        let troubled = [&self.woes[acquisition.member].any, &self.common];
        let first = troubled.iter().filter_map(|woes| woes.first_within(from, to));
        // A waiter in a process whose lease was removed still waits for that lease.
        let cut = self.cut_within(acquisition.name, from.saturating_sub(TO_NOTICE), to);
        let first = first.chain(cut).map(|(begin, _)| begin).min();
        first.map_or(Some(to), |first| Some(first).filter(|first| *first > from))
    }

    /// The latest end of an unreleased lease, held by `acquisition` at `from`. Readers of a process share a
    /// lease, which lasts for the longest of them and for forgotten ones, though not past the next writer.
    fn lease_lasts(&self, acquisition: &Acquisition, from: u64) -> u64 {
        let mut until = from + acquisition.wish.lease;
        if !acquisition.wish.reads {
            return until;
        }
        let places = || self.by_name.get(&acquisition.name).into_iter().flatten();
        let of_name = || places().map(|place| &self.acquisitions[*place]).filter(|it| it.acquired.is_some());
        for other in of_name().filter(|it| it.wish.reads && it.life == acquisition.life) {
            let its = other.last_word() + other.wish.lease;
            if its > from && other.acquired <= Some(until) {
                until = until.max(its);
            }
        }
        let next = of_name()
            .filter(|it| !it.wish.reads && it.acquired > Some(from))
            .filter_map(|it| it.acquired)
            .min();
        next.map_or(until, |next| until.min(next))
    }

    /// The time by which the lock was free again, if the release certainly succeeded.
    pub(crate) fn given_back(&self, acquisition: &Acquisition) -> Option<u64> {
        if self.woes[acquisition.member]
            .stranded
            .last_within(acquisition.wanted, acquisition.last_word())
            .is_some()
        {
            return None;
        }
        match (acquisition.let_go, acquisition.lets_go) {
            (Some((at, Outcome::Free)), _) => Some(at),
            (None, Some((at, By::Drop))) if self.cleans_up(acquisition, at) => Some(at + CLEANING_UP),
            _ => None,
        }
    }

    /// True if the process can clean up right after `at`.
    fn cleans_up(&self, acquisition: &Acquisition, at: u64) -> bool {
        self.woes[acquisition.member].commands.last_within(at, at + CLEANING_UP).is_none()
    }

    /// The longest time in which the store may have kept the lock for `acquisition`, given the history.
    pub(crate) fn may_be_held(&self, acquisition: &Acquisition) -> Option<(u64, u64)> {
        let woes = &self.woes[acquisition.member];
        let last = acquisition.last_word();
        let stranded = woes.stranded.last_within(acquisition.wanted, last);
        let healthy = |at| self.cleans_up(acquisition, at);
        // A command in flight reaches the store by then, and its lease counts from then.
        let lease_after = |at: u64| {
            let worse = woes.commands.last_within(acquisition.wanted, at + CLEANING_UP);
            let until = stranded.into_iter().chain(worse).map(|(_, end)| end).max();
            let until = until.map_or(at, |until| until.max(at));
            self.lease_lasts(acquisition, until) + SLACK
        };
        let since = |at: u64| {
            // A delayed reply: the lock may have been acquired long before.
            let late = woes.commands.first_within(at.saturating_sub(CLEANING_UP), at);
            late.map_or(at, |(begin, _)| begin.clamp(acquisition.wanted, at))
        };
        if let Some(acquired) = acquisition.acquired {
            let not_held =
                acquisition.let_go.filter(|(_, outcome)| *outcome == Outcome::NotHeld && stranded.is_none());
            let until = self.given_back(acquisition).or(not_held.map(|(at, _)| at));
            return Some((since(acquired), until.unwrap_or_else(|| lease_after(last))));
        }
        match acquisition.without {
            Some((_, Without::Refused | Without::Upgrade)) => None,
            Some((at, Without::Late | Without::Dropped)) if stranded.is_none() && healthy(at) => {
                Some((at, at + CLEANING_UP))
            }
            _ => Some((since(last), lease_after(last))),
        }
    }
}

impl Acquisition {
    fn hear(&mut self, at: u64, event: &Event) {
        match event {
            Event::Acquired { owner, token, .. } => {
                self.acquired = Some(at);
                self.owner.clone_from(owner);
                self.token = *token;
            }
            Event::Believes { left, .. } => {
                self.beliefs = Some((self.beliefs.map_or(at, |(first, _)| first), at));
                self.deadline = self.deadline.max(at + left);
            }
            Event::Lost { why, .. } => _ = self.lost.get_or_insert((at, *why)),
            Event::LetsGo { by, .. } => self.lets_go = Some((at, *by)),
            Event::LetGo { outcome, .. } => self.let_go = Some((at, *outcome)),
            Event::Without { why, .. } => self.without = Some((at, *why)),
            _ => {}
        }
    }

    pub(crate) fn tag(&self) -> String {
        let whose = if self.is_redisson { "Redisson's " } else { "" };
        format!("acquisition {} of {whose}process {}", self.id, self.life)
    }

    /// True if both may have a lock at once: readers, and holds of one owner.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.wish.reads && other.wish.reads || self.owner == other.owner
    }

    pub(crate) fn does(&self) -> &'static str {
        if self.wish.reads { "reads" } else { "has" }
    }

    fn last_word(&self) -> u64 {
        let known = [
            self.let_go.map(|(at, _)| at),
            self.lets_go.filter(|(_, by)| *by == By::Drop).map(|(at, _)| at),
            self.without.map(|(at, _)| at),
        ];
        let last = known.into_iter().flatten().max();
        last.or(self.lets_go.map(|(at, _)| at)).unwrap_or(self.cut_short)
    }

    /// True if the acquisition waits in the queue. An owner that has the lock already does not queue, and an
    /// unpolled future loses its position.
    pub(crate) fn stands_in_line(&self) -> bool {
        self.wish.wait != Some(0) && !self.wish.explicit && !self.wish.unpolled
    }

    /// The time in which the acquisition waited to be served.
    pub(crate) fn waited(&self) -> Option<(u64, u64)> {
        let until = self.acquired.or(self.without.map(|(at, _)| at)).unwrap_or(self.cut_short);
        // An unpolled waiter need not be served.
        (self.wish.wait != Some(0) && !self.wish.unpolled).then_some((self.wanted, until))
    }
}
