//! [`Wait`]: the loop of a queue head that waits: back off, check for an end, pause, ask, sleep.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use crate::latch::Notification;
use crate::lock_entry::{BACK_OFF, Turn};
use crate::support::unless::unless;

use super::super::End;
use super::{Head, Moment, as_head, may_pass};
use crate::lock::backend::Mode;
use crate::lock::context::MAX_RETRY_DELAY;
use crate::lock::entry::listening::Listening;
use crate::lock::error::LockError;

/// Longest wait for a subscription before the store is asked without one.
const UNCONFIRMED: Duration = Duration::from_secs(1);

struct Wait<'w, 'a> {
    head: &'w mut Head<'a>,
    listening: &'w Listening,
    patient: bool,
    give_up: Moment,
    /// Time in which other processes go first: a step less in each round.
    back_off: Duration,
    rate_limit: RateLimit,
    unconfirmed: bool,
    /// The notification that woke the head. If dropped unconsumed, the notification goes to the next waiter.
    notified: Option<Notification<'w>>,
}

impl Head<'_> {
    pub(super) async fn wait(mut self, patient: bool, give_up: Moment) -> Result<End, LockError> {
        let (entry, ticket) = (self.wanted.entry, self.ticket);
        let waits = pin!(async {
            let kept = if ticket.has_position() { entry.take_kept() } else { None };
            let is_confirmed = kept.is_some();
            let listening = &kept.unwrap_or_else(|| entry.listen());
            self.expect_grant(listening);
            if self.uncalled {
                entry.listen_to_all(listening);
            }
            self.yields = entry.is_called && !ticket.back_off().is_zero();
            let (back_off, rate_limit) = (ticket.back_off(), RateLimit::new(entry.mode, entry.now()));
            let (head, unconfirmed, notified) = (&mut self, false, None);
            let wait =
                Wait { head, listening, patient, give_up, back_off, rate_limit, unconfirmed, notified };
            wait.run(is_confirmed).await
        });
        as_head(entry, &ticket, waits).await.unwrap_or(Ok(End::Superseded))
    }
}

impl Wait<'_, '_> {
    /// `is_confirmed`: the head is already in the store's queue, and the subscription was confirmed before.
    async fn run(mut self, is_confirmed: bool) -> Result<End, LockError> {
        self.subscribed().await?;
        if is_confirmed {
            self.head.says = Some(Ok(self.head.wanted.entry.position.unwrap_or_default()));
            self.sleep(Duration::MAX).await;
        }
        loop {
            self.let_others_go_first().await;
            if let Some(competed) = self.ended()? {
                return Ok(competed);
            }
            // Check for an end again after the pause, before asking.
            if self.pause().await
                && let Some(competed) = self.ended()?
            {
                return Ok(competed);
            }
            if let Some(competed) = self.ask().await? {
                return Ok(competed);
            }
        }
    }

    /// Waits for the subscription's confirmation, up to `UNCONFIRMED`: messages count only from then on.
    async fn subscribed(&mut self) -> Result<(), LockError> {
        let entry = self.head.wanted.entry;
        let left = self.head.held_for().unwrap_or(UNCONFIRMED);
        let limit = self.head.look_again(left.min(UNCONFIRMED), self.give_up);
        if let Some(confirmed) = entry.context.until(limit, pin!(self.listening.subscribed())).await {
            confirmed.map_err(|failure| LockError::Subscribe(failure.of_lock(entry.name.as_str())))?;
        }
        // The next question, or the release that named this head, answers notifications for earlier heads.
        while let Some(told_before) = entry.engine.latch().try_wait() {
            told_before.consume();
        }
        Ok(())
    }

    /// Backs off, so that processes that have not held the lock since this process did ask first.
    async fn let_others_go_first(&mut self) {
        if !self.back_off.is_zero() {
            let turn = self.give_up.min(self.head.wanted.entry.now() + self.back_off);
            self.back_off = self.back_off.saturating_sub(BACK_OFF);
            self.head.wanted.entry.context.until(turn, pending::<()>()).await;
        }
    }

    /// Ends the wait with an error, at its limit, or with a lock granted by a message; `None` if not.
    fn ended(&mut self) -> Result<Option<End>, LockError> {
        let (entry, context) = (self.head.wanted.entry, &self.head.wanted.entry.context);
        if self.notified.is_none() {
            self.notified = self.listening.try_told();
        }
        if let Some(failure) = self.listening.failure() {
            return Err(LockError::Subscribe(failure.of_lock(entry.name.as_str())));
        }
        if context.has_ended() {
            return Err(LockError::RuntimeEnded);
        }
        if self.give_up <= entry.now() {
            return self.head.time_over().map(Some);
        }
        let granted = self.head.granted_by_message(self.listening.granted(), entry.now());
        if granted.is_some() {
            self.was_useful();
            context.recorder.hand_offs_remote.add_one();
        }
        Ok(granted)
    }

    fn was_useful(&mut self) {
        if let Some(notified) = self.notified.take() {
            notified.consume();
            self.head.wanted.entry.counters.useful.add_one();
            if !self.head.request.is_watched() {
                // Another client's head sleeps until the earlier lease's end; ours may end sooner, unheard.
                self.head.wanted.entry.wake_queue_heads();
            }
        }
    }

