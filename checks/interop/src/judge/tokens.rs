//! A lock's fencing tokens rise from one acquisition to the next.

use super::Judge;

impl Judge<'_> {
    pub(super) fn tokens(&mut self) {
        let story = self.story;
        for it in story.acquisitions.iter().filter(|it| it.acquired.is_some()) {
            if it.wish.fenced != it.token.is_some() {
                let what = if it.wish.fenced { "asked for a token and got none" } else { "got a token" };
                self.wrong(it.wanted, format!("lock {}: {} {what}", it.name, it.tag()));
            }
        }
        // The order is that of the first beliefs: until then an acquisition has held its lock without a break
        // since it got the token, unless the stage took the lock away before the guard could know.
        let of_names = self.story.of_names(|it| {
            it.token.is_some()
                && it.beliefs.is_some_and(|(at, _)| story.taken_away_by(it, at.max(it.wanted)).is_none())
        });
        for mut of_name in of_names {
            of_name.sort_by_key(|it| it.beliefs);
            for two in of_name.windows(2) {
                let [before, after] = two else { unreachable!() };
                let at = after.beliefs.map_or(after.wanted, |(at, _)| at);
                // An empty server begins the counter anew.
                let restarted = story
                    .cuts
                    .iter()
                    .any(|(cut, from, to)| cut.is_none() && *to >= before.wanted && *from <= at);
                // Readers do not fence each other off.
                let rises = match before.owner == after.owner || after.wish.reads {
                    true => before.token <= after.token,
                    false => before.token < after.token,
                };
                *self.seen.entry("tokens compared").or_default() += 1;
                if !rises && !restarted {
                    let what = format!(
                        "tokens of lock {} do not rise: {} had {:?}, and then {} has {:?}",
                        before.name,
                        before.tag(),
                        before.token,
                        after.tag(),
                        after.token,
                    );
                    self.wrong(at, what);
                }
            }
        }
    }
}
