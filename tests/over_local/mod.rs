//! The store in memory, with an interceptor between the clients and the store.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Failure, LeaseKey, LockName, Mode, NextWaiter, ReleaseOutcome,
    Runtime, Transport,
};
use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{Holder, LeaseId, NameError};
use latchwork_conformance::{Intercept, Interceptor};
use tokio::sync::Semaphore;

pub(crate) use self::Way::{Back, There};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    Acquire(Mode),
    Release(Mode),
    RollBack(Mode),
    Renew(&'a [LeaseKey], Duration),
    ForceRelease(Mode),
    Holders(Mode),
}

impl Command<'_> {
    pub(crate) fn acquires(self) -> bool {
        matches!(self, Self::Acquire(_))
    }

    pub(crate) fn releases(self) -> bool {
        matches!(self, Self::Release(_))
    }

    pub(crate) fn renews(self) -> bool {
        matches!(self, Self::Renew(..))
    }

    pub(crate) fn forces(self) -> bool {
        matches!(self, Self::ForceRelease(_))
    }
}

/// The way of a command to the store, or of its answer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    There,
    Back,
}

/// What happens on the way. An error keeps a command from the store, or replaces an answer.
pub(crate) type Fate = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

pub(crate) fn goes() -> Fate {
    Box::pin(async { Ok(()) })
}

pub(crate) fn fails(failure: Failure) -> Fate {
    Box::pin(async move { Err(failure) })
}

pub(crate) fn never() -> Fate {
    Box::pin(std::future::pending())
}

/// Holds commands or answers back, each until the test lets it through.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets all through until it is closed.
    pub(crate) fn open(&self) {
        self.let_through(1 << 30);
    }

    pub(crate) fn close(&self) {
        self.0.forget_permits(usize::MAX);
    }

    pub(crate) fn let_through(&self, how_many: usize) {
        self.0.add_permits(how_many);
    }

    pub(crate) fn passes(&self) -> Fate {
        let gate = Arc::clone(&self.0);
        Box::pin(async move {
            gate.acquire().await.expect("the gate stays").forget();
            Ok(())
        })
    }

    /// The store behind a gate for what `stops` picks.
    pub(crate) fn over<R: Runtime + Clone>(
        &self,
        local: &Local<R>,
        stops: fn(Way, Command<'_>) -> bool,
    ) -> OverLocal<impl Between, LocalTransport, R> {
        let gate = self.clone();
        over_when(local, move |way, command| if stops(way, command) { gate.passes() } else { goes() })
    }
}

impl Default for Gate {
    fn default() -> Self {
        let gate = Self::closed();
        gate.open();
        gate
    }
}

/// Intercepts commands between clients and the store. Each default method does nothing.
pub(crate) trait Between: Send + Sync + 'static {
    /// See [`Backend`].
    const ANSWERS_AT_ONCE: bool = false;

    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        let _ = (way, command);
        goes()
    }

    /// Called before each call that is no command.
    fn asked(&self) {}

    /// Replaces the number of clients that heard a release.
    fn receivers(&self, receivers: usize) -> usize {
        receivers
    }

    /// See [`Backend`].
    fn grants_suffice(&self) -> bool {
        true
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

impl<F: Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static> Between for F {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        self(way, command)
    }
}

/// A store that answers within the call.
pub(crate) struct AtOnce<F>(F);

pub(crate) fn at_once<F: Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static>(fate: F) -> AtOnce<F> {
    AtOnce(fate)
}

impl<F: Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static> Between for AtOnce<F> {
    const ANSWERS_AT_ONCE: bool = true;

    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        self.0(way, command)
    }
}

/// The number of leases and the time of each renewal.
#[derive(Clone, Default)]
pub(crate) struct Renewals(pub(crate) Arc<Mutex<Vec<(usize, Duration)>>>);

impl Between for Renewals {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        if let (There, Command::Renew(leases, lease)) = (way, command) {
            self.0.lock().unwrap().push((leases.len(), lease));
        }
        goes()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Nothing;

impl Between for Nothing {}

/// The error of a command that fails on its way, or at the store.
#[derive(Debug)]
pub(crate) struct Fault(Failure);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, on purpose", self.0)
    }
}

impl Error for Fault {}

/// The store in memory behind interceptor `B`, with messages over transport `T`.
pub(crate) type OverLocal<B, T = LocalTransport, R = ThreadRuntime> = Intercept<Local<R>, Hooked<B>, T>;

pub(crate) fn over<B: Between, R: Runtime + Clone>(
    local: &Local<R>,
    between: B,
) -> OverLocal<B, LocalTransport, R> {
    Intercept::new(local.clone(), Hooked(Arc::new(between)))
}

pub(crate) fn over_when<R: Runtime + Clone>(
    local: &Local<R>,
    fate: impl Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static,
) -> OverLocal<impl Between, LocalTransport, R> {
    over(local, fate)
}

pub(crate) fn over_with<B: Between, T: Transport>(local: Local, between: B, transport: T) -> OverLocal<B, T> {
    Intercept::with_transport(local, Hooked(Arc::new(between)), transport)
}

pub(crate) struct Hooked<B>(pub(crate) Arc<B>);

impl<B> Clone for Hooked<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

async fn carry<B: Between, O>(
    between: &B,
    command: Command<'_>,
    run: impl Future<Output = Result<O, OtherKind>>,
) -> Result<O, Fault> {
    between.fate(There, command).await.map_err(Fault)?;
    let outcome = run.await;
    between.fate(Back, command).await.map_err(Fault)?;
    outcome.map_err(|error| Fault(Failure::OtherKind(error.found())))
}

impl<B: Between, R: Runtime + Clone> Interceptor<Local<R>> for Hooked<B> {
    type Error = Fault;

    const ANSWERS_AT_ONCE: bool = B::ANSWERS_AT_ONCE;

    fn error(&self, error: OtherKind) -> Fault {
        Fault(Failure::OtherKind(error.found()))
    }

    fn failure(&self, _: &Local<R>, error: &Fault) -> Failure {
        self.0.asked();
        error.0
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
        self.0.asked();
        self.0.renewal_group(name)
    }

    async fn acquire(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Fault> {
        carry(&*self.0, Command::Acquire(mode), async { local.acquire(mode, name, request).await }).await
    }

    async fn release(
        &self,
        local: &Local<R>,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Fault> {
        let outcome =
            carry(&*self.0, Command::Release(mode), async { local.release(mode, name, id, next).await })
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
    ) -> Result<ReleaseOutcome, Fault> {
        carry(&*self.0, Command::RollBack(mode), async { local.roll_back(mode, name, id).await }).await
    }

    async fn renew(
        &self,
        local: &Local<R>,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> Result<Vec<bool>, Fault> {
        carry(&*self.0, Command::Renew(leases, lease), async { local.renew(mode, leases, lease).await }).await
    }

    async fn force_release(&self, local: &Local<R>, mode: Mode, name: &LockName) -> Result<bool, Fault> {
        carry(&*self.0, Command::ForceRelease(mode), async { local.force_release(mode, name).await }).await
    }

    async fn holders(&self, local: &Local<R>, mode: Mode, name: &LockName) -> Result<Vec<Holder>, Fault> {
        carry(&*self.0, Command::Holders(mode), async { local.holders(mode, name).await }).await
    }
}
