//! Models of `Registry` and `ChannelEntry`, the real code, over a transport that the model plays: subscribe,
//! unsubscribe, and deliver. One channel, since channels share nothing but a stripe.
#![cfg(latchwork_loom)]

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use latchwork::latch::Notification;
use latchwork::subscription::{Inbox, Message, Registry, SubscribeError, Subscription, Transport};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use loom_tests::{is_ready, model, poll_once};

const CHANNEL: &str = "orders";

/// The transport, and the server behind it. Its mutex is loom's, because a real transport passes an inbox
/// between threads under a similar synchronization.
#[derive(Clone)]
struct Server(Arc<Mutex<Channel>>);

struct Channel {
    /// The subscriber's inbox.
    inbox: Option<Inbox>,
    /// Number of unsubscribe calls without a subscription.
    pointless: usize,
}

impl Transport for Server {
    fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
        let old = self.0.lock().unwrap().inbox.replace(inbox);
        assert!(old.is_none(), "subscribed twice");
    }

    fn unsubscribe(&self, _channel: &Arc<str>) {
        let mut channel = self.0.lock().unwrap();
        if channel.inbox.take().is_none() {
            channel.pointless += 1;
        }
    }
}

impl Server {
    fn is_active(&self) -> bool {
        self.0.lock().unwrap().inbox.is_some()
    }

    fn pointless(&self) -> usize {
        self.0.lock().unwrap().pointless
    }

    /// The inbox. Confirmations and messages in flight reach it even after an unsubscribe.
    fn inbox(&self) -> Inbox {
        self.0.lock().unwrap().inbox.clone().expect("subscribed")
    }

    fn publish(&self) {
        let inbox = self.0.lock().unwrap().inbox.clone();
        if let Some(inbox) = inbox {
            inbox.deliver(Message::Unlock);
        }
    }

    /// Refuses the subscription, if it still exists.
    fn refuse(&self) {
        let inbox = self.0.lock().unwrap().inbox.take();
        if let Some(inbox) = inbox {
            inbox.failed(SubscribeError::new("no permission"));
        }
    }
}

fn registry() -> (Server, Registry<Server>) {
    let server = Server(Arc::new(Mutex::new(Channel { inbox: None, pointless: 0 })));
    (server.clone(), Registry::new(server))
}

/// True if a notification has come; consumes it.
fn answers<'a>(wait: &mut Pin<Box<impl Future<Output = Notification<'a>>>>) -> bool {
    match poll_once(wait) {
        Poll::Ready(call) => {
            call.consume();
            true
        }
        Poll::Pending => false,
    }
}

/// True if the subscription was refused. False while there is no answer.
fn is_refused(subscription: &Subscription<Server>) -> bool {
    match poll_once(&mut Box::pin(subscription.subscribed())) {
        Poll::Ready(told) => told.is_err(),
        Poll::Pending => false,
    }
}

fn assert_nothing_left(server: &Server, registry: &Registry<Server>) {
    assert!(!server.is_active(), "a subscription is left");
    assert!(registry.is_empty(), "an entry is left");
    assert_eq!(server.pointless(), 0, "unsubscribed what does not stand");
}

model! {
    /// The last subscriber leaves while another joins: the joiner's messages come, over exactly one
    /// subscription, and none is left after it leaves, too.
    last_unsubscribe_vs_subscribe {
        let (server, registry) = registry();
        let last = registry.subscribe(CHANNEL);
        let joiner = {
            let registry = registry.clone();
            thread::spawn(move || registry.subscribe(CHANNEL))
        };
        drop(last);
        let joiner = joiner.join().unwrap();
        assert_eq!(joiner.interest(), 1);
        server.publish();
        assert!(answers(&mut Box::pin(joiner.wait())), "the joiner was left without a subscription");
        drop(joiner);
        assert_nothing_left(&server, &registry);
    }
    fails_if_founded_without_the_stripe: FoundsWithoutStripe, "subscribed twice";
    fails_if_unsubscribed_without_the_stripe: UnsubscribesWithoutStripe, "subscribed twice";
    fails_without_the_look_for_another_subscriber: NoLookWhoJoined, "the joiner was left without a subscription";
}

