//! Processes that are killed or stopped: this test binary, run once more for each.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use latchwork::redis::Redis;
use latchwork::{Guard, LockClient, LossReason};
use latchwork_testkit::{RedisServer, pause, resume};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::kind::sides;
use super::stage::{
    ALONE, AT_ONCE, LEASE, LIFE, LITTLE, LONG, Side, end, listeners, lock, pairs, queued, serve, sleeps,
    taker_of, until_empty, until_queued, waiter, waiter_of, within,
};
use crate::day::{Day, NAME, eventually};
use crate::rerun;

/// The server's URL; set for other processes only.
const SERVER: &str = "LATCHWORK_TEST_FAIR_WAITER";

/// Key of the number of holders by their own view. An exclusive holder counts more than all others together.
pub(crate) const INSIDE: &str = "inside";

/// The body of the other process. Does nothing as a test of the first.
#[test]
fn other_process() {
    let Some(url) = env::var_os(SERVER) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(wait_and_hold(url.to_str().unwrap()));
}

/// The line that tells the other process to take the last side of the lock.
const OTHER_SIDE: &str = "other side";

/// The line that tells the other process to check its lock all the time until the lock is lost.
const BELIEVE: &str = "believe";

/// Takes the lock and releases it, a line for each step.
async fn wait_and_hold(url: &str) {
    let client = LockClient::new(Redis::connect(url).await.unwrap());
    let mut raw = crate::by_hand::connect(url).await;
    // The process may be stopped between a command and its reply.
    raw.set_response_timeout(LONG);
    let (send, mut lines) = unbounded_channel();
    thread::spawn(move || io::stdin().lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
    // On a new line: the harness's "test ... " has no line end yet.
    tell("\nup");
    while let Some(line) = lines.recv().await {
        let mut sides = sides(&client, NAME);
        let Side { lock, is_shared } =
            sides.swap_remove(if line == OTHER_SIDE { sides.len() - 1 } else { 0 });
        let taken = taker_of(&lock);
        eventually("sleep", async || taken.is_finished() || sleeps(&client)).await;
        tell("waits");
        let guard = taken.await.unwrap().unwrap();
        enter(&mut raw, is_shared).await;
        tell("has it");
        if lines.recv().await.unwrap() == BELIEVE {
            believe(guard).await;
            continue;
        }
        leave(&mut raw, is_shared).await;
        guard.unlock().await.unwrap();
        tell("gave it back");
    }
}

/// Tells until when a thread trusted the lock, and how the loss was noticed.
async fn believe(guard: Guard) {
    let guard = Arc::new(guard);
    let believed = thread::spawn({
        let guard = Arc::clone(&guard);
        move || {
            let mut believed = 0;
            loop {
                // Read the clock first: the thread trusted the lock until this time at least.
                let now = since_the_epoch();
                if !guard.is_held() {
                    return believed;
                }
                believed = now;
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    tell("believes");
    let lost = guard.lost().await;
    assert!(matches!(lost, LossReason::Expired | LossReason::Gone), "{lost:?}");
    tell(&believed.join().unwrap().to_string());
    let guard = Arc::into_inner(guard).expect("the thread has ended");
    assert!(!guard.is_held() && guard.unlock().await.unwrap_err().is_not_held());
    tell("lost it");
}

fn since_the_epoch() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

async fn enter(raw: &mut MultiplexedConnection, is_shared: bool) {
    let one = if is_shared { 1 } else { ALONE };
    let inside: usize = cmd("INCRBY").arg(INSIDE).arg(one).query_async(raw).await.unwrap();
    assert!(inside == ALONE || inside < ALONE && is_shared, "{inside} inside");
}

async fn leave(raw: &mut MultiplexedConnection, is_shared: bool) {
    const LEAVE: &str = "local inside = redis.call('decrby', KEYS[1], ARGV[1])
        if inside == 0 then redis.call('del', KEYS[1]) end
        return inside";
    let one = if is_shared { 1 } else { ALONE };
    let inside: usize = cmd("EVAL").arg(LEAVE).arg(1).arg(INSIDE).arg(one).query_async(raw).await.unwrap();
    assert!(inside == 0 || inside < ALONE && is_shared, "{inside} inside");
}

fn tell(what: &str) {
    println!("{what}");
    io::stdout().flush().unwrap();
}

/// Killed at the end of the test.
pub(crate) struct Process {
    child: Child,
    to: ChildStdin,
    from: UnboundedReceiver<String>,
}

impl Process {
    pub(crate) async fn start(server: &RedisServer) -> Process {
        let mut child = rerun::command(module_path!(), "other_process")
            .env(SERVER, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, from) = unbounded_channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).all(|line| send.send(line).is_ok()));
        let to = child.stdin.take().unwrap();
        let mut process = Process { child, to, from };
        process.hear(LIFE, "up").await;
        process
    }

    /// A process whose waiter has a position in the queue.
    async fn waiter(server: &RedisServer) -> Process {
        Process::waiter_of(server, false).await
    }

    async fn waiter_of(server: &RedisServer, is_shared: bool) -> Process {
        let mut process = Process::start(server).await;
        process.take(is_shared);
        process.hear(LIFE, "waits").await;
        process
    }

    pub(crate) fn take(&mut self, is_shared: bool) {
        writeln!(self.to, "{}", if is_shared { OTHER_SIDE } else { "" }).unwrap();
    }

    pub(crate) fn go_on(&mut self) {
        writeln!(self.to).unwrap();
    }

    pub(crate) async fn hear(&mut self, limit: Duration, word: &str) {
        within(limit, word, async { while self.from.recv().await.expect("the process goes on") != word {} })
            .await;
    }

    fn has_said_nothing(&mut self) -> bool {
        self.from.try_recv().is_err()
    }

    async fn holds_and_gives_back(&mut self, limit: Duration) {
        self.hear(limit, "has it").await;
        self.go_on();
        self.hear(LIFE, "gave it back").await;
    }

    pub(crate) fn pause(&self) {
        pause(&self.child).unwrap();
    }

    pub(crate) fn kill_9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_9();
    }
}

async fn waiters(server: &RedisServer, how_many: usize, is_shared: bool) -> Vec<Process> {
    let mut waiters = Vec::new();
    for _ in 0..how_many {
        waiters.push(Process::waiter_of(server, is_shared).await);
    }
    waiters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_waiters_that_are_killed_cost_the_next_nothing() {
    let how_many = 4;
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    for (dead, next) in pairs(&other, &other) {
        until_empty(&day.server).await;
        let held = lock(&holder).lock().await.unwrap();
        let mut dead = waiters(&day.server, how_many, dead.is_shared).await;
        let next = waiter_of(&other, &next.lock).await;
        until_queued(&day.server, how_many + 1).await;
        dead.iter_mut().for_each(Process::kill_9);
        // From now on the kernel has closed their connections.
        eventually("the end of their connections", async || listeners(&day.server).await == 1).await;
        held.unlock().await.unwrap();
        serve(AT_ONCE, "the turn of the one behind", next).await;
    }
    end(day, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_killed_with_the_grant_in_flight_cost_one_life() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    for Side { lock: theirs, .. } in sides(&other, NAME) {
        until_empty(&day.server).await;
        let held = lock(&holder).lock().await.unwrap();
        let mut dead = waiters(&day.server, 3, false).await;
        // The process is granted the lock and does not see the message.
        dead[0].pause();
        held.unlock().await.unwrap();
        until_queued(&day.server, 2).await;
        let next = waiter_of(&other, &theirs).await;
        dead.iter_mut().for_each(Process::kill_9);
        serve(LIFE + LITTLE, "the turn of the one behind", next).await;
    }
    end(day, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_holder_keeps_the_lock_for_its_lease_and_the_order() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await];
    let mut holder = Process::start(&day.server).await;
    holder.go_on();
    holder.hear(LIFE, "has it").await;
    let first = waiter(&clients[0]).await;
    let second = waiter(&clients[1]).await;
    let mut third = Process::waiter(&day.server).await;
    holder.kill_9();
    let () = day.run(&format!("DEL {INSIDE}")).await;
    let left = lock(&clients[0]).remaining().await.unwrap().unwrap();
    let killed = Instant::now();
    let guard = within(left + LITTLE, "the end of the lease", first).await.unwrap().unwrap();
    assert!(killed.elapsed() + LITTLE > left, "expected the killed holder's whole lease");
    assert!(!second.is_finished() && third.has_said_nothing());
    guard.unlock().await.unwrap();
    let guard = within(AT_ONCE, "the second turn", second).await.unwrap().unwrap();
    assert!(third.has_said_nothing());
    guard.unlock().await.unwrap();
    third.holds_and_gives_back(AT_ONCE).await;
    drop((holder, third));
    end(day, &[&clients[0], &clients[1]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_waiters_stalled_together_cost_the_next_one_life() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    for (side, next) in pairs(&other, &other) {
        let how_many = 3;
        let held = lock(&holder).lock().await.unwrap();
        let mut still = waiters(&day.server, how_many, side.is_shared).await;
        let next = waiter_of(&other, &next.lock).await;
        until_queued(&day.server, how_many + 1).await;
        still.iter().for_each(Process::pause);
        held.unlock().await.unwrap();
        let guard = within(LIFE + LITTLE, "the turn of the one behind", next).await.unwrap().unwrap();
        // The grants they hear now are outdated.
        still.iter().for_each(|process| resume(&process.child).unwrap());
        until_queued(&day.server, how_many).await;
        assert!(still.iter_mut().all(Process::has_said_nothing), "an outdated grant is believed");
        guard.ensure_held().await.unwrap();
        // In any order: processes that reconnect after the long silence are passed over meanwhile.
        still.iter_mut().for_each(Process::go_on);
        guard.unlock().await.unwrap();
        for process in &mut still {
            process.hear(AT_ONCE, "has it").await;
            process.hear(AT_ONCE, "gave it back").await;
        }
        assert_eq!(queued(&day.server).await, 0);
    }
    end(day, &[&holder, &other]).await;
}

/// The process waited, and was granted the lock unasked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_holder_does_not_trust_a_lost_lock() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let mut still = Process::waiter(&day.server).await;
    held.unlock().await.unwrap();
    still.hear(AT_ONCE, "has it").await;
    writeln!(still.to, "{BELIEVE}").unwrap();
    still.hear(AT_ONCE, "believes").await;
    still.pause();
    let lock = lock(&other);
    let theirs = within(LEASE + LITTLE, "the end of the lease", lock.lock()).await.unwrap();
    let taken = since_the_epoch();
    resume(&still.child).unwrap();
    let believed = within(LIFE, "notice of the loss", still.from.recv()).await.unwrap();
    let believed: u128 = believed.parse().unwrap();
    assert!(believed <= taken, "expected no belief beside another holder: {} us", believed - taken);
    still.hear(AT_ONCE, "lost it").await;
    theirs.ensure_held().await.unwrap();
    theirs.unlock().await.unwrap();
    let () = day.run(&format!("DEL {INSIDE}")).await;
    drop(still);
    end(day, &[&holder, &other]).await;
}

/// The grant arrives during the stop, and the process resumes in time: it alone holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_goes_on_in_time_has_the_lock() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let mut still = Process::waiter(&day.server).await;
    let next = waiter(&other).await;
    still.pause();
    held.unlock().await.unwrap();
    until_queued(&day.server, 1).await;
    resume(&still.child).unwrap();
    still.hear(AT_ONCE, "has it").await;
    assert!(!next.is_finished());
    still.go_on();
    serve(AT_ONCE, "the turn of the one behind", next).await;
    drop(still);
    end(day, &[&holder, &other]).await;
}
