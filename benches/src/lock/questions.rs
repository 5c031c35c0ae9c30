//! What is asked, one file each.

mod commands;
mod convoy;
mod crowd;
mod hand_off;
mod inside;
mod reentry;
mod uncontended;
mod watched;

use super::figure::Answer;
use super::server::Server;

pub use self::convoy::Convoy;

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// Asks it.
    pub ask: fn(&mut Server, rounds: usize) -> Answer,
}

/// All of them.
pub const QUESTIONS: [Question; 8] = [
    Question { name: commands::NAME, ask: commands::ask },
    Question { name: uncontended::NAME, ask: uncontended::ask },
    Question { name: hand_off::NAME, ask: hand_off::ask },
    Question { name: convoy::NAME, ask: convoy::ask },
    Question { name: inside::NAME, ask: inside::ask },
    Question { name: reentry::NAME, ask: reentry::ask },
    Question { name: crowd::NAME, ask: crowd::ask },
    Question { name: watched::NAME, ask: watched::ask },
];

/// Does something to the rows in one order, and in the next round in the other, so that nobody always comes after the same
/// one.
fn there_and_back<T>(round: usize, rows: &mut [T], each: impl FnMut(&mut T)) {
    match round % 2 {
        0 => rows.iter_mut().for_each(each),
        _ => rows.iter_mut().rev().for_each(each),
    }
}
