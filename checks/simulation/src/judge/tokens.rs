//! `Lock::fenced`: "A token is greater than all tokens of this name before it, of all holders. […] An
//! owner's inner holds have the token of its outer one. Concurrent readers have one token: greater than
//! that of each writer before them."

use std::collections::BTreeMap;

use super::Judge;
use super::words::words;
use crate::program::{LockSide, Op};
use crate::stage::{Answer, Event, Hold, View};
use crate::store::Store;
use crate::world::Nanos;

struct Seen {
    token: u64,
    /// Start of the call: its token may be from before a loss of the counter, and its answer from after.
    began: Nanos,
    granted: Nanos,
    kind: LockSide,
    /// Member and number of the lease.
    lease: (usize, u64),
    words: String,
}

#[derive(Default)]
pub(crate) struct Tokens {
    /// Earlier tokens to compare with, by name and by kind at the store.
    seen: BTreeMap<(usize, LockSide), Vec<Seen>>,
    /// Time when each token was first granted, by member and lease number.
    by_lease: BTreeMap<(usize, u64, u64), Nanos>,
}

impl<S: Store> Judge<S> for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        if let Event::Answered(call, Answer::Got(id)) = event
            && matches!(call.op, Op::Acquire { fenced: true, .. })
            && view.scene.holds.get(id).is_some_and(|hold| hold.token.is_none())
        {
            return Some(format!("{}: expected a token, saw none", words(view, call)));
        }
        let Event::Granted(id) = event else { return None };
        let hold = view.scene.holds.get(id)?;
        let token = hold.token?;
        let lock = hold.lock.by_reader();
        if view.excuses.was_taken(&view.member(hold).client_id, hold.number) {
            return None;
        }
        let seen = self.seen.entry((lock.name, lock.kind)).or_default();
        let since = view.excuses.tokens_lost(hold.lock).unwrap_or(0);
        let key = (hold.member, hold.number, token);
        let is_inner = self.by_lease.contains_key(&key);
        // An inner hold's token is as old as its outer hold's, which may be older than the counter.
        if *self.by_lease.entry(key).or_insert(view.now) <= since && since > 0 {
            return None;
        }
        seen.retain(|other| other.began > since || since == 0);
        let began = unclaimed_since(view, hold).into_iter().chain(outer_since(view, hold)).min();
        let began = began.map_or(hold.began, |outer| outer.min(hold.began));
        let wrong = seen.iter().find(|other| !is_inner && has_fallen(other, hold, began, token));
        let text = wrong.map(|other| {
            format!(
                "{}: expected a token greater than those before, saw {token}, and {} has {}",
                view.words(hold),
                other.words,
                other.token
            )
        });
        seen.push(Seen {
            token,
            began: hold.began,
            granted: view.now,
            kind: hold.lock.kind,
            lease: (hold.member, hold.number),
            words: view.words(hold),
        });
        text
    }
}

/// Start of the earliest stalled call of the hold's owner. The call may have had the lock, with a token
/// greater than all before, while no guard shows the token: a panicking waker may have dropped the first
/// guard.
fn unclaimed_since<S: Store>(view: &View<'_, S>, hold: &Hold) -> Option<Nanos> {
    let member = view.member(hold);
    let unclaimed = view.scene.calls.values().filter(|call| {
        matches!(call.op, Op::Acquire { owner: Some(by), .. } if member.owner(by) == hold.owner)
            && (call.member, call.lock) == (hold.member, Some(hold.lock))
            && call.was_stalled
    });
    unclaimed.map(|call| call.began).min()
}

/// Start of the earliest outer hold whose token this hold may share: with the same token, or without one
/// while an inner hold asked for a token. Readers may have had the token under an earlier lease.
fn outer_since<S: Store>(view: &View<'_, S>, hold: &Hold) -> Option<Nanos> {
    let outer = view.scene.holds.values().filter(|outer| {
        (outer.member, outer.owner, outer.lock) == (hold.member, hold.owner, hold.lock)
            && outer.token.is_none_or(|token| hold.token == Some(token))
    });
    outer.map(|outer| outer.began).min()
}

/// True if the hold, or its outer one, was called for after the other's token, and has no greater one.
fn has_fallen(other: &Seen, hold: &Hold, began: Nanos, token: u64) -> bool {
    if other.granted >= began {
        return false;
    }
    match (other.kind, hold.lock.kind) {
        // One lease: inner holds, and concurrent readers.
        _ if other.lease == (hold.member, hold.number) => token < other.token,
        (LockSide::Read, LockSide::Read) => token < other.token,
        _ => token <= other.token,
    }
}
