//! Defects of Redisson's subscriptions over ten years. Each test is named after the defect.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use latchwork::subscription::{Inbox, Message, Registry, SubscribeError, Transport};

use crate::script::{Script, answers, poll};

fn nothing_is_left(registry: &Registry<impl Transport>) {
    let stats = registry.stats();
    assert_eq!((stats.entries, stats.interest), (0, 0));
    assert_eq!(stats.subscriptions_begun, stats.subscriptions_ended + stats.subscriptions_failed);
}

/// #543, #4294, #7264: a stripe was locked until the server confirmed, and blocked a fiftieth of all names.
#[test]
fn unconfirmed_subscription_holds_up_its_stripe() {
    let (script, registry) = Script::registry();
    // Far more subscriptions than stripes, all unconfirmed.
    let subscriptions: Vec<_> = (0..500).map(|number| registry.subscribe(&number.to_string())).collect();
    assert_eq!(script.steps().0.len(), 500);
    for subscription in &subscriptions {
        assert!(poll(pin!(subscription.subscribed())).is_pending());
    }
    let again: Vec<_> = (0..500).map(|number| registry.subscribe(&number.to_string())).collect();
    drop((again, subscriptions));
    assert_eq!(script.steps().0.len(), 500);
    nothing_is_left(&registry);
}

/// #1268, #6328: removed listeners stayed in the queue.
#[test]
fn removed_listener_is_kept() {
    let (_script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    let kept = Arc::new(());
    let first = subscription.listen(|| panic!("expected no call of the listener"));
    for _ in 0..1000 {
        let kept = Arc::clone(&kept);
        drop(subscription.listen(move || drop(kept)));
    }
    assert_eq!(Arc::strong_count(&kept), 1, "expected the drop of the removed callback");
    assert_eq!(subscription.waiters(), 1);
    drop(first);
    assert_eq!(subscription.waiters(), 0);
}

/// #6328: listeners cancelled by a failure stayed in the queue.
#[test]
fn listener_outlives_a_failed_subscription() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    let told = Arc::new(AtomicBool::new(false));
    let listener = subscription.listen({
        let told = Arc::clone(&told);
        // Ordering: Relaxed, one thread.
        move || told.store(true, Ordering::Relaxed)
    });
    script.inbox().failed(SubscribeError::new("no connection"));
    // Ordering: Relaxed, as above.
    assert!(told.load(Ordering::Relaxed) && listener.has_run());
    assert_eq!(Arc::strong_count(&told), 1, "expected the drop of the callback after its call");
    drop((listener, subscription));
    nothing_is_left(&registry);
}

/// #2095
#[test]
fn message_for_all_wakes_one() {
    let (script, registry) = Script::registry();
    let subscriptions: Vec<_> = (0..10).map(|_| registry.subscribe("a")).collect();
    let inbox = script.inbox();
    let mut waits: Vec<_> = subscriptions.iter().map(|entry| Box::pin(entry.wait())).collect();
    assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
    inbox.deliver(Message::ReadUnlock);
    assert!(waits.iter_mut().all(|wait| answers(wait.as_mut())));
}

