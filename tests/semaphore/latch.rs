//! `Latch`: notifications, pending and passed on.

use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::latch::{Latch, Notification};

use latchwork_testkit::waker;

use crate::wakers::{poll, poll_by};

type Wait<'a> = Pin<Box<dyn Future<Output = Notification<'a>> + 'a>>;

/// Waits, oldest first.
fn waits(latch: &Latch, how_many: usize) -> Vec<Wait<'_>> {
    let mut waits: Vec<Wait<'_>> = (0..how_many).map(|_| Box::pin(latch.wait()) as _).collect();
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    waits
}

fn notified<'a>(wait: &mut Wait<'a>) -> Notification<'a> {
    let Poll::Ready(call) = poll(wait) else { panic!("expected the notification of the waiter") };
    call
}

#[test]
fn a_burst_of_calls_is_not_hoarded() {
    let latch = Latch::new();
    (0..1000).for_each(|_| latch.release(1));
    assert_eq!(latch.pending(), 1);
    latch.release(3);
    latch.release(2);
    assert_eq!(latch.pending(), 3, "expected no more notifications than the largest release");
    let latch = Latch::new();
    (0..1000).for_each(|_| latch.release_all());
    assert_eq!(latch.pending(), 1);
}

#[test]
fn a_release_calls_the_oldest_and_no_more_than_it_says() {
    for called in [1, 5, 100] {
        let latch = Latch::new();
        let mut waits = waits(&latch, 100);
        assert_eq!(latch.waiters(), 100);
        if called == 100 {
            latch.release_all()
        } else {
            latch.release(called)
        }
        waits.drain(..called).for_each(|mut wait| notified(&mut wait).consume());
        assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
        assert_eq!((latch.pending(), latch.waiters()), (0, 100 - called));
        let mut late = pin!(latch.wait());
        assert!(poll(&mut late).is_pending(), "expected no notification for a later waiter");
    }
}

/// The waiter reads the notification and drops it, or never reads it.
#[test]
fn a_call_dropped_unanswered_goes_to_the_next() {
    let ways: [fn(&mut Wait<'_>); 2] = [|wait| drop(notified(wait)), |_| {}];
    for way in ways {
        let latch = Latch::new();
        let mut waits = waits(&latch, 2);
        latch.release(1);
        way(&mut waits[0]);
        drop(waits.remove(0));
        notified(&mut waits[0]).consume();
    }
}

#[test]
fn notified_unpolled_waiter_is_not_notified_by_a_release_of_all() {
    let latch = Latch::new();
    let mut waits = waits(&latch, 2);
    latch.release(1);
    latch.release_all();
    assert_eq!((latch.waiters(), latch.pending()), (2, 0));
    assert!(poll(&mut waits[1]).is_ready());
}

/// Redisson (2ddc4a432, PR #7206): a cancelled waiter's permit came back twice.
#[test]
fn a_cancelled_waiter_does_not_multiply_its_call() {
    let latch = Latch::new();
    for called in [0, 3] {
        let waits = waits(&latch, 50);
        latch.release(called);
        drop(waits);
        assert!(latch.pending() <= called);
    }
}

#[test]
fn notifications_of_cancelled_waiters_coalesce() {
    let latch = Latch::new();
    let mut all = Vec::new();
    for _ in 0..1000 {
        all.extend(waits(&latch, 1));
        latch.release(1);
    }
    drop(all);
    assert_eq!(latch.pending(), 1);
}

/// Redisson (#4215): a release stopped at a cancelled waiter.
#[test]
fn cancelled_waiters_are_stepped_over() {
    let latch = Latch::new();
    let mut last = waits(&latch, 100).pop().unwrap();
    latch.release(1);
    notified(&mut last).consume();
    assert_eq!(latch.pending(), 0);
}

#[test]
fn a_thread_waits() {
    let latch = Latch::new();
    assert!(latch.blocking_wait_timeout(Duration::ZERO).is_none());
    let start = Instant::now();
    assert!(latch.blocking_wait_timeout(Duration::from_millis(20)).is_none());
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(latch.waiters(), 0);
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| latch.blocking_wait().consume()),
            scope.spawn(|| latch.blocking_wait_timeout(Duration::from_secs(30)).unwrap().consume()),
            // Beyond the clock's range.
            scope.spawn(|| latch.blocking_wait_timeout(Duration::MAX).unwrap().consume()),
        ];
        while latch.waiters() < threads.len() {
            std::thread::yield_now();
        }
        latch.release_all();
    });
    assert_eq!(latch.pending(), 0);
}

/// Other threads finish a stopped thread's wake-ups, and may meet a panicking waker before they notify.
#[test]
fn a_notification_is_sent_although_a_waker_panics() {
    let [reached, let_go] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let stays = waker({
        let (reached, let_go) = (Arc::clone(&reached), Arc::clone(&let_go));
        move || {
            reached.wait();
            let_go.wait();
        }
    });
    let panics = waker(|| panic!("a waker's"));

    // More than a wake batch: the first waker blocks, and the last but one panics.
    let latch = Latch::new();
    let mut waits: Vec<_> = (0..41).map(|_| Box::pin(latch.wait())).collect();
    for (place, wait) in waits.iter_mut().enumerate() {
        let waker = match place {
            0 => &stays,
            39 => &panics,
            _ => Waker::noop(),
        };
        assert!(poll_by(wait, waker).is_pending());
    }
    thread::scope(|scope| {
        scope.spawn(|| latch.release(40));
        reached.wait();
        latch.release(1);
        let_go.wait();
    });
    assert!(waits.iter_mut().all(|wait| poll(wait).is_ready()));
}
