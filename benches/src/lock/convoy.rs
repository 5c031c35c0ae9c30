//! [`Convoy`]: tasks of one process that crowd before one lock.

use std::ops::Range;
use std::time::Duration;

use fleet::clock;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::board::Board;
use super::clients::Client;
use super::turns::Taken;

/// What one of the processes does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Convoy {
    /// How many tasks it has.
    pub tasks: u64,
    /// Microseconds that each holds the lock. Tokio's timers count milliseconds, so it is one, more or less.
    pub hold: u64,
    /// Microseconds that it does without it, at random from this range; comes again at once if it is empty.
    pub think: Range<u64>,
}

impl Convoy {
    /// What each task does until the board's time is over.
    pub async fn walk<C: Client>(&self, client: &C, board: &Board, process: u64) -> Taken {
        let mut taken = Taken::default();
        while !board.is_over() {
            if !self.think.is_empty() {
                sleep(Duration::from_micros(fastrand::u64(self.think.clone()))).await;
            }
            board.arrive();
            let begun = clock::now();
            let guard = client.lock().await;
            taken.longest = taken.longest.max(clock::now() - begun);
            board.enter(process);
            taken.entered += 1;
            sleep(Duration::from_micros(self.hold)).await;
            board.leave();
            client.unlock(guard).await;
        }
        taken
    }
}
