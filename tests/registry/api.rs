use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use latchwork::subscription::{
    Inbox, Listener, Message, Registry, RegistryStats, SubscribeError, Subscription, Transport,
};
use latchwork_testkit::waker;

use crate::script::{Script, Step, answers, poll};

fn registry() -> (Script, Registry<Script>) {
    Script::registry()
}

#[test]
fn first_one_in_subscribes_last_one_out_unsubscribes() {
    let (script, registry) = registry();
    let first = registry.subscribe("a");
    let second = registry.subscribe("a");
    let third = second.clone();
    assert_eq!(first.interest(), 3);
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
    let mut waits_too = pin!(patient.subscribed());
    assert!(poll(waits_too.as_mut()).is_pending());
    {
        let mut gives_up = pin!(impatient.subscribed());
        assert!(poll(gives_up.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
    }
    drop(impatient);
    assert!(
        poll(waits.as_mut()).is_pending(),
        "expected the patient subscriber to wait for its subscription, and another's drop ended it"
    );
    script.inbox().ready();
    assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(()))));
    assert!(
        matches!(poll(waits_too.as_mut()), Poll::Ready(Ok(()))),
        "expected the confirmation for both subscribers"
    );
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
        assert_eq!(error.reason().to_string(), "no permission");
    }
    assert!(matches!(poll(pin!(second.subscribed())), Poll::Ready(Err(_))));

    let newcomer = registry.subscribe("a");
    assert_eq!(script.steps().0, ["+a"], "expected a new subscription for the newcomer");
    drop((first, second));
    assert_eq!(script.steps().0, [""; 0], "expected no command from the failed subscribers");
    assert_eq!(registry.len(), 1);
    drop(newcomer);
    assert_eq!(script.steps().0, ["-a"]);
    assert!(registry.is_empty());
}