model! {
    /// Two come at once to a channel without users: the first subscribes, and both share the entry.
    two_first_subscribers {
        let (server, registry) = registry();
        let other = {
            let registry = registry.clone();
            thread::spawn(move || registry.subscribe(CHANNEL))
        };
        let one = registry.subscribe(CHANNEL);
        let other = other.join().unwrap();
        assert!(std::ptr::eq(&*one, &*other), "subscribed twice");
        assert_eq!(one.interest(), 2);
        drop((one, other));
        assert_nothing_left(&server, &registry);
    }
    fails_if_founded_without_the_stripe: FoundsWithoutStripe, "subscribed twice";
    fails_without_the_look_for_another_founder: NoLookWhoFounded, "subscribed twice";
}

model! {
    /// A lock is released while a thread subscribes, checks the lock, and goes to sleep: the thread sees the
    /// free lock, or gets the message, asleep or not yet.
    message_before_wait {
        let (server, registry) = registry();
        let locked = Arc::new(AtomicBool::new(true));
        let holder = {
            let (server, locked) = (server.clone(), Arc::clone(&locked));
            thread::spawn(move || unlock(&locked, &server))
        };
        let waiter = registry.subscribe(CHANNEL);
        server.inbox().ready();
        assert!(is_ready(&mut Box::pin(waiter.subscribed())));
        // Ordering: Acquire, see above.
        let free = !locked.load(Ordering::Acquire);
        let mut asleep = Box::pin(waiter.wait());
        let early = free || answers(&mut asleep);
        holder.join().unwrap();
        assert!(early || answers(&mut asleep), "the message was lost");
        drop(asleep);
        drop(waiter);
        assert_nothing_left(&server, &registry);
    }
    fails_without_the_look: NoLook, "the message was lost";
}

model! {
    /// The server refuses the subscription while a second waiter joins: waiters in the refused entry get the
    /// error, awake or asleep; a later waiter subscribes afresh, and is not affected by them.
    failed_subscribe_vs_second_waiter {
        let (server, registry) = registry();
        let first = registry.subscribe(CHANNEL);
        let (mut asleep, woken) = (Box::pin(first.wait()), Ran::default());
        assert!(woken.sleeps(&mut asleep));
        let refusal = {
            let server = server.clone();
            thread::spawn(move || server.refuse())
        };
        let second = registry.subscribe(CHANNEL);
        let mut waits = Box::pin(second.subscribed());
        let early = is_ready(&mut waits);
        refusal.join().unwrap();
        assert!(is_refused(&first), "the first one was not told");
        assert!(woken.has() && answers(&mut asleep), "the sleeper was not told");
        let fresh = server.is_active();
        if fresh {
            assert!(!early, "an old refusal was taken for a new one");
            server.inbox().ready();
        }
        assert!(early || is_ready(&mut waits), "the second one was not told");
        assert_eq!(is_refused(&second), !fresh);

        let newcomer = registry.subscribe(CHANNEL);
        assert!(server.is_active(), "a newcomer was put to refused subscribers");
        drop((asleep, waits));
        drop((first, second));
        assert_eq!(registry.len(), 1, "refused subscribers took the newcomer's entry with them");
        server.publish();
        assert!(answers(&mut Box::pin(newcomer.wait())));
        drop(newcomer);
        assert_nothing_left(&server, &registry);
    }
    fails_if_it_joins_the_failed: JoinsTheFailed, "a newcomer was put to refused subscribers";
    fails_if_any_entry_is_ours: AnyEntryIsOurs, "refused subscribers took the newcomer's entry with them";
    fails_if_settled_silently: SettledSilently, "the second one was not told";
}

model! {
    /// One of two waiters gives up while the server refuses the subscription: the other gets the error, and
    /// when it leaves, nothing is left to unsubscribe.
    cancel_vs_failed_subscribe {
        let (server, registry) = registry();
        let (impatient, patient) = (registry.subscribe(CHANNEL), registry.subscribe(CHANNEL));
        let refusal = {
            let server = server.clone();
            thread::spawn(move || server.refuse())
        };
        drop(impatient);
        refusal.join().unwrap();
        assert!(is_refused(&patient), "the patient one was not told");
        drop(patient);
        assert_nothing_left(&server, &registry);
    }
    fails_if_the_failed_is_unsubscribed: UnsubscribesTheFailed, "unsubscribed what does not stand";
}

