//! The store in memory, with something between it and its clients.
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
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    Registry, ReleaseOutcome, Runtime, Transport,
};
use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{Holder, LeaseId, NameError};

/// A command on its way to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    Acquire(Mode),
    Release(Mode),
    RollBack(Mode),
    Renew(&'a [LeaseKey], Duration),
    ForceRelease(Mode),
    Holders(Mode),
}

/// What is between the clients and the store. Each method does nothing unless it is written.
pub(crate) trait Between: Send + Sync + 'static {
    type Error: OfStore;

    /// As of a [`Backend`].
    const ANSWERS_AT_ONCE: bool = false;

    /// A command goes to the store, which has no part in it if this fails.
    fn before(&self, command: Command<'_>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = command;
        ready(Ok(()))
    }

    /// The store has carried it out. If this fails, that is the answer.
    fn after(&self, command: Command<'_>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = command;
        ready(Ok(()))
    }

    /// Something is asked that is no command.
    fn asked(&self) {}

    /// What is said of how many have heard of a release.
    fn receivers(&self, receivers: usize) -> usize {
        receivers
    }

    /// As of a [`Backend`].
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

/// What clients are told, as the store in memory itself fails in one way only.
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

/// Keeps a command, or its answer, for as long as the test says so. True if it was kept.
pub(crate) async fn kept_while(kept: &AtomicBool) -> bool {
    let mut was_kept = false;
    poll_fn(|_| {
        // Ordering: SeqCst, for no reason but that it is a test.
        let is_kept = kept.load(SeqCst);
        was_kept |= is_kept;
        if is_kept { Poll::Pending } else { Poll::Ready(was_kept) }
    })
    .await
}

/// All that some of them say.
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

/// Notes of each renewal how many leases it was for, and how long they are to last.
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

/// There is nothing between them.
#[derive(Clone, Debug)]
pub(crate) struct Nothing;

impl Between for Nothing {
    type Error = OtherKind;
}

/// The store in memory behind `between`. Its messages come over `T`.
pub(crate) struct OverLocal<B, T: Transport = LocalTransport, R: Runtime + Clone = ThreadRuntime> {
    pub(crate) between: B,
    local: Local<R>,
    registry: Registry<T>,
}

impl<B: Between, R: Runtime + Clone> OverLocal<B, LocalTransport, R> {
    /// With the store's own messages.
    pub(crate) fn new(local: &Local<R>, between: B) -> Self {
        Self { between, local: local.clone(), registry: local.registry().clone() }
    }
}

impl<B: Between, T: Transport> OverLocal<B, T> {
    pub(crate) fn with_transport(local: Local, between: B, transport: T) -> Self {
        Self { between, local, registry: Registry::new(transport) }
    }
}

impl<B: Between, T: Transport, R: Runtime + Clone> OverLocal<B, T, R> {
    /// Sees a command through: `run` is the store's part in it, and does nothing before it is polled.
    async fn carry<O>(
        &self,
        command: Command<'_>,
        run: impl Future<Output = Result<O, OtherKind>>,
    ) -> Result<O, B::Error> {
        self.between.before(command).await?;
        let outcome = run.await;
        self.between.after(command).await?;
        outcome.map_err(B::Error::of_store)
    }
}

impl<B: Clone, T: Transport, R: Runtime + Clone> Clone for OverLocal<B, T, R> {
    fn clone(&self) -> Self {
        let (between, local) = (self.between.clone(), self.local.clone());
        Self { between, local, registry: self.registry.clone() }
    }
}

impl<B: Between, T: Transport, R: Runtime + Clone> Backend for OverLocal<B, T, R> {
    type Error = B::Error;
    type Transport = T;
    type Runtime = R;

    const ANSWERS_AT_ONCE: bool = B::ANSWERS_AT_ONCE;

    fn registry(&self) -> &Registry<T> {
        self.between.asked();
        &self.registry
    }

    fn runtime(&self) -> &R {
        self.between.asked();
        self.local.runtime()
    }

    fn supports(&self, mode: Mode) -> bool {
        self.between.asked();
        self.local.supports(mode)
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        self.between.asked();
        self.local.channels(mode, name, client)
    }

    fn grants_suffice(&self) -> bool {
        self.between.asked();
        self.local.grants_suffice() && self.between.grants_suffice()
    }

    fn failure(&self, error: &B::Error) -> Failure {
        self.between.failure(error)
    }

    fn reconnects(&self) -> u64 {
        self.between.asked();
        self.local.reconnects()
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        self.between.asked();
        self.local.check_name(name)?;
        self.between.check_name(name)
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        self.between.renewal_group(name)
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, B::Error> {
        self.carry(Command::Acquire(mode), async { self.local.acquire(mode, name, request).await }).await
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, B::Error> {
        let release = async { self.local.release(mode, name, id, next).await };
        let outcome = self.carry(Command::Release(mode), release).await?;
        Ok(match outcome {
            ReleaseOutcome::Released { receivers } => {
                ReleaseOutcome::Released { receivers: self.between.receivers(receivers) }
            }
            other => other,
        })
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, B::Error> {
        self.carry(Command::RollBack(mode), async { self.local.roll_back(mode, name, id).await }).await
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, B::Error> {
        self.carry(Command::Renew(leases, lease), async { self.local.renew(mode, leases, lease).await }).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, B::Error> {
        self.carry(Command::ForceRelease(mode), async { self.local.force_release(mode, name).await }).await
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, B::Error> {
        self.carry(Command::Holders(mode), async { self.local.holders(mode, name).await }).await
    }
}
