//! A lock client of your own, over `LockEntry`: for a store, or a way of waiting, that the crate's client
//! does not fit.
//!
//! ```sh
//! cargo run -p own_lock_client
//! ```
//!
//! The store here is one lease that clients share, as if each were a process; function calls carry its
//! messages. The queue head of each client asks the store, all other tasks wait in memory. A task of each
//! client renews the lease, and supersedes waiters that are not polled. Any executor works. Start from
//! `client.rs`.

mod client;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::Client;
use crate::store::Store;

const CLIENTS: u64 = 3;
const TASKS: u64 = 4;
const TURNS: u64 = 200;

#[tokio::main]
async fn main() {
    let store = Arc::new(Store::default());
    let number = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for id in 0..CLIENTS {
        let client = Arc::new(Client::new(id, Arc::clone(&store)));
        clients.push(Arc::clone(&client));
        store.subscribe(move || client.entry.latch().release(1));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        let keeper = Arc::clone(&client);
        tokio::spawn(async move { keeper.keep().await });
        for task in 0..TASKS {
            let (client, number) = (Arc::clone(&client), Arc::clone(&number));
            tasks.spawn(async move {
                for turn in 0..TURNS {
                    // A new owner for each turn: no owner re-enters.
                    let grant = client.lock(task * TURNS + turn).await;
                    // Ordering: Relaxed, because only the lock may keep the number right.
                    let read = number.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    // Ordering: Relaxed, as above.
                    number.store(read + 1, Ordering::Relaxed);
                    client.unlock(grant);
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // Ordering: Relaxed, the tasks have ended.
    let counted = number.load(Ordering::Relaxed);
    println!("{CLIENTS} clients of {TASKS} tasks added 1 {TURNS} times each: {counted}");
    assert_eq!(counted, CLIENTS * TASKS * TURNS, "two were inside at once");
}
