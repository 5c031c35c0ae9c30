//! Work in steps that ends when the lock is lost: `select!` with `biased;`.
//!
//! ```sh
//! cargo run -p recipes --bin select_lost
//! # in a package of your own:
//! cargo add latchwork
//! cargo add tokio --features full
//! ```
//!
//! `Lock::run` does this for work that is one future. A loop of its own suits work that has to hear the loss,
//! to roll something back. Without `biased;` the macro polls its branches in random order: half of the time a
//! further step would begin although the loss is known.

use latchwork::{Guard, LockClient, LossReason};
use tokio::sync::mpsc;

/// Handles orders until the lock is lost or no order is left. Returns the handled orders.
async fn handle(guard: &Guard, orders: &mut mpsc::Receiver<u64>) -> (Vec<u64>, Option<LossReason>) {
    let mut handled = Vec::new();
    loop {
        tokio::select! {
            biased;
            reason = guard.lost() => return (handled, Some(reason)),
            order = orders.recv() => match order {
                // Without an await here: a step begins only with the lock, and ends before the next look.
                Some(order) => handled.push(order),
                None => return (handled, None),
            },
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), latchwork::LockError> {
    let client = LockClient::local();
    let lock = client.get_lock("orders")?;

    let guard = lock.lock().await?;
    let (sender, mut orders) = mpsc::channel(100);
    for order in 0..3 {
        sender.try_send(order).expect("the channel has room");
    }
    let (handled, loss) = tokio::join!(handle(&guard, &mut orders), async {
        // The three orders are handled by now.
        tokio::task::yield_now().await;
        lock.force_unlock().await.expect("the lock is in memory");
        // Orders wait, and so does the loss: the loss is taken first.
        for order in 3..100 {
            _ = sender.try_send(order);
        }
    })
    .0;
    assert_eq!((handled, loss), (vec![0, 1, 2], Some(LossReason::Gone)));
    println!("three orders were handled, and none after the loss");
    Ok(())
}
