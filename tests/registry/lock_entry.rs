//! `LockEntry` driven by events, with a clock of the test's own.

#[path = "../effects/mod.rs"]
mod effects;

use std::task::Waker;
use std::time::{Duration, Instant};

use latchwork::lock_entry::{
    Answer, Attempt, Effects, Extension, Grant, HeadTicket, LockEntry, LossReason, Moment, PendingRelease,
    Policy, Request, Rules, Ticket, Turn,
};
use latchwork_testkit::Bell;

use self::effects::{effects_of, noop, with};

const LEASE: Duration = Duration::from_secs(30);

fn head(entry: &LockEntry, request: &Request, now: Moment) -> HeadTicket {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Head(head) => head,
        entered => panic!("expected a queue head of the idle entry, and got {entered:?}"),
    }
}

fn released(effects: &Effects) -> Option<PendingRelease> {
    effects.releases().next().map(|(release, _)| release)
}

fn queued(entry: &LockEntry, request: &Request, now: Moment) -> Ticket {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Queued(ticket) => ticket,
        entered => panic!("expected a queued waiter, as the lock is held, and got {entered:?}"),
    }
}

/// The store grants what the queue head asked for.
fn answered(entry: &LockEntry, head: &HeadTicket, attempt: Attempt, now: Moment) -> Grant {
    match with(|effects| entry.answered(head, attempt, Answer::Granted { last_token: 0 }, now, effects)).0 {
        Some(Turn::Granted(grant, _)) => grant,
        told => panic!("{told:?}"),
    }
}

fn granted(entry: &LockEntry, request: &Request, now: Moment, lease: Duration) -> Grant {
    let head = head(entry, request, now);
    let attempt = entry.attempt(&head, 1, now, lease).unwrap();
    answered(entry, &head, attempt, now)
}

/// Returns the tenures in milliseconds, with waiters here; `heard` counts the receivers of each release. If
/// `refused`, another process holds the lock first.
fn tenures<const LEASES: usize>(refused: bool, heard: [usize; LEASES]) -> [u128; LEASES] {
    const TURN: Duration = Duration::from_millis(1);
    let (entry, lease) = (LockEntry::new(Rules::default()), LEASE);
    let mut now = Moment::from(Instant::now());
    let mut request = Request::new(0);
    let mut head = head(&entry, &request, now);
    let mut number = 1;
    if refused {
        let attempt = entry.attempt(&head, number, now, lease).unwrap();
        let _ = with(|effects| entry.answered(&head, attempt, Answer::Held { kept: None }, now, effects));
    }
    heard.map(|heard| {
        let since = now;
        number += 1;
        let attempt = entry.attempt(&head, number, now, lease).unwrap();
        let mut grant = answered(&entry, &head, attempt, now);
        loop {
            request = Request::new(request.owner() + 1);
            let ticket = queued(&entry, &request, now);
            now = now + TURN;
            let (left, effects) = with(|effects| entry.leave(grant, now, effects));
            assert_eq!(left, Ok(None));
            if released(&effects).is_some() {
                drop(effects_of(|effects| entry.appoint_next(heard, now, effects)));
            }
            match with(|effects| entry.poll(&ticket, Waker::noop(), now, effects)).0 {
                Some(Turn::Granted(next, None)) => grant = next,
                Some(Turn::Head(next)) => {
                    head = next;
                    return now.saturating_duration_since(since).as_millis();
                }
                told => panic!("{told:?}"),
            }
        }
    })
}

#[test]
fn tenure_grows_while_no_other_process_hears_of_releases() {
    assert_eq!(tenures(false, [0, 0, 0, 0, 1, 0, 1, 1]), [30, 60, 120, 240, 240, 30, 60, 30]);
}

/// A store need not count receivers.
#[test]
fn tenure_does_not_grow_beside_another_process_with_the_lock() {
    assert_eq!(tenures(true, [0, 0, 0]), [30, 30, 30]);
}

