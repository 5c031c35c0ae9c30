//! Leader election: one process leads until it ends, hangs or resigns, then another one does. Each term has a
//! number that is greater than all before it.
//!
//! ```sh
//! cargo run -p recipes --bin leader                                     # alone: leads until Ctrl-C
//! REDIS_URL=redis://127.0.0.1 cargo run -p recipes --bin leader         # in some terminals; then end one
//! ```
//!
//! `tests/recipes/leader.rs` kills, pauses and ends leaders. While a leader is paused, two processes may both
//! believe that they lead: to do something only once, let its target check the term, as in `fencing_sqlite`.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Lock, LockClient, LockError, LockOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = recipes::Redis::start();
    let options = LockOptions::default()
        // A dead leader is replaced after this time, and a leader that is paused for so long is deposed.
        .watchdog_timeout(Duration::from_secs(2))
        // Followers find the leader by its label: an address, in production.
        .label(&format!("pid {}", std::process::id()));
    let client = LockClient::with_options(Redis::connect(server.url()).await?, &options)?;
    // A token for each acquisition: the number of the term.
    let office = client.get_lock("recipes:leader")?.fenced();

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let outcome = tokio::select! {
        outcome = campaign(&office) => outcome.map(|never| match never {}),
        () = follow(&office) => unreachable!("it follows for ever"),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    // This makes a leader resign: the next one leads at once.
    client.shutdown(Duration::from_secs(5)).await?;
    println!("resigned");
    Ok(outcome?)
}

/// Leads whenever no other process does.
async fn campaign(office: &Lock) -> Result<Infallible, LockError> {
    loop {
        let led = office.run_with(async |guard| {
            let term = guard.fencing_token().expect("the lock is fenced");
            lead(term).await
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
async fn lead(term: u64) -> Infallible {
    println!("leads in term {term}");
    std::future::pending().await
}

/// Every process's work: prints the leader whenever it changes.
async fn follow(office: &Lock) {
    let mut last = None;
    loop {
        // If Redis does not answer, the last known leader stays.
        if let Ok(holder) = office.holder().await {
            let leader = holder.and_then(|holder| holder.id?.label().map(str::to_owned));
            if leader != last {
                println!("follows {}", leader.as_deref().unwrap_or("no leader"));
                last = leader;
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}