    /// Keeps the rate limit, however much is published. True if the head has waited.
    async fn pause(&mut self) -> bool {
        let (entry, now) = (self.head.wanted.entry, self.head.wanted.entry.now());
        let at = self.give_up.min(self.rate_limit.next(now));
        if at <= now {
            return false;
        }
        if entry.mode.is_queued() {
            let granted = entry.context.until(at, pin!(self.listening.granted_next())).await;
            self.notified = granted.or(self.notified.take());
        } else {
            entry.context.until(at, pending::<()>()).await;
        }
        true
    }

    /// Asks the store, and sleeps if the store refuses or does not answer. `None` if the wait goes on.
    async fn ask(&mut self) -> Result<Option<End>, LockError> {
        let (entry, context) = (self.head.wanted.entry, &self.head.wanted.entry.context);
        self.unconfirmed = !self.listening.is_ready();
        let was_held = self.head.held_for().is_some();
        let Some(asked) =
            context.until(self.give_up, pin!(self.head.ask(entry.now(), Some(self.listening)))).await
        else {
            return self.head.time_over().map(Some);
        };
        match asked {
            // The store may be back before the holder's lease, or the caller's limit, is over.
            Err(error) if may_pass(&error) && (self.patient || was_held) => {
                if !was_held {
                    self.head.says = Some(Err(error));
                }
                self.sleep(MAX_RETRY_DELAY).await;
            }
            Err(error) => return Err(error),
            Ok((Some(Turn::Granted(grant, _)), at)) => {
                self.was_useful();
                if was_held {
                    context.recorder.hand_offs_remote.add_one();
                }
                return Ok(Some(self.head.granted(grant, at)));
            }
            // The answer came too late to be of use.
            Ok((Some(Turn::Head(_)), _)) => {}
            Ok((Some(_), _)) => return Ok(Some(End::Superseded)),
            // Messages of the common channel count from its confirmation on.
            Ok((None, _)) if self.head.uncalled && entry.listen_to_all(self.listening) => {
                self.subscribed().await?;
            }
            Ok((None, _)) => {
                if let Some(notified) = self.notified.take() {
                    notified.consume_spurious();
                    entry.counters.spurious.add_one();
                }
                self.sleep(self.head.held_for().unwrap_or_default()).await;
                event!(TRACE, lock = entry.name.as_str(), notified = self.notified.is_some(), "woken");
            }
        }
        Ok(None)
    }

    /// Sleeps for at most `left`, until a message, a call by the entry's latch, or a late confirmation.
    async fn sleep(&mut self, left: Duration) {
        let (entry, listening, unconfirmed) = (self.head.wanted.entry, self.listening, self.unconfirmed);
        let confirmed = pin!(async {
            match unconfirmed {
                true => _ = listening.subscribed().await,
                false => pending().await,
            }
        });
        let called = pin!(entry.engine.latch().wait());
        let told_here = pin!(async {
            if let Some(called) = unless(called, confirmed).await {
                called.consume();
            }
        });
        let limit = self.head.look_again(left, self.give_up);
        let told = pin!(listening.told());
        let told = pin!(unless(told, told_here));
        self.notified = entry.context.until(limit, told).await.flatten();
    }
}

/// Limits the questions of a queue head: a burst at once, then a steady rate. A message is cheap, but the
/// question that follows costs the store a script. A message that comes during a pause is kept.
#[derive(Debug)]
struct RateLimit {
    burst: u32,
    every: Duration,
    rested: Moment,
}

impl RateLimit {
    fn new(mode: Mode, now: Moment) -> Self {
        let (burst, every) = match mode {
            // Each release wakes the heads of all processes: with short holds, heads ask often.
            Mode::Plain => (200, Duration::from_millis(5)),
            // The store grants these modes to a chosen waiter, or lets the waiters in together.
            Mode::Fair | Mode::Read | Mode::Write | Mode::Permits => (20, Duration::from_millis(50)),
        };
        Self { burst, every, rested: now }
    }

    fn next(&mut self, now: Moment) -> Moment {
        let spare = self.every * (self.burst - 1);
        let at = now.max(self.rested - spare);
        self.rested = at.max(self.rested) + self.every;
        at
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn burst_is_asked_at_once_and_what_follows_at_the_rate() {
        for mode in [Mode::Plain, Mode::Fair, Mode::Read, Mode::Write] {
            let now = Moment::from(Instant::now());
            let mut rate_limit = RateLimit::new(mode, now);
            let (burst, every) = (rate_limit.burst, rate_limit.every);
            for _ in 0..burst {
                assert_eq!(rate_limit.next(now), now);
            }
            for number in 1..100 {
                assert_eq!(rate_limit.next(now), now + every * number, "{mode:?}");
            }
            // The limiter rests for as long as it was ahead before the burst is available again.
            let later = now + every * 99;
            assert_eq!(rate_limit.next(later), later + every);
            let rested = later + every * (burst + 1);
            for _ in 0..burst {
                assert_eq!(rate_limit.next(rested), rested, "{mode:?}");
            }
            assert_eq!(rate_limit.next(rested), rested + every, "{mode:?}");
        }
    }
}