/// Returns the back-offs of queue heads that enter `after` a release, with `heard` receivers each, when
/// another process held the lock first.
fn back_offs<const LEASES: usize>(heard: [usize; LEASES], after: Duration) -> [Duration; LEASES] {
    let (entry, lease) = (LockEntry::new(Rules::default()), LEASE);
    let mut now = Moment::from(Instant::now());
    let enter = |now| match with(|effects| entry.enter(&Request::new(1), noop(), now, effects)).0 {
        Turn::Head(head) => head,
        entered => panic!("{entered:?}"),
    };
    let mut head = enter(now);
    let attempt = entry.attempt(&head, 1, now, lease).unwrap();
    let _ = with(|effects| entry.answered(&head, attempt, Answer::Held { kept: None }, now, effects));
    let mut number = 1;
    heard.map(|heard| {
        number += 1;
        let attempt = entry.attempt(&head, number, now, lease).unwrap();
        let grant = answered(&entry, &head, attempt, now);
        assert!(matches!(with(|effects| entry.leave(grant, now, effects)).0, Ok(Some(_))));
        entry.note_receivers(heard, now);
        drop(effects_of(|effects| entry.appoint_next(heard, now, effects)));
        now = now + after;
        head = enter(now);
        head.back_off()
    })
}

/// The receivers may be many processes, or none that still wants the lock.
#[test]
fn process_yields_until_it_has_won_beside_all_notified_ones() {
    const STEP: Duration = Duration::from_millis(1);
    for heard in [1, 2, 3] {
        let others = STEP * u32::try_from(heard).unwrap();
        assert_eq!(back_offs([heard, heard], Duration::ZERO), [others, Duration::ZERO]);
        assert_eq!(back_offs([heard], others), [Duration::ZERO]);
        assert_eq!(back_offs([heard], others - STEP), [STEP]);
    }
    // No competitor heard the first release.
    assert_eq!(back_offs([0, 1], Duration::ZERO), [Duration::ZERO, STEP]);
    // At most a quarter of the tenure.
    assert_eq!(back_offs([1000], Duration::ZERO), [STEP * 7]);
}

fn shared() -> Rules {
    Rules { policy: Rules::default().policy.shared(), ..Rules::default() }
}

#[test]
fn waker_that_panics_keeps_no_other_waiter_of_its_owner_asleep() {
    let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
    let (lease, request) = (LEASE, Request::new(1));
    let grant = granted(&entry, &request, now, lease);
    let bell = Bell::default();
    let waker = bell.waker_that_panics();
    let shared = Request::new(2).shared_owner();
    let waiters = [(); 3].map(|()| {
        let ticket = queued(&entry, &shared, now);
        assert!(with(|effects| entry.poll(&ticket, &waker, now, effects)).0.is_none());
        ticket
    });
    let (left, effects) = with(|effects| entry.leave(grant, now, effects));
    assert_eq!(left, Ok(None));
    drop(effects);
    assert_eq!(bell.rung(), waiters.len(), "expected the wake-up of all waiters");
}

/// Times each hundred joining owners. Most hundreds fit a scheduler's time slice, even on a busy machine.
fn hundreds(count: usize, request: impl Fn(u64) -> Request, apart: Duration) -> Vec<Duration> {
    let entry = LockEntry::new(shared());
    let (mut now, mut owner) = (Moment::from(Instant::now()), 0);
    let mut one_more = || {
        owner += 1;
        now = now + apart;
        let request = request(owner);
        match with(|effects| entry.enter(&request, noop(), now, effects)).0 {
            Turn::Granted(..) => {}
            Turn::Head(head) => {
                let lease = request.own_lease().unwrap_or(LEASE);
                let attempt = entry.attempt(&head, owner, now, lease).unwrap();
                let (verdict, effects) = with(|effects| {
                    entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, now, effects)
                });
                assert!(matches!(verdict, Some(Turn::Granted(_, _))), "{verdict:?}");
                if effects.has_older_leases() {
                    let (into, older) = entry.older_leases();
                    let _ = effects_of(|effects| entry.merge(into, &older, now, effects));
                }
            }
            entered => panic!("{entered:?}"),
        }
    };
    let hundred = || {
        let begun = Instant::now();
        (0..100).for_each(|_| one_more());
        begun.elapsed()
    };
    std::iter::repeat_with(hundred).take(count).collect()
}

