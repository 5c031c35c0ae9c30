//! Futures polled by the test.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) fn poll_by<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_by(future, Waker::noop())
}

pub(crate) fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    poll(future).is_ready()
}
