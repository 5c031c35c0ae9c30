//! Two threads with spare permits.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cores;
use crate::each_peer;
use crate::event::{Event, Row};
use crate::peers::{Peer, Raw};

const THREADS: usize = 2;
const ONE: usize = 0;
const OTHER: usize = 1;
const PERMITS: usize = 16;
/// Short enough to end, most times, before the system preempts one of the threads.
const PERMITS_PER_ROUND: u32 = 1000;

/// Two threads acquire and drop permits in a loop; a permit is always free. Per permit of a thread.
pub fn threads() -> Vec<Event> {
    let mut rows = Vec::from(each_peer!(row()));
    rows.push(row::<Raw>());
    vec![Event { name: "threads_2/try_acquire", per_round: PERMITS_PER_ROUND, rows }]
}

/// Only rounds with both threads at once count; on a busy machine many others show no contention.
fn row<P: Peer>() -> Row {
    let semaphore = P::new(PERMITS);
    Row::new_if_undisturbed::<P>(move |rounds| {
        let meeting = Meeting::new();
        let next = Mutex::new(RoundStep::Work);
        let others = Mutex::new(None);
        let time = thread::scope(|scope| {
            scope.spawn(|| {
                cores::pin(OTHER);
                let mut meetings = 0;
                while let Some(worked) = round(OTHER, &semaphore, &meeting, &mut meetings, &next) {
                    *lock(&others) = Some(worked);
                    meeting.attend(&mut meetings);
                }
            });
            // Not on the caller's thread, which must stay unpinned.
            let one = scope.spawn(|| {
                cores::pin(ONE);
                let mut together = Together::new();
                let mut meetings = 0;
                while let Some(mine) = round(ONE, &semaphore, &meeting, &mut meetings, &next) {
                    meeting.attend(&mut meetings);
                    let other = lock(&others).take().expect("the other thread has worked");
                    *lock(&next) = together.count(mine, other, rounds);
                }
                together.time_of(rounds)
            });
            one.join().expect("the thread did not panic")
        });
        assert_eq!(semaphore.available(), PERMITS);
        time
    })
}

#[derive(Clone, Copy)]
enum RoundStep {
    Work,
    /// Sleep, each until its own time, then work. On a swamped machine the threads may have fallen into a
    /// beat in which each has its core while the other has not; sleeping breaks the beat.
    RestAndWork([Instant; THREADS]),
    GoHome,
}

type Span = (Instant, Instant);

fn round<P: Peer>(
    thread: usize,
    semaphore: &P,
    meeting: &Meeting,
    meetings: &mut usize,
    next: &Mutex<RoundStep>,
) -> Option<Span> {
    meeting.attend(meetings);
    let next = *lock(next);
    match next {
        RoundStep::Work => {}
        RoundStep::RestAndWork(until) => {
            thread::sleep(until[thread].saturating_duration_since(Instant::now()))
        }
        RoundStep::GoHome => return None,
    }
    meeting.attend(meetings);
    let start = Instant::now();
    for _ in 0..PERMITS_PER_ROUND {
        let permit = black_box(semaphore).try_acquire().expect("permits to spare");
        black_box(&permit);
    }
    Some((start, Instant::now()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Meeting point of the threads. They spin: a sleeper would come late, and the other would run alone so long.
struct Meeting {
    arrived: AtomicUsize,
}

impl Meeting {
    fn new() -> Self {
        Self { arrived: AtomicUsize::new(0) }
    }

    /// `before` is the number of meetings that this thread attended.
    fn attend(&self, before: &mut usize) {
        *before += 1;
        // Ordering: Release and Acquire: a thread sees all writes of the other before the meeting.
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0_u32;
        // Ordering: as above.
        while self.arrived.load(Ordering::Acquire) < *before * THREADS {
            spins = spins.wrapping_add(1);
            // The other thread may need this very core. Not at once: any third thread would take it for long.
            if spins.is_multiple_of(100_000) {
                thread::yield_now();
            }
            spin_loop();
        }
    }
}

/// The rounds so far, and the good ones among them.
struct Together {
    begun: Instant,
    tried: u64,
    good: u64,
    good_time: Duration,
}

impl Together {
    fn new() -> Self {
        Self { begun: Instant::now(), tried: 0, good: 0, good_time: Duration::ZERO }
    }

    /// Tries all rounds, unless they take too long; without a good round, some more.
    ///
    /// A round is good if the threads ran at once for two thirds of the time from the first start to the last
    /// end.
    fn count(&mut self, a: Span, b: Span, rounds: u64) -> RoundStep {
        let all = a.1.max(b.1) - a.0.min(b.0);
        let both = a.1.min(b.1).saturating_duration_since(a.0.max(b.0));
        self.tried += 1;
        let good = both * 3 >= all * 2;
        if good {
            self.good += 1;
            self.good_time += all;
        }
        let spent = self.begun.elapsed();
        let enough = self.good > 0 && (self.tried >= rounds || spent > Duration::from_millis(50));
        if enough || spent > Duration::from_millis(500) {
            RoundStep::GoHome
        } else if good {
            RoundStep::Work
        } else {
            // 0 to 6 ms apart: the parts of a beat last for some of the system's ticks, of 1 to 4 ms each.
            let until = Instant::now() + Duration::from_millis(8);
            RoundStep::RestAndWork([until, until + Duration::from_millis(self.tried % 4 * 2)])
        }
    }

    /// The time of `rounds` good rounds, extrapolated. Threads that took turns would have a better figure.
    fn time_of(&self, rounds: u64) -> Option<Duration> {
        (self.good > 0).then(|| self.good_time.mul_f64(rounds as f64 / self.good as f64))
    }
}
