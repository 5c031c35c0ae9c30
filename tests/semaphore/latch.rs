//! `Latch`: notifications, pending and passed on.

use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::latch::Latch;

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_call_before_the_wait_is_kept() {
    let latch = Latch::new();
    assert!(latch.try_wait().is_none());
    latch.release(1);
    assert!(poll(pin!(latch.wait())).is_ready());
}

#[test]
fn a_burst_of_calls_is_not_hoarded() {
    let latch = Latch::new();
    for _ in 0..1000 {
        latch.release(1);
    }
    assert_eq!(latch.pending(), 1);
    latch.release(3);
    latch.release(2);
    assert_eq!(latch.pending(), 3, "expected no more notifications than the largest release");
}

#[test]
fn one_call_wakes_one() {
    let latch = Latch::new();
    let (mut first, mut second) = (pin!(latch.wait()), pin!(latch.wait()));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    latch.release(1);
    let Poll::Ready(call) = poll(first.as_mut()) else { panic!("the oldest was not called") };
    call.consume();
    assert!(poll(second.as_mut()).is_pending());
    assert_eq!(latch.pending(), 0);
}

#[test]
fn a_call_dropped_unanswered_goes_to_the_next() {
    let latch = Latch::new();
    let (mut first, mut second) = (pin!(latch.wait()), pin!(latch.wait()));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    latch.release(1);
    let Poll::Ready(call) = poll(first.as_mut()) else { panic!("the oldest was not called") };
    drop(call);
    assert!(poll(second.as_mut()).is_ready());
}

#[test]
fn unread_notification_goes_to_the_next() {
    let latch = Latch::new();
    let mut second = pin!(latch.wait());
    {
        let mut first = pin!(latch.wait());
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        latch.release(1);
    }
    assert!(poll(second.as_mut()).is_ready());
}

#[test]
fn many_are_called_at_once() {
    let latch = Latch::new();
    let mut waits: Vec<_> = (0..5).map(|_| Box::pin(latch.wait())).collect();
    for wait in &mut waits {
        assert!(poll(wait.as_mut()).is_pending());
    }
    latch.release(5);
    for wait in &mut waits {
        let Poll::Ready(call) = poll(wait.as_mut()) else {
            panic!("expected the notification of each waiter")
        };
        call.consume();
    }
    assert_eq!(latch.pending(), 0);
}

#[test]
fn all_present_waiters_are_notified() {
    let latch = Latch::new();
    let mut waits: Vec<_> = (0..100).map(|_| Box::pin(latch.wait())).collect();
    for wait in &mut waits {
        assert!(poll(wait.as_mut()).is_pending());
    }
    assert_eq!(latch.waiters(), 100);
    latch.release_all();
    for wait in &mut waits {
        let Poll::Ready(call) = poll(wait.as_mut()) else {
            panic!("expected the notification of each waiter")
        };
        call.consume();
    }
    assert_eq!((latch.pending(), latch.waiters()), (0, 0));
    assert!(poll(pin!(latch.wait())).is_pending(), "expected no notification for a later waiter");
}

#[test]
fn notified_unpolled_waiter_is_not_notified_by_a_release_of_all() {
    let latch = Latch::new();
    let (mut first, mut second) = (pin!(latch.wait()), pin!(latch.wait()));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    latch.release(1);
    latch.release_all();
    assert_eq!((latch.waiters(), latch.pending()), (2, 0));
    assert!(poll(second).is_ready());
}

#[test]
fn notification_without_a_waiter_is_kept_once() {
    let latch = Latch::new();
    for _ in 0..1000 {
        latch.release_all();
    }
    assert_eq!(latch.pending(), 1);
}

/// Redisson (2ddc4a432, PR #7206): a cancelled waiter's permit came back twice.
#[test]
fn a_cancelled_waiter_does_not_multiply_its_call() {
    let latch = Latch::new();
    for called in [false, true] {
        let mut waits: Vec<_> = (0..50).map(|_| Box::pin(latch.wait())).collect();
        for wait in &mut waits {
            assert!(poll(wait.as_mut()).is_pending());
        }
        if called {
            latch.release(3);
        }
        drop(waits);
        assert!(latch.pending() <= if called { 3 } else { 0 });
    }
}

#[test]
fn notifications_of_cancelled_waiters_coalesce() {
    let latch = Latch::new();
    let mut waits: Vec<_> = (0..1000).map(|_| Box::pin(latch.wait())).collect();
    for wait in &mut waits {
        assert!(poll(wait.as_mut()).is_pending());
        latch.release(1);
    }
    drop(waits);
    assert_eq!(latch.pending(), 1);
}

/// Redisson (#4215): a release stopped at a cancelled waiter.
#[test]
fn cancelled_waiters_are_stepped_over() {
    let latch = Latch::new();
    let mut waits: Vec<_> = (0..100).map(|_| Box::pin(latch.wait())).collect();
    for wait in &mut waits {
        assert!(poll(wait.as_mut()).is_pending());
    }
    let mut last = waits.pop().unwrap();
    drop(waits);
    latch.release(1);
    let Poll::Ready(call) = poll(last.as_mut()) else {
        panic!("the notification went to a cancelled waiter")
    };
    call.consume();
    assert_eq!(latch.pending(), 0);
}

#[test]
fn a_call_answered_in_vain_is_not_passed_on() {
    let latch = Latch::new();
    latch.release(1);
    latch.try_wait().unwrap().consume_spurious();
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
    struct Run<F: Fn() + Send + Sync>(F);

    impl<F: Fn() + Send + Sync> Wake for Run<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    let [reached, let_go] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let stays = Waker::from(Arc::new(Run({
        let (reached, let_go) = (Arc::clone(&reached), Arc::clone(&let_go));
        move || {
            reached.wait();
            let_go.wait();
        }
    })));
    let panics = Waker::from(Arc::new(Run(|| panic!("a waker's"))));

    // More than a wake batch: the first waker blocks, and the last but one panics.
    let latch = Latch::new();
    let mut waits: Vec<_> = (0..41).map(|_| Box::pin(latch.wait())).collect();
    for (place, wait) in waits.iter_mut().enumerate() {
        let waker = match place {
            0 => &stays,
            39 => &panics,
            _ => Waker::noop(),
        };
        assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    thread::scope(|scope| {
        scope.spawn(|| latch.release(40));
        reached.wait();
        latch.release(1);
        let_go.wait();
    });
    for wait in waits {
        let Poll::Ready(notification) = poll(pin!(wait)) else { panic!("not notified") };
        notification.consume();
    }
}