/// #4215: the message went to a waiter that had given up.
#[test]
fn message_goes_to_a_cancelled_waiter() {
    let (script, registry) = Script::registry();
    let (gives_up, patient) = (registry.subscribe("a"), registry.subscribe("a"));
    let inbox = script.inbox();
    let mut waits = pin!(patient.wait());
    {
        let mut abandoned = pin!(gives_up.wait());
        assert!(poll(abandoned.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        inbox.deliver(Message::Unlock);
    }
    drop(gives_up);
    assert!(answers(waits));
}

/// #1763: subscribing was slow, and a message before the confirmation was lost.
#[test]
fn message_before_the_confirmation_is_lost() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    let inbox = script.inbox();
    inbox.deliver(Message::Unlock);
    inbox.ready();
    assert!(matches!(poll(pin!(subscription.subscribed())), Poll::Ready(Ok(()))));
    assert!(answers(pin!(subscription.wait())));
}

/// #3891: of two writers about to sleep, one missed the message for all.
#[test]
fn message_for_all_misses_waiters_that_are_about_to_sleep() {
    let (script, registry) = Script::registry();
    let (asleep, busy) = (registry.subscribe("a"), registry.subscribe("a"));
    let inbox = script.inbox();
    let mut waits = pin!(asleep.wait());
    assert!(poll(waits.as_mut()).is_pending());
    inbox.deliver(Message::ReadUnlock);
    assert!(answers(waits));
    assert!(answers(pin!(busy.wait())));
}

/// #5761, #5762: a listener added just after the message waited for the next message.
#[test]
fn listener_does_not_look_whether_the_message_was_there_before() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    let inbox = script.inbox();
    inbox.deliver(Message::Unlock);
    assert!(subscription.listen(|| {}).has_run());
    assert!(!subscription.listen(|| {}).has_run(), "expected one listener to run by one message");
}

/// PR #6047: an impatient waiter failed the promise shared with a patient waiter.
#[test]
fn impatient_waiter_fails_the_patient_one() {
    let (script, registry) = Script::registry();
    let (impatient, patient) = (registry.subscribe("a"), registry.subscribe("a"));
    let mut waits = pin!(patient.subscribed());
    assert!(poll(waits.as_mut()).is_pending());
    // The first subscriber, which called the transport, gives up at once.
    assert!(poll(pin!(impatient.subscribed())).is_pending());
    drop(impatient);
    assert!(poll(waits.as_mut()).is_pending());
    assert_eq!(registry.len(), 1);
    script.inbox().ready();
    assert!(matches!(poll(waits), Poll::Ready(Ok(()))));
}

/// #4662, #4064, #2575: a failed entry stayed, and every later attempt failed with the old error.
#[test]
fn dead_entry_is_not_removed() {
    let (script, registry) = Script::registry();
    for _ in 0..3 {
        let subscription = registry.subscribe("a");
        let (steps, inbox) = script.steps();
        assert_eq!(steps, ["+a"]);
        inbox.unwrap().failed(SubscribeError::new("no connection"));
        assert!(matches!(poll(pin!(subscription.subscribed())), Poll::Ready(Err(_))));
    }
    nothing_is_left(&registry);
    assert_eq!(script.steps().0, [""; 0], "expected no command for a failed subscription");
    // A newcomer must not see the failure of an entry not yet left.
    let failed = registry.subscribe("a");
    script.inbox().failed(SubscribeError::new("no connection"));
    let newcomer = registry.subscribe("a");
    script.inbox().ready();
    assert!(matches!(poll(pin!(newcomer.subscribed())), Poll::Ready(Ok(()))));
    drop(failed);
    assert_eq!(registry.len(), 1, "expected the live entry in the registry");
    drop(newcomer);
    nothing_is_left(&registry);
}

/// #4210, #4216: a waiter's own timeout was reported as cancellation by another.
#[test]
fn time_limit_is_reported_as_a_failure() {
    let (_script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    assert!(subscription.blocking_subscribed_timeout(Duration::ZERO).is_none());
    assert!(subscription.failure().is_none());
}

/// #3577: each attempt beyond the connection's limit left an entry.
#[test]
fn refused_subscriptions_pile_up() {
    let (script, registry) = Script::registry();
    for number in 0..1000 {
        let subscription = registry.subscribe(&number.to_string());
        script.inbox().failed(SubscribeError::new("limit reached"));
        drop(subscription);
    }
    nothing_is_left(&registry);
    assert_eq!(registry.stats().subscriptions_failed, 1000);
}

/// #4064, #2575: a waiter that gave up before the confirmation left its channel subscribed.
#[test]
fn channel_is_kept_after_a_timed_out_subscribe() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    assert!(poll(pin!(subscription.subscribed())).is_pending());
    drop(subscription);
    assert_eq!(script.steps().0, ["+a", "-a"]);
    nothing_is_left(&registry);
}

