//! [`Context`]: the state that the entries of a client share.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use uuid::{Builder, Uuid};

use crate::lock_entry::{Moment, Request, Rules};
use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;
use crate::support::budget;
use crate::support::foreign::{self, Discarded};
use crate::support::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::support::trace;
use crate::support::unless::unless;

use crate::lock::backend::{AnyBackend, Boxed, Failed, Failure, Store};
use crate::lock::error::LockError;
use crate::lock::metrics::Recorder;
use crate::lock::name::LockName;
use crate::lock::options::LockOptions;
use crate::lock::origin::Origin;
use crate::lock::owner::{LeaseId, Owner};
use crate::lock::releases::Releases;

/// Longest delay between two tries of a command at a store that does not answer: of a waiter's question,
/// unless the store's messages are back earlier, and of a release.
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);

pub(super) struct Context {
    pub(super) store: Box<dyn Store>,
    pub(super) registry: Registry<dyn Transport>,
    pub(super) is_synchronous: bool,
    pub(super) rules: Rules,
    pub(super) recorder: Recorder,
    pub(super) releases: Releases,
    pub(super) client: Uuid,
    pub(super) id: String,
    pub(super) label: Option<Arc<str>>,
    #[cfg(feature = "tracing")]
    pub(super) slow_wait: Duration,
    next_number: AtomicU64,
    origin: Origin,
    draining: AtomicBool,
    shut_down: AtomicBool,
}

fn random_id(store: &dyn Store) -> Uuid {
    let [high, low] = [store.random(), store.random()].map(u128::from);
    Builder::from_random_bytes((high << 64 | low).to_be_bytes()).into_uuid()
}

impl Context {
    pub(super) fn new(AnyBackend(store): AnyBackend, options: &LockOptions) -> Self {
        let client = random_id(&*store);
        Self {
            registry: store.registry(),
            is_synchronous: store.is_synchronous(),
            store,
            rules: options.rules(),
            recorder: Recorder::default(),
            releases: Releases::default(),
            client,
            id: client.to_string(),
            label: options.label.clone(),
            #[cfg(feature = "tracing")]
            slow_wait: options.slow_wait,
            next_number: AtomicU64::new(1),
            origin: Origin::here(),
            draining: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.store.now().into()
    }

    pub(super) fn number(&self) -> u64 {
        // Ordering: Relaxed; only the number's uniqueness matters.
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn owner(&self, number: u64) -> Owner {
        Owner::new(self.client, number)
    }

    pub(super) fn lease_id(&self, number: u64) -> LeaseId {
        LeaseId::new(self.client, number, self.label.clone())
    }

    pub(super) fn lease_of(&self, request: &Request) -> Duration {
        request.own_lease().unwrap_or(self.rules.renewed_lease)
    }

    /// True in the process that made the client. In a child the client's mutexes may stay locked forever.
    #[inline]
    pub(super) fn is_same_process(&self) -> bool {
        self.origin.is_same_process()
    }

    pub(super) fn check_origin(&self) -> Result<(), LockError> {
        if self.is_same_process() { Ok(()) } else { Err(LockError::Forked) }
    }

    pub(super) fn check(&self) -> Result<(), LockError> {
        self.check_origin()?;
        if self.is_shut_down() {
            return Err(LockError::ShutDown);
        }
        if self.has_ended() {
            return Err(LockError::RuntimeEnded);
        }
        Ok(())
    }

    pub(super) fn is_shut_down(&self) -> bool {
        // Ordering: Relaxed. A caller may come first; entries are closed later, under their own mutexes.
        self.shut_down.load(Ordering::Relaxed)
    }

    pub(super) fn shut_down(&self) {
        self.drain();
        // Ordering: Relaxed, as above.
        self.shut_down.store(true, Ordering::Relaxed);
    }

    /// True if new acquisitions are refused, since a drain or a shutdown.
    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        // Ordering: Relaxed, as above: an acquisition may come first, and is then waited for.
        self.draining.load(Ordering::Relaxed)
    }

    pub(super) fn drain(&self) {
        // Ordering: Relaxed, as above.
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Makes a drain or a shutdown look again. Nothing listens before.
    #[inline]
    pub(super) fn tell_shutdown(&self) {
        if self.is_draining() {
            self.releases.tell();
        }
    }

    pub(super) fn closed(&self) -> LockError {
        // A shutdown closes entries, and so does the watchdog when its runtime ends.
        self.check().err().unwrap_or(LockError::RuntimeEnded)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.store.has_ended()
    }

    pub(super) fn spawn(&self, task: Boxed<'static, ()>) {
        self.store.spawn(task);
    }

    /// Polls a task once here, for stores in memory, and leaves the rest to the background.
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task = Box::pin(trace::here(task));
        if task.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending() {
            self.spawn(task);
        }
    }

    /// Drops a value that wakes tasks, in a task of its own.
    pub(super) fn drop_apart(&self, wakes: impl Send + 'static) {
        self.spawn(Box::pin(async move {
            // A runtime may poll a new task in place; the spawning task must not drop the value.
            yield_now().await;
            drop(wakes);
        }));
    }

    /// Awaits `future` until `deadline`. `None` if the time ran out first, by the clock, not the timer.
    pub(super) async fn until<F>(&self, deadline: Moment, future: F) -> Option<F::Output>
    where
        F: Future + Unpin,
    {
        let Some(instant) = deadline.instant() else { return Some(future.await) };
        let mut sleep = Discarded(foreign::call("a timer", || self.store.sleep_until(instant)));
        let timer = poll_fn(|task| match &mut sleep.0 {
            Some(sleep) if self.now() < deadline => {
                foreign::call("a timer", || sleep.as_mut().poll(task)).unwrap_or(Poll::Ready(()))
            }
            _ => Poll::Ready(()),
        });
        unless(future, timer).await
    }

    pub(super) fn failed(&self, name: &LockName, Failed { failure, source }: Failed) -> LockError {
        if self.has_ended() {
            return LockError::RuntimeEnded;
        }
        match failure {
            Failure::OtherKind(found) => LockError::other_kind(name, found, source),
            failure => LockError::Backend { name: name.clone(), failure, source },
        }
    }
}

/// Yields if this task has spent tokio's budget: called before a question that may be answered at once.
pub(super) async fn proceed() {
    if !budget::take_part() {
        yield_now().await;
    }
}

pub(super) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
