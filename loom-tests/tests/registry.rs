//! Models of `Registry` and `ChannelEntry`, the real code, over a transport that the model plays:
//! subscribing, unsubscribing, and being told. One channel, since channels share nothing but a stripe.
#![cfg(latchwork_loom)]

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use latchwork::latch::Notification;
use latchwork::subscription::{Inbox, Message, Registry, SubscribeError, Subscription, Transport};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use loom_tests::{is_ready, model, poll_once};

const CHANNEL: &str = "orders";

/// The transport, and the server behind it. Its mutex is loom's, because a real transport takes an inbox from
/// one thread to another by something of the kind, too.
#[derive(Clone)]
struct Server(Arc<Mutex<Channel>>);

struct Channel {
    /// Where messages go, if it is subscribed to.
    inbox: Option<Inbox>,
    /// How often it was unsubscribed though it was not subscribed to.
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

    /// Where messages go. Confirmations and messages that are on the way come there even if it is
    /// unsubscribed meanwhile.
    fn inbox(&self) -> Inbox {
        self.0.lock().unwrap().inbox.clone().expect("subscribed")
    }

    /// Publishes a message: it reaches the subscribers.
    fn publish(&self) {
        let inbox = self.0.lock().unwrap().inbox.clone();
        if let Some(inbox) = inbox {
            inbox.deliver(Message::Unlock);
        }
    }

    /// Refuses the subscription, if it is still wanted.
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

/// Whether a call has come for this one; if so, it is answered.
fn answers<'a>(wait: &mut Pin<Box<impl Future<Output = Notification<'a>>>>) -> bool {
    match poll_once(wait) {
        Poll::Ready(call) => {
            call.consume();
            true
        }
        Poll::Pending => false,
    }
}

/// Whether it has been told that the subscription is refused. False if nothing was told.
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
    /// The last subscriber leaves while another joins: the joiner's messages come, by exactly one
    /// subscription, and none is left when it has gone, too.
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
        assert!(answers(&mut Box::pin(joiner.latch().wait())), "the joiner was left without a subscription");
        drop(joiner);
        assert_nothing_left(&server, &registry);
    }
    fails_if_founded_without_the_stripe: FoundsWithoutStripe, "subscribed twice";
    fails_if_unsubscribed_without_the_stripe: UnsubscribesWithoutStripe, "subscribed twice";
    fails_without_the_look_for_another_subscriber: NoLookWhoJoined, "the joiner was left without a subscription";
}

model! {
    /// Two come at once to a channel without users: one of them subscribes, and both are in the same entry.
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
    /// A lock is let go of while a thread subscribes, looks at it, and goes to sleep: it sees the free lock,
    /// or the message finds it, asleep or not yet.
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
        let mut asleep = Box::pin(waiter.latch().wait());
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
    /// The server refuses the subscription while a second waiter joins: waiters in the refused entry are
    /// told, awake or asleep; a later one subscribes afresh; and the refused ones take nothing of it with
    /// them.
    failed_subscribe_vs_second_waiter {
        let (server, registry) = registry();
        let first = registry.subscribe(CHANNEL);
        let mut asleep = Box::pin(first.latch().wait());
        assert!(!answers(&mut asleep));
        let refusal = {
            let server = server.clone();
            thread::spawn(move || server.refuse())
        };
        let second = registry.subscribe(CHANNEL);
        let mut waits = Box::pin(second.subscribed());
        let early = is_ready(&mut waits);
        refusal.join().unwrap();
        assert!(is_refused(&first), "the first one was not told");
        assert!(answers(&mut asleep), "the sleeper was not told");
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
        assert!(answers(&mut Box::pin(newcomer.latch().wait())));
        drop(newcomer);
        assert_nothing_left(&server, &registry);
    }
    fails_if_it_joins_the_failed: JoinsTheFailed, "a newcomer was put to refused subscribers";
    fails_if_any_entry_is_ours: AnyEntryIsOurs, "refused subscribers took the newcomer's entry with them";
    fails_if_settled_silently: SettledSilently, "the second one was not told";
}

model! {
    /// One of two waiters gives up while the server refuses the subscription: the other one is told, and when
    /// it leaves, nothing is left to be unsubscribed.
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
    /// The only waiter gives up while the server refuses the subscription, and another one comes: it has a
    /// subscription, or is told that it has none. (The refusal and the unsubscribing may cross each other.)
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
    /// One of two waiters gives up while the server confirms the subscription: the other one is told, and
    /// keeps it.
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
    /// Two waiters give up at once while the subscription is under way: one of them unsubscribes. The
    /// confirmation that comes after all is not taken for the next one's.
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
    /// The transport has lost its connection and made it again while two go to sleep, each on what it saw
    /// before: both are woken.
    resubscribe_vs_wait {
        let (server, registry) = registry();
        let (one, other) = (registry.subscribe(CHANNEL), registry.subscribe(CHANNEL));
        let inbox = server.inbox();
        inbox.ready();
        let transport = thread::spawn(move || inbox.resubscribed());
        let (mut first, mut second) = (Box::pin(one.latch().wait()), Box::pin(other.latch().wait()));
        let early = [answers(&mut first), answers(&mut second)];
        transport.join().unwrap();
        assert!(early[0] || answers(&mut first), "was not woken");
        assert!(early[1] || answers(&mut second), "was not woken");
        drop((first, second));
        drop((one, other));
        assert_nothing_left(&server, &registry);
    }
    fails_if_one_is_called: CallsOne, "was not woken";
    fails_if_none_is_called: ResubscribedSilently, "was not woken";
    fails_without_the_look: NoLook, "was not woken";
}