/// Neither the lookup of an owner nor a lease shared with the latest owner visits all.
#[test]
fn joining_a_shared_lock_does_not_visit_all_sharers() {
    let (at_once, by_and_by) = (Duration::ZERO, Duration::from_micros(1));
    let own = |owner| Request::new(owner).lease(Duration::from_secs(20));
    for times in [hundreds(400, Request::new, at_once), hundreds(400, own, by_and_by)] {
        let quickest = |times: &[Duration]| *times.iter().min().expect("there are some");
        let (first, last) = (quickest(&times[..50]), quickest(&times[300..]));
        assert!(
            last < first * 10,
            "expected a constant cost, and a hundred take {first:?} at first and {last:?} beside 30 thousand"
        );
    }
}

/// A verification extends no lease, so its missing answer does not change the reason of the end.
#[test]
fn own_lease_ends_as_expired_despite_an_unanswered_verification() {
    let (entry, now, lease) =
        (LockEntry::new(Rules::default()), Moment::from(Instant::now()), Duration::from_secs(5));
    let (Turn::Head(head), _) =
        with(|effects| entry.enter(&Request::new(1).lease(lease), noop(), now, effects))
    else {
        panic!()
    };
    let attempt = entry.attempt(&head, 1, now, lease).unwrap();
    let grant = answered(&entry, &head, attempt, now);
    let waiter = queued(&entry, &Request::new(2), now);
    let (look, _) = with(|effects| entry.tick(now + Duration::from_secs(2), effects));
    assert!(look.is_some_and(|look| look.lease.is_none()), "expected a look at the lease for the waiter");
    assert_eq!(entry.state_of(&grant, now + lease).unwrap_err(), LossReason::Expired);
    let _ = effects_of(|effects| entry.cancel(waiter, now + lease, effects));
}

/// The loss has its time, even if no task has polled since.
#[test]
fn hold_that_is_lost_is_lost_though_its_guard_is_forgotten_then() {
    let limit = Duration::from_secs(5);
    let entry = LockEntry::new(Rules { max_hold: Some(limit), ..Rules::default() });
    let (now, lease) = (Moment::from(Instant::now()), LEASE);
    let grant = granted(&entry, &Request::new(1), now, lease);
    let over = now + limit;
    assert_eq!(entry.state_of(&grant, over).unwrap_err(), LossReason::HeldTooLong);
    let effects = effects_of(|effects| entry.forget(grant, over, effects));
    assert!(released(&effects).is_some(), "expected a pending release, as the store has the lease still");
    assert!(
        matches!(with(|effects| entry.leave_by_name(1, over, effects)).0, Err(LossReason::GivenBack)),
        "expected no hold to leave by name"
    );
}

/// A late answer to an extension does not revive a lost hold; the store's longer lease is released.
#[test]
fn late_answer_does_not_revive_an_ended_hold() {
    let entry = LockEntry::new(Rules::default());
    let now = Moment::from(Instant::now());
    let own = Request::new(1).lease(LEASE);
    let mut grant = granted(&entry, &own, now, LEASE);
    let (extent, _) = with(|effects| {
        entry.extending(Extension { number: 1, lease: LEASE * 60, fenced: false }, now, effects)
    });
    let late = now + LEASE * 2;
    assert_eq!(entry.state_of(&grant, late), Err(LossReason::Expired));
    let (in_hand, effects) = with(|effects| entry.extended(1, now, extent.unwrap(), None, late, effects));
    assert!(!in_hand);
    assert_eq!(effects.lost(), Some(LossReason::Expired));
    assert_eq!(released(&effects).map(|pending_release| pending_release.number), Some(1));
    drop(effects);
    entry.prolong(&mut grant, now + LEASE * 60, late);
    assert_eq!(entry.state_of(&grant, late), Err(LossReason::Expired));
}

