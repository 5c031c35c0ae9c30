//! This crate's side of the pipe: what `Player.java` does with Redisson, with ours.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use latchwork::redis::Redis;
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions, Owner};
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// For how many ms a reader of a fleet looks, at most.
const LOOK: u64 = 10;

/// How this side may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Twin {
    /// Its locks do not say their kind.
    NoMode,
    /// Its readers have no leases of their own.
    NoReadLease,
    /// It counts without the lock.
    CountsUnlocked,
    /// It reads without the lock.
    ReadsUnlocked,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Orders {
    #[arg(long)]
    twin: Option<Twin>,
    locks: String,
    data: String,
    watchdog_millis: u64,
}

pub(crate) fn run(orders: &Orders) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("cannot start a runtime").block_on(play(orders));
}

async fn play(orders: &Orders) {
    let redis = Redis::connect(&orders.locks).await.expect("the server is up");
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(orders.watchdog_millis));
    let client = LockClient::with_options(redis, &options).expect("it can be a lease");
    let stopping = Arc::new(AtomicBool::new(false));
    println!("ready {} {}", env!("CARGO_PKG_VERSION"), client.id());
    let (said, mut lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                return;
            }
        }
        // The process that speaks to us is gone.
        std::process::exit(0);
    });
    let mut threads: HashMap<String, UnboundedSender<String>> = HashMap::new();
    while let Some(line) = lines.recv().await {
        let (name, said) = line.split_once(' ').expect("a thread, and what it is to do");
        if said == "stop" {
            // Ordering: Relaxed; nothing else is told by it.
            stopping.store(true, Ordering::Relaxed);
            println!("{name} stopping");
            continue;
        }
        let thread = threads.entry(name.to_owned()).or_insert_with(|| {
            let (to, from) = unbounded_channel();
            let owner = client.owner();
            let (client, data, stopping) = (client.clone(), orders.data.clone(), Arc::clone(&stopping));
            let thread = Thread { client, owner, guards: HashMap::new(), data, stopping, twin: orders.twin };
            tokio::spawn(thread.obey(name.to_owned(), from));
            to
        });
        thread.send(said.to_owned()).expect("its task lives as long as we do");
    }
}

/// One owner, that does one thing after another.
struct Thread {
    client: LockClient,
    owner: Owner,
    /// By kind and name.
    guards: HashMap<(String, String), Vec<Guard>>,
    data: String,
    stopping: Arc<AtomicBool>,
    twin: Option<Twin>,
}

impl Thread {
    async fn obey(mut self, name: String, mut lines: UnboundedReceiver<String>) {
        while let Some(line) = lines.recv().await {
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match self.act(&words).await {
                Ok(answer) => answer,
                Err(error) if error.is_other_kind() => "other-kind".to_owned(),
                Err(error) if error.is_not_held() => "not-held".to_owned(),
                Err(error) if error.is_upgrade() => "upgrade".to_owned(),
                Err(error) => format!("error {error}"),
            };
            println!("{name} {answer}");
        }
    }

    async fn act(&mut self, words: &[&str]) -> Result<String, LockError> {
        let &[verb, kind, name, ref rest @ ..] = words else { return Ok("error no such line".to_owned()) };
        let lock = match kind {
            "plain" => self.client.get_lock(name),
            "fenced" => self.client.get_lock(name).map(|lock| lock.fenced()),
            "fair" => self.client.get_fair_lock(name),
            "read" => self.client.get_read_write_lock(name).map(|lock| lock.read().clone()),
            "write" => self.client.get_read_write_lock(name).map(|lock| lock.write().clone()),
            _ => return Ok(format!("error no such kind: {kind}")),
        };
        let lock = lock.expect("it is a name").owned_by(&self.owner);
        let number = |at: usize| rest[at].parse::<i64>().expect("it is a number");
        Ok(match verb {
            "lock" => {
                let guard = match lease(number(0)) {
                    Lease::For(lease) => lock.lock_with_lease(lease).await?,
                    _ => lock.lock().await?,
                };
                self.got(kind, guard).await
            }
            "try" => {
                let wait = Duration::from_millis(number(0) as u64);
                match lock.try_lock_for(wait, lease(number(1))).await? {
                    Some(guard) => self.got(kind, guard).await,
                    None => "held".to_owned(),
                }
            }
            "unlock" => {
                match self.guards.get_mut(&(kind.to_owned(), name.to_owned())).and_then(Vec::pop) {
                    Some(guard) => guard.unlock().await?,
                    None => lock.unlock(&self.owner).await?,
                }
                "done".to_owned()
            }
            "force" => if lock.force_unlock().await? { "freed" } else { "free" }.to_owned(),
            "locked" => lock.is_locked().await?.to_string(),
            "holds" => lock.hold_count(&self.owner).await?.to_string(),
            "left" => lock.remaining().await?.map_or(-2, |left| left.as_millis() as i64).to_string(),
            "count" => self.turns(&lock, kind, [rest[0], rest[1]], number(2) as u64).await,
            "pace" => pace(&lock, Duration::from_millis(number(0) as u64), number(1) as u64).await?,
            _ => format!("error no such verb: {verb}"),
        })
    }

