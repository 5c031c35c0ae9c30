//! [`Round`]: one semaphore, a script for each thread, and the count at the end.

use std::fmt::Write as _;
use std::sync::Arc;

use fastrand::Rng;
use latchwork::AsyncSemaphore;

use crate::hand::{Hand, Request, Stage};
use crate::mix::{Mix, StepKind};
use crate::script::{PICKS, Script, Step};

/// What stays with the counting thread, while the others play their hands.
#[derive(Debug)]
pub struct Round {
    semaphore: Arc<AsyncSemaphore>,
    permits: usize,
    /// Of the waiters that came before the threads.
    early: Hand,
    /// Says in which order all is let go at the end.
    rng: Rng,
}

impl Round {
    /// A random round, and a hand for each of so many threads.
    pub fn new(mix: &Mix, threads: usize, rng: &mut Rng) -> (Self, Vec<Hand>) {
        let permits = rng.usize(mix.permits.clone());
        let semaphore = Arc::new(AsyncSemaphore::new(permits));
        let mut script = Script::new();
        for _ in 0..rng.usize(mix.early.clone()) {
            script.push(Step::random(&[(StepKind::Acquire, 1)], rng));
            if rng.u32(..mix.gave_up) == 0 {
                script.push(Step::Cancel(rng.usize(..PICKS)));
            }
        }
        let mut early = Hand::new(&semaphore, script);
        early.play();
        let hands = (0..threads).map(|thread| {
            let kinds = mix.kinds[thread % mix.kinds.len()];
            Hand::new(&semaphore, (0..mix.steps).map(|_| Step::random(kinds, rng)).collect())
        });
        let hands = hands.collect();
        (Self { semaphore, permits, early, rng: rng.fork() }, hands)
    }

    /// Counts everything, when no thread is inside any more.
    ///
    /// # Errors
    ///
    /// What is wrong, with all that is known of the round.
    pub fn count(self, hands: Vec<Hand>) -> Result<(), String> {
        let Self { semaphore, permits, early, mut rng } = self;
        let mut hands: Vec<_> = std::iter::once(early).chain(hands).collect();
        // A changed capacity is a matter of which thread was the last to change it.
        let steps = || hands.iter().flat_map(Hand::script);
        let added: usize = steps().map(|step| if let Step::Add(n) = step { *n } else { 0 }).sum();
        let resized = steps().any(|step| matches!(step, Step::SetCapacity(_)));
        let capacity = if resized { None } else { Some(permits + added) };
        let counted = all_is_settled(&semaphore, capacity, &mut hands)
            .and_then(|()| all_comes_back(&semaphore, capacity, &mut hands, &mut rng));
        counted.map_err(|wrong| {
            let mut report = format!(
                "{wrong}\n{semaphore:?}\nborn with {permits} permits; before the threads, and in each:\n"
            );
            for hand in &hands {
                let stages = hand.requests().iter().map(|request| &request.stage);
                let _ = writeln!(report, "  {:?} -> {:?}", hand.script(), stages.collect::<Vec<_>>());
            }
            report
        })
    }
}

