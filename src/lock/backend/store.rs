//! [`Store`]: a type-erased [`Backend`], so that a client needs no type parameter.

use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;
use crate::support::foreign;
use crate::support::runtime::Runtime;

use super::command::{
    AcquireOutcome, AcquireRequest, Channels, Failure, Holder, LeaseKey, NextWaiter, ReleaseOutcome,
};
use super::{Backend, Mode};
use crate::lock::name::{LockName, NameError};
use crate::lock::owner::LeaseId;

/// A type-erased [`Backend`]: see [`Backend::erased`].
///
/// # Examples
///
/// ```
/// use latchwork::backend::{AnyBackend, Backend};
/// use latchwork::local::Local;
///
/// let backends: [AnyBackend; 2] = [Local::new().erased(), AnyBackend::new(Local::new())];
/// assert!(backends.iter().all(|backend| format!("{backend:?}").contains("Local")));
/// ```
pub struct AnyBackend(pub(in crate::lock) Box<dyn Store>);

impl AnyBackend {
    /// Erases the type of `backend`.
    pub fn new(backend: impl Backend) -> Self {
        Self(Box::new(backend))
    }
}

impl fmt::Debug for AnyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyBackend").field(&self.0.type_name()).finish()
    }
}

#[derive(Debug)]
pub(in crate::lock) struct Failed {
    pub(in crate::lock) failure: Failure,
    pub(in crate::lock) source: Box<dyn Error + Send + Sync>,
}

pub(in crate::lock) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(in crate::lock) enum CommandFuture<'a, T> {
    /// The call itself has answered; `None` once the answer was taken.
    Done(Option<Result<T, Failed>>),
    UnderWay(Boxed<'a, Result<T, Failed>>),
}

impl<T: Unpin> Future for CommandFuture<'_, T> {
    type Output = Result<T, Failed>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(answer) => Poll::Ready(answer.take().expect("polled after its end")),
            Self::UnderWay(answer) => answer.as_mut().poll(task),
        }
    }
}

/// A type-erased [`Backend`]. A [synchronous](Self::is_synchronous) store runs a command in the call itself.
pub(in crate::lock) trait Store: Commands + Any + Send + Sync {
    fn type_name(&self) -> &'static str;
    fn is_synchronous(&self) -> bool;
    fn registry(&self) -> Registry<dyn Transport>;
    fn now(&self) -> Instant;
    fn sleep_until(&self, deadline: Instant) -> Boxed<'static, ()>;
    fn spawn(&self, task: Boxed<'static, ()>);
    fn random(&self) -> u64;
    fn has_ended(&self) -> bool;
}

macro_rules! commands {
    (
        $(ask $ask:ident($($part:ident: $is:ty),*) -> $said:ty, or $or:expr;)*
        $(fn $name:ident($($argument:ident: $of:ty),*) -> $output:ty;)*
    ) => {
        /// The questions and commands of a type-erased [`Backend`]. A question that panics returns the
        /// default after `or`. A command not done within the call is a boxed future.
        pub(in crate::lock) trait Commands {
            $(fn $ask(&self, $($part: $is),*) -> $said;)*
            $(fn $name<'a>(&'a self, $($argument: $of),*) -> CommandFuture<'a, $output>;)*
        }

        impl<B: Backend> Commands for B {
            $(
                fn $ask(&self, $($part: $is),*) -> $said {
                    foreign::call("a backend", || Backend::$ask(self, $($part),*)).unwrap_or_else(|| $or)
                }
            )*
            $(
                fn $name<'a>(&'a self, $($argument: $of),*) -> CommandFuture<'a, $output> {
                    if B::ANSWERS_AT_ONCE {
                        let polled = foreign::call(COMMAND, || {
                            pin!(Backend::$name(self, $($argument),*))
                                .poll(&mut Context::from_waker(Waker::noop()))
                        });
                        let answer = polled.map_or(Poll::Ready(None), |polled| polled.map(Some));
                        if let Poll::Ready(answer) = answer {
                            return CommandFuture::Done(Some(answered(self, answer)));
                        }
                    }
                    CommandFuture::UnderWay(Box::pin(async move {
                        // Pinned here: each `async fn` that takes a future by value has room for it twice.
                        let command = pin!(async { Backend::$name(self, $($argument),*).await });
                        answered(self, foreign::run(COMMAND, command).await)
                    }))
                }
            )*
        }
    };
}

commands! {
    ask supports(mode: Mode) -> bool, or false;
    // No message comes on the default channel: a waiter asks again when the holder's lease ends.
    ask channels(mode: Mode, name: &LockName, client: &str) -> Channels, or Channels::one(name.as_str());
    ask grants_suffice() -> bool, or false;
    ask calls_waiters() -> bool, or false;
    ask may_run_again(id: &LeaseId) -> bool, or true;
    ask reconnects() -> u64, or 0;
    ask commands_waiting() -> u64, or 0;
    ask check_name(name: &LockName) -> Result<(), NameError>, or Ok(());
    ask renewal_group(name: &LockName) -> u64, or 0;
    fn acquire(mode: Mode, name: &'a LockName, request: &'a AcquireRequest) -> AcquireOutcome;
    fn release(
        mode: Mode, name: &'a LockName, id: &'a LeaseId, next: Option<&'a NextWaiter>
    ) -> ReleaseOutcome;
    fn roll_back(mode: Mode, name: &'a LockName, id: &'a LeaseId) -> ReleaseOutcome;
    fn renew(mode: Mode, leases: &'a [LeaseKey], lease: Duration) -> Vec<bool>;
    fn force_release(mode: Mode, name: &'a LockName) -> bool;
    fn holders(mode: Mode, name: &'a LockName) -> Vec<Holder>;
}

const COMMAND: &str = "a command of the backend";

/// Converts a command's answer; `None` stands for a panic: the command may have run.
#[inline]
fn answered<B: Backend, T>(backend: &B, answer: Option<Result<T, B::Error>>) -> Result<T, Failed> {
    match answer {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Err(failed(backend, error)),
        None => Err(Failed { failure: Failure::Indeterminate, source: "the backend has panicked".into() }),
    }
}

#[cold]
fn failed<B: Backend>(backend: &B, error: B::Error) -> Failed {
    let failure = foreign::call("a backend", || backend.failure(&error)).unwrap_or(Failure::Indeterminate);
    Failed { failure, source: Box::new(error) }
}

impl<B: Backend> Store for B {
    fn type_name(&self) -> &'static str {
        type_name::<B>()
    }

    fn is_synchronous(&self) -> bool {
        B::ANSWERS_AT_ONCE
    }

    fn registry(&self) -> Registry<dyn Transport> {
        Backend::registry(self).erased()
    }

    /// Falls back to the system's time if the runtime's clock panics.
    #[inline]
    fn now(&self) -> Instant {
        foreign::call("a runtime's clock", || self.runtime().now()).unwrap_or_else(Instant::now)
    }

    fn sleep_until(&self, deadline: Instant) -> Boxed<'static, ()> {
        Box::pin(self.runtime().sleep_until(deadline))
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        foreign::call("a runtime", || self.runtime().spawn(task));
    }

    fn random(&self) -> u64 {
        self.runtime().random()
    }

    fn has_ended(&self) -> bool {
        foreign::call("a runtime", || self.runtime().has_ended()).unwrap_or(false)
    }
}
