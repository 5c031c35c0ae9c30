//! Tasks that take turns on one lock; a holder releases only when the others wait.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::board::Board;
use super::clients::Client;

/// The rules of the turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turns {
    /// Number of waiting others required for a release.
    pub waiting: u64,
    /// Random range of their wait before the release, in microseconds.
    pub hold: Range<u64>,
}

/// Counts and times of one task, or of all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// Number of acquisitions.
    pub entered: u64,
    /// Nanoseconds from before the previous holder's release, for each hand-off.
    pub nanos: Vec<u64>,
    /// The longest wait of a crowd, in nanoseconds.
    pub longest: u64,
}

impl Taken {
    /// Adds the counts and times of another task.
    pub fn add(&mut self, mut other: Taken) {
        self.entered += other.entered;
        self.nanos.append(&mut other.nanos);
        self.longest = self.longest.max(other.longest);
    }
}

/// Interval of looks at the board, which never delay a measured acquisition.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// Takes turns until the board's time is over.
pub async fn take<C: Client>(client: &C, board: &Board, process: u64, turns: &Turns) -> Taken {
    let mut taken = Taken::default();
    loop {
        board.arrive();
        let guard = client.lock().await;
        let entry = board.enter(process);
        taken.entered += 1;
        taken.nanos.extend(entry.after);
        if board.is_over() {
            board.leave();
            client.unlock(guard).await;
            return taken;
        }
        while board.waiting() < turns.waiting {
            sleep(LOOK).await;
        }
        sleep(Duration::from_micros(fastrand::u64(turns.hold.clone()))).await;
        let entered = board.entered();
        board.hand_off();
        client.unlock(guard).await;
        // Asking at once would race with the waiter that was handed the lock.
        while board.entered() == entered {
            sleep(LOOK).await;
        }
    }
}
