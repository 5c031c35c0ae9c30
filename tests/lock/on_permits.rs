//! Semaphores over a store in memory.

use latchwork::LockClient;
use latchwork::local::Local;

use crate::permits;

fn clients() -> [LockClient; 2] {
    let local = Local::new();
    [LockClient::new(local.clone()), LockClient::new(local)]
}

permits::over_two_clients! { ((), clients()) }

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holds_never_exceed_the_capacity() {
    permits::holds_never_exceed_the_capacity(&clients(), 100, 50).await;
}
