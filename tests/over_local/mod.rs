//! The store in memory, with an interceptor before the clients.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::error::Error;
use std::fmt;
use std::future::{poll_fn, ready};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Failure, LeaseKey, LockName, Mode, NextWaiter, ReleaseOutcome,
    Runtime, Transport,
};
use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{Holder, LeaseId, NameError};
use latchwork_conformance::{Intercept, Interceptor};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    Acquire(Mode),
    Release(Mode),
    RollBack(Mode),
    Renew(&'a [LeaseKey], Duration),
    ForceRelease(Mode),
    Holders(Mode),
}

/// Intercepts commands between clients and the store. Each default method does nothing.
pub(crate) trait Between: Send + Sync + 'static {
    type Error: OfStore;

    /// See [`Backend`].
    const ANSWERS_AT_ONCE: bool = false;

    /// Runs before the store executes a command; an error cancels the command.
    fn before(&self, command: Command<'_>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = command;
        ready(Ok(()))
    }

    /// Runs after the store has executed a command; an error replaces the answer.
    fn after(&self, command: Command<'_>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = command;
        ready(Ok(()))
    }

    fn asked(&self) {}

    /// Replaces the number of clients that heard a release.
    fn receivers(&self, receivers: usize) -> usize {
        receivers
    }

    /// See [`Backend`].
    fn grants_suffice(&self) -> bool {
        true
    }

    fn failure(&self, error: &Self::Error) -> Failure {
        let _ = error;
        Failure::Indeterminate
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }
}

/// The error type of an interceptor; must include the only error of the store in memory.
pub(crate) trait OfStore: Error + Send + Sync + 'static {
    fn of_store(error: OtherKind) -> Self;
}

impl OfStore for OtherKind {
    fn of_store(error: OtherKind) -> Self {
        error
    }
}

impl OfStore for io::Error {
    fn of_store(error: OtherKind) -> Self {
        Self::other(error)
    }
}

/// Delays a command or an answer while `kept` is set. Returns true after a delay.
pub(crate) async fn kept_while(kept: &AtomicBool) -> bool {
    let mut was_kept = false;
    poll_fn(|_| {
        // Ordering: SeqCst for simplicity; a test needs no less.
        let is_kept = kept.load(SeqCst);
        was_kept |= is_kept;
        if is_kept { Poll::Pending } else { Poll::Ready(was_kept) }
    })
    .await
}

/// The error of an interceptor that refuses commands.
#[derive(Debug)]
pub(crate) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl Error for Refused {}

impl OfStore for Refused {
    fn of_store(_: OtherKind) -> Self {
        Self
    }
}

#[derive(Clone, Default)]
pub(crate) struct Renewals(pub(crate) Arc<Mutex<Vec<(usize, Duration)>>>);

impl Between for Renewals {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if let Command::Renew(leases, lease) = command {
            self.0.lock().unwrap().push((leases.len(), lease));
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Nothing;

impl Between for Nothing {
    type Error = OtherKind;
}

/// The store in memory behind interceptor `B`, with messages over transport `T`.
pub(crate) type OverLocal<B, T = LocalTransport, R = ThreadRuntime> = Intercept<Local<R>, Hooked<B>, T>;

pub(crate) fn over<B: Between, R: Runtime + Clone>(
    local: &Local<R>,
    between: B,
) -> OverLocal<B, LocalTransport, R> {
    Intercept::new(local.clone(), Hooked(between))
}

pub(crate) fn over_with<B: Between, T: Transport>(local: Local, between: B, transport: T) -> OverLocal<B, T> {
    Intercept::with_transport(local, Hooked(between), transport)
}

#[derive(Clone, Debug)]
pub(crate) struct Hooked<B>(pub(crate) B);

async fn carry<B: Between, O>(
    between: &B,
    command: Command<'_>,
    run: impl Future<Output = Result<O, OtherKind>>,
) -> Result<O, B::Error> {
    between.before(command).await?;
    let outcome = run.await;
    between.after(command).await?;
    outcome.map_err(B::Error::of_store)
}

impl<B: Between, R: Runtime + Clone> Interceptor<Local<R>> for Hooked<B> {
    type Error = B::Error;

    const ANSWERS_AT_ONCE: bool = B::ANSWERS_AT_ONCE;

    fn error(&self, error: OtherKind) -> Self::Error {
        OfStore::of_store(error)
    }

    fn failure(&self, _: &Local<R>, error: &Self::Error) -> Failure {
        self.0.failure(error)
    }

    fn asked(&self) {
        self.0.asked();
    }

    fn grants_suffice(&self, local: &Local<R>) -> bool {
        local.grants_suffice() && self.0.grants_suffice()
    }

    fn check_name(&self, local: &Local<R>, name: &LockName) -> Result<(), NameError> {
        local.check_name(name).and_then(|()| self.0.check_name(name))
    }

    fn renewal_group(&self, _: &Local<R>, name: &LockName) -> u64 {
        self.0.renewal_group(name)
    }

    async fn acquire(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Self::Error> {
        carry(&self.0, Command::Acquire(mode), async { local.acquire(mode, name, request).await }).await
    }

    async fn release(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Self::Error> {
        let outcome =
            carry(&self.0, Command::Release(mode), async { local.release(mode, name, id, next).await })
                .await?;
        Ok(match outcome {
            ReleaseOutcome::Released { receivers } => {
                ReleaseOutcome::Released { receivers: self.0.receivers(receivers) }
            }
            other => other,
        })
    }

    async fn roll_back(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, Self::Error> {
        carry(&self.0, Command::RollBack(mode), async { local.roll_back(mode, name, id).await }).await
    }

    async fn renew(
        &self,
        local: &Local<R>,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> Result<Vec<bool>, Self::Error> {
        carry(&self.0, Command::Renew(leases, lease), async { local.renew(mode, leases, lease).await }).await
    }

    async fn force_release(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
    ) -> Result<bool, Self::Error> {
        carry(&self.0, Command::ForceRelease(mode), async { local.force_release(mode, name).await }).await
    }

    async fn holders(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
    ) -> Result<Vec<Holder>, Self::Error> {
        carry(&self.0, Command::Holders(mode), async { local.holders(mode, name).await }).await
    }
}
