//! A forking process, whose child copies the client and the holds; and a process refused another thread.
#![cfg(unix)]

mod over_local;
mod polled;

use std::future::{Pending, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use latchwork::backend::{Backend as _, Runtime};
use latchwork::local::{Local, Sleep, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::{Guard, Lock, LockClient, LockError, LossReason};
use latchwork_testkit::Bell;

use over_local::{Command, There, goes, never, over_when};
use polled::{poll, poll_by, ready};

/// Runs in the child; returns 0 on success.
fn child(client: &LockClient, lock: &Lock, [mut guard, other]: [Guard; 2]) -> i32 {
    let hour = Duration::from_secs(3600);
    let is_forked = |error: &LockError| matches!(error, LockError::Forked) && error.is_shut_down();
    let refused = [
        ready(lock.try_lock()).err(),
        ready(lock.lock()).err(),
        client.get_lock("free").err(),
        client.get_read_write_lock("free").err(),
        ready(lock.force_unlock()).err(),
        ready(lock.holder()).err(),
        ready(lock.hold_count(&client.owner())).err(),
        ready(lock.unlock(&client.owner())).err(),
        ready(lock.unlock(other.owner())).err(),
        ready(other.unlock()).err(),
        ready(guard.ensure_held()).err(),
        ready(guard.extend(hour)).err(),
    ];
    if guard.is_held() || !refused.iter().all(|error| error.as_ref().is_some_and(is_forked)) {
        return 1;
    }
    if !client.held().is_empty() || !client.waiting().is_empty() {
        return 7;
    }
    if ready(guard.lost()) != LossReason::Forked
        || ready(guard.lost_timeout(hour)) != Some(LossReason::Forked)
    {
        return 4;
    }
    if !guard.remaining().is_zero() || !ready(client.shutdown(hour)).is_err_and(|error| error.is_forked()) {
        return 5;
    }
    // The store's timers belong to the parent.
    let over_the_same = LockClient::new(client.backend::<Local>().unwrap().clone());
    let refused = ready(over_the_same.get_lock("held").unwrap().lock());
    if !matches!(refused, Err(LockError::RuntimeEnded)) {
        return 6;
    }
    // The child must not release the parent's hold.
    drop(guard);
    let fresh = LockClient::local();
    let works = ready(ready(fresh.get_lock("held").unwrap().lock()).unwrap().unlock()).is_ok();
    let held = ready(fresh.get_lock("held").unwrap().lock_with_lease(Duration::from_millis(5))).unwrap();
    let ends = latchwork::blocking::LockClient::from_async(fresh);
    let waited = ends.get_lock("held").unwrap().lock().is_ok();
    drop(held);
    if works && waited { 0 } else { 2 }
}

/// Runs `child` in a forked process and returns the status. A signal ends a child that hangs.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs a few functions of this crate, locks no mutex that another thread may hold now,
    // and exits at once.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: requests a signal, which ends the process.
        unsafe { libc::alarm(20) };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process, so no code of the test runs in the child.
        unsafe { libc::_exit(found.unwrap_or(3)) };
    }
    assert!(process > 0, "expected a child process, and fork failed");
    let mut status = 0;
    // SAFETY: the status pointer is valid.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    status
}

#[test]
fn child_does_not_go_on_as_the_same_owner() {
    let client = LockClient::local();
    let lock = client.get_lock("held").unwrap();
    let guard = ready(lock.lock()).unwrap();
    let in_the_child = ["one", "other"].map(|name| ready(client.get_lock(name).unwrap().lock()).unwrap());
    assert_eq!(
        forked(|| child(&client, &lock, in_the_child)),
        0,
        "expected the child to fail all calls with status 0, and it went on or hung"
    );
    assert!(guard.is_held(), "expected the parent's hold, and the child released it");
    ready(guard.unlock()).unwrap();
}

/// Returns a pending timer of the client's store.
fn sleeps(client: &LockClient) -> Pin<Box<Sleep>> {
    let runtime = client.backend::<Local>().unwrap().runtime();
    let mut sleep = Box::pin(runtime.sleep_until(Instant::now() + Duration::from_secs(3600)));
    assert!(poll(sleep.as_mut()).is_pending());
    sleep
}