model! {
    /// A lock was let go of while the connection was lost, and taken by another. The transport makes its
    /// connection again while a newcomer goes to sleep ahead of a waiter that has looked before all that. The
    /// newcomer may have that one's call; but it has looked since, so it hears the next release, and passes
    /// it on: no waiter is left asleep beside a free lock.
    resubscribe_vs_newcomer with 2 less {
        let (server, registry) = registry();
        let waiter = registry.subscribe(CHANNEL);
        let inbox = server.inbox();
        inbox.ready();
        let locked = Arc::new(AtomicBool::new(true));
        let transport = {
            let (server, locked) = (server.clone(), Arc::clone(&locked));
            thread::spawn(move || {
                inbox.resubscribed();
                unlock(&locked, &server);
            })
        };
        let newcomer = registry.subscribe(CHANNEL);
        let mut theirs = Box::pin(lock_and_unlock(&newcomer, &locked, &server, false));
        let mut mine = Box::pin(lock_and_unlock(&waiter, &locked, &server, true));
        let mut done = [is_ready(&mut theirs), is_ready(&mut mine)];
        transport.join().unwrap();
        // A waiter that has been called looks; two rounds, since the first one may call the other.
        for _ in 0..2 {
            done = [done[0] || is_ready(&mut theirs), done[1] || is_ready(&mut mine)];
        }
        assert_eq!(done, [true; 2], "asleep beside a free lock");
        drop((theirs, mine));
        drop((waiter, newcomer));
        assert_nothing_left(&server, &registry);
    }
    fails_without_the_look: NoLook, "asleep beside a free lock";
}

fn unlock(locked: &AtomicBool, server: &Server) {
    // Ordering: Release, so that a thread that sees it free sees what the holder did; the message comes by a
    // mutex. Not a store: loom would let a later swap read what was there before it.
    locked.swap(false, Ordering::Release);
    server.publish();
}

/// The loop of a lock, after its first look if that has been `looked` before.
async fn lock_and_unlock(
    subscription: &Subscription<Server>,
    locked: &AtomicBool,
    server: &Server,
    looked: bool,
) {
    // Ordering: AcqRel, a lock's.
    if looked || locked.swap(true, Ordering::AcqRel) {
        loop {
            let call = subscription.latch().wait().await;
            // Ordering: AcqRel, as above.
            let held = locked.swap(true, Ordering::AcqRel);
            call.consume();
            if !held {
                break;
            }
        }
    }
    unlock(locked, server);
}

model! {
    /// A listener is dropped while its message comes: its callback has run, or the next in the queue is
    /// called; not both, not neither.
    listener_removed_vs_message {
        let (server, registry) = registry();
        let subscription = registry.subscribe(CHANNEL);
        let (ran, listener) = listen(&subscription);
        let mut next = Box::pin(subscription.latch().wait());
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
        assert_eq!(subscription.latch().pending(), 0);
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
        assert_eq!(subscription.latch().pending(), 0);
    }
    fails_if_a_wake_during_a_poll_is_lost: NoPollAfterWake, "the message was lost";
    fails_without_the_look: NoLook, "the message was lost";
}

/// Whether a callback has run. Of std, so that it adds no order to the model.
#[derive(Clone, Default)]
struct Ran(Arc<std::sync::atomic::AtomicBool>);

impl Ran {
    fn has(&self) -> bool {
        // Ordering: Relaxed, all threads of a model run on one real thread.
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A listener, and what becomes of it. Its callback panics if it is run twice.
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
    /// A waiter does not ask while an owner of its own process is known to have the lock, but listens. It
    /// hears of the release, however soon that comes: the holder is struck off before anything is published.
    look_at_own_holder_vs_release {
        let (server, registry) = registry();
        let next = registry.subscribe(CHANNEL);
        server.inbox().ready();
        let held = Arc::new(AtomicBool::new(true));
        let holder = {
            let (server, held) = (server.clone(), Arc::clone(&held));
            thread::spawn(move || {
                // Ordering: Relaxed, as nothing is read through it.
                held.store(false, Ordering::Relaxed);
                server.publish();
            })
        };
        {
            let mut asleep = Box::pin(next.latch().wait());
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
