//! [`Context`]: what the entries of a client share.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use uuid::{Builder, Uuid};

use crate::lock_entry::{Moment, Request, Rules};
use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;
use crate::support::budget;
use crate::support::foreign;
use crate::support::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::support::unless::unless;

use crate::lock::backend::{AnyBackend, Boxed, Failed, Failure, Store};
use crate::lock::error::LockError;
use crate::lock::metrics::Recorder;
use crate::lock::name::LockName;
use crate::lock::origin::Origin;
use crate::lock::owner::{LeaseId, Owner};
use crate::lock::releases::Releases;

pub(super) struct Context {
    pub(super) store: Box<dyn Store>,
    pub(super) registry: Registry<dyn Transport>,
    /// The store answers by the call.
    pub(super) is_synchronous: bool,
    pub(super) rules: Rules,
    pub(super) recorder: Recorder,
    pub(super) releases: Releases,
    pub(super) client: Uuid,
    /// The uuid as text.
    pub(super) id: String,
    label: Option<Arc<str>>,
    /// Of owners and of leases.
    next_number: AtomicU64,
    origin: Origin,
    shut_down: AtomicBool,
}

fn random_id(store: &dyn Store) -> Uuid {
    let [high, low] = [store.random(), store.random()].map(u128::from);
    Builder::from_random_bytes((high << 64 | low).to_be_bytes()).into_uuid()
}

impl Context {
    pub(super) fn new(AnyBackend(store): AnyBackend, rules: Rules, label: Option<Arc<str>>) -> Self {
        let client = random_id(&*store);
        Self {
            registry: store.registry(),
            is_synchronous: store.is_synchronous(),
            store,
            rules,
            recorder: Recorder::default(),
            releases: Releases::default(),
            client,
            id: client.to_string(),
            label,
            next_number: AtomicU64::new(1),
            origin: Origin::here(),
            shut_down: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.store.now().into()
    }

    /// A number that was never used, of an owner or a lease.
    pub(super) fn number(&self) -> u64 {
        // Ordering: Relaxed, only the number's being used once matters.
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn owner(&self, number: u64) -> Owner {
        Owner::new(self.client, number)
    }

    pub(super) fn lease_id(&self, number: u64) -> LeaseId {
        LeaseId::new(self.client, number, self.label.clone())
    }

    /// The lease to ask the store for.
    pub(super) fn lease_of(&self, request: &Request) -> Duration {
        request.own_lease().unwrap_or(self.rules.renewed_lease)
    }

    /// Whether this is the process that the client was made in. In a child the client's mutexes are not to be
    /// locked: a thread that the child does not have may have had them.
    #[inline]
    pub(super) fn is_same_process(&self) -> bool {
        self.origin.is_same_process()
    }

    /// An error if the client's leases are another process's.
    pub(super) fn check_origin(&self) -> Result<(), LockError> {
        if self.is_same_process() { Ok(()) } else { Err(LockError::Forked) }
    }

    /// An error if no lock can be taken by this client any more.
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
        // Ordering: Relaxed. A caller that comes at the same time may come before; entries are closed under
        // their own mutexes afterwards.
        self.shut_down.load(Ordering::Relaxed)
    }

    pub(super) fn shut_down(&self) {
        // Ordering: Relaxed, as above.
        self.shut_down.store(true, Ordering::Relaxed);
    }

    /// Tells a shutdown that there is something to look at. Nothing listens before there is one.
    #[inline]
    pub(super) fn tell_shutdown(&self) {
        if self.is_shut_down() {
            self.releases.tell();
        }
    }

    /// Why an entry is closed.
    pub(super) fn closed(&self) -> LockError {
        // Entries are closed by a shutdown, and by the end of the watchdog with its runtime.
        self.check().err().unwrap_or(LockError::RuntimeEnded)
    }

    /// Whether the runtime has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.store.has_ended()
    }

    pub(super) fn spawn(&self, task: Boxed<'static, ()>) {
        self.store.spawn(task);
    }

    /// Drops what wakes others in a task of its own.
    pub(super) fn drop_apart(&self, wakes: impl Send + 'static) {
        self.spawn(Box::pin(async move {
            // Not in the task that spawns this one, which a runtime may poll in place.
            yield_now().await;
            drop(wakes);
        }));
    }

    /// Awaits `future` until `deadline`, for ever if that is never. `None` if the time ran out first; what is
    /// ready is taken even when it is late.
    ///
    /// It ran out when the clock says so: a runtime that is busy fires its timers late.
    /// Pinned by the caller: see [`unless`].
    pub(super) async fn until<F>(&self, deadline: Moment, future: F) -> Option<F::Output>
    where
        F: Future + Unpin,
    {
        let Some(instant) = deadline.instant() else { return Some(future.await) };
        // A timer that panics has fired.
        let mut sleep = foreign::call("a timer", || self.store.sleep_until(instant));
        let timer = poll_fn(|task| match &mut sleep {
            Some(sleep) if self.now() < deadline => {
                foreign::call("a timer", || sleep.as_mut().poll(task)).unwrap_or(Poll::Ready(()))
            }
            _ => Poll::Ready(()),
        });
        unless(future, timer).await
    }

    /// What `error` of a command on `name` is to the caller.
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

/// Lets other tasks go on if this one has spent tokio's budget: before a question that may be answered at
/// once.
pub(super) async fn proceed() {
    if !budget::take_part() {
        yield_now().await;
    }
}

/// Lets other tasks of the same thread go on.
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
