//! When an owner's holds end, and that it is told.

use std::time::Duration;

use latchwork::local::Local;
use latchwork::{LockClient, LockOptions, LossReason};
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn lease_of_ones_own_ends_though_others_read_on() {
    let client = LockClient::local();
    let prices = client.read_write("prices").unwrap();
    let me = client.owner();
    let mine = prices.read().owned_by(&me);
    let others = prices.read().lock().await.unwrap();
    mine.lock_with_lease(Duration::from_millis(20)).await.unwrap().forget();
    sleep(Duration::from_millis(40)).await;
    assert_eq!(mine.hold_count(&me).await.unwrap(), 0, "it counts still");
    others.unlock().await.unwrap();
    assert!(prices.write().try_lock().await.unwrap().is_some(), "it is kept from others");
}

#[tokio::test]
async fn guard_is_told_at_once_that_its_hold_was_given_back_by_name_and_by_another_guard() {
    let client = LockClient::local();
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let (one, other) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    lock.unlock(&me).await.unwrap();
    let leaves = async {
        tokio::task::yield_now().await;
        drop(one);
    };
    let told = timeout(Duration::from_secs(1), async { tokio::join!(other.lost(), leaves).0 });
    assert_eq!(told.await.expect("nobody tells it"), LossReason::GivenBack);
}

#[tokio::test]
async fn lease_of_ones_own_that_is_extended_lasts_longer_beside_others() {
    let client = LockClient::local();
    let prices = client.read_write("prices").unwrap();
    let me = client.owner();
    let _others = prices.read().lock().await.unwrap();
    let mut mine = prices.read().owned_by(&me).lock_with_lease(Duration::from_millis(200)).await.unwrap();
    mine.extend(Duration::from_secs(60)).await.unwrap();
    mine.forget();
    sleep(Duration::from_millis(250)).await;
    assert_eq!(prices.read().hold_count(&me).await.unwrap(), 1);
}

/// Nobody renews it any more: others do for themselves.
#[tokio::test]
async fn forgotten_hold_ends_though_others_read_on() {
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(300));
    let client = LockClient::with_options(Local::new(), &options).unwrap();
    let prices = client.read_write("prices").unwrap();
    let me = client.owner();
    let others = prices.read().lock().await.unwrap();
    prices.read().owned_by(&me).lock().await.unwrap().forget();
    assert_eq!(prices.read().hold_count(&me).await.unwrap(), 1);
    let ends = async {
        while prices.read().hold_count(&me).await.unwrap() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), ends).await.expect("it is renewed for others");
    others.ensure_held().await.unwrap();
}
