//! Models of the semaphore's memory, the real code: nodes are removed from the queue and freed while other
//! threads walk over them. A walker finds the dead canary of a node that is freed too early, or loom reports
//! two unordered accesses.
//!
//! In a model two abandoned nodes trigger a sweep, and a sweep advances as many epochs as it can.
#![cfg(latchwork_loom)]

use std::sync::Arc;
use std::task::Poll;

use latchwork::semaphore::AcquireOwned;
use latchwork::{AsyncSemaphore, fault};
use loom_tests::{is_ready, model, poll_once, start};

/// A semaphore without permits, and `waiters` waiters for one permit each.
fn queue(waiters: usize) -> (Arc<AsyncSemaphore>, Vec<AcquireOwned>) {
    let semaphore = Arc::new(AsyncSemaphore::new(0));
    let mut queue: Vec<_> = (0..waiters).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
    assert!(!queue.iter_mut().any(is_ready));
    (semaphore, queue)
}

/// Consumes the permit of a granted waiter.
fn consume(mut waiter: AcquireOwned) {
    let Poll::Ready(Ok(permit)) = poll_once(&mut waiter) else { panic!("the waiter has no permit") };
    permit.forget();
}

model! {
    /// Two waiters leave, and their nodes are removed and freed, while another thread walks over them to the
    /// waiter behind: the permit is granted to that waiter. The walker has a record.
    nodes_are_not_freed_under_walker with 2 less {
        let (semaphore, mut queue) = queue(3);
        let mut last = queue.pop().unwrap();
        let leaver = start(move || drop(queue));
        semaphore.add_permits(1);
        leaver.join().unwrap();
        assert!(is_ready(&mut last), "the permit was left with cancelled waiters");
        drop(last);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_freed_under_walkers: FreedUnderWalkers, "";
}

model! {
    /// The same with a walker without a record, whose thread has never waited.
    nodes_are_not_freed_under_unregistered_walk with 2 less {
        let (semaphore, mut queue) = queue(3);
        let mut last = queue.pop().unwrap();
        let releaser = {
            let semaphore = Arc::clone(&semaphore);
            start(move || semaphore.add_permits(1))
        };
        drop(queue);
        releaser.join().unwrap();
        assert!(is_ready(&mut last), "the permit was left with cancelled waiters");
        drop(last);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_freed_under_walkers: FreedUnderWalkers, "";
}

model! {
    /// Two waiters in the middle leave while a permit is released for the first: the last stays queued.
    sweep_in_the_middle_vs_release with 2 less {
        let (semaphore, mut queue) = queue(4);
        let (last, mut first) = (queue.pop().unwrap(), queue.remove(0));
        let leaver = start(move || drop(queue));
        semaphore.add_permits(1);
        leaver.join().unwrap();
        assert!(is_ready(&mut first), "the first waiter has no permit");
        drop(first);
        consume(last);
        assert_eq!(semaphore.waiters(), 0);
    }
    fails_if_freed_under_walkers: FreedUnderWalkers, "";
}

model! {
    /// Two waiters in the middle leave while another enqueues behind them: the newcomer is in the queue.
    sweep_in_the_middle_vs_enqueue {
        let (semaphore, mut queue) = queue(3);
        let first = queue.remove(0);
        let leaver = start(move || drop(queue));
        let mut newcomer = Arc::clone(&semaphore).acquire_owned();
        assert!(!is_ready(&mut newcomer));
        leaver.join().unwrap();
        semaphore.add_permits(2);
        consume(first);
        consume(newcomer);
        assert_eq!(semaphore.waiters(), 0);
    }
    fails_if_swept_under_an_owner: SweptUnderOwner, "";
}

model! {
    /// Two threads leave two nodes each: one or both sweep, and the first waiter keeps its node.
    two_threads_sweep_in_turn with 2 less {
        let (semaphore, mut queue) = queue(5);
        let theirs = queue.split_off(3);
        let first = queue.remove(0);
        let other = start(move || drop(theirs));
        drop(queue);
        other.join().unwrap();
        semaphore.add_permits(1);
        consume(first);
        assert_eq!(semaphore.waiters(), 0);
    }
    fails_if_swept_under_an_owner: SweptUnderOwner, "";
}

model! {
    /// Two of four waiters leave while a permit is released: the other two keep their nodes.
    owner_keeps_its_node with 2 less {
        let (semaphore, mut queue) = queue(4);
        let (first, third) = (queue.remove(0), queue.remove(1));
        let leaver = start(move || drop(queue));
        semaphore.add_permits(2);
        leaver.join().unwrap();
        consume(first);
        consume(third);
        assert_eq!(semaphore.waiters(), 0);
    }
    fails_if_swept_under_an_owner: SweptUnderOwner, "";
}

model! {
    /// A walk sets the hint to a just removed node, and another walk begins there: both find it unfreed.
    hint_does_not_outlive_its_node {
        let (semaphore, mut queue) = queue(3);
        let last = queue.pop().unwrap();
        semaphore.add_permits(1);
        // In the middle, and abandoned; a sweep needs another.
        drop(queue.pop());
        let sweeper = start(move || queue.into_iter().for_each(consume));
        assert_eq!(semaphore.available_permits(), 0);
        assert_eq!(semaphore.available_permits(), 0);
        sweeper.join().unwrap();
        semaphore.add_permits(1);
        consume(last);
        assert_eq!(semaphore.waiters(), 0);
    }
    fails_if_the_hint_outlives_its_node: HintOutlivesNode, "";
    fails_if_freed_in_one_round: FreedInOneRound, "";
}

model! {
    /// A release grants the first waiter, whose node is left and removed before the release sets the hint
    /// there: the node is not freed under the release, nor under the next walk.
    node_of_a_grant_outlives_its_release with 2 less {
        let (semaphore, mut queue) = queue(3);
        let mut last = queue.pop().unwrap();
        let releaser = {
            let semaphore = Arc::clone(&semaphore);
            start(move || semaphore.add_permits(1))
        };
        let mut first = queue.remove(0);
        // In the middle, and abandoned; a sweep needs another.
        drop(queue);
        let granted = match poll_once(&mut first) {
            Poll::Ready(permit) => permit.map(|permit| permit.forget()).is_ok(),
            Poll::Pending => false,
        };
        drop(first);
        releaser.join().unwrap();
        // Another sweep, with as many epochs as possible.
        let mut passing = [(); 2].map(|()| Arc::clone(&semaphore).acquire_owned());
        assert!(!passing.iter_mut().any(is_ready));
        drop(passing);
        if granted {
            semaphore.add_permits(1);
        }
        assert!(is_ready(&mut last), "the waiter behind is not in the queue");
    }
    fails_if_freed_under_walkers: FreedUnderWalkers, "";
    fails_if_the_hint_outlives_its_node: HintOutlivesNode, "";
}

model! {
    /// The queue's tail, as read by a walk, is cancelled and removed; the walk ends at the node behind.
    walk_ends_though_its_tail_was_taken_out with 2 less {
        let (semaphore, mut queue) = queue(3);
        let changes = {
            let (semaphore, mut newcomer) = (Arc::clone(&semaphore), Arc::clone(&semaphore).acquire_owned());
            let cancelled = queue.split_off(1);
            start(move || {
                assert!(!is_ready(&mut newcomer));
                drop(cancelled);
                semaphore.add_permits(2);
                newcomer
            })
        };
        assert_eq!(semaphore.available_permits(), 0);
        consume(changes.join().unwrap());
        queue.into_iter().for_each(consume);
        assert_eq!(semaphore.waiters(), 0);
    }
    fails_if_the_walk_goes_to_the_old_tail: WalkToOldTail, "exceeded maximum number of branches";
}

/// A semaphore whose queue is in use, but has no waiter: taking the only permit ends the session.
fn session_about_to_end() -> Arc<AsyncSemaphore> {
    let (semaphore, mut queue) = queue(1);
    semaphore.add_permits(2);
    consume(queue.pop().unwrap());
    semaphore
}

model! {
    /// A session ends while another thread walks: the walker finds an empty queue, or the former last node.
    end_of_session_vs_walker {
        let semaphore = session_about_to_end();
        let taker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || semaphore.try_acquire().unwrap().forget())
        };
        let available = semaphore.available_permits();
        taker.join().unwrap();
        assert!(available <= 1);
        assert_eq!(semaphore.available_permits(), 0);
    }
    fails_if_nodes_are_never_freed: NeverFreed, "leaked";
}

