//! Sets of names, and tasks that take the same names in different orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use latchwork::{Lock, LockClient, MultiLock};

/// `name`, `fair:name`, `read:name` or `write:name`.
pub(crate) fn lock(client: &LockClient, name: &str) -> Lock {
    match name.split_once(':') {
        None => client.get_lock(name).unwrap(),
        Some(("fair", name)) => client.get_fair_lock(name).unwrap(),
        Some(("read", name)) => client.get_read_write_lock(name).unwrap().read().clone(),
        Some((_, name)) => client.get_read_write_lock(name).unwrap().write().clone(),
    }
}

pub(crate) fn set(client: &LockClient, names: &str) -> MultiLock {
    let locks: Vec<Lock> = names.split(' ').map(|name| lock(client, name)).collect();
    client.get_multi_lock(&locks).unwrap()
}

/// Each with its letter last, which numbers its witnesses.
const NAMES: [&str; 6] = ["a", "fair:b", "read:c", "write:c", "d", "e"];

/// Counts of readers and writers inside of each name.
type Witnesses = [[AtomicUsize; 2]; 5];

fn witnesses<'a>(all: &'a Witnesses, name: &str) -> (bool, &'a [AtomicUsize; 2]) {
    (name.starts_with("read:"), &all[usize::from(name.as_bytes()[name.len() - 1] - b'a')])
}

/// Enters the name. False beside a holder that excludes this one.
fn enter(all: &Witnesses, name: &str) -> bool {
    // Ordering: SeqCst for simplicity; a test needs no less.
    match witnesses(all, name) {
        (true, [readers, writers]) => (readers.fetch_add(1, SeqCst), writers.load(SeqCst)).1 == 0,
        (false, [readers, writers]) => writers.fetch_add(1, SeqCst) == 0 && readers.load(SeqCst) == 0,
    }
}

fn leave(all: &Witnesses, name: &str) {
    let (reads, counts) = witnesses(all, name);
    // Ordering: SeqCst, as above.
    counts[usize::from(!reads)].fetch_sub(1, SeqCst);
}

/// Eight tasks of each client take three of five names of all kinds, each in an order of its own, and single
/// names in between.
pub(crate) async fn tasks(clients: &[LockClient; 2], rounds: usize) {
    let all = Arc::new(Witnesses::default());
    let tasks = (0..16).map(|seed| {
        let (client, all) = (clients[seed % 2].clone(), Arc::clone(&all));
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed as u64);
            for _ in 0..rounds {
                let mut names = NAMES.to_vec();
                random.shuffle(&mut names);
                // The set may not have `c` to read and to write.
                let twice = names.iter().position(|name| *name == ["read:c", "write:c"][seed / 2 % 2]);
                names.remove(twice.unwrap());
                names.truncate(if random.u8(..4) == 0 { 1 } else { 3 });
                let guards = match names[..] {
                    [name] => vec![lock(&client, name).lock().await.unwrap()],
                    _ => set(&client, &names.join(" ")).lock().await.unwrap().into_guards(),
                };
                assert!(names.iter().all(|name| enter(&all, name)), "expected exclusion: {names:?}");
                tokio::task::yield_now().await;
                names.iter().for_each(|name| leave(&all, name));
                for guard in guards {
                    guard.unlock().await.unwrap();
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}
