//! Work that is finished even if nobody waits for it any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::runtime::Runtime;

use super::backend::Backend;
use super::client::Inner;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A command that must not be abandoned half-way: once begun, the store may run it whether or not anyone looks.
///
/// Awaited, it is `work`. Dropped before its end, it goes on in the background, and `abandoned` is given the outcome.
pub(super) struct Unbroken<B, T, A, F>
where
    B: Backend,
    T: Send + 'static,
    A: FnOnce(T) -> F + Send + Unpin + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    client: Arc<Inner<B>>,
    /// `None` once it has ended.
    rest: Option<(Work<T>, A)>,
}

impl<B, T, A, F> Unbroken<B, T, A, F>
where
    B: Backend,
    T: Send + 'static,
    A: FnOnce(T) -> F + Send + Unpin + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    pub(super) fn new(
        client: Arc<Inner<B>>,
        work: impl Future<Output = T> + Send + 'static,
        abandoned: A,
    ) -> Self {
        Self { client, rest: Some((Box::pin(work), abandoned)) }
    }
}

impl<B, T, A, F> Future for Unbroken<B, T, A, F>
where
    B: Backend,
    T: Send + 'static,
    A: FnOnce(T) -> F + Send + Unpin + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let (work, _) = self.rest.as_mut().expect("polled after it had returned ready");
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.rest = None;
        }
        polled
    }
}

impl<B, T, A, F> Drop for Unbroken<B, T, A, F>
where
    B: Backend,
    T: Send + 'static,
    A: FnOnce(T) -> F + Send + Unpin + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some((work, abandoned)) = self.rest.take() {
            self.client.backend.runtime().spawn(async move { abandoned(work.await).await });
        }
    }
}