model! {
    /// A session ends while a waiter enqueues behind the last node, or in the next session: it is granted.
    end_of_session_vs_enqueue {
        let semaphore = session_about_to_end();
        let taker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || semaphore.try_acquire().map(|permit| permit.forget()).is_ok())
        };
        let mut waiter = Arc::clone(&semaphore).acquire_many_owned(2);
        let early = is_ready(&mut waiter);
        assert!(!early);
        let left = if taker.join().unwrap() { 0 } else { 1 };
        semaphore.add_permits(2);
        assert!(is_ready(&mut waiter), "the waiter is not in the queue");
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 2 + left);
    }
}

model! {
    /// A permit is taken behind two granted waiters, of which the first leaves: the session goes on, and the
    /// second keeps its node.
    session_does_not_end_under_an_owner with 1 less {
        let (semaphore, mut queue) = queue(2);
        semaphore.add_permits(3);
        let last = queue.pop().unwrap();
        let leaver = start(move || queue.into_iter().for_each(consume));
        semaphore.try_acquire().unwrap().forget();
        leaver.join().unwrap();
        // Two abandoned nodes begin epochs.
        let mut others: Vec<_> = (0..2).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        assert!(!others.iter_mut().any(is_ready));
        drop(others);
        consume(last);
        assert_eq!((semaphore.waiters(), semaphore.available_permits()), (0, 0));
    }
    fails_if_the_session_ends_under_an_owner: SessionEndsUnderOwner, "";
}

