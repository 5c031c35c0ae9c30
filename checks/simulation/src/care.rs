//! [`cared`]: polls an operation's future with drops, stalls and hostile wakers.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::program::{Care, WakerKind};
use crate::stage::Stage;
use crate::store::Store;
use crate::world::{Process, Sleep, WakerPanic};

pub(crate) enum Ended<T> {
    Ready(T),
    Dropped,
    /// A waker's panic unwound through the poll.
    Panicked,
}

/// A hostile waker's callback, beside waking its task.
pub(crate) type Callback = Arc<dyn Fn() + Send + Sync>;

struct Cared<S: Store, F> {
    stage: Stage<S>,
    /// Member and task.
    by: (usize, usize),
    process: Process,
    care: Care,
    callback: Option<Callback>,
    future: Option<Pin<Box<F>>>,
    polls: u32,
    nap: Option<Pin<Box<Sleep>>>,
    /// If true, the future is dropped after the nap.
    drops: bool,
    limit: Option<Pin<Box<Sleep>>>,
}

pub(crate) async fn cared<S: Store, F: Future>(
    stage: &Stage<S>,
    by: (usize, usize),
    care: &Care,
    callback: Option<Callback>,
    future: F,
) -> Ended<F::Output> {
    let limit = care.limit.map(|limit| Box::pin(stage.world.sleep(limit)));
    let process = stage.scene().members[by.0].process.clone();
    let (stage, care, future) = (stage.clone(), care.clone(), Some(Box::pin(future)));
    let mut cared =
        Cared { stage, by, process, care, callback, future, polls: 0, nap: None, drops: false, limit };
    poll_fn(move |context| cared.poll(context)).await
}

impl<S: Store, F: Future> Cared<S, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended<F::Output>> {
        if let Some(nap) = &mut self.nap {
            if nap.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.nap = None;
            if self.drops {
                return Poll::Ready(self.end(Ended::Dropped));
            }
        }
        let Some(future) = &mut self.future else { return Poll::Pending };
        let waker = waker(&self.process, self.care.waker, self.callback.as_ref(), context.waker());
        let polled =
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
            Ok(Poll::Ready(output)) => return Poll::Ready(self.end(Ended::Ready(output))),
            Ok(Poll::Pending) => {}
            Err(panic) => {
                self.stage.world.panicked(&*panic);
                return Poll::Ready(self.end(Ended::Panicked));
            }
        }
        self.polls += 1;
        let is_over = self.limit.as_mut().is_some_and(|limit| limit.as_mut().poll(context).is_ready());
        if is_over || self.care.drop_after == Some(self.polls) {
            return Poll::Ready(self.end(Ended::Dropped));
        }
        self.rest(context)
    }

    fn rest(&mut self, context: &mut Context<'_>) -> Poll<Ended<F::Output>> {
        let Some(stall) = self.care.stall.take_if(|stall| stall.polls == self.polls) else {
            return Poll::Pending;
        };
        let until = self.stage.world.now() + stall.lasts;
        let mut nap = Box::pin(self.stage.world.sleep_until(until));
        _ = nap.as_mut().poll(context);
        (self.nap, self.drops) = (Some(nap), stall.drops);
        if let Some(call) = self.stage.scene().calls.get_mut(&self.by) {
            (call.stalled_until, call.was_stalled) = (until, true);
        }
        Poll::Pending
    }

    /// Drops the future inside `catch`: its destructor may call wakers that panic.
    fn end(&mut self, ended: Ended<F::Output>) -> Ended<F::Output> {
        let future = self.future.take();
        self.stage.world.catch(|| drop(future));
        ended
    }
}

fn waker(process: &Process, kind: WakerKind, callback: Option<&Callback>, task: &Waker) -> Waker {
    match (kind, callback) {
        (WakerKind::Plain, _) => task.clone(),
        (kind, callback) => {
            let callback = callback.filter(|_| kind != WakerKind::Panics).cloned();
            Waker::from(Arc::new(Hostile { process: process.clone(), task: task.clone(), callback }))
        }
    }
}

/// Wakes its task, and then calls back or panics, unless the process is dead or suspended.
struct Hostile {
    process: Process,
    task: Waker,
    callback: Option<Callback>,
}

impl Wake for Hostile {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.task.wake_by_ref();
        if self.process.world().is_over() || !self.process.runs() {
            return;
        }
        match &self.callback {
            Some(callback) => callback(),
            None => panic_any(WakerPanic),
        }
    }
}
