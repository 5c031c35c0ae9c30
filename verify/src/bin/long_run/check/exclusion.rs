//! No two owners have a lock at the same time.

use std::collections::BTreeMap;

use super::Violation;
use crate::clock::seconds;
use crate::history::{By, Why};
use crate::story::{Attempt, Story};

/// A lease's end is read on two machines' clocks, one of which counts milliseconds.
const ROUNDING: u64 = 2_000_000;

struct Claim<'a> {
    from: u64,
    to: u64,
    of: &'a Attempt,
}

/// Says how many holds were cut short by the stage.
pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) -> u64 {
    let mut excused = 0;
    let mut by_name: BTreeMap<u32, Vec<Claim<'_>>> = BTreeMap::new();
    for attempt in &story.attempts {
        let Some((first, last)) = attempt.beliefs else { continue };
        let mut to = last.max(claimed_until(attempt).saturating_sub(ROUNDING));
        if let Some((begin, _)) = story.cut_within(attempt.name, attempt.wanted, to) {
            excused += 1;
            if begin <= first {
                continue;
            }
            to = begin;
        }
        by_name.entry(attempt.name).or_default().push(Claim { from: first, to, of: attempt });
    }
    for (name, mut claims) in by_name {
        claims.sort_unstable_by_key(|claim| claim.from);
        let mut open: Vec<Claim<'_>> = Vec::new();
        for claim in claims {
            open.retain(|earlier| earlier.to > claim.from);
            for earlier in open.iter().filter(|earlier| earlier.of.owner != claim.of.owner) {
                let what = format!(
                    "two holders of lock {name}: {} has it, and {} has it until {:.6} s at least",
                    claim.of.tag(),
                    earlier.of.tag(),
                    seconds(earlier.to),
                );
                violations.push(Violation { at: claim.from, what });
            }
            open.push(claim);
        }
    }
    excused
}

/// Until when `attempt` kept everybody else out, as far as it knew, unless the stage took its lock away.
fn claimed_until(attempt: &Attempt) -> u64 {
    let told = attempt.lost.filter(|(_, why)| *why == Why::Gone).map(|(at, _)| at);
    let gave = attempt.lets_go.filter(|(_, by)| *by != By::Forget).map(|(at, _)| at);
    told.into_iter().chain(gave).fold(attempt.deadline, u64::min)
}