/// Releases lease 1 with an extension unanswered. A waiter that wants a longer lease becomes queue head and
/// reuses the number.
fn heir(entry: &LockEntry, sent: Moment) -> (HeadTicket, Attempt) {
    let grant = granted(entry, &Request::new(1), sent, LEASE);
    let ticket = queued(entry, &Request::new(2).lease(LEASE * 2), sent);
    let extension = Extension { number: 1, lease: LEASE * 3 / 2, fenced: false };
    let (extent, _) = with(|effects| entry.extending(extension, sent, effects));
    assert_eq!(extent, Some(LEASE * 3 / 2));
    let later = sent + Duration::from_millis(1);
    assert_eq!(with(|effects| entry.leave(grant, later, effects)).0, Ok(None));
    let told = with(|effects| entry.poll(&ticket, Waker::noop(), later, effects)).0;
    let Some(Turn::Head(head)) = told else { panic!("{told:?}") };
    let attempt = entry.attempt(&head, 2, later, LEASE * 2).unwrap();
    assert_eq!(attempt.number(), 1, "expected the queue head's number");
    (head, attempt)
}

/// The loss of one hold does not affect the next hold with the same number. With a coarse clock the previous
/// hold's last command and the queue head's attempt have equal send times.
#[test]
fn lease_that_was_gone_before_it_was_granted_anew_is_not_lost() {
    let entry = LockEntry::new(Rules::default());
    let sent = Moment::from(Instant::now());
    let (head, attempt) = heir(&entry, sent);
    let (coarse, later) = (attempt.sent(), sent + Duration::from_millis(2));
    let grant = answered(&entry, &head, attempt, later);
    for sent in [sent, coarse] {
        assert!(!with(|effects| entry.gone(1, sent, later, effects)).0);
        assert!(entry.state_of(&grant, later).is_ok());
    }
    // The loss was reported by a command sent after the grant.
    assert!(with(|effects| entry.gone(1, later, later, effects)).0);
    assert_eq!(entry.state_of(&grant, later), Err(LossReason::Gone));
}

/// After grant and forced unlock the store ran an attempt with the same number; its position would become a
/// lease without an owner.
#[test]
fn vanished_hold_by_a_message_removes_its_number_from_the_queue() {
    let kept = Duration::from_secs(10);
    let rules = Rules { policy: Policy::Queued { position: kept }, ..Rules::default() };
    let entry = LockEntry::new(rules);
    let sent = Moment::from(Instant::now());
    let head = head(&entry, &Request::new(1), sent);
    let attempt = entry.attempt(&head, 1, sent, LEASE).unwrap();
    let (verdict, _) =
        with(|effects| entry.answered(&head, attempt, Answer::Held { kept: Some(kept) }, sent, effects));
    assert!(verdict.is_none(), "{verdict:?}");
    let later = sent + Duration::from_millis(2);
    let (granted, _) = with(|effects| entry.granted_by_message(&head, 1, later, effects));
    let grant = granted.expect("a message says so");
    let (lost, effects) = with(|effects| entry.gone(1, later, later, effects));
    assert!(lost && entry.state_of(&grant, later) == Err(LossReason::Gone));
    let undone = released(&effects).expect("the store may have its number in the queue");
    assert!(undone.number == 1 && undone.rolls_back);
}

