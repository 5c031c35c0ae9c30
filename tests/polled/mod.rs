//! Futures that are polled by the test itself, without a runtime.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

pub(crate) fn poll_by<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// By a waker that wakes nothing.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    poll_by(future, Waker::noop())
}

/// What a future comes to that is ready at once.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
