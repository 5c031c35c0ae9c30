//! Memory of subscriptions. One test to a process, as the allocator counts all threads.
//! `LATCHWORK_SOAK_SECONDS` sets the length of the final soak, two seconds by default.

mod heap;
mod script;

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latchwork::latch::Latch;
use latchwork::subscription::{Inbox, Message, Registry, SubscribeError, Subscription, Transport};

use heap::{allocations, in_use};
use script::{Script, poll};

/// A transport without state, so that only the registry's memory counts.
#[derive(Clone, Copy)]
struct Forgetful;

impl Transport for Forgetful {
    fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
        inbox.ready();
    }

    fn unsubscribe(&self, _channel: &Arc<str>) {}
}

fn main() {
    joining_and_leaving_allocates_nothing();
    an_entry_costs_less_than_256_bytes();
    readiness_keeps_nothing_of_its_waiters();
    removed_listeners_leave_nothing();
    soak();
}

fn joining_and_leaving_allocates_nothing() {
    let registry = Registry::new(Forgetful);
    let _first = registry.subscribe("orders:42");
    let before = allocations();
    for _ in 0..1000 {
        let subscription = registry.subscribe("orders:42");
        drop(subscription.clone());
        assert!(matches!(poll(pin!(subscription.subscribed())), std::task::Poll::Ready(Ok(()))));
    }
    assert_eq!(allocations(), before);
}

const ENTRIES: usize = 100_000;

fn names() -> Vec<String> {
    (0..ENTRIES).map(|number| format!("orders:{number}")).collect()
}

/// Returns the heap bytes per entry allocated since `before`, without the names' text.
fn each_beside(names: &[String], before: isize) -> f64 {
    let text: usize = names.iter().map(String::len).sum();
    (in_use() - before - text as isize) as f64 / names.len() as f64
}

fn an_entry_costs_less_than_256_bytes() {
    let names = names();
    let start = in_use();
    {
        let mut subscriptions: Vec<Subscription<Forgetful>> = Vec::with_capacity(ENTRIES);
        let registry = Registry::new(Forgetful);
        let empty = in_use();
        subscriptions.extend(names.iter().map(|name| registry.subscribe(name)));
        let each = each_beside(&names, empty);
        println!("bytes of heap per entry, beside the name: {each:.1}");
        assert!(each <= 256.0, "{each} bytes");

        let mut asleep: Vec<_> = Vec::with_capacity(ENTRIES);
        let before = in_use();
        for subscription in &subscriptions {
            let mut wait = Box::pin(subscription.wait());
            assert!(poll(wait.as_mut()).is_pending());
            asleep.push(wait);
        }
        let each = (in_use() - before) as f64 / ENTRIES as f64;
        println!("bytes of heap for the first sleeper of an entry, with its future: {each:.1}");
        drop(asleep);
        subscriptions.clear();
        assert!(
            in_use() - empty < 64 * 1024,
            "expected the map's memory back, and {} bytes are kept",
            in_use() - empty
        );
    }
    assert!(in_use() - start < 64 * 1024, "expected fewer than 64 KiB kept, and found {}", in_use() - start);
}

fn readiness_keeps_nothing_of_its_waiters() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("orders:42");
    let inbox = script.inbox();
    let before = in_use();
    {
        let mut waits: Vec<_> = (0..100).map(|_| Box::pin(subscription.subscribed())).collect();
        assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
        inbox.ready();
        assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_ready()));
    }
    assert_eq!(in_use(), before);
}

/// Redisson (#6328): cancelled listeners stayed in the queue, 2.5 GB in one case.
fn removed_listeners_leave_nothing() {
    let registry = Registry::new(Forgetful);
    let subscription = registry.subscribe("orders:42");
    let _patient = subscription.listen(|| {});
    let before = in_use();
    let mut most = 0;
    for _ in 0..1_000_000 {
        drop(subscription.listen(|| {}));
        most = most.max(in_use() - before);
    }
    println!("most bytes kept over a million removed listeners: {most}");
    assert!(most < 64 * 1024, "{most} bytes");
}

