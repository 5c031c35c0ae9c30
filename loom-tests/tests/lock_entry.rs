//! Models of `LockEntry`, the real code: a call claims the entry without its mutex, while others come.
#![cfg(latchwork_loom)]

#[path = "../../tests/effects/mod.rs"]
mod effects;

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use latchwork::lock_entry::{Answer, Effects, LockEntry, Moment, Request, Rules, Turn};
use loom_tests::{model, start};

use self::effects::{effects_of, noop, with};

/// An entry that was held and then released: the release is in flight.
fn left() -> (Arc<LockEntry>, Moment) {
    let (entry, now) = (Arc::new(LockEntry::new(Rules::default())), Moment::from(Instant::now()));
    let (Turn::Head(head), _) = with(|effects| entry.enter(&Request::new(1), noop(), now, effects)) else {
        panic!("it is idle")
    };
    let attempt = entry.attempt(&head, 1, now, Duration::from_secs(30)).unwrap();
    let (verdict, _) =
        with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, now, effects));
    let Some(Turn::Granted(grant, _)) = verdict else { panic!("it was granted") };
    assert!(matches!(with(|effects| entry.leave(grant, now, effects)).0, Ok(Some(_))));
    (entry, now)
}

model! {
    /// A newcomer enters while a release is answered: it asks the store, or queues and is woken.
    newcomer_is_told_of_the_release_that_it_waits_for {
        let (entry, now) = left();
        let releases = Arc::clone(&entry);
        let releaser = start(move || releases.appoint_next(0, now, &mut Effects::default()));
        let (entered, _) = with(|effects| entry.enter(&Request::new(2), noop(), now, effects));
        releaser.join().unwrap();
        match entered {
            Turn::Head(_) => {}
            Turn::Queued(ticket) => {
                let told = with(|effects| entry.poll(&ticket, Waker::noop(), now, effects)).0;
                assert!(matches!(told, Some(Turn::Head(_))), "it waits for ever");
            }
            other => panic!("{other:?}"),
        }
    }
    fails_if_others_are_not_seen: ReturnedUnseen, "it waits for ever";
}

model! {
    /// A newcomer's call claims the entry while another enters: one asks the store, and the other waits.
    newcomer_asks_alone {
        let (entry, now) = left();
        drop(effects_of(|effects| entry.appoint_next(0, now, effects)));
        let claims = Arc::clone(&entry);
        let claimer = start(move || claims.claim());
        let (entered, _) = with(|effects| entry.enter(&Request::new(2), noop(), now, effects));
        let claimed = claimer.join().unwrap();
        assert_ne!(claimed, matches!(entered, Turn::Head(_)), "two ask, or none");
        let Turn::Queued(ticket) = entered else { return };
        drop(effects_of(|effects| entry.appoint_next(0, now, effects)));
        let told = with(|effects| entry.poll(&ticket, Waker::noop(), now, effects)).0;
        assert!(matches!(told, Some(Turn::Head(_))), "it waits for ever");
    }
    fails_if_claims_are_overlooked: ClaimOverlooked, "two ask, or none";
}

model! {
    /// After a call's release, the next call that claims the entry finds neither a holder nor a queue head.
    release_happens_before_the_next_question {
        let (entry, now) = left();
        let store = Arc::new(loom::cell::UnsafeCell::new(true));
        let (releases, released) = (Arc::clone(&entry), Arc::clone(&store));
        let releaser = start(move || {
            // SAFETY: this call has claimed the entry, and the other thread reads only after claiming it.
            released.with_mut(|held| unsafe { *held = false });
            releases.appoint_next(0, now, &mut Effects::default());
        });
        let enters = || with(|effects| entry.enter(&Request::new(2), noop(), now, effects)).0;
        if entry.claim() || matches!(enters(), Turn::Head(_)) {
            // SAFETY: as above.
            assert!(!store.with(|held| unsafe { *held }), "it is held by the call before");
        }
        releaser.join().unwrap();
    }
}
