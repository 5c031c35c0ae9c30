//! A process of this crate: does with our locks what `Player.java` does with Redisson's.
//!
//! # Orders
//!
//! In the protocol of [`fleet`]; a thread is one owner.
//!
//! | order | effect | answer |
//! |---|---|---|
//! | `lock KIND NAME LEASE` | acquires the lock; the lease is in ms, −1: watched | `got`, `got TOKEN` |
//! | `try KIND NAME WAIT LEASE` | acquires the lock with a time limit in ms | `got`, `got TOKEN`, `held` |
//! | `unlock KIND NAME` | releases the lock | `done`, `not-held` |
//! | `force KIND NAME` | frees the lock, whichever owner has it | `freed`, `free` |
//! | `locked KIND NAME` | true if any owner has the lock | `true`, `false` |
//! | `holds KIND NAME` | this thread's hold count | a number |
//! | `left KIND NAME` | the remaining lease | ms, −2: the lock is free |
//! | `pace KIND NAME MS TURN` | acquires the lock for up to TURN ms, again and again, for MS in all | `waited`; Redisson: `waited NSxTIMES …` |
//! | `play JOURNAL SEED PLACE BESIDE` | runs the tasks of the [`stage`](crate::stage), until `stop` | `quiet` |
//! | `stop` | ends the tasks | |
//!
//! Further answers are `other-kind` and `upgrade`, for the typed errors, and `error …`. Kinds: `plain`,
//! `fenced`, `fair`, `read`, `write`; Redisson's `spin`; `multi`, two plain locks at once (`lock`, `try`,
//! `unlock`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use defects::twin::{OfThread, Twin, Twinned};
use fleet::{READY, answer, orders};
use latchwork::redis::Redis;
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions, MultiGuard, Owner};
use latchwork_conformance::Intercept;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::tasks;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Orders {
    #[arg(long)]
    twin: Option<Twin>,
    url: String,
    watchdog_millis: u64,
}

pub(crate) fn run(options: &Orders) {
    let lines = orders();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("cannot start a runtime").block_on(obey(options, lines));
}

async fn obey(options: &Orders, mut lines: UnboundedReceiver<(String, String)>) {
    let client = connect(options).await;
    let (stop, stops) = watch::channel(false);
    answer(READY, format_args!("{} {}", env!("CARGO_PKG_VERSION"), client.id()));
    let mut threads: HashMap<String, UnboundedSender<String>> = HashMap::new();
    while let Some((name, said)) = lines.recv().await {
        if said == "stop" {
            stop.send_replace(true);
            continue;
        }
        let thread = threads.entry(name).or_insert_with_key(|name| {
            let (to, from) = unbounded_channel();
            let (client, owner, stops) = (client.clone(), client.owner(), stops.clone());
            tokio::spawn(
                Thread { client, owner, guards: HashMap::new(), pairs: HashMap::new(), stops }
                    .obey(name.clone(), from),
            );
            to
        });
        thread.send(said).expect("its task lives as long as we do");
    }
}

