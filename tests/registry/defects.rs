//! Defects of Redisson's subscriptions over ten years. Each test is named after the defect.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use latchwork::subscription::{Inbox, Message, Registry, SubscribeError, Transport};

use crate::script::{Script, poll};

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
