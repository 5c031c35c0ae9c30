use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::backend::Runtime as _;
use latchwork::local::ThreadRuntime;

/// A task that waits for `end`, observed by the test.
#[derive(Default)]
struct Waits {
    ends: AtomicBool,
    /// The task's own waker, which keeps the task allocated.
    waker: Mutex<Option<Waker>>,
}

impl Waits {
    fn spawn(runtime: &ThreadRuntime) -> Arc<Self> {
        let waits = Arc::<Self>::default();
        let task = Arc::clone(&waits);
        runtime.spawn(poll_fn(move |context| {
            *task.waker.lock().unwrap() = Some(context.waker().clone());
            // Ordering: Relaxed, ordered by the waker's mutex.
            if task.ends.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        }));
        waits
    }

    fn end(&self) {
        // Ordering: Relaxed, as above.
        self.ends.store(true, Ordering::Relaxed);
        self.waker.lock().unwrap().as_ref().expect("the task was polled").wake_by_ref();
    }

    fn is_dropped(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

/// Kept wakers must not keep tasks alive, even after other tasks have finished.
#[test]
fn unfinished_tasks_are_dropped_at_the_end_of_the_runtime() {
    let runtime = ThreadRuntime::paused();
    let tasks = [(); 4].map(|()| Waits::spawn(&runtime));
    runtime.advance(Duration::ZERO);
    tasks[1].end();
    runtime.advance(Duration::ZERO);
    assert_eq!(tasks.each_ref().map(Waits::is_dropped), [false, true, false, false]);
    // The task is ready to continue, but never polled again.
    tasks[2].end();
    drop(runtime);
    assert_eq!(tasks.each_ref().map(Waits::is_dropped), [true; 4]);
}

#[test]
fn task_that_is_woken_while_the_threads_sleep_goes_on() {
    const SOON: Duration = Duration::from_secs(10);
    let (runtime, begun) = (ThreadRuntime::new(), Instant::now());
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(begun.elapsed() < SOON, "expected within {SOON:?}: {what}");
            thread::yield_now();
        }
    };
    // A thread may still be awake, but not each time.
    for _ in 0..20 {
        let waits = Waits::spawn(&runtime);
        until("a thread polls it", &|| {
            waits.waker.lock().unwrap().as_ref().is_some_and(|waker| !waker.will_wake(Waker::noop()))
        });
        (0..20).for_each(|_| thread::yield_now());
        waits.end();
        until("it goes on", &|| waits.is_dropped());
    }
}

/// Wake-ups while queued or polled add exactly one poll.
#[test]
fn task_woken_while_queued_or_polled_is_polled_again() {
    let (runtime, polls) = (ThreadRuntime::paused(), Arc::new(AtomicUsize::new(0)));
    let task = Arc::<Mutex<Option<Waker>>>::default();
    runtime.spawn({
        let (polls, task) = (Arc::clone(&polls), Arc::clone(&task));
        poll_fn(move |context| {
            *task.lock().unwrap() = Some(context.waker().clone());
            // Ordering: Relaxed, all on one thread.
            if (2..5).contains(&polls.fetch_add(1, Ordering::Relaxed)) {
                context.waker().wake_by_ref();
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        })
    });
    runtime.advance(Duration::ZERO);
    // Ordering: Relaxed, as above.
    assert_eq!(polls.load(Ordering::Relaxed), 2, "by `spawn` and by the thread");
    for _ in 0..2 {
        task.lock().unwrap().as_ref().unwrap().wake_by_ref();
    }
    runtime.advance(Duration::ZERO);
    // Ordering: Relaxed, as above.
    assert_eq!(polls.load(Ordering::Relaxed), 2 + 3 + 1);
}
