//! Leader election: one process leads until it ends, hangs or resigns, then another one does. Each term has a
//! number that is greater than all before it.
//!
//! ```sh
//! cargo run -p recipes --bin leader                                     # alone: leads until Ctrl-C
//! REDIS_URL=redis://127.0.0.1 cargo run -p recipes --bin leader         # in some terminals; then end one
//! ```
//!
//! `tests/recipes/leader.rs` kills, pauses and ends leaders. Two processes may both believe that they lead
//! while one of them is paused: what must be done by one only has to be refused by its term, as in
//! `fencing_sqlite`.

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
        // A dead leader is replaced after so much. A shorter time makes it sooner, and deposes a leader that
        // is paused for that long.
        .watchdog_timeout(Duration::from_secs(2))
        // The followers look the leader up by it: in earnest an address.
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
    // A leader resigns by that: the next one leads at once.
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

/// What a leader does, until it is dropped. Each request that it sends to other systems has its term in it.
async fn lead(term: u64) -> Infallible {
    println!("leads in term {term}");
    std::future::pending().await
}

/// What each process does: prints the leader when that is another one.
async fn follow(office: &Lock) {
    let mut last = None;
    loop {
        // If Redis cannot be asked, the leader stays the one that it was.
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
