//! Releases that the store does not take.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use latchwork::LockClient;
use latchwork::backend::Runtime as _;
use latchwork::local::{Local, OtherKind, ThreadRuntime};

use crate::over_local::{Between, Command, OverLocal};

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

/// Refuses every release, and notes when it came.
#[derive(Clone)]
struct TakesNoRelease(ThreadRuntime, Arc<Mutex<Vec<Instant>>>);

impl Between for TakesNoRelease {
    type Error = Refused;

    async fn carry<T: Send>(
        &self,
        command: Command<'_>,
        run: impl Future<Output = Result<T, OtherKind>> + Send,
    ) -> Result<T, Refused> {
        if let Command::Release(_) = command {
            self.1.lock().unwrap().push(self.0.now());
            return Err(Refused);
        }
        run.await.map_err(|_| Refused)
    }
}

/// A server that cannot answer is not asked a hundred times a second by each lock, and one that can again is
/// asked before a second has passed.
#[test]
fn release_that_fails_is_repeated_ever_more_rarely_until_its_lease_is_over() {
    const LEASE: Duration = Duration::from_secs(20);
    let clock = ThreadRuntime::paused();
    let backend = TakesNoRelease(clock.clone(), Arc::default());
    let local = Local::with_runtime(clock.clone());
    let client = LockClient::new(OverLocal::new(&local, backend.clone()));
    let lock = client.get_lock("orders").unwrap();
    let taken = {
        let mut takes = pin!(lock.lock_with_lease(LEASE));
        takes.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    let Poll::Ready(held) = taken else { panic!("the lock is free") };
    drop(held.unwrap());
    let begin = clock.now();
    for _ in 0..3 * LEASE.as_millis() / 10 {
        clock.advance(Duration::from_millis(10));
    }
    let times = backend.1.lock().unwrap().clone();
    assert_eq!(client.metrics().releases_failed, times.len() as u64);
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] <= Duration::from_millis(20), "it is repeated at once: {pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
    let longest = pauses.iter().max().unwrap();
    assert_eq!(*longest, Duration::from_secs(1), "{pauses:?}");
    let last = *times.last().unwrap() - begin;
    assert!(last <= LEASE && last >= LEASE - *longest, "{last:?}");
}
