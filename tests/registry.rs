//! `Registry` and `LockEntry`: who subscribes, who unsubscribes, and who is told.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use latchwork::{Call, Inbox, Message, Registry, SubscribeError, Transport};

/// Records what it is asked for; the test plays the server.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Vec<Step>>>);

#[derive(Debug)]
enum Step {
    Subscribe(String, Inbox),
    Unsubscribe(String),
}

impl Transport for Script {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        self.0.lock().unwrap().push(Step::Subscribe(channel.to_string(), inbox));
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.0.lock().unwrap().push(Step::Unsubscribe(channel.to_string()));
    }
}

impl Script {
    /// What was asked for since the last look, in short, and the last inbox.
    fn steps(&self) -> (Vec<String>, Option<Inbox>) {
        let mut inbox = None;
        let steps = std::mem::take(&mut *self.0.lock().unwrap());
        let told = steps.into_iter().map(|step| match step {
            Step::Subscribe(channel, to) => {
                inbox = Some(to);
                format!("+{channel}")
            }
            Step::Unsubscribe(channel) => format!("-{channel}"),
        });
        (told.collect(), inbox)
    }

    fn inbox(&self) -> Inbox {
        self.steps().1.expect("somebody subscribed")
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn registry() -> (Script, Registry<Script>) {
    let script = Script::default();
    (script.clone(), Registry::new(script))
}

#[test]
fn first_one_in_subscribes_last_one_out_unsubscribes() {
    let (script, registry) = registry();
    let first = registry.subscribe("a");
    let second = registry.subscribe("a");
    let third = second.clone();
    assert_eq!(first.acquired(), 3);
    assert_eq!(script.steps().0, ["+a"]);
    drop(first);
    drop(third);
    assert_eq!(registry.len(), 1);
    assert_eq!(script.steps().0, [""; 0]);
    drop(second);
    assert_eq!(script.steps().0, ["-a"]);
    assert!(registry.is_empty());
    drop(registry.subscribe("a"));
    assert_eq!(script.steps().0, ["+a", "-a"]);
}

#[test]
fn each_waiter_waits_for_readiness_by_itself() {
    let (script, registry) = registry();
    let (impatient, patient) = (registry.subscribe("a"), registry.subscribe("a"));
    let mut waits = pin!(patient.subscribed());
    {
        let mut gives_up = pin!(impatient.subscribed());
        assert!(poll(gives_up.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
    }
    drop(impatient);
    assert!(
        poll(waits.as_mut()).is_pending(),
        "the impatient one took the patient one's subscription with it"
    );
    script.inbox().ready();
    assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(()))));
}

#[test]
fn failed_subscription_is_told_to_all_and_leaves_nothing() {
    let (script, registry) = registry();
    let (first, second) = (registry.subscribe("a"), registry.subscribe("a"));
    {
        let mut waits = pin!(first.subscribed());
        assert!(poll(waits.as_mut()).is_pending());
        script.inbox().failed(SubscribeError::new("no permission"));
        let Poll::Ready(Err(error)) = poll(waits.as_mut()) else { panic!("the failure was not told") };
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no permission");
    }
    assert!(matches!(poll(pin!(second.subscribed())), Poll::Ready(Err(_))));

    let newcomer = registry.subscribe("a");
    assert_eq!(script.steps().0, ["+a"], "a newcomer tries afresh");
    drop((first, second));
    assert_eq!(script.steps().0, [""; 0], "those who failed unsubscribed the newcomer");
    assert_eq!(registry.len(), 1);
    drop(newcomer);
    assert_eq!(script.steps().0, ["-a"]);
    assert!(registry.is_empty());
}

#[test]
fn failure_after_ready_wakes_those_who_sleep() {
    let (script, registry) = registry();
    let subscription = registry.subscribe("a");
    let inbox = script.inbox();
    inbox.ready();
    let mut asleep = pin!(subscription.latch().wait());
    assert!(poll(asleep.as_mut()).is_pending());
    inbox.failed(SubscribeError::new("permission withdrawn"));
    assert!(poll(asleep.as_mut()).is_ready());
    assert!(subscription.failure().is_some());
}

#[test]
fn message_before_the_wait_is_kept() {
    let (script, registry) = registry();
    let subscription = registry.subscribe("a");
    script.inbox().deliver(Message::Unlock);
    assert!(poll(pin!(subscription.latch().wait())).is_ready());
}

#[test]
fn unlock_calls_one_and_read_unlock_calls_all() {
    let (script, registry) = registry();
    let subscriptions = [registry.subscribe("a"), registry.subscribe("a"), registry.subscribe("a")];
    let inbox = script.inbox();
    let [mut first, mut second, mut third] =
        subscriptions.each_ref().map(|entry| Box::pin(entry.latch().wait()));
    for wait in [&mut first, &mut second, &mut third] {
        assert!(poll(wait.as_mut()).is_pending());
    }
    inbox.deliver(Message::Unlock);
    assert!(answers(first.as_mut()));
    assert!(!answers(second.as_mut()) && !answers(third.as_mut()));
    inbox.deliver(Message::ReadUnlock);
    assert!(answers(second.as_mut()) && answers(third.as_mut()));
}

#[test]
fn resubscribed_reaches_those_who_are_not_asleep_yet() {
    let (script, registry) = registry();
    let (one, other) = (registry.subscribe("a"), registry.subscribe("a"));
    let inbox = script.inbox();
    inbox.ready();
    // Both are busy trying when the connection comes back; what they missed in between, nobody will repeat.
    inbox.resubscribed();
    assert!(answers(pin!(one.latch().wait())));
    assert!(answers(pin!(other.latch().wait())));
    assert!(!answers(pin!(one.latch().wait())), "one look each is enough");
}

#[test]
fn listeners_stand_in_line_with_sleepers() {
    let (script, registry) = registry();
    let subscription = registry.subscribe("a");
    let inbox = script.inbox();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = |ran: &Arc<AtomicUsize>| {
        let ran = Arc::clone(ran);
        // Ordering: Relaxed, one thread.
        move || {
            ran.fetch_add(1, Ordering::Relaxed);
        }
    };
    // Ordering: Relaxed, one thread.
    let ran_so_far = || ran.load(Ordering::Relaxed);

    let first = subscription.listen(count(&ran));
    let mut asleep = pin!(subscription.latch().wait());
    assert!(poll(asleep.as_mut()).is_pending());
    let removed = subscription.listen(count(&ran));
    let last = subscription.listen(count(&ran));

    inbox.deliver(Message::Unlock);
    assert!(first.has_run());
    assert_eq!(ran_so_far(), 1);
    inbox.deliver(Message::Unlock);
    assert_eq!(ran_so_far(), 1, "that one was the sleeper's");
    assert!(answers(asleep.as_mut()));
    drop(removed);
    inbox.deliver(Message::Unlock);
    assert!(last.has_run());
    assert_eq!(ran_so_far(), 2);

    inbox.deliver(Message::Unlock);
    let late = subscription.listen(count(&ran));
    assert!(late.has_run(), "the message that came before was not kept for it");
    assert_eq!(ran_so_far(), 3);
    drop((first, last, late));
    assert_eq!(Arc::strong_count(&ran), 1, "a callback was kept");
}

#[test]
fn listener_may_use_the_entry_it_is_called_from() {
    let (script, registry) = registry();
    let subscription = Arc::new(registry.subscribe("a"));
    let inbox = script.inbox();
    let ran = Arc::new(AtomicUsize::new(0));
    let listener = subscription.listen({
        let (registry, ran) = (registry.clone(), Arc::clone(&ran));
        let inbox = inbox.clone();
        move || {
            drop(registry.subscribe("a"));
            inbox.deliver(Message::Unlock);
            // Ordering: Relaxed, one thread.
            ran.fetch_add(1, Ordering::Relaxed);
        }
    });
    inbox.deliver(Message::Unlock);
    // Ordering: Relaxed, one thread.
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    drop(listener);
}

/// Subscribing and leaving from many threads at once: in the end nothing is left, and what the transport was told is in
/// order.
#[test]
fn threads_come_and_go() {
    let (script, registry) = registry();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let registry = &registry;
            scope.spawn(move || {
                for round in 0..2000 {
                    let _subscription = registry.subscribe(["a", "b", "c"][(thread + round) % 3]);
                }
            });
        }
    });
    assert!(registry.is_empty());
    for channel in ["a", "b", "c"] {
        let told: Vec<bool> = script.0.lock().unwrap().iter().filter_map(|step| on(step, channel)).collect();
        let in_turns: Vec<bool> = (0..told.len()).map(|number: usize| number.is_multiple_of(2)).collect();
        assert_eq!(told, in_turns, "subscribe and unsubscribe did not alternate");
        assert!(told.len().is_multiple_of(2), "a subscription is left");
    }
}

/// Whether a step subscribes (true) or unsubscribes, if it is about `channel`.
fn on(step: &Step, channel: &str) -> Option<bool> {
    match step {
        Step::Subscribe(name, _) => (name == channel).then_some(true),
        Step::Unsubscribe(name) => (name == channel).then_some(false),
    }
}

/// Whether a call has come for this one; if so, it is answered.
fn answers<'a>(wait: std::pin::Pin<&mut impl Future<Output = Call<'a>>>) -> bool {
    match poll(wait) {
        Poll::Ready(call) => {
            call.consume();
            true
        }
        Poll::Pending => false,
    }
}
