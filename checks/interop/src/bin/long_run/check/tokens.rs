//! A lock's fencing tokens rise from one acquisition to the next.

use std::collections::BTreeMap;

use super::Violation;
use crate::story::{Acquisition, Story};

pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) {
    let mut by_name: BTreeMap<u32, Vec<(u64, &Acquisition)>> = BTreeMap::new();
    for acquisition in &story.acquisitions {
        let Some(acquired) = acquisition.acquired else { continue };
        if acquisition.wish.fenced != acquisition.token.is_some() {
            let what = if acquisition.wish.fenced { "asked for a token and got none" } else { "got a token" };
            let what = format!("lock {}: {} {what}", acquisition.name, acquisition.tag());
            violations.push(Violation { at: acquired, what });
        }
        // What it believed in at its first look it had without a break since the token was made: unless the
        // stage took it away before the guard could know.
        let Some((first, _)) = acquisition.beliefs else { continue };
        if acquisition.token.is_some() && story.taken_away_by(acquisition, first.max(acquired)).is_none() {
            by_name.entry(acquisition.name).or_default().push((first, acquisition));
        }
    }
    for (name, mut acquisitions) in by_name {
        acquisitions.sort_unstable_by_key(|(first, _)| *first);
        for two in acquisitions.windows(2) {
            let [(_, before), (at, after)] = two else { unreachable!() };
            // With an empty server, its counter begins anew.
            let restarted = story
                .cuts
                .iter()
                .any(|(cut, from, to)| cut.is_none() && *to >= before.wanted && *from <= *at);
            // Readers do not fence each other off.
            let rises = match before.owner == after.owner || after.wish.reads {
                true => before.token <= after.token,
                false => before.token < after.token,
            };
            if !rises && !restarted {
                let what = format!(
                    "tokens of lock {name} do not rise: {} had {:?}, and then {} has {:?}",
                    before.tag(),
                    before.token,
                    after.tag(),
                    after.token,
                );
                violations.push(Violation { at: *at, what });
            }
        }
    }
}
