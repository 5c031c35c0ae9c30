//! The loop: try, subscribe, wait for one's turn, try again, sleep until called or until the lease is over.
//!
//! Of all who wait for a lock in this process, one at a time competes for it: it alone sleeps on the entry's latch and asks the
//! store. The others stand behind it, in the order in which they came, and cost the store nothing. Whoever gives the lock back in
//! this process may hand it to the first of them that sleeps: then nobody asks.

use std::pin::pin;
use std::time::{Duration, Instant};

use crate::latch::Call;
use crate::runtime::Runtime;
use crate::transport::Transport;
use crate::unless::unless;

use super::attempt::{Attempt, Claim};
use super::backend::Backend;
use super::client::Lock;
use super::error::LockError;
use super::guard::Guard;
use super::lease::Lease;
use super::successors::Successor;
use super::until::until;

/// Stores say a lease's end in whole milliseconds, rounded down; asking that early would find it still held.
const ROUNDING: Duration = Duration::from_millis(1);

/// For how long to go by what is known in this process. Then the store is asked all the same: the lock may have been forced free,
/// or be gone with a server that has started anew, and the holder need not have heard of that yet.
const UNASKED: Duration = Duration::from_secs(1);

/// Takes the lock within `wait`, or however long it takes. `None` when the time is over.
pub(super) async fn acquire<B: Backend>(
    lock: &Lock<B>,
    lease: Lease,
    wait: Option<Duration>,
) -> Result<Option<Guard<B>>, LockError> {
    let client = &lock.shared.client;
    let begun = client.backend.runtime().now();
    let acquired = wait_for(lock, lease, wait).await;
    match &acquired {
        Ok(Some(_)) => {
            client.recorder.waits.add(client.backend.runtime().now().saturating_duration_since(begun));
        }
        Ok(None) => client.recorder.given_up.add_one(),
        Err(_) => {}
    }
    acquired
}

async fn wait_for<B: Backend>(
    lock: &Lock<B>,
    lease: Lease,
    wait: Option<Duration>,
) -> Result<Option<Guard<B>>, LockError> {
    let shared = &lock.shared;
    let client = &shared.client;
    let runtime = client.backend.runtime();
    let claim = Claim::new(lock, lease)?;
    if wait == Some(Duration::ZERO) {
        return Ok(match claim.attempt(shared, None).await? {
            Attempt::Acquired(guard) => Some(guard),
            Attempt::Held(_) | Attempt::OutOfTime => None,
        });
    }
    // A wait that ends further away than the clock can say has no end.
    let give_up = wait.and_then(|wait| runtime.now().checked_add(wait));
    let is_over = || give_up.is_some_and(|give_up| give_up <= runtime.now());
    // When to look again if nobody calls. Not later than a watched lease lasts, however long this one does: should its
    // release go unheard, that is what it costs.
    let look_again = |left: Duration| {
        let left = left.min(client.watchdog_timeout) + ROUNDING;
        earliest(give_up, runtime.now().checked_add(left))
    };

    // Another of this client may be known to have it: then there is no need to ask, only to hear of its release.
    let taken_here = || {
        // Who has no more time than that would be sent away without the store's having been asked.
        wait.is_none_or(|wait| wait > UNASKED).then_some(())?;
        let taken_for = client.successors.taken_for(&shared.name, claim.owner(), runtime.now());
        taken_for.map(|left| left.min(UNASKED))
    };

    // Whoever comes while others wait stands behind them. Not so an owner that can have been here before: the others may be
    // waiting for it to get in once more, and out again.
    let registry = client.backend.registry();
    let waiting_already = match claim.may_be_inside() {
        true => None,
        false => registry.join(&shared.channel),
    };
    // To subscribe first saves asking twice, where it is known to be needed, or costs nothing.
    let first = || taken_here().is_some() || registry.transport().stands(&shared.channel);
    let subscribed = waiting_already.or_else(|| first().then(|| registry.subscribe(&shared.channel)));
    let (subscription, mut left) = match subscribed {
        Some(subscription) => (subscription, None),
        None => match claim.attempt(shared, give_up).await? {
            Attempt::Acquired(guard) => return Ok(Some(guard)),
            Attempt::OutOfTime => return Ok(None),
            Attempt::Held(left) => (registry.subscribe(&shared.channel), Some(left)),
        },
    };

    event!(DEBUG, lock = shared.name.as_str(), ?left, "waiting");
    // From here on every way out leaves the subscription and the line, and passes the turn on, by dropping them.
    let successor = Successor::join(shared, &claim);
    let _turn = match claim.may_be_inside() {
        true => None,
        false => {
            let mut turn = pin!(subscription.turn());
            loop {
                successor.open();
                match until(runtime, give_up, unless(turn.as_mut(), successor.told())).await {
                    None => return Ok(None),
                    Some(Some(turn)) => break Some(turn),
                    // Somebody tried to hand us the lock. If that came to nothing, we stay where we are.
                    Some(None) => {
                        if let Some(guard) = until(runtime, give_up, successor.close()).await.flatten() {
                            return Ok(Some(guard));
                        }
                    }
                }
            }
        }
    };
    // Messages count only from the confirmation on, so what was seen before it is looked at once more after it. Or before, if that
    // takes too long.
    let limit = look_again(left.take().unwrap_or(UNASKED));
    successor.open();
    let confirmed = unless(subscription.subscribed(), successor.told());
    if let Some(Some(confirmed)) = until(runtime, limit, confirmed).await {
        confirmed.map_err(LockError::Subscribe)?;
    }
    let mut asleep = subscription.is_ready().then(taken_here).flatten();
    let mut waited = asleep.is_some();
    // The call that woke us. Dropped unanswered, by an error or with this future, it goes to the next waiter.
    let mut call: Option<Call<'_>> = None;
    loop {
        if let Some(left) = asleep {
            successor.open();
            let called = unless(subscription.latch().wait(), successor.told());
            call = until(runtime, look_again(left), called).await.flatten();
            event!(TRACE, lock = shared.name.as_str(), called = call.is_some(), "woken");
        }
        match until(runtime, give_up, successor.close()).await {
            None => return Ok(None),
            Some(Some(guard)) => {
                // A call that came as well may be about what happened after that: it goes on.
                return Ok(Some(guard));
            }
            Some(None) => {}
        }
        if let Some(error) = subscription.failure() {
            return Err(LockError::Subscribe(error));
        }
        if is_over() {
            return Ok(None);
        }
        let attempt = claim.attempt(shared, give_up).await?;
        match (&attempt, call.take()) {
            (Attempt::Acquired(_), Some(call)) => {
                call.consume();
                shared.counters.wakes_wanted.add_one();
            }
            (Attempt::Held(_), Some(call)) => {
                call.waste();
                shared.counters.wakes_wasted.add_one();
            }
            // Not answered: goes to the next waiter.
            (Attempt::OutOfTime, _) | (_, None) => {}
        }
        match attempt {
            Attempt::Acquired(guard) => {
                if waited {
                    client.recorder.hand_overs_remote.add_one();
                }
                return Ok(Some(guard));
            }
            Attempt::OutOfTime => return Ok(None),
            Attempt::Held(left) => (asleep, waited) = (Some(left), true),
        }
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
