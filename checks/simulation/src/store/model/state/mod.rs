//! The state of the store, and each command as one step, without a network, a clock or any other part of the
//! simulation. Also the reference model of the scripts (`tests/redis/scripts/differential`).

pub(crate) mod line;
mod name;
mod permits;
mod turns;

use std::time::Duration;

use latchwork::LockKind;
use latchwork::backend::{AcquireOutcome, AcquireRequest, Mode, NextWaiter, ReleaseOutcome};
use latchwork::{Holder, LeaseId};

pub(crate) use self::name::{Name, News, Step, left};

/// A time by the store's own clock, in nanoseconds.
pub(crate) type Time = i64;

pub(crate) const NEVER: Time = Time::MAX / 2;
/// Time for which no writer gets the lock after readers were let in, while some of these have not claimed it.
pub(crate) const READERS_TURN: Time = 1_000_000_000;

pub(crate) fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(NEVER).min(NEVER / 2)
}

pub(crate) fn kind(mode: Mode) -> LockKind {
    match mode {
        Mode::Plain => LockKind::Plain,
        Mode::Fair => LockKind::Fair,
        Mode::Permits => LockKind::Semaphore,
        _ => LockKind::ReadWrite,
    }
}

/// The commands of `Backend`. The error is the kind as which the lock is already held.
impl Step<'_> {
    pub(crate) fn acquire(
        &mut self,
        mode: Mode,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, LockKind> {
        let AcquireRequest { id, lease, tokens, position, .. } = request;
        let tried = match mode {
            Mode::Plain => return self.try_acquire(request),
            Mode::Fair => return self.try_acquire_fair(id, *lease, *tokens, *position),
            Mode::Write => {
                self.begin_read_write()?;
                self.try_write(id, *lease, *tokens, *position)
            }
            Mode::Permits => {
                self.begin_permits()?;
                self.try_permits(request).map(|()| 0)
            }
            _ => {
                self.begin_read_write()?;
                self.try_read(request)
            }
        };
        Ok(match tried {
            Ok(last_token) => AcquireOutcome::Acquired { last_token },
            Err(left) => AcquireOutcome::Held { left },
        })
    }

    /// Leaves the number of receivers at 0: only the publisher knows.
    pub(crate) fn release(&mut self, mode: Mode, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        let released = match mode {
            Mode::Plain => self.release_plain(id),
            Mode::Fair => return self.release_fair(id, next),
            Mode::Write if self.begin_read_write().is_ok() => return self.release_write(id, next),
            Mode::Write => self.name.writers.remove(id).is_some_and(|_| false),
            Mode::Permits => self.release_permits(id),
            _ if self.begin_read_write().is_ok() => self.release_read(id),
            _ => self.name.waiting_readers.remove(id).is_some_and(|_| false),
        };
        if released { ReleaseOutcome::Released { receivers: 0 } } else { ReleaseOutcome::NotHeld }
    }

    pub(crate) fn renew(&mut self, mode: Mode, id: &LeaseId, lease: Duration) -> bool {
        match mode {
            Mode::Plain | Mode::Fair => self.renew_one(id, lease),
            Mode::Write => self.renew_write(id, lease),
            Mode::Permits => self.renew_permits(id, lease),
            _ => self.renew_read(id, lease),
        }
    }

    pub(crate) fn force_release(&mut self, mode: Mode) -> Result<bool, LockKind> {
        match mode {
            Mode::Plain => self.force_release_plain(),
            Mode::Fair => self.force_release_fair(),
            Mode::Permits => {
                self.begin_permits()?;
                Ok(self.force_release_permits())
            }
            _ => {
                self.begin_read_write()?;
                Ok(self.force_release_read_write())
            }
        }
    }
}

impl Name {
    pub(crate) fn holders(&self, mode: Mode, now: Time) -> Result<Vec<Holder>, LockKind> {
        match (kind(mode), self.held_as(now)) {
            (_, None) => Ok(Vec::new()),
            (LockKind::ReadWrite, Some(LockKind::ReadWrite)) => Ok(self.holders_of_both(mode, now)),
            (LockKind::Semaphore, Some(LockKind::Semaphore)) => Ok(self.holders_of_permits(now)),
            (LockKind::ReadWrite | LockKind::Semaphore, Some(other)) => Err(other),
            // The name is held, as any kind.
            _ => {
                let id = self.held(now).filter(|_| self.kind != LockKind::ReadWrite);
                let until = self.held_until(now).unwrap_or(now);
                Ok(vec![Holder::new(id.map(|it| it.id.clone()), left(until, now))])
            }
        }
    }
}
