//! [`Intercept`]: a store whose commands and replies a test changes in transit.

use std::error::Error;
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    Registry, ReleaseOutcome, Transport,
};
use latchwork::{Holder, LeaseId, NameError};

/// A test's code between a client and its store. By default each method forwards its command; an override may
/// change the command or the reply, send nothing, wait, fail or panic.
pub trait Interceptor<B: Backend>: Send + Sync + Sized + 'static {
    /// The error type that the client sees.
    type Error: Error + Send + Sync + 'static;

    /// See [`Backend`].
    const ANSWERS_AT_ONCE: bool = false;

    /// Converts an error of the store into the client's error.
    fn error(&self, error: B::Error) -> Self::Error;

    /// See [`Backend`].
    fn failure(&self, backend: &B, error: &Self::Error) -> Failure {
        let _ = (backend, error);
        Failure::Indeterminate
    }

    /// Called before each call that is no command: for the registry, the runtime, a channel.
    fn asked(&self) {}

    /// See [`Backend`].
    fn channels(&self, backend: &B, mode: Mode, name: &LockName, client: &str) -> Channels {
        backend.channels(mode, name, client)
    }

    /// See [`Backend`].
    fn grants_suffice(&self, backend: &B) -> bool {
        backend.grants_suffice()
    }

    /// See [`Backend`].
    fn calls_waiters(&self, backend: &B) -> bool {
        backend.calls_waiters()
    }

    /// See [`Backend`].
    ///
    /// # Errors
    ///
    /// If no lock can have this name.
    fn check_name(&self, backend: &B, name: &LockName) -> Result<(), NameError> {
        backend.check_name(name)
    }

    /// See [`Backend`].
    fn renewal_group(&self, backend: &B, name: &LockName) -> u64 {
        backend.renewal_group(name)
    }

    /// See [`Backend`].
    fn acquire(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send {
        async move { backend.acquire(mode, name, request).await.map_err(|error| self.error(error)) }
    }

    /// See [`Backend`].
    fn release(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send {
        async move { backend.release(mode, name, id, next).await.map_err(|error| self.error(error)) }
    }

    /// See [`Backend`].
    fn roll_back(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send {
        async move { backend.roll_back(mode, name, id).await.map_err(|error| self.error(error)) }
    }

    /// See [`Backend`].
    fn renew(
        &self,
        backend: &B,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send {
        async move { backend.renew(mode, leases, lease).await.map_err(|error| self.error(error)) }
    }

    /// See [`Backend`].
    fn force_release(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        async move { backend.force_release(mode, name).await.map_err(|error| self.error(error)) }
    }

    /// See [`Backend`].
    fn holders(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
    ) -> impl Future<Output = Result<Vec<Holder>, Self::Error>> + Send {
        async move { backend.holders(mode, name).await.map_err(|error| self.error(error)) }
    }
}

/// A backend behind an [`Interceptor`]: for tests of a client over a store that is late, refuses, or answers
/// wrongly.
///
/// ```
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LockName, Mode};
/// use latchwork::{LockClient, local::{Local, OtherKind}};
/// use latchwork_conformance::{Intercept, Interceptor};
///
/// /// Gives every lock to every client.
/// struct GivesAll;
///
/// impl Interceptor<Local> for GivesAll {
///     type Error = OtherKind;
///
///     fn error(&self, error: OtherKind) -> OtherKind {
///         error
///     }
///
///     async fn acquire(
///         &self, _: &Local, _: Mode, _: &LockName, _: &AcquireRequest,
///     ) -> Result<AcquireOutcome, OtherKind> {
///         Ok(AcquireOutcome::Acquired { last_token: 0 })
///     }
/// }
///
/// # let drive = |future| latchwork_conformance::drive(future, || {});
/// # drive(async {
/// let store = Local::new();
/// let sound = LockClient::new(store.clone()).get_lock("orders")?;
/// let broken = LockClient::new(Intercept::new(store, GivesAll)).get_lock("orders")?;
/// let (held, held_too) = (sound.lock().await?, broken.lock().await?);
/// # drop((held, held_too));
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Intercept<B: Backend, I, T: Transport = <B as Backend>::Transport> {
    backend: B,
    interceptor: I,
    registry: Registry<T>,
}

impl<B: Backend, I: Interceptor<B>> Intercept<B, I> {
    /// Intercepts `backend`, with the backend's own messages.
    pub fn new(backend: B, interceptor: I) -> Self {
        let registry = backend.registry().clone();
        Self { backend, interceptor, registry }
    }
}

impl<B: Backend, I: Interceptor<B>, T: Transport> Intercept<B, I, T> {
    /// Intercepts `backend`, with messages that arrive over `transport`.
    pub fn with_transport(backend: B, interceptor: I, transport: T) -> Self {
        Self { backend, interceptor, registry: Registry::new(transport) }
    }

    /// The interceptor, for a test that changes its behaviour.
    pub fn interceptor(&self) -> &I {
        &self.interceptor
    }
}

impl<B: Backend + Clone, I: Clone, T: Transport> Clone for Intercept<B, I, T> {
    fn clone(&self) -> Self {
        let (backend, interceptor) = (self.backend.clone(), self.interceptor.clone());
        Self { backend, interceptor, registry: self.registry.clone() }
    }
}

impl<B: Backend, I: Interceptor<B>, T: Transport> Backend for Intercept<B, I, T> {
    type Error = I::Error;
    type Transport = T;
    type Runtime = B::Runtime;

    const ANSWERS_AT_ONCE: bool = I::ANSWERS_AT_ONCE;

    fn registry(&self) -> &Registry<T> {
        self.interceptor.asked();
        &self.registry
    }

    fn runtime(&self) -> &B::Runtime {
        self.interceptor.asked();
        self.backend.runtime()
    }

    fn supports(&self, mode: Mode) -> bool {
        self.interceptor.asked();
        self.backend.supports(mode)
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        self.interceptor.asked();
        self.interceptor.channels(&self.backend, mode, name, client)
    }

    fn grants_suffice(&self) -> bool {
        self.interceptor.asked();
        self.interceptor.grants_suffice(&self.backend)
    }

    fn calls_waiters(&self) -> bool {
        self.interceptor.asked();
        self.interceptor.calls_waiters(&self.backend)
    }

    fn failure(&self, error: &I::Error) -> Failure {
        self.interceptor.failure(&self.backend, error)
    }

    fn may_run_again(&self, id: &LeaseId) -> bool {
        self.backend.may_run_again(id)
    }

    fn reconnects(&self) -> u64 {
        self.interceptor.asked();
        self.backend.reconnects()
    }

    fn commands_waiting(&self) -> u64 {
        self.backend.commands_waiting()
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        self.interceptor.asked();
        self.interceptor.check_name(&self.backend, name)
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        self.interceptor.renewal_group(&self.backend, name)
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, I::Error> {
        self.interceptor.acquire(&self.backend, mode, name, request).await
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, I::Error> {
        self.interceptor.release(&self.backend, mode, name, id, next).await
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, I::Error> {
        self.interceptor.roll_back(&self.backend, mode, name, id).await
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, I::Error> {
        self.interceptor.renew(&self.backend, mode, leases, lease).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, I::Error> {
        self.interceptor.force_release(&self.backend, mode, name).await
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, I::Error> {
        self.interceptor.holders(&self.backend, mode, name).await
    }
}
