//! Over a transport that confirms no subscription, messages are unreliable and waiters ask unprompted.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::meanwhile::Act;
use crate::over_local::{Back, Command, Fate, Nothing, Way, goes, over_with};
use crate::polled::{poll, ready};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::subscription::{Inbox, Message, SubscribeError, Transport};
use latchwork::{LeaseError, LockClient, LockError, LockOptions};

const WATCHDOG: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_secs(5);

/// Keeps inboxes without confirming.
#[derive(Clone, Default)]
struct Deaf(Arc<Mutex<Vec<Inbox>>>);

impl Transport for Deaf {
    fn subscribe(&self, _: &Arc<str>, inbox: Inbox) {
        self.0.lock().unwrap().push(inbox);
    }

    fn unsubscribe(&self, _: &Arc<str>) {}
}

/// Runs an action before the answer to the next plain acquisition or fair release.
fn before_an_answer(act: &Act) -> impl Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static {
    let act = act.clone();
    move |way, command| match (way, command) {
        (Back, Command::Acquire(Mode::Plain) | Command::Release(Mode::Fair)) if act.run() => {
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok(())
            })
        }
        _ => goes(),
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, so).await.unwrap_or_else(|_| panic!("expected within {SOON:?}: {what}"));
}

/// A successor that had never asked for the lease's end would wait for the confirmation forever.
#[tokio::test]
async fn next_queue_head_looks_for_itself_without_messages() {
    let local = Local::new();
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let backend = over_with(local, Nothing, Deaf::default());
    let client =
        LockClient::with_options(backend, &LockOptions::default().watchdog_timeout(WATCHDOG)).unwrap();
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let waiter = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let first = waiter();
    until("the first waits", || client.registry().stats().interest == 1).await;
    let second = waiter();
    until("the second waits", || lock.waiters() == 1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, second).await.expect("the waiter checks the lock").unwrap();
    guard.unlock().await.unwrap();
}

/// The waiter has asked unconfirmed and sleeps. The lock becomes free without a message, before confirmation.
#[tokio::test]
async fn late_confirmation_wakes_a_waiter() {
    let (runtime, deaf) = (ThreadRuntime::paused(), Deaf::default());
    let local = Local::with_runtime(runtime.clone());
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let backend = over_with(local, Nothing, deaf.clone());
    let client = LockClient::new(backend);
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    until("it subscribes", || !deaf.0.lock().unwrap().is_empty()).await;
    let asleep = || client.registry().join("orders").is_some_and(|entry| entry.waiters() == 1);
    until("it sleeps", || {
        runtime.advance(Duration::from_millis(100));
        asleep()
    })
    .await;
    held.unlock().await.unwrap();
    // The clock stands still from here on.
    deaf.0.lock().unwrap()[0].ready();
    let guard = tokio::time::timeout(SOON, waits).await.expect("asleep beside a free lock").unwrap();
    guard.unlock().await.unwrap();
}

/// The clock stands still, and no message comes.
#[tokio::test]
async fn forced_unlock_wakes_a_waiter_of_its_client_without_a_message() {
    let (runtime, deaf) = (ThreadRuntime::paused(), Deaf::default());
    let local = Local::with_runtime(runtime.clone());
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let client = LockClient::new(over_with(local, Nothing, deaf.clone()));
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    until("it subscribes", || !deaf.0.lock().unwrap().is_empty()).await;
    deaf.0.lock().unwrap()[0].ready();
    let asleep = || client.registry().join("orders").is_some_and(|entry| entry.waiters() == 1);
    until("it sleeps", asleep).await;
    assert!(lock.force_unlock().await.unwrap());
    let guard = tokio::time::timeout(SOON, waits).await.expect("asleep beside a free lock").unwrap();
    guard.unlock().await.unwrap();
    assert!(held.unlock().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn reconnect_and_bursts_of_messages_make_a_process_ask_once() {
    const WAITERS: usize = 100;
    let deaf = Deaf::default();
    let local = Local::new();
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let client = LockClient::new(over_with(local, Nothing, deaf.clone()));
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let lock = lock.clone();
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() }));
    }
    until("they wait", || lock.waiters() == WAITERS - 1 && !deaf.0.lock().unwrap().is_empty()).await;
    let inbox = deaf.0.lock().unwrap()[0].clone();
    inbox.ready();
    let asleep = || client.registry().join("orders").is_some_and(|entry| entry.waiters() == 1);
    until("the queue head sleeps", asleep).await;
    let looked = || lock.stats().wakes_spurious;
    inbox.resubscribed();
    until("it looks", || looked() == 1 && asleep()).await;
    for _ in 0..WAITERS {
        inbox.deliver(Message::Unlock);
    }
    until("it looks again", || looked() >= 2 && asleep()).await;
    // One message came during sleep, and one stayed pending.
    assert!(looked() <= 3, "expected three attempts at most, and saw {}", looked());
    held.unlock().await.unwrap();
    inbox.deliver(Message::Unlock);
    for waiter in waiters {
        tokio::time::timeout(SOON, waiter).await.expect("the waiter has its turn").unwrap();
    }
}

