//! A fair lock released between a waiter's question, subscription and sleep; and messages that are no grants.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::over_local::{Between, Command, Fate, Nothing, There, Way, goes, over, over_with};
use crate::polled::{poll, ready};
use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend as _, Inbox, LockName, Mode, ReleaseOutcome, Runtime as _,
    Transport,
};
use latchwork::local::{Local, LocalTransport};
use latchwork::{LeaseId, LockClient};

/// Shorter than a third of the time a queue position lasts, after which the waiter asks again unprompted.
const SOON: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(30);

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Messages of a store in memory, with a hook before the next subscription.
struct Interrupted(Local, Hook);

impl Interrupted {
    fn inner(&self) -> &LocalTransport {
        self.0.registry().transport()
    }
}

impl Transport for Interrupted {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        if let Some(hook) = self.1.lock().unwrap().take() {
            hook();
        }
        self.inner().subscribe(channel, inbox);
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.inner().unsubscribe(channel);
    }
}

/// Nobody was subscribed to the message.
#[tokio::test]
async fn waiter_finds_a_release_between_its_attempt_and_subscription() {
    let (local, name) = (Local::new(), LockName::new("orders").unwrap());
    let them: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
    let request = AcquireRequest::new(them.clone(), LEASE, local.runtime().now().into());
    let taken = local.acquire(Mode::Fair, &name, &request).await.unwrap();
    assert_eq!(taken, AcquireOutcome::Acquired { last_token: 0 });
    let hook: Hook = Arc::default();
    *hook.lock().unwrap() = Some(Box::new({
        let (local, name) = (local.clone(), name.clone());
        move || {
            let release = local.release(Mode::Fair, &name, &them, None);
            let released = futures_util::FutureExt::now_or_never(release);
            assert_eq!(released, Some(Ok(ReleaseOutcome::Released { receivers: 0 })));
        }
    }));
    let transport = Interrupted(local.clone(), Arc::clone(&hook));
    let client = LockClient::new(over_with(local, Nothing, transport));
    let lock = client.get_fair_lock("orders").unwrap();
    let waits = tokio::time::timeout(SOON, lock.lock()).await.expect("the waiter sleeps beside a free lock");
    assert!(
        hook.lock().unwrap().is_none(),
        "expected a subscription after the attempt, or the test shows nothing"
    );
    waits.unwrap().unlock().await.unwrap();
}

/// A store that counts questions; its grant messages suffice as leases if `grants_suffice`.
struct Questions {
    asked: Arc<AtomicUsize>,
    grants_suffice: bool,
}

impl Between for Questions {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        let asks = way == There && command.acquires();
        self.asked.fetch_add(usize::from(asks), Ordering::Relaxed);
        goes()
    }

    fn grants_suffice(&self) -> bool {
        self.grants_suffice
    }
}

#[test]
fn insufficient_grant_by_message_is_requested_once_more() {
    for (grants_suffice, questions) in [(true, 2), (false, 3)] {
        let (local, asked) = (Local::new(), Arc::default());
        let between = Questions { asked: Arc::clone(&asked), grants_suffice };
        let [client, other] = [LockClient::new(over(&local, between)), LockClient::new(local.clone())];
        let theirs = ready(other.get_fair_lock("orders").unwrap().lock()).unwrap();
        let lock = client.get_fair_lock("orders").unwrap();
        let mut waits = pin!(lock.lock());
        assert!(poll(waits.as_mut()).is_pending());
        drop(theirs);
        let Poll::Ready(Ok(held)) = poll(waits.as_mut()) else { panic!("expected the grant") };
        assert_eq!(asked.load(Ordering::Relaxed), questions, "{grants_suffice}");
        // The release names no waiter either.
        let mut next = pin!(lock.lock());
        assert!(poll(next.as_mut()).is_pending());
        drop(held);
        let Poll::Ready(Ok(_held)) = poll(next.as_mut()) else { panic!("expected the grant") };
        let asked = asked.load(Ordering::Relaxed) - questions;
        assert_eq!(asked > 0, !grants_suffice, "{grants_suffice}: {asked}");
    }
}
