//! The whole adapter over simulated links: locks behave well without faults, and continue despite many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use latchwork::{Lease, Lock, LockClient, LossReason};

use crate::world::{Clock, Executor, MS, SECOND, Step};

use super::*;

const PROCESSES: usize = 3;
const TASKS: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    hash: u64,
    grants: u64,
    /// Grants to a task while another task held the lock, readers aside.
    overlaps: u64,
    losses: u64,
    commands: u64,
    polls: u64,
    lasted: Nanos,
    left: Vec<String>,
    history: Vec<String>,
}

struct Stage {
    tasks: AtomicU64,
    grants: AtomicU64,
    overlaps: AtomicU64,
    losses: AtomicU64,
    /// Number of holds, by name and kind.
    held: Mutex<[u64; 2 * 3]>,
}

/// The network of a run, and its other faults.
#[derive(Clone, Default)]
struct Weather {
    network: Network,
    harm: Vec<(Nanos, Harm)>,
    kills: bool,
    /// Factor on all durations.
    slower: u64,
}

impl Weather {
    fn calm() -> Self {
        Self { network: Network { latency: MS, ..Network::default() }, slower: 1, ..Self::default() }
    }

    fn bad(faults_end: Nanos) -> Self {
        let network = Network {
            faults_end,
            latency: 5 * MS,
            late: 50,
            late_by: 20 * SECOND,
            requests_lost: 5,
            replies_lost: 5,
            refused: 10,
            messages_cut: 20,
            ..Network::default()
        };
        Self { network, slower: 1, ..Self::default() }
    }
}

fn lock(client: &LockClient, kind: usize, name: usize) -> Lock {
    let name = format!("{}:{name}", ["plain", "fair", "rw"][kind.min(2)]);
    match kind {
        0 => client.get_lock(&name).unwrap(),
        1 => client.get_fair_lock(&name).unwrap(),
        2 => client.get_read_write_lock(&name).unwrap().write().clone(),
        _ => client.get_read_write_lock(&name).unwrap().read().clone(),
    }
}

async fn task(
    client: LockClient,
    process: Process,
    stage: Arc<Stage>,
    mut draw: fastrand::Rng,
    times: usize,
    slower: u64,
) {
    for _ in 0..times {
        let (kind, name) = (draw.usize(..4), draw.usize(..2));
        let lock = lock(&client, kind, name);
        let wait = Duration::from_millis(draw.u64(..8000));
        let guard = match draw.u8(..4) {
            0 => lock.lock().await.ok(),
            1 => lock.lock_with_lease(Duration::from_millis(draw.u64(500..20_000))).await.ok(),
            2 => lock.try_lock_for(wait, Lease::Watched).await.ok().flatten(),
            _ => lock.try_lock().await.ok().flatten(),
        };
        let Some(guard) = guard else { continue };
        stage.grants.fetch_add(1, Ordering::Relaxed);
        let reads = kind == 3;
        let at = 3 * name + kind.min(2);
        if !reads && guard.is_held() {
            let mut held = stage.held.lock().unwrap();
            held[at] += 1;
            stage.overlaps.fetch_add(u64::from(held[at] > 1), Ordering::Relaxed);
        }
        let is_held = guard.is_held();
        let lost = guard.lost_timeout(Duration::from_millis(draw.u64(..3000 * slower))).await;
        if lost.is_some_and(|lost| !matches!(lost, LossReason::Expired)) {
            stage.losses.fetch_add(1, Ordering::Relaxed);
        }
        if !reads && is_held {
            stage.held.lock().unwrap()[at] -= 1;
        }
        if draw.bool() {
            drop(guard);
        } else {
            let _ = guard.unlock().await;
        }
        process.sleep_until(process.now() + Duration::from_millis(draw.u64(..2000 * slower))).await;
    }
    stage.tasks.fetch_sub(1, Ordering::Relaxed);
}

