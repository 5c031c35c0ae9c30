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

#[test]
fn types() {
    shared::<AsyncSemaphore>();
    shared::<SemaphorePermit<'_>>();
    shared::<OwnedSemaphorePermit>();
    shared::<Acquire<'_>>();
    shared::<AcquireOwned>();
    shared::<PollSemaphore>();
    shared::<StripedSemaphores>();
    shared::<Stripe<'_>>();
    shared::<StripeGuard<'_>>();
    shared::<StripesGuard<'_>>();
    shared::<Latch>();
    shared::<Notification<'_>>();
    shared::<LockEntry>();
    shared::<ChannelEntry>();
    shared::<LeaseId>();
    shared::<Listener>();
    shared::<Inbox>();
    shared::<Registry<LocalTransport>>();
    shared::<Subscription<LocalTransport>>();
    shared::<RedisTransport>();
    shared::<LockClient>();
    shared::<Lock>();
    shared::<Guard>();
    shared::<MultiLock>();
    shared::<MultiGuard>();
    shared::<blocking::MultiLock>();
    shared::<blocking::MultiGuard>();
    shared::<blocking::LockClient>();
    shared::<blocking::Lock>();
    shared::<blocking::Guard>();
    shared::<RedisBuilder>();
    shared::<Owner>();
    shared::<LockName>();
    shared::<ThreadRuntime>();
    shared::<TokioRuntime>();
    shared::<Sleep>();
    // Like tokio's semaphore.
    unwind_safe::<AsyncSemaphore>();
    unwind_safe::<Latch>();
    unwind_safe::<StripedSemaphores>();
    unwind_safe::<LockClient>();
    unwind_safe::<Lock>();
    unwind_safe::<ReadWriteLock>();
    unwind_safe::<Guard>();
    unwind_safe::<MultiLock>();
    unwind_safe::<MultiGuard>();
    unwind_safe::<Owner>();
    unwind_safe::<blocking::LockClient>();
    unwind_safe::<blocking::Lock>();
    unwind_safe::<blocking::Guard>();
    unwind_safe::<LockError>();
}

#[test]
fn errors() {
    error::<AcquireError>();
    error::<TryAcquireError>();
    error::<SubscribeError>();
    error::<NameError>();
    error::<LeaseError>();
    error::<MultiLockError>();
    error::<LockError>();
    error::<latchwork::redis::Error>();
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
