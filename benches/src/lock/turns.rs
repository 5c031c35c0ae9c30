//! Tasks that take turns on one lock, each of which waits for the others to wait before it lets go.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::board::Board;
use super::clients::Client;

/// How the turns go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turns {
    /// How many others have to wait before the holder lets go.
    pub waiting: u64,
    /// Microseconds that they have waited by then, at random from this range.
    pub hold: Range<u64>,
}

/// What one task, or all of them, went through.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// How often it got the lock.
    pub entered: u64,
    /// Nanoseconds from before the one before let go, each time it was handed off.
    pub nanos: Vec<u64>,
    /// The longest wait of a crowd, in nanoseconds.
    pub longest: u64,
}

impl Taken {
    /// Adds what another task went through.
    pub fn add(&mut self, mut other: Taken) {
        self.entered += other.entered;
        self.nanos.append(&mut other.nanos);
        self.longest = self.longest.max(other.longest);
    }
}

/// How often the others are looked at. Not between a release and the next acquisition, which asks for
/// nothing here.
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
        // Coming back at once would be a race with the waiter that was handed it.
        while board.entered() == entered {
            sleep(LOOK).await;
        }
    }
}
