use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Defines `soon` and `eventually` for a test file, with the file's own limit.
macro_rules! waiting_for {
    ($limit:expr) => {
        #[allow(dead_code, reason = "a file may use only one of the two")]
        pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
            $crate::waiting::within($limit, what, future).await
        }

        /// Repeats `ask` until true.
        #[allow(dead_code, reason = "a file may use only one of the two")]
        pub(crate) async fn eventually(what: &str, ask: impl AsyncFnMut() -> bool) {
            $crate::waiting::poll_within($limit, what, ask).await;
        }
    };
}
pub(crate) use waiting_for;

pub(crate) async fn within<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    timeout(limit, future).await.unwrap_or_else(|_| panic!("expected within {limit:?}: {what}"))
}

pub(crate) async fn poll_within(limit: Duration, what: &str, mut ask: impl AsyncFnMut() -> bool) {
    within(limit, what, async {
        while !ask().await {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
