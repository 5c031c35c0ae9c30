//! `Latch`: calls, kept calls, and calls that are passed on.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use latchwork::Latch;

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
    assert_eq!(latch.kept(), 1);
    latch.release(3);
    latch.release(2);
    assert_eq!(latch.kept(), 3, "never more than the largest release");
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
    assert_eq!(latch.kept(), 0);
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
fn a_call_nobody_looked_at_goes_to_the_next() {
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
        let Poll::Ready(call) = poll(wait.as_mut()) else { panic!("one was not called") };
        call.consume();
    }
    assert_eq!(latch.kept(), 0);
}
