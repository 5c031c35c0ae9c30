//! No two owners have a lock at the same time.

use std::collections::BTreeMap;

use fleet::clock::seconds;

use super::Judge;
use crate::history::{By, Why};
use crate::story::Acquisition;

/// A lease's end is read on two machines' clocks, one of which counts milliseconds.
const ROUNDING: u64 = 2_000_000;

struct Claim<'a> {
    from: u64,
    to: u64,
    of: &'a Acquisition,
}

impl Judge<'_> {
    pub(super) fn exclusion(&mut self) {
        let mut by_name: BTreeMap<u32, Vec<Claim<'_>>> = BTreeMap::new();
        for acquisition in &self.story.acquisitions {
            let Some((first, last)) = acquisition.beliefs else { continue };
            let mut to = last.max(claimed_until(acquisition).saturating_sub(ROUNDING));
            if let Some((begin, _)) = self.story.taken_away_by(acquisition, to) {
                *self.seen.entry("holds cut short by the stage").or_default() += 1;
                if begin <= first {
                    continue;
                }
                to = begin;
            }
            by_name.entry(acquisition.name).or_default().push(Claim { from: first, to, of: acquisition });
        }
        for (name, claims) in by_name {
            self.claims(name, claims);
        }
    }

    fn claims(&mut self, name: u32, mut claims: Vec<Claim<'_>>) {
        claims.sort_unstable_by_key(|claim| claim.from);
        let mut open: Vec<Claim<'_>> = Vec::new();
        let mut wrote_until: BTreeMap<&str, u64> = BTreeMap::new();
        for claim in claims {
            open.retain(|earlier| earlier.to > claim.from);
            for earlier in open.iter().filter(|earlier| !earlier.of.goes_with(claim.of)) {
                let of_both = claim.of.is_redisson != earlier.of.is_redisson;
                let what = format!(
                    "two holders of lock {name}{}: {} {} it, and {} {} it until {:.6} s at least",
                    if of_both { ", ours and Redisson's" } else { "" },
                    claim.of.tag(),
                    claim.of.does(),
                    earlier.of.tag(),
                    earlier.of.does(),
                    seconds(earlier.to),
                );
                self.wrong(claim.from, what);
            }
            let its = |earlier: &Claim<'_>| earlier.of.owner == claim.of.owner;
            let until = wrote_until.entry(&*claim.of.owner).or_default();
            if !claim.of.wish.reads {
                if *until < claim.of.wanted && open.iter().any(its) {
                    let what =
                        format!("lock {name}: {} may write, and its owner reads already", claim.of.tag());
                    self.wrong(claim.from, what);
                }
                *until = claim.to.max(*until);
            }
            open.push(claim);
        }
    }
}

/// The time until which the owner believed to exclude others, unless the stage took the lock away.
fn claimed_until(acquisition: &Acquisition) -> u64 {
    let told = acquisition.lost.filter(|(_, why)| *why == Why::Gone).map(|(at, _)| at);
    let gave = acquisition.lets_go.filter(|(_, by)| *by != By::Forget).map(|(at, _)| at);
    told.into_iter().chain(gave).fold(acquisition.deadline, u64::min)
}
