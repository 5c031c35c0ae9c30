//! Two threads, permits to spare.

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
/// Short enough to be over, most times, before the system takes one of the threads off its core.
const PERMITS_PER_ROUND: u32 = 1000;

/// Two threads take and drop permits in a loop; there always is one. Per permit of one thread.
pub fn threads() -> Vec<Event> {
    let mut rows = Vec::from(each_peer!(row()));
    rows.push(row::<Raw>());
    vec![Event { name: "threads_2/try_acquire", per_round: PERMITS_PER_ROUND, rows }]
}

/// Only rounds in which both threads ran at once count; on a busy machine others are many, and show no
/// contention.
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
            // Not on the caller's thread, which must not stay pinned.
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

/// What the threads do after they have met.
#[derive(Clone, Copy)]
enum RoundStep {
    Work,
    /// Sleep until then, each until its own time, and work. On a swamped machine the threads may have fallen
    /// into a beat in which each has its core while the other has not; this breaks it.
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

/// Where the threads wait for each other. They spin: a sleeper comes late, and for that long the other is
/// alone.
struct Meeting {
    arrived: AtomicUsize,
}

impl Meeting {
    fn new() -> Self {
        Self { arrived: AtomicUsize::new(0) }
    }

    /// `before` is how many meetings this thread attended.
    fn attend(&self, before: &mut usize) {
        *before += 1;
        // Ordering: Release and Acquire, so that what one did before the meeting is seen by the other after
        // it.
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0_u32;
        // Ordering: as above.
        while self.arrived.load(Ordering::Acquire) < *before * THREADS {
            spins = spins.wrapping_add(1);
            // The other one may be waiting for this very core. Not at once: any other thread about would take
            // it for long.
            if spins.is_multiple_of(100_000) {
                thread::yield_now();
            }
            spin_loop();
        }
    }
}

/// The rounds so far, and those of them that count.
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

    /// All rounds are tried, unless that takes too long; if none was good, some more.
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
            // By 0 to 6 milliseconds apart: a beat's parts last for some of the system's ticks, and those are
            // 1 to 4.
            let until = Instant::now() + Duration::from_millis(8);
            RoundStep::RestAndWork([until, until + Duration::from_millis(self.tried % 4 * 2)])
        }
    }

    /// So many good rounds would have taken this long. No figure is better than that of threads which took
    /// turns.
    fn time_of(&self, rounds: u64) -> Option<Duration> {
        (self.good > 0).then(|| self.good_time.mul_f64(rounds as f64 / self.good as f64))
    }
}
