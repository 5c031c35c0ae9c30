//! Leader election: one process leads until it ends, hangs or resigns, then another one does. Each term has a
//! number that is greater than all before it.
//!
//! ```sh
//! cargo run -p recipes --bin leader         # in some terminals; then end one by Ctrl-C or kill -9
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! cargo add redis --features tokio-comp
//! ```
//!
//! No process polls: the others wait for the lock, and hear of each new leader by a message.
//! `tests/recipes/leader.rs` kills, pauses and ends leaders. While a leader is paused, two processes may both
//! believe that they lead: to do something only once, let its target check the term, as in `fencing_sqlite`.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Lock, LockClient, LockError, LockOptions};
use redis::{AsyncConnectionConfig, PushKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The channel on which each new leader announces itself.
const NEWS: &str = "recipes:leader:news";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let me = format!("pid {}", std::process::id());
    let options = LockOptions::default()
        // A dead leader is replaced after this time, and a leader that is paused for so long is deposed.
        .watchdog_timeout(Duration::from_secs(2))
        // Followers find the leader by its label: an address, in production.
        .label(&me);
    let client = LockClient::with_options(Redis::connect(&url).await?, &options)?;
    // A token for each acquisition: the number of the term.
    let office = client.get_lock("recipes:leader")?.fenced();

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let outcome = tokio::select! {
        outcome = campaign(&office, &url, &me) => outcome.map(|never| match never {}),
        () = follow(&office, &url) => unreachable!("a process follows for ever"),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    // This makes a leader resign: the next one leads at once.
    client.shutdown(Duration::from_secs(5)).await?;
    println!("resigned");
    Ok(outcome?)
}

/// Leads whenever no other process does.
async fn campaign(office: &Lock, url: &str, me: &str) -> std::result::Result<Infallible, LockError> {
    loop {
        let led = office.run_with(async |guard| {
            let term = guard.fencing_token().expect("the lock is fenced");
            lead(term, url, me).await
        });
        match led.await {
            Err(LockError::Lost { reason, .. }) => println!("deposed: {reason}"),
            Err(error) if error.is_retryable() => {
                println!("{error}");
                sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}

/// A leader's work, until it is dropped. Each of its requests to other systems contains its term.
async fn lead(term: u64, url: &str, me: &str) -> Infallible {
    println!("leads in term {term}");
    while let Err(error) = announce(url, me).await {
        println!("cannot announce the term: {error}");
        sleep(Duration::from_secs(1)).await;
    }
    std::future::pending().await
}

async fn announce(url: &str, me: &str) -> redis::RedisResult<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("PUBLISH").arg(NEWS).arg(me).query_async(&mut connection).await
}

/// Every process's work: prints the leader, and each later one as it begins.
async fn follow(office: &Lock, url: &str) {
    loop {
        if let Err(error) = listen(office, url).await {
            println!("cannot follow: {error}");
        }
        // The last known leader stays until the connection is back.
        sleep(Duration::from_secs(1)).await;
    }
}

/// Follows until the connection is lost.
async fn listen(office: &Lock, url: &str) -> Result<()> {
    let (sender, mut news) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let client = redis::Client::open(format!("{url}?protocol=resp3"))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    connection.subscribe(NEWS).await?;
    // Asked once, after the subscription: no leader can come in between unheard.
    if let Some(leader) = office.holder().await?.and_then(|holder| holder.id?.label().map(str::to_owned)) {
        println!("follows {leader}");
    }
    while let Some(push) = news.recv().await {
        match (push.kind, push.data.get(1)) {
            (PushKind::Message, Some(leader)) => {
                println!("follows {}", redis::from_redis_value_ref::<String>(leader)?);
            }
            (PushKind::Disconnection, _) => break,
            _ => {}
        }
    }
    Ok(())
}
