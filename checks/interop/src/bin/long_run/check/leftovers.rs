//! Nothing is left when all is over.

use super::Violation;
use crate::history::History;
use crate::story::Story;

pub(super) fn check(story: &Story, history: &History, violations: &mut Vec<Violation>) {
    let mut wrong = |what| violations.push(Violation { at: story.end, what });
    for what in &story.stuck {
        wrong(format!("did not come to an end: {what}"));
    }
    for (life, process) in history.workers.iter().enumerate() {
        let whose = format!("process {life} (worker {})", process.worker);
        match story.quiet.iter().find(|(quiet, ..)| *quiet == life) {
            Some((_, 0, 0, 0)) => {}
            Some((_, entries, interest, subscriptions)) => wrong(format!(
                "left in the registry of {whose}: {entries} entries, {interest} interests, {subscriptions} subscriptions"
            )),
            None if process.killed.is_some() => {}
            None => wrong(format!("{whose} did not become quiet")),
        }
    }
    match &story.remains {
        None => wrong("the server was not looked at in the end".to_owned()),
        Some((keys, channels)) => {
            keys.iter().for_each(|key| wrong(format!("left on the server: the key {key}")));
            channels
                .iter()
                .for_each(|channel| wrong(format!("left on the server: a subscription to {channel}")));
        }
    }
}