model! {
    /// The only waiter gives up while the server refuses the subscription, and another comes: the newcomer
    /// has a subscription, or gets the error. (The refusal and the unsubscribe may cross.)
    failed_subscribe_vs_last_and_first {
        let (server, registry) = registry();
        let impatient = registry.subscribe(CHANNEL);
        let refusal = {
            let server = server.clone();
            thread::spawn(move || server.refuse())
        };
        let leaver = thread::spawn(move || drop(impatient));
        let newcomer = registry.subscribe(CHANNEL);
        refusal.join().unwrap();
        leaver.join().unwrap();
        assert!(server.is_active() || is_refused(&newcomer), "the newcomer was not told");
        assert!(!(server.is_active() && is_refused(&newcomer)), "an old refusal was taken for a new one");
        drop(newcomer);
        assert!(!server.is_active() && registry.is_empty());
    }
    fails_without_the_look_for_another_subscriber: NoLookWhoJoined, "the newcomer was not told";
}

model! {
    /// One of two waiters gives up while the server confirms the subscription: the other gets the
    /// confirmation, and keeps the subscription.
    cancel_while_subscribing {
        let (server, registry) = registry();
        let (impatient, patient) = (registry.subscribe(CHANNEL), registry.subscribe(CHANNEL));
        let confirmation = {
            let inbox = server.inbox();
            thread::spawn(move || inbox.ready())
        };
        let mut gives_up = Box::pin(impatient.subscribed());
        let _ = is_ready(&mut gives_up);
        let mut waits = Box::pin(patient.subscribed());
        let early = is_ready(&mut waits);
        drop(gives_up);
        drop(impatient);
        confirmation.join().unwrap();
        assert!(early || is_ready(&mut waits), "the patient one was not told");
        assert!(server.is_active(), "the impatient one took the subscription with it");
        drop(waits);
        drop(patient);
        assert_nothing_left(&server, &registry);
    }
    fails_if_settled_silently: SettledSilently, "the patient one was not told";
}

model! {
    /// Two waiters give up at once while the subscription is in flight: one unsubscribes. A late confirmation
    /// does not count for the next subscription.
    all_cancel_while_subscribing {
        let (server, registry) = registry();
        let (one, other) = (registry.subscribe(CHANNEL), registry.subscribe(CHANNEL));
        let inbox = server.inbox();
        let give_up = |waiter: Subscription<Server>| {
            assert!(!is_ready(&mut Box::pin(waiter.subscribed())));
        };
        let other = thread::spawn(move || give_up(other));
        give_up(one);
        other.join().unwrap();
        assert_nothing_left(&server, &registry);
        inbox.ready();
        let newcomer = registry.subscribe(CHANNEL);
        assert!(!is_ready(&mut Box::pin(newcomer.subscribed())), "an old confirmation was taken for a new one");
        drop(newcomer);
        assert_nothing_left(&server, &registry);
    }
    fails_if_one_leaves_in_two_steps: LeavesInTwoSteps, "a subscription is left";
}

model! {
    /// The transport reconnects while two waiters go to sleep, each on its check before: both are woken.
    resubscribe_vs_wait {
        let (server, registry) = registry();
        let (one, other) = (registry.subscribe(CHANNEL), registry.subscribe(CHANNEL));
        let inbox = server.inbox();
        inbox.ready();
        let transport = thread::spawn(move || inbox.resubscribed());
        let woken = [Ran::default(), Ran::default()];
        let (mut first, mut second) = (Box::pin(one.wait()), Box::pin(other.wait()));
        let early = [woken[0].sleeps(&mut first), woken[1].sleeps(&mut second)].map(|sleeps| !sleeps);
        transport.join().unwrap();
        assert!((0..2).all(|waiter| early[waiter] || woken[waiter].has()), "was not woken");
        assert!(early[0] || answers(&mut first), "found no message");
        assert!(early[1] || answers(&mut second), "found no message");
        drop((first, second));
        drop((one, other));
        assert_nothing_left(&server, &registry);
    }
    fails_if_one_is_called: CallsOne, "was not woken";
    fails_if_none_is_called: ResubscribedSilently, "was not woken";
    fails_without_a_look_from_the_queue: LooksBeforeQueueing, "was not woken";
}

fn unlock(locked: &AtomicBool, server: &Server) {
    // Ordering: Release, so a thread that sees the lock free sees the holder's writes; a mutex orders the
    // message. Not a store: loom would let a later swap read an older value.
    locked.swap(false, Ordering::Release);
    server.publish();
}

