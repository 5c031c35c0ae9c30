//! Over a transport that confirms no subscription, messages are unreliable and waiters ask unprompted.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::meanwhile::Act;
use crate::over_local::{Back, Command, Fate, Way, goes, over_with};
use crate::polled::{poll, ready};
use crate::stage::{ByHand, begun, waits_on};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::subscription::{Inbox, Message, SubscribeError};
use latchwork::{Guard, LeaseError, Lock, LockClient, LockError};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);

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
    timeout(SOON, so).await.unwrap_or_else(|_| panic!("expected within {SOON:?}: {what}"));
}

/// A client without messages, and a client of the same store.
struct Stage {
    clock: ThreadRuntime,
    messages: ByHand,
    meanwhile: Act,
    client: LockClient,
    lock: Lock,
    other: LockClient,
    theirs: Lock,
}

impl Stage {
    fn new() -> Self {
        let (clock, messages, meanwhile) = (ThreadRuntime::paused(), ByHand::default(), Act::default());
        let local = Local::with_runtime(clock.clone());
        let backend = over_with(local.clone(), before_an_answer(&meanwhile), messages.clone());
        let [client, other] = [LockClient::new(backend), LockClient::new(local)];
        let [lock, theirs] = [&client, &other].map(|client| client.get_lock("orders").unwrap());
        Self { clock, messages, meanwhile, client, lock, other, theirs }
    }

    /// Returns a waiter that is polled when it is woken.
    fn waiter(&self) -> JoinHandle<Guard> {
        let lock = self.lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    }

    async fn inbox(&self) -> Inbox {
        until("a subscription", || !self.messages.0.lock().unwrap().is_empty()).await;
        self.messages.0.lock().unwrap()[0].clone()
    }

    fn is_asleep(&self) -> bool {
        self.client.registry().join("orders").is_some_and(|entry| entry.waiters() == 1)
    }

    async fn until_it(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        until(what, || {
            self.clock.advance(Duration::from_millis(100));
            is_so()
        })
        .await;
    }
}

async fn gets(waits: impl Future<Output = Guard>) {
    let guard = timeout(SOON, waits).await.expect("asleep beside a free lock");
    guard.unlock().await.unwrap();
}

async fn has(waits: JoinHandle<Guard>) {
    gets(async { waits.await.unwrap() }).await;
}

