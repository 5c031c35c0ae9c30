//! Every public type can be formatted while in use, even by a writer that uses the value.

use std::fmt::{self, Debug, Write};
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use latchwork::backend::{Backend, Runtime};
use latchwork::latch::Latch;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock_entry::{Answer, Effects, LockEntry, Moment, Request, Rules, Turn};
use latchwork::striped::StripedSemaphores;
use latchwork::subscription::{Message, Registry};
use latchwork::{AsyncSemaphore, LockClient, LockOptions};

use crate::polled::{poll, ready};
use crate::stage::begun;

/// A writer that calls `used` on each write, as a logger under the same lock would.
struct Uses<'a> {
    text: String,
    used: &'a dyn Fn(),
}

impl Write for Uses<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        (self.used)();
        Ok(())
    }
}

/// A value that formats under its own mutex would deadlock.
fn format(what: &str, value: &dyn Debug, used: &dyn Fn()) {
    for alternate in [false, true] {
        let mut written = Uses { text: String::new(), used };
        match alternate {
            false => write!(written, "{value:?}").unwrap(),
            true => write!(written, "{value:#?}").unwrap(),
        }
        assert!(!written.text.is_empty(), "expected a text for {what}, and got none");
    }
}

/// Runs `act` on a thread of its own, so that a deadlock fails the test.
fn ends(act: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        act();
        done.send(()).unwrap();
    });
    match is_done.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("expected the end within the limit"),
        Err(mpsc::RecvTimeoutError::Disconnected) => drop(thread.join().map_err(std::panic::resume_unwind)),
    }
}

#[test]
fn lock_entry_in_every_phase_can_be_formatted() {
    ends(|| {
        let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
        let used = || _ = (entry.waiters(), entry.holder(now), entry.latch().waiters());
        format("a free entry", &entry, &used);
        let request = Request::new(1);
        let (mut actions, mut more) = (Effects::default(), Effects::default());
        let waker = || Some(Waker::noop().clone());
        let entered = entry.enter(&request, waker(), now, &mut actions);
        let Turn::Head(head) = entered else { panic!("expected a queue head of the idle entry") };
        format("an entry with a queue head", &entry, &used);
        let lease = Duration::from_secs(30);
        let attempt = entry.attempt(&head, 1, now, lease).unwrap();
        let granted = Answer::Granted { last_token: 0 };
        let verdict = entry.answered(&head, attempt, granted, now, &mut actions);
        let entered = entry.enter(&Request::new(2), waker(), now, &mut more);
        for value in [&verdict as &dyn Debug, &actions, &entered, &more, &head, &request] {
            format("what an event returns", value, &used);
        }
        format("an entry with a holder and a waiter", &entry, &used);
        let Turn::Queued(ticket) = entered else { panic!("expected a queued waiter, as the lock is held") };
        format("a ticket", &ticket, &used);
        entry.cancel(ticket, now, &mut more);
    });
}

#[test]
fn all_parts_of_a_client_in_use_can_be_formatted() {
    ends(|| {
        let local = Local::new();
        let [client, other] = [(); 2].map(|()| LockClient::new(local.clone()));
        let lock = client.get_lock("orders").unwrap();
        let guard = ready(lock.lock()).unwrap();
        let theirs = other.get_lock("orders").unwrap();
        let mut waits = Box::pin(lock.lock());
        let mut listens = Box::pin(theirs.lock());
        assert!(poll(waits.as_mut()).is_pending() && poll(listens.as_mut()).is_pending());
        let prices = client.get_read_write_lock("prices").unwrap();
        let read = ready(prices.read().lock()).unwrap();
        let fair = client.get_fair_lock("tickets").unwrap();
        let ticket = ready(fair.lock()).unwrap();
        let error = ready(other.get_fair_lock("orders").unwrap().try_lock()).unwrap_err();
        let subscription = local.registry().subscribe("orders");
        let listener = subscription.listen(|| {});
        let latch = Latch::new();
        latch.release(1);
        let notification = latch.try_wait().expect("one is pending");
        let runtime = local.runtime();
        let sleep = begun(runtime.sleep_until(Instant::now() + Duration::from_secs(60)));
        let (metrics, stats, holder) = (client.metrics(), lock.stats(), ready(lock.holder()).unwrap());
        let (registry, transport) = (local.registry(), local.registry().transport());
        let (options, owner) = (LockOptions::default().label("worker"), client.owner());
        // Lock every shared value once more while formatting.
        let used = || {
            let fresh = client.get_lock("orders").unwrap();
            _ = (ready(fresh.try_lock()), fresh.waiters(), guard.is_held(), client.metrics());
            _ = (
                ready(fresh.holder()),
                local.registry().len(),
                runtime.now(),
                runtime.sleep_until(Instant::now()),
            );
            transport.publish("nothing", Message::Unlock);
            drop(local.registry().subscribe("news"));
        };
        let values: [(&str, &dyn Debug); 25] = [
            ("Local", &local),
            ("LockClient", &client),
            ("Lock", &lock),
            ("Guard", &guard),
            ("ReadWriteLock", &prices),
            ("a reader's Guard", &read),
            ("a fair Guard", &ticket),
            ("LockError", &error),
            ("Subscription", &subscription),
            ("ChannelEntry", &*subscription),
            ("Latch", &latch),
            ("Notification", &notification),
            ("Listener", &listener),
            ("ThreadRuntime", runtime),
            ("Sleep", &*sleep),
            ("Metrics", &metrics),
            ("LockStats", &stats),
            ("Holder", &holder),
            ("Registry", registry),
            ("LocalTransport", transport),
            ("LockOptions", &options),
            ("Owner", &owner),
            ("LockName", lock.name()),
            ("RegistryStats", &registry.stats()),
            ("paused ThreadRuntime", &ThreadRuntime::paused()),
        ];
        for (what, value) in values {
            format(what, value, &used);
        }
        let held = ready(client.shutdown(Duration::ZERO));
        format("ShutdownError", &held.unwrap_err(), &|| _ = client.metrics());
    });
}

#[test]
fn blocking_locks_in_use_can_be_formatted() {
    ends(|| {
        let client = latchwork::blocking::LockClient::local();
        let lock = client.get_lock("orders").unwrap();
        let guard = lock.lock().unwrap();
        let used = || _ = (lock.try_lock(), guard.is_held());
        for value in [&client as &dyn Debug, &lock, &guard] {
            format("a blocking lock", value, &used);
        }
    });
}

#[test]
fn primitives_in_use_can_be_formatted() {
    ends(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let permit = semaphore.try_acquire().unwrap();
        let waits = begun(semaphore.acquire());
        let owned = begun(Arc::clone(&semaphore).acquire_owned());
        let latch = Latch::new();
        latch.release(1);
        let notification = latch.try_wait().unwrap();
        let striped = StripedSemaphores::new();
        let stripe = striped.for_name("orders");
        let held = stripe.blocking_acquire();
        let registry = Registry::new(latchwork::local::LocalTransport::default());
        let used = || {
            _ = (semaphore.try_acquire(), semaphore.waiters(), latch.waiters(), registry.len());
        };
        let values: [&dyn Debug; 10] = [
            &semaphore,
            &permit,
            &*waits,
            &*owned,
            &latch,
            &notification,
            &striped,
            &stripe,
            &held,
            &registry,
        ];
        for value in values {
            format("a primitive", value, &used);
        }
    });
}
