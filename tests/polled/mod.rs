//! Futures polled by the test, without a runtime.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

pub(crate) fn poll_by<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    poll_by(future, Waker::noop())
}

/// Returns the output of a future that is ready at the first poll.
#[track_caller]
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("expected a ready future"),
    }
}