/// A successor that had never asked for the lease's end would wait for the confirmation forever.
#[tokio::test]
async fn next_queue_head_looks_for_itself_without_messages() {
    let stage = Stage::new();
    let held = stage.theirs.lock().await.unwrap();
    let first = stage.waiter();
    stage.inbox().await;
    let second = stage.waiter();
    until("the second waits", || stage.lock.waiters() == 1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    held.unlock().await.unwrap();
    stage.until_it("the waiter checks the lock", || second.is_finished()).await;
    has(second).await;
}

/// The waiter has asked unconfirmed and sleeps. The lock becomes free without a message, before confirmation.
#[tokio::test]
async fn late_confirmation_wakes_a_waiter() {
    let stage = Stage::new();
    let held = stage.theirs.lock().await.unwrap();
    let waits = stage.waiter();
    let inbox = stage.inbox().await;
    stage.until_it("it sleeps", || stage.is_asleep()).await;
    held.unlock().await.unwrap();
    // The clock stands still from here on.
    inbox.ready();
    has(waits).await;
}

/// The clock stands still, and no message comes.
#[tokio::test]
async fn forced_unlock_wakes_a_waiter_of_its_client_without_a_message() {
    let stage = Stage::new();
    let held = stage.theirs.lock().await.unwrap();
    let waits = stage.waiter();
    stage.inbox().await.ready();
    until("it sleeps", || stage.is_asleep()).await;
    assert!(stage.lock.force_unlock().await.unwrap());
    has(waits).await;
    assert!(held.unlock().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn reconnect_and_bursts_of_messages_make_a_process_ask_once() {
    const WAITERS: usize = 100;
    let stage = Stage::new();
    let held = stage.theirs.lock().await.unwrap();
    let waiters = [(); WAITERS].map(|()| stage.waiter());
    let inbox = stage.inbox().await;
    until("they wait", || stage.lock.waiters() == WAITERS - 1).await;
    inbox.ready();
    until("the queue head sleeps", || stage.is_asleep()).await;
    let looked = || stage.lock.stats().wakes_spurious;
    inbox.resubscribed();
    stage.until_it("it looks", || looked() == 1 && stage.is_asleep()).await;
    for _ in 0..WAITERS {
        inbox.deliver(Message::Unlock);
    }
    stage.until_it("it looks again", || looked() >= 2 && stage.is_asleep()).await;
    // One message came during sleep, and one stayed pending.
    assert!(looked() <= 3, "expected three attempts at most, and saw {}", looked());
    held.unlock().await.unwrap();
    inbox.deliver(Message::Unlock);
    for waiter in waiters {
        has(waiter).await;
    }
}

/// The lease granted was over before the answer, and another client holds the lock by then.
#[tokio::test]
async fn try_that_is_answered_too_late_does_not_wait() {
    let (stage, lease) = (Stage::new(), Duration::from_millis(10));
    let held = Arc::new(Mutex::new(None));
    stage.meanwhile.set({
        let (clock, theirs, held) = (stage.clock.clone(), stage.theirs.clone(), Arc::clone(&held));
        move || {
            clock.advance(lease);
            *held.lock().unwrap() = ready(theirs.try_lock()).unwrap();
        }
    });
    let tries = stage.lock.try_lock_for(Duration::ZERO, lease);
    let tried = timeout(SOON, tries).await.expect("expected the answer to the try");
    assert!(held.lock().unwrap().is_some());
    // The error blames the lease, which came too late, not the answer.
    assert!(matches!(tried, Err(LockError::Lease(LeaseError::OverBeforeAnswer))), "{tried:?}");
}

/// The waiter has already asked without a confirmation.
#[test]
fn failure_of_an_unconfirmed_subscription_is_reported() {
    let stage = Stage::new();
    let _held = ready(stage.theirs.lock()).unwrap();
    let mut waits = begun(stage.lock.lock());
    stage.clock.advance(Duration::from_secs(2));
    waits_on(waits.as_mut());
    stage.clock.advance(Duration::from_secs(2));
    stage.messages.0.lock().unwrap()[0].failed(SubscribeError::new("on purpose"));
    let error = ready(waits).unwrap_err();
    assert!(matches!(error, LockError::Subscribe(_)), "{error:?}");
}

/// The confirmation, or the release and its message, overtakes the answer that the lock is held.
#[tokio::test]
async fn news_before_the_answer_to_an_attempt_makes_the_waiter_ask_again() {
    for is_message in [false, true] {
        let stage = Stage::new();
        let held = stage.theirs.lock().await.unwrap();
        let waits = stage.waiter();
        let inbox = stage.inbox().await;
        stage.meanwhile.set({
            let inbox = inbox.clone();
            move || {
                ready(held.unlock()).unwrap();
                match is_message {
                    true => inbox.deliver(Message::Unlock),
                    false => inbox.ready(),
                }
            }
        });
        if is_message {
            inbox.ready();
        } else {
            stage.until_it("it asks", || stage.meanwhile.has_run()).await;
        }
        // The clock stands still from here on.
        has(waits).await;
        assert!(stage.meanwhile.has_run(), "expected a release during a question");
    }
}

/// The message of the grant precedes the subscription's confirmation, which precedes the release's answer.
#[tokio::test]
async fn named_waiter_asks_if_its_confirmation_came_after_the_release() {
    let stage = Stage::new();
    let [lock, theirs] = [&stage.client, &stage.other].map(|client| client.get_fair_lock("orders").unwrap());
    let held = lock.lock().await.unwrap();
    let mut first = begun(async move { theirs.lock().await });
    let named = begun(lock.lock());
    let inboxes = Arc::clone(&stage.messages.0);
    stage.meanwhile.set(move || {
        let Poll::Ready(Ok(guard)) = poll(first.as_mut()) else { panic!("expected the waiter's turn") };
        ready(guard.unlock()).unwrap();
        inboxes.lock().unwrap().iter().for_each(Inbox::ready);
    });
    drop(held);
    assert!(stage.meanwhile.has_run(), "expected a release during the hand-off");
    gets(async { named.await.unwrap() }).await;
}
