//! [`Probe`]: a backend without its type, so that the properties are compiled here, and not once more for
//! each store.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    ReleaseOutcome, Runtime as _,
};
use latchwork::{Holder, LeaseId};

use crate::commands::{only, request_at};

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
type Answer<'a, T> = Boxed<'a, Result<T, Failed>>;

/// The answer of a store that could not do what was asked.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    error: Box<dyn Error + Send + Sync>,
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.error, self.error)
    }
}

/// The methods of [`Backend`], and the clock of its runtime.
pub(crate) trait Probe {
    fn now(&self) -> Instant;
    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels;
    fn grants_suffice(&self) -> bool;
    fn acquire<'a>(
        &'a self,
        mode: Mode,
        name: &'a LockName,
        request: &'a AcquireRequest,
    ) -> Answer<'a, AcquireOutcome>;
    fn release<'a>(
        &'a self,
        mode: Mode,
        name: &'a LockName,
        id: &'a LeaseId,
        next: Option<&'a NextWaiter>,
    ) -> Answer<'a, ReleaseOutcome>;
    fn roll_back<'a>(&'a self, mode: Mode, name: &'a LockName, id: &'a LeaseId)
    -> Answer<'a, ReleaseOutcome>;
    fn renew<'a>(&'a self, mode: Mode, leases: &'a [LeaseKey], lease: Duration) -> Answer<'a, Vec<bool>>;
    fn force_release<'a>(&'a self, mode: Mode, name: &'a LockName) -> Answer<'a, bool>;
    fn holders<'a>(&'a self, mode: Mode, name: &'a LockName) -> Answer<'a, Vec<Holder>>;
}

/// Boxes a command's future, and tells what its error means.
macro_rules! boxed {
    ($backend:ident, $command:expr) => {
        Box::pin(async move {
            $command.await.map_err(|error| Failed { failure: $backend.failure(&error), error: error.into() })
        })
    };
}

impl<B: Backend> Probe for B {
    fn now(&self) -> Instant {
        self.runtime().now()
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.runtime().sleep_until(deadline))
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        Backend::channels(self, mode, name, client)
    }

    fn grants_suffice(&self) -> bool {
        Backend::grants_suffice(self)
    }

    fn acquire<'a>(
        &'a self,
        mode: Mode,
        name: &'a LockName,
        request: &'a AcquireRequest,
    ) -> Answer<'a, AcquireOutcome> {
        boxed!(self, Backend::acquire(self, mode, name, request))
    }

    fn release<'a>(
        &'a self,
        mode: Mode,
        name: &'a LockName,
        id: &'a LeaseId,
        next: Option<&'a NextWaiter>,
    ) -> Answer<'a, ReleaseOutcome> {
        boxed!(self, Backend::release(self, mode, name, id, next))
    }

    fn roll_back<'a>(
        &'a self,
        mode: Mode,
        name: &'a LockName,
        id: &'a LeaseId,
    ) -> Answer<'a, ReleaseOutcome> {
        boxed!(self, Backend::roll_back(self, mode, name, id))
    }

    fn renew<'a>(&'a self, mode: Mode, leases: &'a [LeaseKey], lease: Duration) -> Answer<'a, Vec<bool>> {
        boxed!(self, Backend::renew(self, mode, leases, lease))
    }

    fn force_release<'a>(&'a self, mode: Mode, name: &'a LockName) -> Answer<'a, bool> {
        boxed!(self, Backend::force_release(self, mode, name))
    }

    fn holders<'a>(&'a self, mode: Mode, name: &'a LockName) -> Answer<'a, Vec<Holder>> {
        boxed!(self, Backend::holders(self, mode, name))
    }
}

impl dyn Probe + '_ {
    /// For a lease from now on, without a token and without a position.
    pub(crate) fn request(&self, id: &LeaseId, lease: Duration) -> AcquireRequest {
        request_at(self.now(), id, lease)
    }

    /// The one lease of a lock that many cannot have.
    pub(crate) async fn holder(&self, mode: Mode, name: &LockName) -> Result<Option<Holder>, Failed> {
        Ok(only(mode, self.holders(mode, name).await?))
    }
}
