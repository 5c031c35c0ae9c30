//! The judgement of a history. It sees nothing but the journals, so it can be put before histories that are
//! made up, and has to find what is wrong with them.

mod alternation;
mod exclusion;
mod leftovers;
mod losses;
mod order;
mod patience;
#[cfg(test)]
mod tests;
mod tokens;
mod turns;

use std::fmt;

use crate::clock::seconds;
use crate::history::History;
use crate::story::Story;

pub(crate) use self::alternation::Alternation;
pub(crate) use self::order::Order;
pub(crate) use self::patience::Patience;

/// Something that must not be.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.3} s: {}", seconds(self.at), self.what)
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct CheckOutcome {
    pub(crate) story: Story,
    pub(crate) violations: Vec<Violation>,
    /// Holds whose lock was taken from them meanwhile, by the stage.
    pub(crate) excused: u64,
    pub(crate) patience: Patience,
    pub(crate) order: Order,
    pub(crate) alternation: Alternation,
    /// How long one of a crowd waited at the most.
    pub(crate) longest_turn: u64,
}

/// Looks for everything that must not be.
pub(crate) fn check(history: &History) -> CheckOutcome {
    let story = Story::of(history);
    let mut violations = Vec::new();
    let excused = exclusion::check(&story, &mut violations);
    tokens::check(&story, &mut violations);
    losses::check(&story, &mut violations);
    let patience = patience::check(&story, &mut violations);
    let order = order::check(&story, &mut violations);
    let alternation = alternation::check(&story, &mut violations);
    let longest_turn = turns::check(&story, &mut violations);
    leftovers::check(&story, history, &mut violations);
    violations.sort_by_key(|violation: &Violation| violation.at);
    CheckOutcome { story, violations, excused, patience, order, alternation, longest_turn }
}