/// #6026, PR #6541, #2007, #85: after a failover no waiter was told of lost messages.
#[test]
fn reconnection_leaves_sleepers_asleep() {
    let (script, registry) = Script::registry();
    let subscriptions = [registry.subscribe("a"), registry.subscribe("a")];
    let inbox = script.inbox();
    inbox.ready();
    let mut waits = subscriptions.each_ref().map(|entry| Box::pin(entry.wait()));
    assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
    inbox.resubscribed();
    assert!(waits.iter_mut().all(|wait| answers(wait.as_mut())));
}

/// #4294: after a disconnect a pending subscription was never confirmed.
#[test]
fn reconnection_does_not_confirm() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    script.inbox().resubscribed();
    assert!(matches!(poll(pin!(subscription.subscribed())), Poll::Ready(Ok(()))));
}

/// Late events of a confused transport must not revive an entry that counts as unsubscribed.
#[test]
fn late_confirmation_revives_a_failed_entry() {
    let (script, registry) = Script::registry();
    let subscription = registry.subscribe("a");
    let inbox = script.inbox();
    inbox.failed(SubscribeError::new("first"));
    inbox.ready();
    inbox.resubscribed();
    inbox.failed(SubscribeError::new("second"));
    let failure = subscription.failure().expect("the failure was taken back");
    assert_eq!(failure.reason().to_string(), "first");
    let newcomer = registry.subscribe("a");
    assert_eq!(script.steps().0, ["+a"], "expected a new subscription for the newcomer");
    drop((subscription, newcomer));
    assert_eq!(script.steps().0, ["-a"]);
    assert_eq!(registry.stats().subscriptions_failed, 1);
    nothing_is_left(&registry);
}

/// Events of an inbox after the last unsubscription concern no waiter.
#[test]
fn inbox_outlives_its_subscription() {
    let (script, registry) = Script::registry();
    drop(registry.subscribe("a"));
    let inbox = script.inbox();
    let newcomer = registry.subscribe("a");
    inbox.ready();
    inbox.deliver(Message::Unlock);
    inbox.failed(SubscribeError::new("too late"));
    inbox.resubscribed();
    assert!(
        poll(pin!(newcomer.subscribed())).is_pending(),
        "expected the newcomer to wait for its own confirmation"
    );
    assert_eq!(newcomer.pending(), 0);
    drop(newcomer);
    nothing_is_left(&registry);
    assert_eq!(registry.stats().subscriptions_failed, 0);
}

/// #7264: one path out of subscribing left the stripe locked. Here the transport panics.
#[test]
fn panicking_transport_keeps_the_stripe() {
    #[derive(Clone, Default)]
    struct Panics(Arc<AtomicBool>);
    impl Transport for Panics {
        fn subscribe(&self, _channel: &Arc<str>, _inbox: Inbox) {
            // Ordering: Relaxed, one thread.
            assert!(!self.0.load(Ordering::Relaxed), "on purpose");
        }
        fn unsubscribe(&self, _channel: &Arc<str>) {
            // Ordering: Relaxed, as above.
            assert!(!self.0.load(Ordering::Relaxed), "on purpose");
        }
    }

    let panics = Panics::default();
    let registry = Registry::new(panics.clone());
    let subscription = registry.subscribe("a");
    // Ordering: Relaxed, as above.
    panics.0.store(true, Ordering::Relaxed);
    assert!(registry.subscribe("b").failure().is_some());
    assert_eq!(registry.len(), 1, "expected the entry of the live subscription alone");
    drop(subscription);
    // Ordering: Relaxed, as above.
    panics.0.store(false, Ordering::Relaxed);
    nothing_is_left(&registry);
    for channel in ["a", "b"] {
        drop(registry.subscribe(channel));
    }
    nothing_is_left(&registry);
}