fn twins(now: Moment) -> [(LockEntry, Grant, Ticket); 2] {
    [(); 2].map(|()| {
        let entry = LockEntry::new(Rules::default());
        let grant = granted(&entry, &Request::new(1).lease(LEASE), now, LEASE);
        let ticket = queued(&entry, &Request::new(2), now);
        (entry, grant, ticket)
    })
}

#[test]
fn grant_of_another_entry_is_one_that_is_over() {
    let now = Moment::from(Instant::now());
    let [(entry, mut grant, _ticket), (_, mut other, _)] = twins(now);
    let (serial, ends) = (other.serial(), other.ends());
    assert_ne!(grant.serial(), serial);
    assert_eq!(entry.state_of(&other, now), Err(LossReason::GivenBack));
    entry.prolong(&mut other, ends + LEASE, now);
    assert_eq!((other.ends(), entry.each_hold(now).0[0].ends), (ends, ends));
    assert_eq!(with(|effects| entry.leave(other, now, effects)).0, Err(LossReason::GivenBack));
    let [_, (_, other, _)] = twins(now);
    drop(effects_of(|effects| entry.forget(other, now, effects)));
    assert!(!entry.is_forgotten() && entry.holder(now) == Some((1, 1)));
    entry.prolong(&mut grant, ends + LEASE, now);
    assert_eq!((grant.ends(), with(|effects| entry.leave(grant, now, effects)).0), (ends + LEASE, Ok(None)));
}

#[test]
fn ticket_of_another_entry_is_one_that_was_superseded() {
    let now = Moment::from(Instant::now());
    let [(entry, grant, _ticket), (_, _, ticket)] = twins(now);
    assert!(matches!(
        with(|effects| entry.poll(&ticket, Waker::noop(), now, effects)).0,
        Some(Turn::Superseded)
    ));
    drop(effects_of(|effects| entry.cancel(ticket, now, effects)));
    assert_eq!(entry.waiters(), 1);
    assert_eq!(with(|effects| entry.leave(grant, now, effects)).0, Ok(None));

    let [(entry, head), (_, other)] = [(); 2].map(|()| {
        let entry = LockEntry::new(Rules::default());
        let head = head(&entry, &Request::new(1), now);
        (entry, head)
    });
    assert!(entry.attempt(&other, 1, now, LEASE).is_none() && !entry.is_head(&other));
    drop(effects_of(|effects| entry.abandon(&other, now, effects)));
    assert!(entry.is_head(&head));
}

/// The entry would believe in another head's lease.
#[test]
#[should_panic = "the attempt is another queue head's"]
fn attempt_of_another_queue_head_is_not_answered() {
    let now = Moment::from(Instant::now());
    let [(entry, head, _), (_, _, attempt)] = [1, 2].map(|number| {
        let entry = LockEntry::new(Rules::default());
        let head = head(&entry, &Request::new(1), now);
        let attempt = entry.attempt(&head, number, now, LEASE).unwrap();
        (entry, head, attempt)
    });
    let _ = with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, now, effects));
}

#[test]
fn store_may_grant_the_greatest_token() {
    let now = Moment::from(Instant::now());
    let entry = LockEntry::new(Rules::default());
    let fenced = |owner| Request::new(owner).fenced();
    let head = head(&entry, &fenced(1), now);
    let attempt = entry.attempt(&head, 1, now, LEASE).unwrap();
    let last = Answer::Granted { last_token: u64::MAX };
    let Some(Turn::Granted(grant, _)) = with(|effects| entry.answered(&head, attempt, last, now, effects)).0
    else {
        panic!()
    };
    assert_eq!(grant.token(), Some(u64::MAX));
    let ticket = queued(&entry, &fenced(2), now);
    assert_eq!(with(|effects| entry.leave(grant, now, effects)).0, Ok(None));
    let told = with(|effects| entry.poll(&ticket, Waker::noop(), now, effects)).0;
    assert!(
        matches!(told, Some(Turn::Head(_))),
        "expected the queue head's turn, as no token is left, and got {told:?}"
    );
}