/// A mutex locked by a thread of the parent at the fork stays locked in the child forever.
#[test]
fn child_of_a_busy_parent_is_told_so_by_each_call() {
    let (client, ended) = (LockClient::local(), Arc::new(AtomicBool::new(false)));
    let busy: Vec<_> = (0..3)
        .map(|thread| {
            let (client, ended) = (client.clone(), Arc::clone(&ended));
            thread::spawn(move || {
                // Ordering: Relaxed, only a stop signal.
                while !ended.load(Ordering::Relaxed) {
                    for name in 0..100 {
                        let lock = client.get_lock(&format!("name:{thread}:{name}")).unwrap();
                        drop(ready(lock.lock()).unwrap());
                    }
                }
            })
        })
        .collect();
    let (held, kept) = (client.get_lock("held").unwrap(), client.get_lock("kept").unwrap());
    let looks: [fn(&LockClient); 3] = [
        |client| _ = client.held(),
        |client| _ = sleeps(client),
        |client| _ = client.registry().subscribe("news"),
    ];
    let look = looks.map(|look| {
        let (client, ended) = (client.clone(), Arc::clone(&ended));
        thread::spawn(move || {
            // Ordering: Relaxed, as above.
            while !ended.load(Ordering::Relaxed) {
                look(&client);
            }
        })
    });
    let elsewhere = LockClient::new(client.backend::<Local>().unwrap().clone());
    let _theirs = ready(elsewhere.get_lock("theirs").unwrap().lock()).unwrap();
    let theirs = client.get_lock("theirs").unwrap();
    let all = client.get_multi_lock([&theirs, &client.get_lock("free").unwrap()]).unwrap();
    for round in 0..60 {
        let [guard, forgotten] = [&held, &kept].map(|lock| ready(lock.lock()).unwrap());
        let (mut head, mut behind) = (Box::pin(theirs.lock()), Box::pin(theirs.lock()));
        let (woken, sleep) = (Bell::default(), sleeps(&client));
        let waker = woken.waker();
        for waits in [&mut head, &mut behind] {
            assert!(poll_by(waits.as_mut(), &waker).is_pending());
        }
        assert_eq!(theirs.waiters(), 1);
        let mut set = Box::pin(all.lock());
        assert!(poll(set.as_mut()).is_pending() && theirs.waiters() == 2);
        let status = forked(|| {
            let nothing_waits = theirs.waiters() == 0 && theirs.waiting() == 0;
            drop((head, behind, set, sleep));
            let nothing_waits = nothing_waits && !woken.take();
            let forked = matches!(client.get_lock("orders"), Err(LockError::Forked));
            let forked = forked && matches!(ready(all.try_lock()), Err(LockError::Forked));
            let lost = ready(guard.lost()) == LossReason::Forked;
            drop(guard);
            forgotten.forget();
            let shut_down =
                ready(client.shutdown(Duration::from_secs(1))).is_err_and(|error| error.is_forked());
            i32::from(!(nothing_waits && forked && lost && shut_down))
        });
        assert_eq!(status, 0, "expected the child of round {round} to end with status 0");
        ready(held.force_unlock()).unwrap();
    }
    // Ordering: Relaxed, as above.
    ended.store(true, Ordering::Relaxed);
    busy.into_iter().chain(look).for_each(|busy| busy.join().unwrap());
}

/// Timers and tasks belong to threads missing in the child, which may have held a mutex.
#[test]
fn timers_and_tasks_of_a_busy_parent_are_over_in_its_child() {
    for round in 0..30 {
        let runtime = ThreadRuntime::new();
        runtime.spawn(poll_fn(|task| {
            task.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let mut sleep = Box::pin(runtime.sleep_until(Instant::now() + Duration::from_secs(3600)));
        assert!(poll(sleep.as_mut()).is_pending());
        let status = forked(move || {
            let is_over = poll(sleep.as_mut()).is_ready();
            drop(sleep);
            let runs = Arc::new(AtomicBool::new(false));
            let task = Arc::clone(&runs);
            // Ordering: Relaxed, the child's only thread.
            runtime.spawn(async move { task.store(true, Ordering::Relaxed) });
            drop(runtime);
            // Ordering: Relaxed, as above.
            i32::from(!is_over || runs.load(Ordering::Relaxed))
        });
        assert_eq!(status, 0, "expected the child of round {round} to end with status 0");
    }
}

#[test]
fn child_gives_back_nothing_that_its_parent_has_asked_for() {
    let given_back = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&given_back);
    let client = LockClient::new(over_when(&Local::new(), move |way, command| match (way, command) {
        (There, Command::Acquire(Mode::Read)) => never(),
        (There, Command::Release(_) | Command::RollBack(_)) => {
            // Ordering: Relaxed, one thread at a time.
            counted.fetch_add(1, Ordering::Relaxed);
            goes()
        }
        _ => goes(),
    }));
    let (me, lock) = (client.owner(), client.get_read_write_lock("prices").unwrap());
    let (writes, reads) = (lock.write().owned_by(&me), lock.read().owned_by(&me));
    let held = ready(writes.lock()).unwrap();
    let mut asks = Box::pin(reads.lock());
    assert!(poll(asks.as_mut()).is_pending());
    let status = forked(|| {
        drop((asks, held));
        // Ordering: Relaxed, as above.
        given_back.load(Ordering::Relaxed) as i32
    });
    assert_eq!(status, 0, "expected the child to end with status 0 without a release of its parent's locks");
    assert_eq!(given_back.load(Ordering::Relaxed), 2);
}

/// More waiters than the client queues at the store: some wait for a place at the semaphore's gate.
#[test]
fn child_of_a_parent_that_waits_for_permits_is_told_so_by_each_call() {
    let client = LockClient::local();
    let jobs = client.get_semaphore("jobs", 1).unwrap();
    let held = ready(jobs.acquire()).unwrap();
    let mut waiting: Vec<_> = (0..40).map(|_| Box::pin(jobs.acquire())).collect();
    assert!(waiting.iter_mut().all(|waiter| poll(waiter.as_mut()).is_pending()));
    let status = forked(|| {
        let refused = [
            ready(jobs.try_acquire()).err(),
            ready(jobs.acquire()).err(),
            ready(jobs.usage()).err(),
            ready(held.ensure_held()).err(),
            ready(held.release()).err(),
        ];
        drop(waiting);
        i32::from(!refused.iter().all(|error| matches!(error, Some(LockError::Forked))))
    });
    assert_eq!(status, 0, "expected each call of the child to end with status 0, told of the fork");
}

/// The parent's clock would report an expired lease.
#[test]
fn child_whose_parents_lease_is_over_is_told_that_it_is_a_child() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let lease = Duration::from_secs(1);
    let held = ready(client.get_lock("held").unwrap().lock_with_lease(lease)).unwrap();
    clock.advance(lease);
    let status = forked(|| i32::from(!matches!(ready(held.ensure_held()), Err(LockError::Forked))));
    assert_eq!(status, 0, "expected the child to end with status 0, told of the fork");
    assert!(ready(held.ensure_held()).unwrap_err().is_lost());
}

/// The parent's shutdown waits for a release of which the child drops a copy.
#[test]
fn child_that_drops_a_parents_release_wakes_none_of_its_tasks() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    let client =
        LockClient::new(over_when(
            &local,
            |way, command| {
                if way == There && command.releases() { never() } else { goes() }
            },
        ));
    let held = ready(client.get_lock("held").unwrap().lock()).unwrap();
    let mut unlocks = Box::pin(held.unlock());
    assert!(poll(unlocks.as_mut()).is_pending());
    let (woken, mut ends) = (Bell::default(), Box::pin(client.shutdown(Duration::from_secs(5))));
    assert!(poll_by(ends.as_mut(), &woken.waker()).is_pending());
    let status = forked(|| {
        drop(unlocks);
        i32::from(woken.take())
    });
    assert_eq!(status, 0, "expected the child to end with status 0 without a wake-up");
}