/// The lease granted was over before the answer, and another client holds the lock by then.
#[tokio::test]
async fn try_that_is_answered_too_late_does_not_wait() {
    let (runtime, lease) = (ThreadRuntime::paused(), Duration::from_millis(10));
    let local = Local::with_runtime(runtime.clone());
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let meanwhile = Act::default();
    let backend = over_with(local, before_an_answer(&meanwhile), Deaf::default());
    let lock = LockClient::new(backend).get_lock("orders").unwrap();
    let held = Arc::new(Mutex::new(None));
    let holds = Arc::clone(&held);
    meanwhile.set(move || {
        runtime.advance(lease);
        let lock = pin!(theirs.try_lock()).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(Some(guard))) = lock else { panic!("expected the free lock") };
        *holds.lock().unwrap() = Some(guard);
    });
    let tries = lock.try_lock_for(Duration::ZERO, lease);
    let tried = tokio::time::timeout(SOON, tries).await.expect("expected the answer to the try");
    assert!(held.lock().unwrap().is_some());
    // The error blames the lease, which came too late, not the answer.
    assert!(matches!(tried, Err(LockError::Lease(LeaseError::OverBeforeAnswer))), "{tried:?}");
}

/// The waiter has already asked without a confirmation.
#[test]
fn failure_of_an_unconfirmed_subscription_is_reported() {
    let (runtime, deaf) = (ThreadRuntime::paused(), Deaf::default());
    let local = Local::with_runtime(runtime.clone());
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let lock = LockClient::new(over_with(local, Nothing, deaf.clone())).get_lock("orders");
    let _held = ready(theirs.lock()).unwrap();
    let lock = lock.unwrap();
    let mut waits = pin!(lock.lock());
    for _ in 0..2 {
        assert!(poll(waits.as_mut()).is_pending());
        runtime.advance(Duration::from_secs(2));
    }
    deaf.0.lock().unwrap()[0].failed(SubscribeError::new("on purpose"));
    let Poll::Ready(Err(error)) = poll(waits) else { panic!("expected an error, as no message can come") };
    assert!(matches!(error, LockError::Subscribe(_)), "{error:?}");
}

/// The confirmation overtakes the answer that the lock is held; the earlier release's message is lost.
#[tokio::test]
async fn confirmation_before_the_answer_to_an_attempt_wakes_a_waiter() {
    let (runtime, deaf, meanwhile) = (ThreadRuntime::paused(), Deaf::default(), Act::default());
    let local = Local::with_runtime(runtime.clone());
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let client = LockClient::new(over_with(local, before_an_answer(&meanwhile), deaf.clone()));
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    until("it subscribes", || !deaf.0.lock().unwrap().is_empty()).await;
    let inbox = deaf.0.lock().unwrap()[0].clone();
    meanwhile.set(move || {
        ready(held.unlock()).unwrap();
        inbox.ready();
    });
    until("it asks", || {
        runtime.advance(Duration::from_millis(100));
        meanwhile.has_run()
    })
    .await;
    // The clock stands still from here on.
    let guard = tokio::time::timeout(SOON, waits).await.expect("asleep beside a free lock").unwrap();
    guard.unlock().await.unwrap();
}

/// The release and its message overtake the answer that the lock is held.
#[tokio::test]
async fn message_before_the_answer_to_an_attempt_makes_the_waiter_ask_again() {
    let (runtime, deaf, meanwhile) = (ThreadRuntime::paused(), Deaf::default(), Act::default());
    let local = Local::with_runtime(runtime);
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let client = LockClient::new(over_with(local, before_an_answer(&meanwhile), deaf.clone()));
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    until("it subscribes", || !deaf.0.lock().unwrap().is_empty()).await;
    let inbox = deaf.0.lock().unwrap()[0].clone();
    let messages = inbox.clone();
    meanwhile.set(move || {
        ready(held.unlock()).unwrap();
        messages.deliver(Message::Unlock);
    });
    inbox.ready();
    let guard = tokio::time::timeout(SOON, waits).await.expect("asleep beside a free lock").unwrap();
    guard.unlock().await.unwrap();
    assert!(meanwhile.has_run(), "expected a release during a question");
}

/// The message of the grant precedes the subscription's confirmation, which precedes the release's answer.
#[tokio::test]
async fn named_waiter_asks_if_its_confirmation_came_after_the_release() {
    let (runtime, deaf, meanwhile) = (ThreadRuntime::paused(), Deaf::default(), Act::default());
    let local = Local::with_runtime(runtime);
    let theirs = LockClient::new(local.clone()).get_fair_lock("orders").unwrap();
    let client = LockClient::new(over_with(local, before_an_answer(&meanwhile), deaf.clone()));
    let lock = client.get_fair_lock("orders").unwrap();
    let held = lock.lock().await.unwrap();
    let mut first = Box::pin(async move { theirs.lock().await });
    assert!(poll(first.as_mut()).is_pending());
    let mut named = pin!(lock.lock());
    assert!(poll(named.as_mut()).is_pending());
    let inboxes = Arc::clone(&deaf.0);
    meanwhile.set(move || {
        let Poll::Ready(Ok(guard)) = poll(first.as_mut()) else { panic!("expected the waiter's turn") };
        ready(guard.unlock()).unwrap();
        inboxes.lock().unwrap().iter().for_each(Inbox::ready);
    });
    drop(held);
    assert!(meanwhile.has_run(), "expected a release during the hand-off");
    let guard =
        tokio::time::timeout(SOON, named).await.expect("the waiter sleeps beside its granted lock").unwrap();
    guard.unlock().await.unwrap();
}