fn play(seed: u64, weather: &Weather, times: usize, keeps_history: bool) -> Outcome {
    let world = World::new(seed, keeps_history);
    let store = Arc::new(SimulatedRedis::new(&world, &weather.network));
    let mut executor = Executor::new(&world);
    let stage = Arc::new(Stage {
        tasks: 0.into(),
        grants: 0.into(),
        overlaps: 0.into(),
        losses: 0.into(),
        held: Mutex::default(),
    });
    let clients = Arc::new(Mutex::new(Vec::new()));
    let mut processes = Vec::new();
    for index in 0..PROCESSES {
        let process = world.process(Clock::default());
        processes.push(process.clone());
        let counts = if weather.kills && index == 0 { 0 } else { TASKS as u64 };
        stage.tasks.fetch_add(counts, Ordering::Relaxed);
        let (stage, store, clients) = (Arc::clone(&stage), Arc::clone(&store), Arc::clone(&clients));
        let mut draw = world.chance(fastrand::Rng::fork);
        let slower = weather.slower;
        let within = process.clone();
        process.spawn(async move {
            let client = LockClient::new(store.connect(&within).await);
            for _ in 0..TASKS {
                let task =
                    task(client.clone(), within.clone(), Arc::clone(&stage), draw.fork(), times, slower);
                within.spawn(task);
            }
            clients.lock().unwrap().push((index, client));
        });
    }
    let mut harm = weather.harm.clone();
    harm.sort_by_key(|(at, _)| *at);
    for (at, harm) in harm {
        let (world, store) = (world.clone(), Arc::clone(&store));
        let sleep = world.sleep_until(at);
        world.spawn(async move {
            sleep.await;
            store.harm(&harm);
        });
    }
    if weather.kills {
        let (sleep, process) = (world.sleep_until(7 * SECOND), processes[0].clone());
        let store = Arc::clone(&store);
        world.spawn(async move {
            sleep.await;
            process.kill();
            store.died(&process);
        });
    }
    const LIMIT: Nanos = 3600 * SECOND;
    while stage.tasks.load(Ordering::Relaxed) > 0 && executor.step(LIMIT) != Step::Idle {}
    let lasted = world.now();
    executor.bury();
    let clients = std::mem::take(&mut *clients.lock().unwrap());
    // Dead processes shut nothing down.
    let (dead, alive): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|(index, _)| weather.kills && *index == 0);
    for (_, client) in alive {
        world.spawn(async move {
            let _ = client.shutdown(Duration::from_secs(30)).await;
        });
    }
    let end = world.now() + 400 * SECOND;
    while executor.step(end) != Step::Idle {}
    let outcome = Outcome {
        hash: world.hash(),
        grants: stage.grants.load(Ordering::Relaxed),
        overlaps: stage.overlaps.load(Ordering::Relaxed),
        losses: stage.losses.load(Ordering::Relaxed),
        commands: store.commands(),
        polls: world.polls(),
        lasted,
        left: store.left_over(),
        history: world.history(),
    };
    drop((executor, dead));
    outcome
}

#[test]
fn calm_network_and_locks_of_all_kinds() {
    for seed in 0..20 {
        let outcome = play(seed, &Weather::calm(), 20, false);
        assert!(outcome.lasted < 3600 * SECOND, "{seed}: {outcome:?}");
        assert_eq!((outcome.overlaps, outcome.losses), (0, 0), "{seed}: {outcome:?}");
        assert!(outcome.left.is_empty(), "{seed}: {outcome:?}");
    }
}

#[test]
fn bad_network_ends_and_leaves_nothing() {
    for seed in 0..40 {
        let mut weather = Weather::bad(60 * SECOND);
        weather.harm.push((10 * SECOND, Harm::Cut { process: 1 }));
        weather.harm.push((20 * SECOND, Harm::Silence { process: None, lasts: 4 * SECOND }));
        weather.harm.push((40 * SECOND, Harm::Silence { process: Some(2), lasts: 8 * SECOND }));
        weather.kills = seed % 2 == 0;
        let outcome = play(seed, &weather, 20, false);
        assert!(outcome.lasted < 3600 * SECOND, "{seed}: {outcome:?}");
        // Holds of dead processes still count.
        assert!(weather.kills || outcome.overlaps == 0, "{seed}: {outcome:?}");
        assert!(outcome.left.is_empty(), "{seed}: {outcome:?}");
    }
}

#[test]
fn server_that_forgets_falls_back_or_evicts_is_lived_with() {
    for seed in 0..20 {
        let mut weather = Weather::bad(60 * SECOND);
        weather.harm.push((10 * SECOND, Harm::Forget));
        weather.harm.push((20 * SECOND, Harm::FallBack(2 * SECOND)));
        for (at, name) in [(30, "plain:0"), (35, "fair:0"), (40, "rw:0"), (45, "rw:1")] {
            weather.harm.push((at * SECOND, Harm::Evict { kind: LockKind::Plain, name: name.to_owned() }));
        }
        weather.harm.push((50 * SECOND, Harm::SetClock(-2_000_000_000)));
        let outcome = play(seed, &weather, 20, false);
        assert!(outcome.lasted < 3600 * SECOND, "{seed}: {outcome:?}");
        assert!(outcome.left.is_empty(), "{seed}: {outcome:?}");
    }
}

#[test]
fn same_seed_is_the_same_history() {
    for seed in 0..20 {
        let weather = Weather::bad(30 * SECOND);
        let [one, other] = [(); 2].map(|()| play(seed, &weather, 10, true));
        if let Some(at) = (0..one.history.len()).find(|at| one.history.get(*at) != other.history.get(*at)) {
            panic!("{seed}, {at}: {:?} and {:?}", &one.history[at], other.history.get(at));
        }
        assert_eq!(one, other, "{seed}");
    }
}

/// CPU time of this thread in seconds, as other threads use the processor too.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Prints figures: `--ignored --nocapture`.
#[test]
#[ignore = "it tells how fast the simulation is"]
fn speed() {
    let leisurely = Weather { slower: 100, ..Weather::calm() };
    let runs = [
        ("calm", Weather::calm(), 200),
        ("bad", Weather::bad(600 * SECOND), 200),
        ("leisurely", leisurely, 20),
    ];
    for (what, weather, times) in runs {
        let began = processor_time();
        let outcomes: Vec<_> = (0..20).map(|seed| play(seed, &weather, times, false)).collect();
        let real = processor_time() - began;
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64 / real;
        eprintln!(
            "{what}: {:.0} virtual seconds, {:.0} grants, {:.0} commands, {:.0} polls a second; hash {:x}",
            sum(|run| run.lasted / SECOND),
            sum(|run| run.grants),
            sum(|run| run.commands),
            sum(|run| run.polls),
            outcomes.iter().fold(0, |hash, run| hash ^ run.hash),
        );
    }
}
