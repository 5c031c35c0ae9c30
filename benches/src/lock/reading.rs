//! Tasks that read together, and a writer before or behind them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::board::Board;
use super::clients::Client;
use super::turns::{LOOK, Taken};

/// The work of a process's readers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// Number of tasks.
    pub tasks: u64,
    /// Microseconds of each read, repeated until the time is over. `None`: a read in each round.
    pub hold: Option<u64>,
}

impl Reading {
    /// Runs one task.
    pub async fn read<C: Client>(&self, client: &C, board: &Board) -> Taken {
        match self.hold {
            Some(hold) => stream(client, board, Duration::from_micros(hold)).await,
            None => by_rounds(client, board).await,
        }
    }
}

async fn stream<C: Client>(client: &C, board: &Board, hold: Duration) -> Taken {
    let mut taken = Taken::default();
    while !board.is_over() {
        board.arrive();
        let guard = client.lock().await;
        board.begin_reading();
        taken.entered += 1;
        sleep(hold).await;
        board.end_reading();
        client.unlock(guard).await;
    }
    taken
}

async fn by_rounds<C: Client>(client: &C, board: &Board) -> Taken {
    let (mut taken, mut round) = (Taken::default(), 0);
    loop {
        round = loop {
            match board.round_after(round) {
                Some(Some(next)) => break next,
                Some(None) => return taken,
                None => sleep(LOOK).await,
            }
        };
        board.arrive();
        let guard = client.lock().await;
        taken.nanos.push(board.begin_reading());
        taken.entered += 1;
        while !board.is_dismissed(round) {
            sleep(LOOK).await;
        }
        board.end_reading();
        client.unlock(guard).await;
    }
}