/// A waiter that was served knows it, one that waits does so for a reason, and none was overtaken.
fn all_is_settled(
    semaphore: &AsyncSemaphore,
    capacity: Option<usize>,
    hands: &mut [Hand],
) -> Result<(), String> {
    hands.iter_mut().try_for_each(Hand::settle)?;
    let waiting = hands.iter().flat_map(Hand::requests).filter(|request| request.waits()).count();
    if waiting > 0 && semaphore.is_closed() {
        return Err("asleep in a closed semaphore".to_owned());
    }
    let free = semaphore.available_permits();
    if waiting > 0 && free > 0 {
        return Err(format!("{waiting} asleep beside {free} free permits"));
    }
    // The question has settled the queue: what that has granted was to be granted before.
    if hands.iter().flat_map(Hand::requests).any(|request| request.waits() && request.bell.is_rung()) {
        return Err("asleep beside permits that cover its need".to_owned());
    }
    let held: usize = hands.iter().flat_map(Hand::requests).map(Request::held).sum();
    if let Some(capacity) = capacity
        && held + free > capacity
    {
        return Err(format!("{held} are held and {free} are free of {capacity} permits"));
    }
    if semaphore.waiters() != waiting {
        return Err(format!("{waiting} wait, and {} are counted", semaphore.waiters()));
    }
    // The waiters that came before the threads, then each thread for itself: of two threads' requests it is
    // unknown which was the first.
    let early_waits = hands[0].requests().iter().any(|request| request.waits());
    for (hand, of_a_thread) in hands.iter().zip([false].into_iter().chain(std::iter::repeat(true))) {
        let mut an_older_one_waits = of_a_thread && early_waits;
        for request in hand.requests() {
            if an_older_one_waits && matches!(request.stage, Stage::Holds(_) | Stage::GaveBack) {
                return Err("overtaken: an older request is asleep".to_owned());
            }
            an_older_one_waits |= request.waits();
        }
    }
    Ok(())
}

/// Once all permits are given back, all are free, the queue is empty, and no waker is left behind.
fn all_comes_back(
    semaphore: &AsyncSemaphore,
    expected: Option<usize>,
    hands: &mut [Hand],
    rng: &mut Rng,
) -> Result<(), String> {
    let mut requests: Vec<_> = (0..hands.len())
        .flat_map(|hand| (0..hands[hand].requests().len()).map(move |request| (hand, request)))
        .collect();
    rng.shuffle(&mut requests);
    for (hand, request) in requests {
        hands[hand].let_go(request);
    }
    let (free, capacity) = (semaphore.available_permits(), semaphore.capacity());
    if (free, semaphore.held(), semaphore.waiters()) != (capacity, 0, 0) {
        return Err(format!("all has come back, and {free} of {capacity} permits are free"));
    }
    if let Some(expected) = expected
        && capacity != expected
    {
        return Err(format!("{expected} permits were made, and there are {capacity}"));
    }
    let copies: usize = hands.iter().map(Hand::copies).sum();
    if copies > 0 {
        return Err(format!("{copies} copies of wakers were left behind"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One waiter, and the verdict once `wrong` has been done to it.
    fn verdict(capacity: usize, wrong: impl FnOnce(&Hand)) -> Result<(), String> {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let mut hand = Hand::new(&semaphore, vec![Step::TryAcquire(1), Step::Acquire(1)]);
        hand.play();
        wrong(&hand);
        all_is_settled(&semaphore, Some(capacity), &mut [hand])
    }

    #[test]
    fn nothing_wrong() {
        verdict(1, |_| {}).unwrap();
    }

    #[test]
    fn woken_for_nothing() {
        let wrong = verdict(1, |hand| hand.requests()[1].bell.waker().wake()).unwrap_err();
        assert!(wrong.contains("woken for nothing"), "{wrong}");
    }

    #[test]
    fn more_held_than_made() {
        let wrong = verdict(0, |_| {}).unwrap_err();
        assert!(wrong.contains("1 are held"), "{wrong}");
    }

    #[test]
    fn overtaken() {
        let hand = |permits| {
            let semaphore = Arc::new(AsyncSemaphore::new(permits));
            let mut hand = Hand::new(&semaphore, vec![Step::Acquire(1)]);
            hand.play();
            (semaphore, hand)
        };
        // Of two semaphores, since one does not let this happen.
        let ((semaphore, older), (_another, newer)) = (hand(0), hand(1));
        let wrong = all_is_settled(&semaphore, None, &mut [older, newer]).unwrap_err();
        assert!(wrong.contains("overtaken"), "{wrong}");
    }

    #[test]
    fn waiter_that_is_not_counted() {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut stranger = semaphore.acquire();
        assert!(crate::Bell::new().poll(&mut stranger).is_pending());
        let wrong = all_is_settled(&semaphore, None, &mut [Hand::new(&semaphore, Vec::new())]).unwrap_err();
        assert!(wrong.contains("0 wait, and 1 are counted"), "{wrong}");
    }
}
