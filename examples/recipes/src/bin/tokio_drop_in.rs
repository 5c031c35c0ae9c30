//! A drop-in for tokio's semaphore: the one line to change, and the gains.
//!
//! ```sh
//! cargo run -p recipes --bin tokio_drop_in
//! # in a package of your own:
//! cargo add latchwork
//! cargo add tokio --features full
//! ```

use std::sync::Arc;
use std::time::Duration;

use latchwork::{AsyncSemaphore, TryAcquireError};

/// The same code over the semaphore that `$semaphore` imports: only that line changes.
macro_rules! downloader {
    ($module:ident, $($semaphore:tt)+) => {
        mod $module {
            use std::sync::Arc;

            $($semaphore)+;

            pub(crate) async fn download_all() -> usize {
                let limit = Arc::new(Semaphore::new(3));
                let mut downloads = Vec::new();
                for url in 0..10 {
                    // Waits here, to spawn no more tasks than run.
                    let permit: OwnedSemaphorePermit = Arc::clone(&limit).acquire_owned().await.unwrap();
                    downloads.push(tokio::spawn(async move {
                        tokio::task::yield_now().await;
                        drop(permit);
                        url
                    }));
                }
                // All three permits at once: no download is in flight then.
                let all = limit.acquire_many(3).await.unwrap();
                assert!(matches!(limit.try_acquire(), Err(TryAcquireError::NoPermits)));
                drop(all);
                limit.close();
                assert!(limit.acquire().await.is_err());
                downloads.len()
            }
        }
    };
}

downloader!(before, use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError});
downloader!(after, use latchwork::{AsyncSemaphore as Semaphore, OwnedSemaphorePermit, TryAcquireError});

#[tokio::main]
async fn main() {
    assert_eq!(before::download_all().await, after::download_all().await);

    // Beyond tokio's: threads wait in the same queue, with a time limit if they like …
    let limit = Arc::new(AsyncSemaphore::new(1));
    let held = limit.acquire().await.unwrap();
    let thread = tokio::task::spawn_blocking({
        let limit = Arc::clone(&limit);
        move || {
            let in_vain = limit.blocking_acquire_timeout(1, Duration::from_millis(10));
            assert_eq!(in_vain.unwrap_err(), TryAcquireError::NoPermits);
        }
    });
    thread.await.unwrap();
    let thread = tokio::task::spawn_blocking({
        let limit = Arc::clone(&limit);
        move || limit.blocking_acquire().unwrap().forget()
    });
    // … the queue can be inspected …
    while limit.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    drop(held);
    thread.await.unwrap();

    // … one call acquires as many permits as are free, up to a limit …
    limit.add_permits(3);
    let some = limit.acquire_up_to(1..=10).await.unwrap();
    assert_eq!(some.num_permits(), 3);

    // … and the capacity falls at once, permits in use included.
    limit.set_capacity(2);
    drop(some);
    assert_eq!(limit.available_permits(), 2);
    println!("the same code ran over both semaphores, and threads waited in one queue with tasks");
}
