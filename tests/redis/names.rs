//! Names resembling each other, and messages that others publish.

use std::sync::LazyLock;
use std::time::Duration;

use crate::by_hand::{self, run};
use crate::kinds::{MODES, lock_of};
use latchwork::backend::Backend as _;
use latchwork::lock::{LockName, Mode};
use latchwork::redis::Redis;
use latchwork::{Guard, LockClient};
use latchwork_testkit::RedisServer;
use tokio::task::JoinHandle;
use tokio::time::timeout;

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Far less than a lease, and than a third of a position's life, after which a waiter asks by itself.
const SOON: Duration = Duration::from_secs(2);
crate::waiting::waiting_for!(SOON);

async fn client() -> LockClient {
    by_hand::client(&SERVER.url()).await
}

fn channel_of(mode: Mode, client: &LockClient, name: &str) -> String {
    let redis: &Redis = client.backend().unwrap();
    redis.channels(mode, &LockName::new(name).unwrap(), client.id()).own
}

fn waiter(client: &LockClient, mode: Mode, name: &str) -> JoinHandle<Guard> {
    let lock = lock_of(client, mode, name);
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// Waits until the waiters of both names sleep: each has its own latch on the channel of its kind.
async fn until_asleep(client: &LockClient, channels: &[String]) {
    for channel in channels {
        let asleep = async || {
            client.registry().join(channel).is_some_and(|look| look.is_ready() && look.waiters() > 0)
        };
        eventually(&format!("a waiter asleep on {channel:?}"), asleep).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_a_name_and_of_the_same_in_braces_are_both_woken() {
    for mode in MODES {
        let names = [format!("braces:{mode:?}"), format!("{{braces:{mode:?}}}")];
        let (holder, waits) = (client().await, client().await);
        let channels = names.each_ref().map(|name| channel_of(mode, &waits, name));
        for order in [[0, 1], [1, 0]] {
            let mut held = Vec::new();
            for name in &names {
                // A writer keeps readers out.
                let mode = if mode == Mode::Read { Mode::Write } else { mode };
                held.push(Some(lock_of(&holder, mode, name).lock().await.unwrap()));
            }
            let mut waiting = names.each_ref().map(|name| Some(waiter(&waits, mode, name)));
            until_asleep(&waits, &channels).await;
            for which in order {
                held[which].take().unwrap().unlock().await.unwrap();
                let woken = timeout(SOON, waiting[which].take().unwrap()).await;
                let guard =
                    woken.unwrap_or_else(|_| panic!("{:?} sleeps beside its free lock", names[which]));
                guard.unwrap().unlock().await.unwrap();
            }
        }
    }
}

/// A message is only a hint, whatever its sender knows of the waiter except the nonce.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_does_not_believe_a_grant_that_the_store_has_not_made() {
    for (mode, name, what) in [(Mode::Fair, "forged:fair", "fair"), (Mode::Write, "forged:write", "rw")] {
        let (holder, waits) = (client().await, client().await);
        let held = lock_of(&holder, mode, name).lock().await.unwrap();
        let mut waiting = waiter(&waits, mode, name);
        let channel = channel_of(mode, &waits, name);
        until_asleep(&waits, std::slice::from_ref(&channel)).await;
        let queued: Vec<String> =
            run(&SERVER, &format!("ZRANGE {name}:latchwork:{{{name}}}:{what}_queue 0 -1")).await;
        let number = queued[0].rsplit(':').next().unwrap();
        let position: String =
            run(&SERVER, &format!("HGET {name}:latchwork:{{{name}}}:{what}_positions {}", queued[0])).await;
        let nonce = position.split(':').nth(1).unwrap();
        assert_eq!(nonce.len(), 16, "expected 16 digits of a nonce of 64 bits");
        // Guessable nonces and numbers, and the grant of another waiter.
        let wrong = format!("{:016x}", u64::from_str_radix(nonce, 16).unwrap() ^ 1);
        let other_number = number.parse::<u64>().unwrap() + 1;
        let mut forged = vec![
            format!("granted:{number}"),
            format!("granted:{number}:"),
            format!("granted:{number}:{wrong}"),
            format!("granted:{other_number}:{nonce}"),
            format!("granted:{number}:{nonce}:"),
        ];
        forged.extend((1..100).map(|number| format!("granted:{number}:0000000000000000")));
        for message in &forged {
            let heard: usize = run(&SERVER, &format!("PUBLISH {channel} {message}")).await;
            assert_eq!(heard, 1, "expected one subscriber of the channel");
        }
        let granted = timeout(Duration::from_millis(500), &mut waiting).await;
        assert!(granted.is_err(), "expected no grant by a forged message");
        assert_eq!(waits.metrics().hand_offs_remote, 0);
        held.ensure_held().await.unwrap();
        held.unlock().await.unwrap();
        let guard = timeout(SOON, waiting).await.expect("the waiter has its turn").unwrap();
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
}