model! {
    /// The same where the second leaves: the first one's node is not forgotten.
    session_does_not_end_before_the_first_owner_leaves with 1 less {
        let (semaphore, mut queue) = queue(2);
        semaphore.add_permits(3);
        let last = queue.pop().unwrap();
        let leaver = start(move || consume(last));
        semaphore.try_acquire().unwrap().forget();
        leaver.join().unwrap();
        queue.into_iter().for_each(consume);
        assert_eq!((semaphore.waiters(), semaphore.available_permits()), (0, 0));
    }
    fails_if_the_session_forgets_nodes: SessionForgetsNodes, "leaked";
}

model! {
    /// Permits are taken behind a granted waiter that is not polled, and the taking thread sweeps the
    /// abandoned nodes, on a walk of its own, while another thread walks.
    takes_sweep_beside_walker with 1 less {
        let (semaphore, mut queue) = queue(1);
        semaphore.add_permits(4);
        let take = |semaphore: &AsyncSemaphore| semaphore.try_acquire().unwrap().forget();
        take(&semaphore);
        let taker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || (0..2).for_each(|_| take(&semaphore)))
        };
        let available = semaphore.available_permits();
        taker.join().unwrap();
        assert!(available <= 2);
        consume(queue.pop().unwrap());
        assert_eq!((semaphore.waiters(), semaphore.available_permits()), (0, 0));
    }
    fails_if_freed_under_walkers: FreedUnderWalkers, "";
}

model! {
    /// A thread ends, and another thread takes its record over: walks are seen all the same.
    record_is_passed_on {
        let (semaphore, queue) = queue(1);
        let first = {
            let mut waiter = Arc::clone(&semaphore).acquire_owned();
            start(move || {
                assert!(!is_ready(&mut waiter));
                drop(waiter);
                fault::end_thread();
            })
        };
        let second = {
            let mut waiter = Arc::clone(&semaphore).acquire_owned();
            start(move || {
                assert!(!is_ready(&mut waiter));
                drop(waiter);
            })
        };
        first.join().unwrap();
        second.join().unwrap();
        semaphore.add_permits(1);
        queue.into_iter().for_each(consume);
        assert_eq!(semaphore.waiters(), 0);
    }
}

model! {
    /// A thread walks over one semaphore and then over another, while the first one's nodes are freed: the
    /// first walk is over before the freeing, also for a thread that sees only the second walk.
    walk_elsewhere_orders_the_walk_before {
        let (semaphore, queue) = queue(2);
        let walker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || {
                let elsewhere = AsyncSemaphore::new(0);
                let mut waiter = elsewhere.acquire();
                assert!(!is_ready(&mut waiter));
                assert!(semaphore.waiters() <= 2);
                assert_eq!(elsewhere.waiters(), 1);
            })
        };
        drop(queue);
        walker.join().unwrap();
    }
}

