//! Compile-time checks of auto traits and of the error trait; nothing to run.

use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe};

use latchwork::backend::TokioRuntime;
use latchwork::latch::{Latch, Notification};
use latchwork::local::{LocalTransport, Sleep, ThreadRuntime};
use latchwork::lock::LockName;
use latchwork::lock_entry::LockEntry;
use latchwork::redis::{Redis, RedisBuilder, RedisTransport};
use latchwork::semaphore::{Acquire, AcquireOwned};
use latchwork::striped::{Stripe, StripeGuard, StripedSemaphores, StripesGuard};
use latchwork::subscription::*;
use latchwork::*;

fn shared<T: Send + Sync + Unpin>() {}
fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
fn error<T: Error + Send + Sync + 'static>() {}
fn sent<T: Send>(_: T) {}

static _LATCH: Latch = Latch::new();
static _STRIPES: StripedSemaphores = StripedSemaphores::new();

macro_rules! of {
    ($bound:ident: $($type:ty),*) => { $($bound::<$type>();)* };
}

#[test]
fn types() {
    of!(shared: AsyncSemaphore, SemaphorePermit<'_>, OwnedSemaphorePermit, Acquire<'_>, AcquireOwned,
        PollSemaphore, StripedSemaphores, Stripe<'_>, StripeGuard<'_>, StripesGuard<'_>, Latch,
        Notification<'_>, LockEntry, ChannelEntry, LeaseId, Listener, Inbox, Registry<LocalTransport>,
        Subscription<LocalTransport>, RedisTransport, LockClient, Lock, Guard, MultiLock, MultiGuard,
        blocking::MultiLock, blocking::MultiGuard, blocking::LockClient, blocking::Lock, blocking::Guard,
        RedisBuilder, Owner, LockName, ThreadRuntime, TokioRuntime, Sleep);
    // Like tokio's semaphore.
    of!(unwind_safe: AsyncSemaphore, Latch, StripedSemaphores, LockClient, Lock, ReadWriteLock, Guard,
        MultiLock, MultiGuard, Owner, blocking::LockClient, blocking::Lock, blocking::Guard, LockError);
    of!(error: AcquireError, TryAcquireError, SubscribeError, NameError, LeaseError, MultiLockError,
        LockError, latchwork::redis::Error);
}

#[test]
fn futures() {
    let client = LockClient::local();
    let lock = client.get_lock("traits").unwrap();
    sent(lock.lock());
    sent(lock.try_lock());
    sent(lock.try_lock_for(std::time::Duration::ZERO, Lease::Watched));
    sent(lock.force_unlock());
    let all = client.get_multi_lock([&lock]).unwrap();
    sent(all.lock());
    sent(all.try_lock_for(std::time::Duration::ZERO, Lease::Watched));
    sent(all.run(std::future::ready(())));
    sent(Redis::connect("redis://127.0.0.1:1"));
    sent(Redis::builder().connect("redis://127.0.0.1:1"));
    let latch = Latch::new();
    sent(latch.wait());
    let stripes = StripedSemaphores::new();
    sent(stripes.for_name("a").acquire());
    sent(stripes.acquire_all(["a", "b"]));
    let subscription = Registry::new(LocalTransport::default()).subscribe("a");
    sent(subscription.subscribed());
    let semaphore = AsyncSemaphore::new(1);
    sent(semaphore.acquire());
}