#[test]
fn unlock_calls_one_and_read_unlock_calls_all() {
    let (script, registry) = registry();
    let subscriptions = [registry.subscribe("a"), registry.subscribe("a"), registry.subscribe("a")];
    let inbox = script.inbox();
    let [mut first, mut second, mut third] = subscriptions.each_ref().map(|entry| Box::pin(entry.wait()));
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
    let mut asleep = pin!(subscription.wait());
    assert!(poll(asleep.as_mut()).is_pending());
    let removed = subscription.listen(count(&ran));
    let last = subscription.listen(count(&ran));

    inbox.deliver(Message::Unlock);
    assert!(first.has_run());
    assert_eq!(ran_so_far(), 1);
    inbox.deliver(Message::Unlock);
    assert_eq!(ran_so_far(), 1, "expected the second message for the sleeper");
    assert!(answers(asleep.as_mut()));
    drop(removed);
    inbox.deliver(Message::Unlock);
    assert!(last.has_run());
    assert_eq!(ran_so_far(), 2);

    inbox.deliver(Message::Unlock);
    let late = subscription.listen(count(&ran));
    assert!(late.has_run(), "expected the late listener to run by the kept message");
    assert_eq!(ran_so_far(), 3);
    drop((first, last, late));
    assert_eq!(Arc::strong_count(&ran), 1, "expected the drop of all callbacks");
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

/// Recursion would overflow the stack.
#[test]
fn relistening_listener_hears_each_kept_notification() {
    const KEPT: usize = 20_000;

    fn listens_again(entry: &Arc<Subscription<Script>>, inbox: &Inbox, ran: &Arc<AtomicUsize>) {
        let (again, delivers, counted) = (Arc::clone(entry), inbox.clone(), Arc::clone(ran));
        inbox.deliver(Message::Unlock);
        let listener = entry.listen(move || {
            // Ordering: Relaxed, one thread.
            if counted.fetch_add(1, Ordering::Relaxed) + 1 < KEPT {
                listens_again(&again, &delivers, &counted);
            }
        });
        std::mem::forget(listener);
    }

    let (script, registry) = registry();
    let entry = Arc::new(registry.subscribe("a"));
    let ran = Arc::new(AtomicUsize::new(0));
    listens_again(&entry, &script.inbox(), &ran);
    // Ordering: Relaxed, one thread.
    assert_eq!((ran.load(Ordering::Relaxed), entry.pending()), (KEPT, 0));
}

/// The dropped listener's callback was queued behind the callback that drops the listener.
#[test]
fn listener_dropped_inside_of_a_call_passes_its_notification_on() {
    let (script, registry) = registry();
    let entry = Arc::new(registry.subscribe("a"));
    let (inside, inbox) = (Arc::clone(&entry), script.inbox());
    inbox.deliver(Message::Unlock);
    let listener = entry.listen(move || {
        inbox.deliver(Message::Unlock);
        drop(inside.listen(|| panic!("expected no call of the dropped listener")));
    });
    assert!(listener.has_run());
    assert_eq!(entry.pending(), 1);
}

/// Many threads subscribe and leave at once: no entry remains, and the transport's calls alternate.
#[test]
fn threads_come_and_go() {
    let (script, registry) = registry();
    thread::scope(|scope| {
        for thread in 0..4 {
            let registry = &registry;
            scope.spawn(move || {
                for round in 0..5000 {
                    let _subscription = registry.subscribe(["a", "b", "c"][(thread + round) % 3]);
                }
                for _ in 0..5000 {
                    let (one, other) = (registry.subscribe("a"), registry.subscribe("a"));
                    assert!(
                        std::ptr::eq(&raw const *one, &raw const *other),
                        "expected one entry for both subscribers"
                    );
                }
            });
        }
    });
    assert!(registry.is_empty());
    let steps: Vec<Step> = script.take();
    for channel in ["a", "b", "c"] {
        let told: Vec<bool> = steps.iter().filter_map(|step| step.on(channel)).collect();
        let in_turns: Vec<bool> = (0..told.len()).map(|number: usize| number.is_multiple_of(2)).collect();
        assert_eq!(told, in_turns, "expected subscribe and unsubscribe in alternation");
        assert!(told.len().is_multiple_of(2), "expected an unsubscribe for each subscribe");
    }
}

#[test]
fn readiness_has_the_waiters_own_time_limit() {
    let (script, registry) = registry();
    let subscription = registry.subscribe("a");
    assert!(subscription.blocking_subscribed_timeout(Duration::from_millis(1)).is_none());
    assert!(subscription.failure().is_none(), "expected no failure by a waiter's own limit");
    let mut patient = pin!(subscription.subscribed());
    assert!(poll(patient.as_mut()).is_pending());
    script.inbox().ready();
    assert!(matches!(poll(patient), Poll::Ready(Ok(()))));
    assert!(matches!(subscription.blocking_subscribed_timeout(Duration::MAX), Some(Ok(()))));
}

#[test]
fn a_thread_waits_for_readiness() {
    let (script, registry) = registry();
    let subscription = registry.subscribe("a");
    let inbox = script.inbox();
    thread::scope(|scope| {
        let waits = scope.spawn(|| subscription.blocking_subscribed_timeout(Duration::from_secs(30)));
        inbox.ready();
        assert!(matches!(waits.join().unwrap(), Some(Ok(()))));
    });
}

/// The subscriber is beside listeners and sleepers of another subscription.
#[test]
fn broadcast_is_kept_for_a_subscriber_about_to_sleep() {
    let calls: [fn(&Inbox); 3] = [
        |inbox| inbox.deliver(Message::ReadUnlock),
        Inbox::resubscribed,
        |inbox| inbox.failed(SubscribeError::new("no connection")),
    ];
    for call in calls {
        let (script, registry) = registry();
        let (busy, other) = (registry.subscribe("a"), registry.subscribe("a"));
        let inbox = script.inbox();
        inbox.ready();
        let listeners = [(); 3].map(|()| other.listen(|| {}));
        let mut asleep = [(); 2].map(|()| Box::pin(other.wait()));
        assert!(asleep.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
        call(&inbox);
        assert!(listeners.iter().all(Listener::has_run));
        assert!(asleep.iter_mut().all(|wait| answers(wait.as_mut())));
        assert!(answers(pin!(busy.wait())), "expected the notification kept for the busy subscriber");
    }
}

/// One subscriber waits twice, as a writer that asks the store and then sleeps, beside a slower reader.
#[test]
fn broadcast_is_heard_once_by_each_subscription_whoever_waits_twice() {
    let (script, registry) = registry();
    let (quick, slow) = (registry.subscribe("a"), registry.subscribe("a"));
    let inbox = script.inbox();
    inbox.deliver(Message::ReadUnlock);
    quick.try_wait().expect("the broadcast").consume();
    assert!(quick.try_wait().is_none(), "expected one notification per subscription");
    drop(slow.try_wait().expect("the broadcast of the slow subscriber"));
    let listener = slow.listen(|| {});
    assert!(listener.has_run(), "expected an unconsumed broadcast to stay with its subscription");
    assert!(slow.try_wait().is_none() && slow.clone().try_wait().is_none());
    inbox.resubscribed();
    assert!(slow.blocking_wait_timeout(Duration::ZERO).is_some());
    assert!(answers(pin!(slow.wait())));
    assert!(!answers(pin!(registry.subscribe("a").wait())), "expected no news for a newcomer");
}

#[test]
fn figures_tell_what_happened() {
    let (script, registry) = registry();
    assert_eq!(registry.stats(), RegistryStats::default());
    let (one, other) = (registry.subscribe("a"), registry.subscribe("a"));
    let inbox = script.inbox();
    inbox.ready();
    let failed = registry.subscribe("b");
    script.inbox().failed(SubscribeError::new("no permission"));
    let stats = registry.stats();
    assert_eq!((stats.subscriptions_begun, stats.subscriptions_failed, stats.subscriptions_ended), (2, 1, 0));
    assert_eq!((stats.entries, stats.interest), (2, 3));

    inbox.deliver(Message::Unlock);
    drop(one.try_wait().unwrap()); // dropped unconsumed, so passed on and not yet counted
    assert_eq!((registry.stats().wakes_useful, registry.stats().wakes_spurious), (0, 0));
    one.try_wait().unwrap().consume();
    inbox.deliver(Message::ReadUnlock);
    one.try_wait().unwrap().consume_spurious();
    other.try_wait().unwrap().consume_spurious();
    inbox.deliver(Message::Unlock);
    let listener = other.listen(|| {});
    assert!(listener.has_run());
    inbox.resubscribed(); // without a waiter
    drop((one, other, listener, failed));

    let stats = registry.stats();
    assert_eq!((stats.unlock_messages, stats.read_unlock_messages, stats.resubscriptions), (2, 1, 1));
    assert_eq!((stats.wakes_useful, stats.wakes_spurious), (2, 2));
    assert_eq!((stats.subscriptions_begun, stats.subscriptions_failed, stats.subscriptions_ended), (2, 1, 1));
    assert_eq!((stats.entries, stats.interest), (0, 0));
}

/// Runs an action once within a transport call, with the inbox if there is one.
#[derive(Clone, Default)]
struct Acts(Arc<Mutex<Option<Act>>>);

type Act = Box<dyn FnOnce(Option<Inbox>) + Send>;

impl Acts {
    fn act(&self, inbox: Option<Inbox>) {
        let act = self.0.lock().unwrap().take();
        act.into_iter().for_each(|act| act(inbox.clone()));
    }
}

impl Transport for Acts {
    fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
        self.act(Some(inbox));
    }

    fn unsubscribe(&self, _channel: &Arc<str>) {
        self.act(None);
    }
}

/// The registry holds the channel's stripe while the transport is called, and the transport wakes tasks.
#[test]
fn waker_called_by_a_transport_may_subscribe_to_its_channel() {
    type Waits = Pin<Box<dyn Future<Output = ()> + Send>>;
    let (acts, (did, does)) = (Acts::default(), mpsc::channel());
    let registry = Registry::new(acts.clone());
    let waker = waker({
        let registry = registry.clone();
        move || {
            drop(registry.subscribe("a"));
            did.send(()).unwrap();
        }
    });
    let kept = Arc::<Mutex<Vec<Waits>>>::default();
    let keep = {
        let kept = Arc::clone(&kept);
        move |mut waits: Waits| {
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            kept.lock().unwrap().push(waits);
        }
    };
    let act = |act: Act| *acts.0.lock().unwrap() = Some(act);
    let is_done = |call: &str| {
        let told = does.recv_timeout(Duration::from_secs(30));
        assert!(
            told.is_ok(),
            "{call}: expected the waker to return, and it waits for the stripe of its own thread"
        );
    };
    act(Box::new({
        let (registry, keep) = (registry.clone(), keep.clone());
        move |inbox| {
            let [one, other] = [(); 2].map(|()| registry.join("a").expect("the subscription has begun"));
            keep(Box::pin(async move { assert!(one.subscribed().await.is_err()) }));
            keep(Box::pin(async move { other.wait().await.consume() }));
            inbox.expect("the registry subscribes").failed(SubscribeError::new("on purpose"));
        }
    }));
    let subscribes = registry.clone();
    thread::spawn(move || drop(subscribes.subscribe("a")));
    (0..2).for_each(|_| is_done("subscribing"));

    let news = Arc::<Mutex<Option<Inbox>>>::default();
    act(Box::new({
        let news = Arc::clone(&news);
        move |inbox| *news.lock().unwrap() = inbox
    }));
    let heard = registry.subscribe("news");
    keep(Box::pin(async move { heard.wait().await.consume() }));
    let ends = registry.subscribe("a");
    act(Box::new(move |_| news.lock().unwrap().as_ref().unwrap().deliver(Message::Unlock)));
    thread::spawn(move || drop(ends));
    is_done("unsubscribing");
}
