//! Foreign code: wakers that panic or block wherever one is called, a backend whose every call panics in
//! turn, and a subscriber of `tracing` that panics at each event in turn.

mod backend;
mod subscriber;
pub(crate) mod wakers;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future), Waker::noop()) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
