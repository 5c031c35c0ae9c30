//! Waiting for what comes by itself. A test that uses this says with `SOON`, at its crate's root, how long that may take.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::SOON;

pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// Asks again and again until the answer is yes.
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !ask().await {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
