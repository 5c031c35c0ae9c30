//! Work in tasks of its own.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;

use crate::foreign::Panics;

use super::context::Context;

/// Drops what wakes others in a task of its own.
pub(super) fn drop_apart(context: &Context, wakes: impl Send + 'static) {
    let wakes = Apart(Some(wakes));
    context.spawn(Box::pin(async move {
        // Not in the task that spawns this one, which a runtime may poll in place.
        yield_now().await;
        drop(wakes);
    }));
}

/// What wakes others when it is dropped, by no call that its panics could go on in.
struct Apart<T>(Option<T>);

impl<T> Drop for Apart<T> {
    fn drop(&mut self) {
        let mut panics = Panics::NONE;
        panics.catch(|| drop(self.0.take()));
        panics.report("waking waiters");
    }
}

/// Lets other tasks of the same thread go on.
pub(super) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
