//! The job in this process alone: no server, no connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use latchwork::LockClient;

use crate::job::{self, Number};
use crate::outcome::{EnterOutcome, Outcome};
use crate::plan::Plan;
use crate::progress::{self, Picture};
use crate::{Error, clock};

/// A plain number in memory.
///
/// Safe Rust requires atomics for memory that several threads write. Everything here is Relaxed, and the
/// number is never changed in one step: only the lock makes each holder see the previous holder's write.
#[derive(Clone, Default)]
struct PlainNumber(Arc<Cells>);

#[derive(Default)]
struct Cells {
    number: AtomicU64,
    inside: AtomicU64,
    last_left: AtomicU64,
}

impl Number for PlainNumber {
    async fn enter(&self) -> Result<EnterOutcome, Error> {
        let others = self.0.inside.fetch_add(1, Ordering::Relaxed);
        let last_left = self.0.last_left.load(Ordering::Relaxed);
        Ok(EnterOutcome { alone: others == 0, last_left, last_here: true })
    }

    async fn read(&self) -> Result<u64, Error> {
        Ok(self.0.number.load(Ordering::Relaxed))
    }

    async fn write(&self, number: u64) -> Result<(), Error> {
        self.0.number.store(number, Ordering::Relaxed);
        Ok(())
    }

    async fn leave(&self) -> Result<(), Error> {
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
        self.0.last_left.store(clock::now(), Ordering::Relaxed);
        Ok(())
    }
}

pub(crate) async fn run(plan: &Plan) -> Result<Outcome, Error> {
    let client = LockClient::local();
    let mut numbers = Vec::new();
    let mut behind = Vec::new();
    let names: Vec<String> = (0..plan.locks).map(|lock| format!("number:{lock}")).collect();
    for name in &names {
        let number = PlainNumber::default();
        numbers.push(number.clone());
        behind.push((client.get_lock(name)?, number));
    }

    let picture = Picture::draw(1, plan.locks, plan.increments);
    let started = Instant::now();
    let done = Arc::default();
    let job = job::run(plan, 0..plan.tasks, behind, &done);
    let tell = |more| picture.tell(0, more, &progress::held(&client, &names));
    let locks = progress::while_running(job, &done, tell).await?;
    let took = started.elapsed();
    picture.finish();

    let counted = numbers.iter().map(|number| number.0.number.load(Ordering::Relaxed)).sum();
    Ok(Outcome { expected: plan.increments, counted, took, locks })
}
