//! The tests of docs/testing.md, as the page shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Failure, LeaseKey, LockName, Mode, TokioRuntime,
};
use latchwork::local::{Local, OtherKind};
use latchwork::{Lease, LockClient, LockError};
use latchwork_conformance::{Intercept, Interceptor};
use tokio::time::{Instant, sleep};

async fn ship(locks: &LockClient, order: u64) -> Result<&'static str, LockError> {
    let lock = locks.get_lock(&format!("orders:{order}"))?;
    match lock.try_lock_for(Duration::from_secs(2), Lease::Watched).await? {
        None => Ok("busy"),
        Some(guard) => guard.run(async { sleep(Duration::from_secs(60)).await }).await.map(|()| "shipped"),
    }
}

#[tokio::test(start_paused = true)]
async fn order_that_is_being_shipped_is_left_alone() -> Result<(), LockError> {
    let locks = LockClient::new(Local::on_tokio());
    let _held = locks.get_lock("orders:42")?.lock().await?;
    let began = Instant::now();
    assert_eq!(ship(&locks, 42).await?, "busy");
    assert_eq!(began.elapsed(), Duration::from_secs(2)); // none of them on the wall clock
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn order_of_a_dead_worker_is_shipped_when_its_lease_ends() -> Result<(), LockError> {
    let store = Local::on_tokio(); // two clients of one store are like two processes
    let (dead, alive) = (LockClient::new(store.clone()), LockClient::new(store));
    dead.get_lock("orders:42")?.lock_with_lease(Duration::from_secs(1)).await?.forget();
    assert_eq!(ship(&alive, 42).await?, "shipped");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn shipping_ends_when_the_lock_is_lost() -> Result<(), LockError> {
    let locks = LockClient::new(Local::on_tokio());
    let rob = async {
        sleep(Duration::from_secs(30)).await;
        locks.get_lock("orders:42")?.force_unlock().await
    };
    let (shipped, robbed) = tokio::join!(ship(&locks, 42), rob);
    assert!(robbed? && shipped.unwrap_err().is_lost());
    Ok(())
}

/// A network between a client and the store, which a test cuts.
#[derive(Clone, Default)]
struct Network {
    is_cut: Arc<AtomicBool>,
}

type Store = Local<TokioRuntime>;

#[derive(Debug)]
struct Cut;

impl std::error::Error for Cut {}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the network is cut")
    }
}

impl Network {
    fn check(&self) -> Result<(), Cut> {
        if self.is_cut.load(SeqCst) { Err(Cut) } else { Ok(()) }
    }
}

impl Interceptor<Store> for Network {
    type Error = Cut;

    fn error(&self, _: OtherKind) -> Cut {
        Cut
    }

    fn failure(&self, _: &Store, _: &Cut) -> Failure {
        Failure::Unreachable
    }

    async fn acquire(
        &self,
        store: &Store,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Cut> {
        self.check()?;
        store.acquire(mode, name, request).await.map_err(|error| self.error(error))
    }

    async fn renew(
        &self,
        store: &Store,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> Result<Vec<bool>, Cut> {
        self.check()?;
        store.renew(mode, leases, lease).await.map_err(|error| self.error(error))
    }
}

#[tokio::test(start_paused = true)]
async fn shipping_ends_when_the_network_is_gone_for_a_lease() -> Result<(), LockError> {
    let network = Network::default();
    let locks = LockClient::new(Intercept::new(Local::on_tokio(), network.clone()));
    let cut = async {
        sleep(Duration::from_secs(5)).await;
        network.is_cut.store(true, SeqCst);
    };
    let (shipped, ()) = tokio::join!(ship(&locks, 42), cut);
    assert!(shipped.unwrap_err().is_lost());
    assert!(ship(&locks, 43).await.unwrap_err().is_retryable());
    Ok(())
}

/// The page shows this file's code, block by block.
#[test]
fn page_shows_these_tests() {
    let here = include_str!("testing.rs");
    let page = include_str!("../../../docs/testing.md");
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5, "expected five blocks of Rust in docs/testing.md");
    for block in blocks {
        assert!(
            here.contains(block.trim_end()),
            "docs/testing.md shows code that is not in testing.rs:\n{block}"
        );
    }
}