model! {
    /// A thread walks over one semaphore and ends, while the nodes are freed: the walk is over before the
    /// freeing, also for a thread that sees only the record given back.
    end_of_a_thread_orders_its_last_walk {
        let (semaphore, queue) = queue(2);
        let walker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || {
                let elsewhere = AsyncSemaphore::new(0);
                // A waiting thread has a record.
                assert!(!is_ready(&mut elsewhere.acquire()));
                assert!(semaphore.waiters() <= 2);
                fault::end_thread();
            })
        };
        drop(queue);
        walker.join().unwrap();
    }
}

model! {
    /// The first waiter is given a deficit, leaves, and is removed, before another thread reads the deficit.
    deficit_of_node_that_was_taken_out_is_read_whole with 1 less {
        let (semaphore, mut queue) = queue(3);
        let last = queue.pop().unwrap();
        let walker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || semaphore.available_permits())
        };
        semaphore.add_permits(1);
        semaphore.set_capacity(0);
        drop(queue);
        let available = walker.join().unwrap();
        assert!(available <= 1);
        drop(last);
    }
}

model! {
    /// The first waiter's deficit is replaced by a larger one, and freed, while another thread walks and
    /// reads the old deficit before, or the new one.
    replaced_deficit_is_not_freed_under_walker with 1 less {
        let semaphore = Arc::new(AsyncSemaphore::new(2));
        let held = semaphore.try_acquire_many(2).unwrap();
        let mut first = Arc::clone(&semaphore).acquire_owned();
        assert!(!is_ready(&mut first));
        semaphore.set_capacity(1);
        let walker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || assert_eq!(semaphore.available_permits(), 0))
        };
        semaphore.set_capacity(0);
        // Enough for a sweep, with as many epochs as possible.
        let mut passing = [(); 2].map(|()| Arc::clone(&semaphore).acquire_owned());
        assert!(!passing.iter_mut().any(is_ready));
        drop(passing);
        walker.join().unwrap();
        drop(held);
        assert!(!is_ready(&mut first), "a permit exists that was taken out");
    }
    fails_if_freed_under_walkers: FreedUnderWalkers, "";
}

model! {
    /// The first waiter's deficit is replaced beside a sweeper, and so freed only with its node.
    deficit_that_is_replaced_beside_a_sweeper_goes_with_its_node with 1 less {
        let semaphore = Arc::new(AsyncSemaphore::new(2));
        let held = semaphore.try_acquire_many(2).unwrap();
        let mut queue = [(); 3].map(|()| Arc::clone(&semaphore).acquire_owned());
        assert!(!queue.iter_mut().any(is_ready));
        let [first, passing @ ..] = queue;
        semaphore.set_capacity(1);
        let sweeper = start(move || drop(passing));
        semaphore.set_capacity(0);
        sweeper.join().unwrap();
        drop((first, held));
        assert_eq!(semaphore.available_permits(), 0);
    }
    fails_if_only_the_last_is_freed: ReplacedOutlivesDeficit, "leaked";
}

model! {
    /// A walk finds the first waiter blocked, and sets the hint to its node when that has just been removed:
    /// the hint is cleared before the node is freed.
    marked_hint_does_not_outlive_its_node with 1 less {
        let (semaphore, mut queue) = queue(3);
        let mut last = queue.pop().unwrap();
        let walker = {
            let semaphore = Arc::clone(&semaphore);
            start(move || assert_eq!(semaphore.available_permits(), 0))
        };
        // Enough for a sweep.
        drop(queue);
        walker.join().unwrap();
        // Another sweep, which frees the nodes of the first.
        let mut passing = [(); 2].map(|()| Arc::clone(&semaphore).acquire_owned());
        assert!(!passing.iter_mut().any(is_ready));
        drop(passing);
        semaphore.add_permits(1);
        assert!(is_ready(&mut last), "the waiter behind is not in the queue");
    }
    fails_if_the_marked_hint_outlives_its_node: MarkedHintOutlivesNode, "";
}
