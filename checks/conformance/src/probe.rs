//! [`Probe`]: a backend without its type, to compile the properties once, and not for each store.

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

/// The error of a store that could not run a command.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    error: Box<dyn Error + Send + Sync>,
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.error, self.error)
    }
}

/// The methods of a [`Backend`] that are no commands, and the clock of its runtime.
pub(crate) trait Probe: ProbeCommands {
    fn now(&self) -> Instant;
    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels;
    fn grants_suffice(&self) -> bool;
    fn calls_waiters(&self) -> bool;
}

macro_rules! commands {
    ($(fn $name:ident($($argument:ident: $of:ty),*) -> $output:ty;)*) => {
        /// The commands of a [`Backend`], with errors that say their [`Failure`].
        pub(crate) trait ProbeCommands {
            $(fn $name<'a>(&'a self, $($argument: $of),*) -> Answer<'a, $output>;)*
        }

        impl<B: Backend> ProbeCommands for B {
            $(
                fn $name<'a>(&'a self, $($argument: $of),*) -> Answer<'a, $output> {
                    Box::pin(async move {
                        let answer = Backend::$name(self, $($argument),*).await;
                        answer.map_err(|error| Failed { failure: self.failure(&error), error: error.into() })
                    })
                }
            )*
        }
    };
}

commands! {
    fn acquire(mode: Mode, name: &'a LockName, request: &'a AcquireRequest) -> AcquireOutcome;
    fn release(
        mode: Mode, name: &'a LockName, id: &'a LeaseId, next: Option<&'a NextWaiter>
    ) -> ReleaseOutcome;
    fn roll_back(mode: Mode, name: &'a LockName, id: &'a LeaseId) -> ReleaseOutcome;
    fn renew(mode: Mode, leases: &'a [LeaseKey], lease: Duration) -> Vec<bool>;
    fn force_release(mode: Mode, name: &'a LockName) -> bool;
    fn holders(mode: Mode, name: &'a LockName) -> Vec<Holder>;
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

    fn calls_waiters(&self) -> bool {
        Backend::calls_waiters(self)
    }
}

impl dyn Probe + '_ {
    pub(crate) fn request(&self, id: &LeaseId, lease: Duration) -> AcquireRequest {
        request_at(self.now(), id, lease)
    }

    pub(crate) async fn holder(&self, mode: Mode, name: &LockName) -> Result<Option<Holder>, Failed> {
        Ok(only(mode, self.holders(mode, name).await?))
    }
}