/// Redisson (#1326, #3577, #6328, PR #5038): memory grew for weeks. Here 200 tasks wait for 10 000 names and
/// give up at any poll, while confirmations come late, fail and repeat; in the end no memory may remain.
fn soak() {
    const TASKS: usize = 200;
    const NAMES: u64 = 10_000;
    let seconds = std::env::var("LATCHWORK_SOAK_SECONDS").map_or(2, |seconds| seconds.parse().unwrap());

    collect_what_was_retired();
    let before = in_use();
    let (registry, rounds) = {
        let (script, registry) = Script::registry();
        let end = Instant::now() + Duration::from_secs(seconds);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
        let server = runtime.spawn(play_the_server(script.clone(), end));
        let clients: Vec<_> = (0..TASKS)
            .map(|_| {
                let registry = registry.clone();
                runtime.spawn(async move {
                    let mut dice = Dice::new();
                    let mut rounds = 0_u64;
                    while Instant::now() < end {
                        come_and_go(&registry, &mut dice, NAMES).await;
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let rounds = runtime.block_on(async {
            let mut rounds = 0;
            for client in clients {
                rounds += client.await.unwrap();
            }
            server.await.unwrap();
            rounds
        });
        drop(runtime);
        drop(script.take());
        (registry, rounds)
    };
    let stats = registry.stats();
    println!("soak: {rounds} waits; {stats:?}");
    assert!(
        rounds > 1000 && stats.wakes_useful > 0 && stats.subscriptions_failed > 0,
        "expected more than 1000 rounds with wake-ups and failed subscriptions"
    );
    assert!(registry.is_empty());
    assert_eq!((stats.entries, stats.interest), (0, 0));
    assert_eq!(stats.subscriptions_begun, stats.subscriptions_ended + stats.subscriptions_failed);
    drop(registry);
    collect_what_was_retired();
    let left = in_use() - before;
    println!("bytes left after the soak: {left}");
    assert!(left < 64 * 1024, "expected fewer than 64 KiB kept, and found {left}");
}

/// Frees the memory of departed waiters by passing others through.
fn collect_what_was_retired() {
    let latch = Latch::new();
    for _ in 0..10_000 {
        assert!(poll(pin!(latch.wait())).is_pending());
    }
}

/// Subscribes, waits for readiness and a notification, and gives up at a random poll.
async fn come_and_go<T: Transport>(registry: &Registry<T>, dice: &mut Dice, names: u64) {
    let name = dice.roll(names).to_string();
    let polls = dice.roll(6);
    let (answer, cloned, listens) = (dice.roll(3), dice.roll(4) == 0, dice.roll(4) == 0);
    let whole = async {
        let subscription = registry.subscribe(&name);
        let _clone = cloned.then(|| subscription.clone());
        let _listener = listens.then(|| subscription.listen(|| {}));
        if subscription.subscribed().await.is_err() {
            return;
        }
        let call = subscription.wait().await;
        match answer {
            0 => call.consume(),
            1 => call.consume_spurious(),
            _ => drop(call),
        }
    };
    let mut whole = pin!(whole);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return std::task::Poll::Ready(());
        }
        polled += 1;
        let ready = whole.as_mut().poll(context);
        if ready.is_pending() {
            // No task may be left to wake this one.
            context.waker().wake_by_ref();
        }
        ready
    })
    .await;
}

/// Answers requests in any order, sometimes with failures.
async fn play_the_server(script: Script, end: Instant) {
    let mut dice = Dice::new();
    let mut inboxes: Vec<Inbox> = Vec::new();
    while Instant::now() < end {
        for step in script.take() {
            if let script::Step::Subscribe(_, inbox) = step {
                inboxes.push(inbox);
            }
        }
        // Keep a few requests, to answer late.
        while inboxes.len() > 50 {
            let inbox = inboxes.swap_remove(dice.roll(inboxes.len() as u64) as usize);
            match dice.roll(8) {
                0 => inbox.failed(SubscribeError::new("no connection")),
                1 => inbox.resubscribed(),
                _ => inbox.ready(),
            }
            match dice.roll(4) {
                0 => inbox.deliver(Message::ReadUnlock),
                1 => inbox.failed(SubscribeError::new("permission withdrawn")),
                _ => inbox.deliver(Message::Unlock),
            }
        }
        tokio::task::yield_now().await;
    }
}

struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