/// Runs in a process of its own, like the limit. A timed wait needs a timer, which needs a thread.
#[cfg(target_os = "linux")]
#[test]
fn refusal_of_the_first_thread_for_timers_ends_a_limited_wait() {
    const ALONE: &str = "LATCHWORK_REFUSES_THREADS";
    if std::env::var_os(ALONE).is_none() {
        let test = ["--exact", "refusal_of_the_first_thread_for_timers_ends_a_limited_wait", "--nocapture"];
        let run = std::process::Command::new(std::env::current_exe().unwrap())
            .args(test)
            .env(ALONE, "1")
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        return;
    }
    fn told<T>(act: impl FnOnce() -> T) -> thread::Result<T> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(act))
    }
    let client = LockClient::local();
    let lock = client.get_lock("orders").unwrap();
    let second = Duration::from_secs(1);
    let held = ready(lock.lock_with_lease(Duration::from_secs(3600))).unwrap();
    let [mut refused, mut waits] = [(); 2].map(|()| Box::pin(lock.try_lock_for(second, second)));
    // Allocate everything a panic needs before the limit.
    std::panic::set_hook(Box::new(|_| {}));
    assert!(told(|| panic!("on purpose")).is_err());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    let no_more_memory = libc::rlimit { rlim_cur: 1, ..limit };
    // SAFETY: sets a limit of this process; a new thread then has no room for a stack.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const no_more_memory) };
    let polled = told(|| poll(refused.as_mut()).is_pending());
    // SAFETY: as above; restores the old limit.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    let _ = std::panic::take_hook();
    assert!(
        matches!(polled, Ok(false)),
        "expected an error of the poll without memory for a timer thread, and got {polled:?}"
    );
    drop(refused);
    let polled = told(|| poll(waits.as_mut()).is_pending());
    assert!(matches!(polled, Ok(true)), "expected the waiter to wait once memory is available again");
    drop((waits, held));
    assert!(ready(lock.try_lock()).unwrap().is_some(), "expected the free lock, and the name is dead");
}

#[derive(Clone)]
struct PollsOnce(Bell, Arc<Mutex<Vec<Task>>>);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Runtime for PollsOnce {
    type Sleep = Pending<()>;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, _: Instant) -> Pending<()> {
        pending()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task: Task = Box::pin(task);
        if poll_by(task.as_mut(), &self.0.waker()).is_pending() {
            self.1.lock().unwrap().push(task);
        }
    }
}

/// The parent's thread may be about to poll the watchdog.
#[test]
fn child_that_drops_its_parents_client_wakes_no_watchdog() {
    let runtime = PollsOnce(Bell::default(), Arc::default());
    let client = LockClient::new(Local::with_runtime(runtime.clone()));
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    assert_eq!(runtime.1.lock().unwrap().len(), 1, "expected one watchdog");
    let status = forked(|| {
        drop((held, client));
        i32::from(runtime.0.take())
    });
    assert_eq!(status, 0, "expected the child to end with status 0 without a call of its parent's waker");
    assert!(runtime.0.take(), "expected the parent's watchdog to end with its client");
}