/// Retries until connected: another fault may last while a killed member is replaced.
async fn connect(options: &Orders) -> LockClient {
    let watchdog = Duration::from_millis(options.watchdog_millis);
    // In proportion to the lease: with the stage's, 1 s for a reply and 150 ms without a poll.
    let response = (watchdog / 10).max(Duration::from_secs(1));
    let unpolled = (watchdog / 16).min(Duration::from_secs(1));
    let redis = loop {
        match Redis::builder().response_timeout(response).connect(&options.url).await {
            Ok(redis) => break redis,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    };
    let lock_options = LockOptions::default().watchdog_timeout(watchdog).unpolled_limit(unpolled);
    let lock_options = Twin::options(options.twin, lock_options);
    let backend = Intercept::new(redis, Twinned::new(options.twin, OfThread));
    LockClient::with_options(backend, &lock_options).expect("it can be a lease")
}

/// An owner, whose operations run one after another.
struct Thread {
    client: LockClient,
    owner: Owner,
    /// By kind and name.
    guards: HashMap<(String, String), Vec<Guard>>,
    /// Guards of two plain locks, by name.
    pairs: HashMap<String, MultiGuard>,
    stops: watch::Receiver<bool>,
}

impl Thread {
    async fn obey(mut self, name: String, mut lines: UnboundedReceiver<String>) {
        while let Some(line) = lines.recv().await {
            let words: Vec<&str> = line.split(' ').collect();
            let said = match words[..] {
                ["play", journal, seed, place, beside] => {
                    let numbers = (seed.parse().expect("a seed"), place.parse().expect("a place"));
                    let client = self.client.clone();
                    tasks::play(client, journal.as_ref(), numbers, beside == "beside", &self.stops).await;
                    "quiet".to_owned()
                }
                _ => self.act(&words).await.unwrap_or_else(|error| match error {
                    error if error.is_other_kind() => "other-kind".to_owned(),
                    error if error.is_not_held() => "not-held".to_owned(),
                    error if error.is_upgrade() => "upgrade".to_owned(),
                    error => format!("error {error}"),
                }),
            };
            answer(&name, said);
        }
    }

    async fn act(&mut self, words: &[&str]) -> Result<String, LockError> {
        let &[verb, kind, name, ref rest @ ..] = words else { return Ok("error no such line".to_owned()) };
        if kind == "multi" {
            return self.act_on_two(verb, name, rest).await;
        }
        let lock = match kind {
            "plain" => self.client.get_lock(name),
            "fenced" => self.client.get_lock(name).map(|lock| lock.fenced()),
            "fair" => self.client.get_fair_lock(name),
            "read" => self.client.get_read_write_lock(name).map(|lock| lock.read().clone()),
            "write" => self.client.get_read_write_lock(name).map(|lock| lock.write().clone()),
            _ => return Ok(format!("error no such kind: {kind}")),
        };
        let lock = lock.expect("the name is valid").owned_by(&self.owner);
        let number = |at: usize| rest[at].parse::<i64>().expect("the text is a number");
        let millis = |at: usize| Duration::from_millis(number(at) as u64);
        Ok(match verb {
            "lock" => {
                let guard = match lease(number(0)) {
                    Lease::For(lease) => lock.lock_with_lease(lease).await?,
                    _ => lock.lock().await?,
                };
                self.got(kind, guard)
            }
            "try" => match lock.try_lock_for(millis(0), lease(number(1))).await? {
                Some(guard) => self.got(kind, guard),
                None => "held".to_owned(),
            },
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
            "pace" => {
                let begun = Instant::now();
                while begun.elapsed() < millis(0) {
                    let guard = lock.lock().await?;
                    sleep(millis(1).mul_f64(fastrand::f64())).await;
                    guard.unlock().await?;
                }
                "waited".to_owned()
            }
            _ => format!("error no such verb: {verb}"),
        })
    }

    async fn act_on_two(&mut self, verb: &str, name: &str, rest: &[&str]) -> Result<String, LockError> {
        let of_owner = |lock: Lock| lock.owned_by(&self.owner);
        let [one, two] = ["a", "b"].map(|it| self.client.get_lock(&format!("{name}:{it}")).map(of_owner));
        let both = self.client.get_multi_lock([&one?, &two?])?;
        let guard = match verb {
            "lock" => Some(both.lock().await?),
            "try" => {
                let wait = Duration::from_millis(rest[0].parse().expect("the text is a number"));
                both.try_lock_for(wait, Lease::Watched).await?
            }
            _ => {
                return match self.pairs.remove(name) {
                    Some(guard) => guard.unlock().await.map(|()| "done".to_owned()),
                    None => Ok("not-held".to_owned()),
                };
            }
        };
        Ok(match guard {
            Some(guard) => {
                self.pairs.insert(name.to_owned(), guard);
                "got"
            }
            None => "held",
        }
        .to_owned())
    }

    fn got(&mut self, kind: &str, guard: Guard) -> String {
        let token = guard.fencing_token().map(|token| format!(" {token}")).unwrap_or_default();
        let name = guard.name().as_str().to_owned();
        self.guards.entry((kind.to_owned(), name)).or_default().push(guard);
        format!("got{token}")
    }
}

fn lease(millis: i64) -> Lease {
    u64::try_from(millis).map_or(Lease::Watched, |millis| Lease::For(Duration::from_millis(millis)))
}