model! {
    /// A listener is made while its message for all comes: the callback runs, once.
    listen_vs_broadcast {
        let (server, registry) = registry();
        let subscription = registry.subscribe(CHANNEL);
        let transport = {
            let inbox = server.inbox();
            thread::spawn(move || inbox.deliver(Message::ReadUnlock))
        };
        let (ran, listener) = listen(&subscription);
        transport.join().unwrap();
        assert!(ran.has() && listener.has_run(), "the message was lost");
    }
    fails_without_a_look_from_the_queue: LooksBeforeQueueing, "the message was lost";
}

model! {
    /// A listener is dropped while its message comes: either its callback has run, or the next in the queue
    /// is notified; never both, never neither.
    listener_removed_vs_message {
        let (server, registry) = registry();
        let subscription = registry.subscribe(CHANNEL);
        let (ran, listener) = listen(&subscription);
        let mut next = Box::pin(subscription.wait());
        assert!(!answers(&mut next));
        let transport = {
            let inbox = server.inbox();
            thread::spawn(move || inbox.deliver(Message::Unlock))
        };
        drop(listener);
        transport.join().unwrap();
        match (ran.has(), answers(&mut next)) {
            (true, true) => panic!("one message called two"),
            (false, false) => panic!("the message died with the listener"),
            _ => {}
        }
        assert_eq!(subscription.pending(), 0);
    }
    fails_if_the_call_dies: CallDiesWithListener, "the message died with the listener";
    fails_if_the_grant_dies: GrantDiesWithWaiter, "the message died with the listener";
}

model! {
    /// A listener is made while its message comes: the callback runs.
    listen_vs_message {
        let (server, registry) = registry();
        let subscription = registry.subscribe(CHANNEL);
        let transport = {
            let inbox = server.inbox();
            thread::spawn(move || inbox.deliver(Message::Unlock))
        };
        let (ran, listener) = listen(&subscription);
        transport.join().unwrap();
        assert!(ran.has(), "the message was lost");
        assert!(listener.has_run());
        assert_eq!(subscription.pending(), 0);
    }
    fails_if_a_wake_during_a_poll_is_lost: NoPollAfterWake, "the message was lost";
    fails_without_the_look: NoLook, "the message was lost";
}

/// True once a callback or a waker has run. Of std, and so without an order in the model.
#[derive(Clone, Default)]
struct Ran(Arc<std::sync::atomic::AtomicBool>);

impl Wake for Ran {
    fn wake(self: Arc<Self>) {
        // Ordering: Relaxed, as below.
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Ran {
    /// Polls the future with this as its waker. True if the future is pending.
    fn sleeps<F: Future>(&self, future: &mut Pin<Box<F>>) -> bool {
        let waker = Waker::from(Arc::new(self.clone()));
        future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
    }

    fn has(&self) -> bool {
        // Ordering: Relaxed, all threads of a model run on one real thread.
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A listener, and the flag of its callback, which panics if it runs twice.
fn listen(subscription: &Subscription<Server>) -> (Ran, latchwork::subscription::Listener) {
    let ran = Ran::default();
    let listener = subscription.listen({
        let ran = ran.clone();
        // Ordering: Relaxed, as above.
        move || assert!(!ran.0.swap(true, std::sync::atomic::Ordering::Relaxed), "run twice")
    });
    (ran, listener)
}

model! {
    /// A waiter listens instead of asking the store, while its own process is known to have the lock. It
    /// hears of the release, however soon: the holder is removed before the message is published.
    look_at_own_holder_vs_release {
        let (server, registry) = registry();
        let next = registry.subscribe(CHANNEL);
        server.inbox().ready();
        let held = Arc::new(AtomicBool::new(true));
        let holder = {
            let (server, held) = (server.clone(), Arc::clone(&held));
            thread::spawn(move || {
                // Ordering: Relaxed, as nothing is read through the flag.
                held.store(false, Ordering::Relaxed);
                server.publish();
            })
        };
        {
            let mut asleep = Box::pin(next.wait());
            // Ordering: as above.
            let listens = held.load(Ordering::Relaxed);
            let early = listens && answers(&mut asleep);
            holder.join().unwrap();
            assert!(!listens || early || answers(&mut asleep), "the release was not heard");
        }
        drop(next);
        assert_nothing_left(&server, &registry);
    }
    fails_without_the_look: NoLook, "the release was not heard";
}
