//! [`Convoy`]: tasks of one process that crowd before one lock.

use std::ops::Range;
use std::time::Duration;

use fleet::clock;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::board::Board;
use super::clients::Client;
use super::turns::Taken;

/// The work of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Convoy {
    /// Number of tasks.
    pub tasks: u64,
    /// Microseconds of each hold: about a millisecond, the resolution of tokio's timers.
    pub hold: u64,
    /// Random range of the microseconds between two holds; empty to come again at once.
    pub think: Range<u64>,
}

impl Convoy {
    /// Runs a task until the board's time is over.
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