    async fn got(&mut self, kind: &str, guard: Guard) -> String {
        self.break_it(kind, guard.name().as_str()).await;
        let token = guard.fencing_token().map(|token| format!(" {token}")).unwrap_or_default();
        let name = guard.name().as_str().to_owned();
        self.guards.entry((kind.to_owned(), name)).or_default().push(guard);
        format!("got{token}")
    }

    async fn break_it(&self, kind: &str, name: &str) {
        let mut data = self.connect().await;
        if self.twin == Some(Twin::NoMode) {
            let hdel = redis::cmd("HDEL").arg(name).arg("mode").to_owned();
            let _: usize = hdel.query_async(&mut data).await.expect("its link is not cut");
        } else if self.twin == Some(Twin::NoReadLease) && kind == "read" {
            let leases = redis::cmd("KEYS").arg(format!("{{{name}}}:{}:*", self.client.id())).to_owned();
            let leases: Vec<String> = leases.query_async(&mut data).await.expect("its link is not cut");
            for lease in leases {
                let _: usize =
                    redis::cmd("DEL").arg(lease).query_async(&mut data).await.expect("its link is not cut");
            }
        }
    }

    /// Turns under the lock until it is to stop.
    async fn turns(&self, lock: &Lock, kind: &str, keys: [&str; 2], think: u64) -> String {
        let mut data = self.connect().await;
        let unlocked = if kind == "read" { Twin::ReadsUnlocked } else { Twin::CountsUnlocked };
        let (mut torn, mut lost) = (0, 0);
        // Ordering: Relaxed; nothing else is told by it.
        while !self.stopping.load(Ordering::Relaxed) {
            pause(think).await;
            let guard = match self.twin == Some(unlocked) {
                true => None,
                false => match lock.lock().await {
                    Ok(guard) => Some(guard),
                    // Its link was cut.
                    Err(_) => continue,
                },
            };
            let turn =
                if kind == "read" { look(&mut data, keys).await } else { count(&mut data, keys).await };
            torn += u64::from(!turn.expect("its link is not cut"));
            if let Some(guard) = guard {
                lost += u64::from(guard.unlock().await.is_err_and(|error| error.is_not_held()));
            }
        }
        format!("counted {torn} {lost}")
    }

    /// Past the network that may be bad.
    async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(&*self.data).expect("it is a URL");
        client.get_multiplexed_async_connection().await.expect("its link is not cut")
    }
}

fn lease(millis: i64) -> Lease {
    u64::try_from(millis).map_or(Lease::Watched, |millis| Lease::For(Duration::from_millis(millis)))
}

/// Adds to a number, and to its own in the same command.
async fn count(data: &mut MultiplexedConnection, [number, own]: [&str; 2]) -> RedisResult<bool> {
    let mget = redis::cmd("MGET").arg(number).arg(own).to_owned();
    let (all, mine): (Option<u64>, Option<u64>) = mget.query_async(data).await?;
    let mut mset = redis::cmd("MSET");
    mset.arg(number).arg(all.unwrap_or(0) + 1).arg(own).arg(mine.unwrap_or(0) + 1);
    mset.exec_async(data).await?;
    Ok(true)
}

/// Adds to its own number, and reads the other before and after a while: whether it has stood still.
async fn look(data: &mut MultiplexedConnection, [number, own]: [&str; 2]) -> RedisResult<bool> {
    let get = redis::cmd("GET").arg(number).to_owned();
    let before: Option<u64> = get.query_async(data).await?;
    pause(LOOK).await;
    redis::cmd("INCR").arg(own).exec_async(data).await?;
    let after: Option<u64> = get.query_async(data).await?;
    Ok(before == after)
}

/// For up to so many ms.
async fn pause(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=millis))).await;
    }
}

/// As many turns, of up to so many ms, as there is time for: how many nanoseconds were waited how often.
async fn pace(lock: &Lock, time: Duration, turn: u64) -> Result<String, LockError> {
    let mut waits: HashMap<u64, u32> = HashMap::new();
    let end = Instant::now() + time;
    loop {
        let begun = Instant::now();
        if begun >= end {
            break;
        }
        let guard = lock.lock().await?;
        *waits.entry(rounded(begun.elapsed().as_nanos() as u64)).or_default() += 1;
        pause(turn).await;
        guard.unlock().await?;
    }
    let waits = waits.iter().map(|(wait, times)| format!(" {wait}x{times}"));
    Ok(format!("waited{}", waits.collect::<String>()))
}

/// To seven binary digits, so that there are few different ones.
fn rounded(nanos: u64) -> u64 {
    let digits = 57_u32.saturating_sub(nanos.max(1).leading_zeros());
    nanos >> digits << digits
}
