#[path = "../../tests/effects/mod.rs"]
mod effects;

use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable};
use std::time::Instant;

use self::effects::{effects_of, noop, with};
use super::*;

const LEASE: Duration = Duration::from_secs(30);

fn idle() -> (LockEntry, Moment) {
    (LockEntry::new(Rules::default()), Moment::from(Instant::now()))
}

/// An entry whose owner 1 holds the lock by lease 1.
fn held() -> (LockEntry, Moment, Grant) {
    let (entry, now) = idle();
    assert!(entry.claim());
    let grant = taken(&entry, 1, now).expect("the entry is open");
    (entry, now, grant)
}

fn enter(entry: &LockEntry, owner: u64, now: Moment) -> Turn {
    with(|effects| entry.enter(&Request::new(owner), noop(), now, effects)).0
}

fn told(entry: &LockEntry, ticket: &Ticket, now: Moment) -> Option<Turn> {
    with(|effects| entry.poll(ticket, Waker::noop(), now, effects)).0
}

fn head_of(entry: &LockEntry, request: &Request, now: Moment) -> HeadTicket {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Head(head) => head,
        other => panic!("expected a queue head of the idle entry, and got {other:?}"),
    }
}

fn queued(entry: &LockEntry, request: &Request, now: Moment) -> Ticket {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Queued(ticket) => ticket,
        other => panic!("expected a queued newcomer, and got {other:?}"),
    }
}

fn appointed(entry: &LockEntry, ticket: &Ticket, now: Moment) -> HeadTicket {
    match told(entry, ticket, now) {
        Some(Turn::Head(head)) => head,
        other => panic!("expected the waiter as the queue head, and got {other:?}"),
    }
}

fn released(effects: &Effects) -> Option<PendingRelease> {
    effects.releases().next().map(|(release, _)| release)
}

fn taken(entry: &LockEntry, owner: u64, now: Moment) -> Option<Grant> {
    let request = Request::new(owner);
    let attempt = Attempt::outside_of_queue(owner, &request, now, LEASE);
    let mut effects = Effects::default();
    let grant = entry.take(&request, &attempt, 0, now, &mut effects);
    assert_eq!(released(&effects).map(|roll_back| roll_back.number), grant.is_none().then_some(owner));
    grant
}

fn inner(entry: &LockEntry, request: &Request, now: Moment) -> Grant {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Granted(grant, None) => grant,
        other => panic!("{other:?}"),
    }
}

fn inner_that_asks(entry: &LockEntry, request: &Request, now: Moment) -> (Grant, Extension) {
    match with(|effects| entry.enter(request, noop(), now, effects)).0 {
        Turn::Granted(grant, Some(extension)) => (grant, extension),
        other => panic!("{other:?}"),
    }
}

fn granted(entry: &LockEntry, head: &HeadTicket, number: u64, last_token: u64, now: Moment) -> Grant {
    granted_for(LEASE, entry, head, number, last_token, now)
}

fn granted_for(
    lease: Duration,
    entry: &LockEntry,
    head: &HeadTicket,
    number: u64,
    last_token: u64,
    now: Moment,
) -> Grant {
    let attempt = entry.attempt(head, number, now, lease).expect("the queue head may ask");
    match with(|effects| entry.answered(head, attempt, Answer::Granted { last_token }, now, effects)).0 {
        Some(Turn::Granted(grant, _)) => grant,
        other => panic!("{other:?}"),
    }
}

#[test]
fn attempt_is_rolled_back_if_its_entry_was_closed_meanwhile() {
    let (entry, now) = idle();
    assert!(entry.claim());
    let _ = effects_of(|effects| entry.close(effects));
    assert!(taken(&entry, 1, now).is_none() && entry.is_idle());
    assert!(!entry.claim() && matches!(enter(&entry, 2, now), Turn::Closed));
}

#[test]
fn hold_is_lost_to_an_outage_if_its_last_renewal_was_unanswered() {
    for (is_answered, reason) in [(false, LossReason::Unreachable), (true, LossReason::Expired)] {
        let (entry, now, grant) = held();
        let due = now + LEASE / 3;
        let renewal = with(|effects| entry.tick(due, effects)).0.expect("a third of the lease is over");
        if is_answered {
            assert!(with(|effects| entry.renewed(renewal, Some(true), due, due, effects)).0);
        }
        assert_eq!(entry.state_of(&grant, now + LEASE * 2), Err(reason));
    }
}

#[test]
fn granted_waiter_is_superseded_only_after_a_missed_poll_limit() {
    let (entry, now) = idle();
    let limit = Rules::default().unpolled_limit;
    assert!(entry.claim());
    let grant = taken(&entry, 1, now).expect("the entry is open");
    let ticket = queued(&entry, &Request::new(2), now);
    assert_eq!(with(|effects| entry.leave(grant, now, effects)).0, Ok(None));
    let before = now + limit - Duration::from_nanos(1);
    assert_eq!(with(|effects| entry.tick(before, effects)).1.superseded(), 0);
    assert_eq!(with(|effects| entry.tick(now + limit, effects)).1.superseded(), 1);
    assert!(matches!(told(&entry, &ticket, now + limit), Some(Turn::Superseded)));
}

/// On a machine where a poll comes later than the limit, each attempt would otherwise be given back.
#[test]
fn each_supersession_doubles_the_limit_of_the_next_try() {
    let limit = Rules::default().unpolled_limit;
    for (times, longer) in [(0, limit), (1, limit * 2), (3, limit * 8), (4, LEASE / 3), (u32::MAX, LEASE / 3)]
    {
        let (entry, now) = idle();
        let again = Request::new(1).superseded(times);
        let entered = with(|effects| entry.enter(&again, noop(), now, effects)).0;
        assert!(matches!(entered, Turn::Head(_)), "{entered:?}");
        assert_eq!(with(|effects| entry.wake_head(now, effects)).1.look_at, now + longer, "{times}");
        let before = now + longer - Duration::from_nanos(1);
        assert_eq!(with(|effects| entry.tick(before, effects)).1.superseded(), 0, "{times}");
        assert_eq!(with(|effects| entry.tick(now + longer, effects)).1.superseded(), 1, "{times}");
    }
}

#[test]
fn look_that_was_said_is_not_said_again_until_its_time_has_come() {
    let (entry, now) = idle();
    let mine = Request::new(1).shared_owner();
    let head = head_of(&entry, &mine, now);
    let attempt = entry.attempt(&head, 1, now, LEASE).expect("the queue head may ask");
    let (_outcome, effects) =
        with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, now, effects));
    let due = now + LEASE / 3;
    assert_eq!(effects.look_at, due);
    for (now, said) in [(now, Moment::NEVER), (due, due)] {
        let (entered, effects) = with(|effects| entry.enter(&mine, noop(), now, effects));
        let Turn::Granted(inner, None) = entered else { panic!("{entered:?}") };
        assert_eq!(effects.look_at, said);
        assert_eq!(with(|effects| entry.leave(inner, now, effects)).1.look_at, said);
    }
}

#[test]
fn remaining_hold_ends_with_the_last_of_its_leases() {
    let (entry, now, outer) = held();
    let inside =
        [5, 10, 10, 10].map(|part| inner(&entry, &Request::new(1).shared_owner().lease(LEASE / part), now));
    for grant in [&outer, &inside[0], &inside[1], &inside[2]] {
        assert_eq!(with(|effects| entry.leave(*grant, now, effects)).0, Ok(None));
    }
    assert_eq!(entry.each_hold(now).0[0].ends, now + LEASE / 10);
}

/// The owner's remaining hold lasts as long as possible.
#[test]
fn forgotten_hold_that_ends_first_is_given_back_first() {
    let (entry, now, outer) = held();
    for part in [5, 10] {
        let grant = inner(&entry, &Request::new(1).shared_owner().lease(LEASE / part), now);
        drop(effects_of(|effects| entry.forget(grant, now, effects)));
    }
    assert_eq!(with(|effects| entry.leave(outer, now, effects)).0, Ok(None));
    assert_eq!(with(|effects| entry.leave_by_name(1, now, effects)).0, Ok(None));
    assert_eq!(entry.each_hold(now).0[0].ends, now + LEASE / 5);
}

#[test]
fn hold_that_is_over_is_not_given_back_by_name() {
    let (entry, now, grant) = held();
    assert_eq!(with(|effects| entry.leave_by_name(1, now + LEASE, effects)).0, Err(LossReason::GivenBack));
    assert_eq!(with(|effects| entry.leave(grant, now + LEASE, effects)).0, Err(LossReason::Expired));
}

#[test]
fn renewal_joins_others_if_due_then_and_not_open_or_failed() {
    for (entry, now) in [idle(), readers()] {
        assert!(entry.claim() && taken(&entry, 1, now).is_some());
        let due = now + LEASE / 3;
        assert_eq!(with(|effects| entry.renew_early(due - Duration::from_nanos(1), now, effects)).0, None);
        let renewal = with(|effects| entry.renew_early(due, now, effects)).0.expect("the renewal is due");
        assert_eq!(renewal, Renewal { number: 1, lease: Some(LEASE) });
        assert_eq!(
            with(|effects| entry.renew_early(due, now, effects)).0,
            None,
            "expected no early renewal beside one in flight"
        );
        drop(with(|effects| entry.renewed(renewal, None, now, now, effects)).1);
        assert_eq!(
            with(|effects| entry.renew_early(due, now, effects)).0,
            None,
            "expected no early renewal after a failed one"
        );
        let (renewal, effects) = with(|effects| entry.renew_early(now + LEASE * 2, now + LEASE * 2, effects));
        assert_eq!((renewal, effects.lost()), (None, Some(LossReason::Unreachable)));
    }
}

#[test]
fn failed_renewal_is_retried_after_a_thirtieth_of_its_lease() {
    let brief = Duration::from_millis(9);
    for (renewed_lease, soon) in [(LEASE, LEASE / 30), (brief, Duration::from_millis(1))] {
        let rules = Rules { renewed_lease, ..Rules::default() };
        let (entry, now) = (LockEntry::new(rules), Moment::from(Instant::now()));
        let head = head_of(&entry, &Request::new(1), now);
        let _grant = granted_for(renewed_lease, &entry, &head, 1, 0, now);
        let due = now + renewed_lease / 3;
        let renewal = with(|effects| entry.tick(due, effects)).0.expect("a third of the lease is over");
        assert_eq!(with(|effects| entry.renewed(renewal, None, due, due, effects)).1.look_at, due + soon);
    }
}

/// The renewal is unanswered: the look at the lease's end serves the waiter.
#[test]
fn end_of_an_early_renewed_lease_serves_the_next_waiter() {
    let (entry, now) = idle();
    assert!(entry.claim() && taken(&entry, 1, now).is_some());
    let ticket = queued(&entry, &Request::new(2), now);
    let (renewal, effects) = with(|effects| entry.renew_early(now + LEASE / 3, now, effects));
    assert_eq!((renewal.is_some(), effects.look_at), (true, now + LEASE));
    let _ = with(|effects| entry.tick(now + LEASE, effects));
    drop(effects_of(|effects| entry.appoint_next(0, now + LEASE, effects)));
    assert!(
        matches!(told(&entry, &ticket, now + LEASE), Some(Turn::Head(_))),
        "expected the waiter as the next queue head"
    );
}

#[test]
fn lease_is_not_renewed_early_if_unused_or_cut_by_sharers() {
    let long = Request::new(1).shared_owner().lease(LEASE * 2);
    for (entry, is_renewed) in [(idle().0, true), (readers().0, false)] {
        let now = Moment::from(Instant::now());
        let head = head_of(&entry, &long, now);
        let _outer = granted_for(LEASE * 2, &entry, &head, 1, 0, now);
        let by = now + LEASE * 2;
        assert_eq!(
            with(|effects| entry.renew_early(by, now, effects)).0,
            None,
            "expected no early renewal of a lease of its own"
        );
        let inner = with(|effects| entry.enter(&Request::new(1).shared_owner(), noop(), now, effects)).0;
        assert!(matches!(inner, Turn::Granted(_, None)), "{inner:?}");
        assert_eq!(with(|effects| entry.renew_early(by, now, effects)).0.is_some(), is_renewed);
    }
}

#[test]
fn grown_tenure_obeys_the_rules_after_a_heard_release() {
    const TENURE: Duration = Duration::from_millis(30);
    for (receivers, goes_back) in [(0, false), (1, true)] {
        let (entry, now) = idle();
        let ask = |head: &HeadTicket, number| granted(&entry, head, number, 0, now);
        let head = head_of(&entry, &Request::new(1), now);
        let grant = ask(&head, 1);
        let ticket = queued(&entry, &Request::new(2), now);
        let (_, effects) = with(|effects| entry.leave(grant, now + TENURE, effects));
        assert!(released(&effects).is_some(), "expected a release at the end of the tenure");
        drop(effects_of(|effects| entry.appoint_next(0, now, effects)));
        let head = appointed(&entry, &ticket, now);
        assert!(matches!(with(|effects| entry.leave(ask(&head, 2), now, effects)).0, Ok(Some(_))));
        entry.note_receivers(receivers, now);
        drop(effects_of(|effects| entry.appoint_next(0, now, effects)));
        let head = head_of(&entry, &Request::new(3), now);
        let grant = ask(&head, 3);
        let _ticket = queued(&entry, &Request::new(4), now);
        let (_, effects) = with(|effects| entry.leave(grant, now + TENURE, effects));
        assert_eq!(released(&effects).is_some(), goes_back);
    }
}

#[test]
fn grown_tenure_obeys_the_rules_beside_another_process() {
    const TENURE: Duration = Duration::from_millis(30);
    // The other process has the lock when the first, the second, or no queue head asks.
    for found_held in [Some(1), Some(2), None] {
        let (entry, now) = idle();
        let ask = |head: &HeadTicket, number| {
            if found_held == Some(number) {
                let attempt = entry.attempt(head, number, now, LEASE).expect("the queue head may ask");
                let held = Answer::Held { kept: None };
                let _ = with(|effects| entry.answered(head, attempt, held, now, effects));
            }
            granted(&entry, head, number, 0, now)
        };
        let head = head_of(&entry, &Request::new(1), now);
        let grant = ask(&head, 1);
        let ticket = queued(&entry, &Request::new(2), now);
        assert_eq!(with(|effects| entry.leave(grant, now + TENURE, effects)).0, Ok(None));
        drop(effects_of(|effects| entry.appoint_next(0, now, effects)));
        let grant = ask(&appointed(&entry, &ticket, now), 2);
        let _ticket = queued(&entry, &Request::new(3), now);
        let (_, effects) = with(|effects| entry.leave(grant, now + TENURE, effects));
        assert_eq!(released(&effects).is_some(), found_held.is_some(), "{found_held:?}");
    }
}

#[test]
fn tenure_goes_on_with_a_lease_that_is_asked_for_anew() {
    let tenure = LEASE / 2;
    let rules = Rules { policy: Policy::Exclusive { tenure }, ..Rules::default() };
    let (entry, now) = (LockEntry::new(rules), Moment::from(Instant::now()));
    let grant = granted(&entry, &head_of(&entry, &Request::new(1), now), 1, 0, now);
    let ticket = queued(&entry, &Request::new(2).fenced(), now);
    let later = now + tenure / 2;
    assert_eq!(with(|effects| entry.leave(grant, later, effects)).0, Ok(None));
    let grant = granted(&entry, &appointed(&entry, &ticket, later), 2, 1, later);
    let _ticket = queued(&entry, &Request::new(3), later);
    let (_, effects) = with(|effects| entry.leave(grant, now + tenure, effects));
    assert!(released(&effects).is_some(), "expected the end of the tenure of the first hold");
}

/// The answer came after its lease's end. An earlier, unanswered attempt may lease the lock for longer.
#[test]
fn late_grant_is_rolled_back_with_all_attempts_of_its_number() {
    let (entry, now) = idle();
    let head = head_of(&entry, &Request::new(1), now);
    let long = entry.attempt(&head, 1, now, LEASE).expect("the queue head may ask");
    let _ = with(|effects| entry.answered(&head, long, Answer::Unanswered, now, effects));
    let brief = entry.attempt(&head, 2, now, LEASE / 10).expect("the queue head may ask");
    assert_eq!(brief.number(), 1);
    let granted = Answer::Granted { last_token: 0 };
    let (outcome, effects) = with(|effects| entry.answered(&head, brief, granted, now + LEASE / 10, effects));
    assert!(matches!(outcome, Some(Turn::Head(_))), "expected a late grant, as its lease is over");
    let roll_back = released(&effects).expect("the store may have the lease");
    assert_eq!((roll_back.number, roll_back.until), (1, now + LEASE));
    let next = entry.attempt(&head, 3, now + LEASE / 10, LEASE).expect("the queue head may ask");
    assert_eq!(next.number(), 3, "expected a new number beside the rolled-back one");
}

/// A queue head competes by the former hold's lease, for which that hold has asked for a token.
fn handed_over_beside_a_token(now: Moment) -> (LockEntry, Extension, HeadTicket, Ticket) {
    let (entry, mine) = (LockEntry::new(Rules::default()), Request::new(1).shared_owner());
    let head = head_of(&entry, &mine, now);
    let _outer = granted(&entry, &head, 1, 0, now);
    let (_inner, extension) = inner_that_asks(&entry, &mine.fenced(), now);
    assert!(with(|effects| entry.extending(extension, now, effects)).0.is_some());
    let [next, after] = [2, 3].map(|owner| queued(&entry, &Request::new(owner).fenced(), now));
    for _ in 0..2 {
        assert_eq!(with(|effects| entry.leave_by_name(1, now, effects)).0, Ok(None));
    }
    let head = appointed(&entry, &next, now);
    assert!(entry.is_known_held(), "expected the store's lease to be known");
    (entry, extension, head, after)
}

#[test]
fn token_after_a_hand_off_is_less_than_all_later_tokens() {
    let now = Moment::from(Instant::now());
    // The token's command ran before the queue head's attempt, or after it.
    for (token, next) in [(7, Some(2 + 100)), (500, None)] {
        let (entry, extension, head, after) = handed_over_beside_a_token(now);
        let grant = granted(&entry, &head, 9, 100 + 256, now);
        assert_eq!(grant.token(), Some(1 + 100));
        assert!(with(|effects| entry.extended(extension.number, now, LEASE, Some(token), now, effects)).0);
        assert_eq!(with(|effects| entry.leave(grant, now, effects)).0, Ok(None));
        match told(&entry, &after, now) {
            Some(Turn::Granted(grant, None)) => assert_eq!(grant.token(), next),
            Some(Turn::Head(_)) => assert_eq!(next, None, "expected no queue head while tokens are left"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn leaving_queue_head_rolls_back_for_the_previous_holds_lease() {
    let (now, later) = (Moment::from(Instant::now()), Moment::from(Instant::now()) + LEASE / 10);
    let (entry, extension, head, _after) = handed_over_beside_a_token(now);
    assert!(with(|effects| entry.extended(extension.number, now, LEASE, Some(7), later, effects)).0);
    let roll_back = released(&effects_of(|effects| entry.abandon(&head, later, effects)))
        .expect("the queue head has the lease");
    assert_eq!((roll_back.until, roll_back.appoints, roll_back.rolls_back), (later + LEASE, false, false));
}

#[test]
fn holds_inside_of_a_hold_share_a_token_of_the_lease_in_hand() {
    let (entry, now) = idle();
    let request = |owner| Request::new(owner).shared_owner();
    let head = head_of(&entry, &request(1).fenced(), now);
    let [second, third] = [request(2), request(3).fenced()].map(|request| queued(&entry, &request, now));
    let grant = granted(&entry, &head, 1, 256, now);
    assert_eq!((grant.token(), with(|effects| entry.leave(grant, now, effects)).0), (Some(1), Ok(None)));
    let Some(Turn::Granted(outer, None)) = told(&entry, &second, now) else {
        panic!("expected the grant for the waiter")
    };
    let inside = [request(2), request(2).fenced(), request(2).fenced(), request(2).lease(LEASE)]
        .map(|request| inner(&entry, &request, now));
    assert_eq!(inside.map(|grant| grant.token()), [None, Some(2), Some(2), None]);
    for grant in inside {
        assert_eq!(with(|effects| entry.leave(grant, now, effects)).0, Ok(None));
    }
    assert_eq!(with(|effects| entry.leave(outer, now, effects)).0, Ok(None));
    let Some(Turn::Granted(grant, None)) = told(&entry, &third, now) else {
        panic!("expected the grant for the waiter")
    };
    assert_eq!(grant.token(), Some(3));
}

#[test]
fn last_token_that_was_reserved_is_passed_on_without_a_question() {
    let (entry, now) = idle();
    let [first, second, third] = [1, 2, 3].map(|owner| Request::new(owner).fenced());
    let head = head_of(&entry, &first, now);
    let [second, third] = [second, third].map(|request| queued(&entry, &request, now));
    let attempt = entry.attempt(&head, 1, now, LEASE).expect("the queue head may ask");
    let last = attempt.tokens();
    let Some(Turn::Granted(grant, _)) =
        with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 2 }, now, effects)).0
    else {
        panic!("expected the grant")
    };
    assert!(last > 2 && grant.token() == Some(1));
    assert_eq!(with(|effects| entry.leave(grant, now, effects)).0, Ok(None));
    let Some(Turn::Granted(grant, None)) = told(&entry, &second, now) else {
        panic!("expected the grant for the waiter")
    };
    assert_eq!((grant.token(), with(|effects| entry.leave(grant, now, effects)).0), (Some(2), Ok(None)));
    assert!(
        matches!(told(&entry, &third, now), Some(Turn::Head(_))),
        "expected a queue head, as no token is left"
    );
}

/// The token's command may run late, and its answer may be lost.
#[test]
fn lease_beside_a_token_request_is_rolled_back_for_the_latter() {
    let (entry, now, outer) = held();
    let mine = Request::new(1).shared_owner();
    let later = now + LEASE / 2;
    let (inner, extension) = inner_that_asks(&entry, &mine.fenced(), later);
    assert_eq!(with(|effects| entry.extending(extension, later, effects)).0, Some(LEASE));
    assert_eq!(with(|effects| entry.leave(inner, later, effects)).0, Ok(None));
    let Ok(Some(release)) = with(|effects| entry.leave(outer, later, effects)).0 else {
        panic!("expected a release, as no task waits")
    };
    assert_eq!((release.until, release.rolls_back), (later + LEASE, true));
}

/// The lease in hand may end before its first renewal.
#[test]
fn next_one_asks_for_a_lease_that_ends_soon_anew_by_its_number() {
    let policy = Policy::Exclusive { tenure: LEASE * 2 };
    let (entry, now) = (LockEntry::new(Rules { policy, ..Rules::default() }), Moment::from(Instant::now()));
    assert!(entry.claim());
    let grant = taken(&entry, 1, now).expect("the entry is open");
    let ticket = queued(&entry, &Request::new(2), now);
    let later = now + LEASE / 4 * 3;
    assert_eq!(with(|effects| entry.leave(grant, later, effects)).0, Ok(None));
    let head = appointed(&entry, &ticket, later);
    assert!(head.back_off().is_zero(), "expected no back-off, as no other client can have the lock");
    assert_eq!(entry.attempt(&head, 2, later, LEASE).map(|attempt| attempt.number()), Some(1));
}

/// The store counts the lease from the command, which may run as late as the answer comes.
#[test]
fn locally_expired_lease_is_released_as_the_store_may_keep_it() {
    let (sent, answered) = (Moment::from(Instant::now()), Moment::from(Instant::now()) + LEASE / 10);
    let (request, granted) = (Request::new(7), Answer::Granted { last_token: 1 });
    let claims = || {
        let (entry, _) = idle();
        assert!(entry.claim());
        let attempt = Attempt::outside_of_queue(1, &request, sent, LEASE);
        assert!(entry.take(&request, &attempt, 0, answered, &mut Effects::default()).is_some());
        entry
    };
    let adopts = || {
        let (entry, _) = readers();
        let attempt = Attempt::outside_of_queue(1, &request, sent, LEASE);
        assert!(with(|effects| entry.adopt(&request, attempt, 0, answered, effects)).0.is_some());
        entry
    };
    let competes = || {
        let (entry, _) = idle();
        let head = head_of(&entry, &Request::new(1), sent);
        let attempt = entry.attempt(&head, 1, sent, LEASE).expect("the queue head may ask");
        assert!(matches!(
            with(|effects| entry.answered(&head, attempt, granted, answered, effects)).0,
            Some(Turn::Granted(_, _))
        ));
        entry
    };
    let goes_on = || {
        let (entry, extension, head, _after) = handed_over_beside_a_token(sent - LEASE / 2);
        entry.not_extended(extension);
        let attempt = entry.attempt(&head, 9, sent, LEASE).expect("the queue head may ask");
        assert!(matches!(
            with(|effects| entry.answered(&head, attempt, granted, answered, effects)).0,
            Some(Turn::Granted(_, _))
        ));
        entry
    };
    let renews = |fails| {
        let (entry, before) = (idle().0, sent - LEASE / 3);
        assert!(entry.claim() && taken(&entry, 1, before).is_some());
        let renewal = with(|effects| entry.tick(sent, effects)).0.expect("a third of the lease is over");
        if fails {
            drop(with(|effects| entry.renewed(renewal, None, answered, answered, effects)).1);
        } else {
            assert!(with(|effects| entry.renewed(renewal, Some(true), sent, answered, effects)).0);
        }
        entry
    };
    for entry in [claims(), adopts(), competes(), goes_on(), renews(false), renews(true)] {
        let waits = entry.waiters() > 0;
        let effects = with(|effects| entry.tick(sent + LEASE, effects)).1;
        let release = released(&effects);
        let release = release.map(|release| (release.until, release.appoints));
        assert_eq!(release, Some((answered + LEASE, waits)));
    }
}

#[test]
fn expired_lease_acquired_beside_the_queue_is_rolled_back() {
    let (entry, now) = readers();
    let request = Request::new(1);
    let attempt = Attempt::outside_of_queue(1, &request, now, LEASE);
    let (grant, effects) = with(|effects| entry.adopt(&request, attempt, 0, now + LEASE, effects));
    assert_eq!((grant, released(&effects).map(|roll_back| roll_back.number)), (None, Some(1)));
}

#[test]
fn latch_waiters_are_woken_when_the_entry_is_closed() {
    let (entry, now) = idle();
    let head = head_of(&entry, &Request::new(1), now);
    assert!(
        effects_of(|effects| entry.close(effects)).wakes_sleepers(),
        "expected the wake-up of all latch waiters"
    );
    assert!(!entry.is_head(&head));
}

#[test]
fn entry_stays_in_use_during_a_hold_acquired_beside_the_queue() {
    let (entry, now) = readers();
    let request = Request::new(1).shared_owner();
    let attempt = Attempt::outside_of_queue(1, &request, now, LEASE);
    let grant =
        with(|effects| entry.adopt(&request, attempt, 0, now, effects)).0.expect("the lease is not over");
    assert!(!entry.is_idle() && !entry.claim());
    assert!(matches!(with(|effects| entry.leave(grant, now, effects)).0, Ok(Some(_))));
    assert!(entry.is_idle() && entry.claim());
}

#[test]
fn queue_head_is_recalled_for_its_own_owner_only() {
    let (entry, now) = idle();
    let head = head_of(&entry, &Request::new(1), now);
    drop(effects_of(|effects| entry.evict_owner(2, now, effects)));
    assert!(entry.is_head(&head));
    let effects = effects_of(|effects| entry.evict_owner(1, now, effects));
    assert!(!entry.is_head(&head));
    assert!(effects.wakes_sleepers(), "expected the queue head's notification to be passed on");
}

/// The lease is gone, unless a late command of the former hold begins it anew.
#[test]
fn refused_head_rolls_back_while_an_earlier_command_may_run() {
    let now = Moment::from(Instant::now());
    let (entry, _extension, head, _after) = handed_over_beside_a_token(now);
    let attempt = entry.attempt(&head, 9, now, LEASE / 10).expect("the queue head may ask");
    assert_eq!((attempt.number(), attempt.tokens()), (1, 256));
    let _ = with(|effects| entry.answered(&head, attempt, Answer::Held { kept: None }, now, effects));
    let roll_back = released(&effects_of(|effects| entry.abandon(&head, now, effects)))
        .expect("the store may have the lease");
    assert_eq!((roll_back.number, roll_back.until, roll_back.rolls_back), (1, now + LEASE, true));
}

#[test]
fn queue_head_that_none_waits_behind_asks_for_one_token() {
    let (entry, now) = idle();
    let head = head_of(&entry, &Request::new(1).fenced(), now);
    assert_eq!(entry.attempt(&head, 1, now, LEASE).map(|attempt| attempt.tokens()), Some(1));
}

#[test]
fn hold_inside_of_a_hold_has_the_greatest_token_that_was_heard() {
    let (entry, now, _outer) = held();
    let mine = Request::new(1).shared_owner();
    let [first, second] = [(); 2].map(|()| inner_that_asks(&entry, &mine.fenced(), now).1);
    for extension in [first, second] {
        assert!(with(|effects| entry.extending(extension, now, effects)).0.is_some());
    }
    for token in [8, 7] {
        assert!(with(|effects| entry.extended(first.number, now, LEASE, Some(token), now, effects)).0);
    }
    let inner = inner(&entry, &mine.fenced(), now);
    assert_eq!(inner.token(), Some(8));
}

/// The command ran before the answer that began the lease anew, or after a forced unlock.
#[test]
fn store_is_asked_again_if_a_lease_is_gone_beside_a_new_command() {
    // The second step: a clock that does not tell the two commands apart.
    for step in [LEASE / 10, Duration::ZERO] {
        let (entry, now, outer) = held();
        let mine = Request::new(1).shared_owner();
        let (_, extension) = inner_that_asks(&entry, &mine.fenced(), now);
        assert!(with(|effects| entry.extending(extension, now, effects)).0.is_some());
        let (sent, later) = (now + step, now + step * 2);
        assert!(with(|effects| entry.extended(1, now, LEASE, Some(7), later, effects)).0);
        let (lost, effects) = with(|effects| entry.gone(1, sent, later, effects));
        // A look at the same moment would get the same answer, without end.
        let look = later.max(now + Duration::from_nanos(1));
        assert_eq!((lost, effects.look_at), (false, look));
        assert_eq!(with(|effects| entry.tick(look, effects)).0.map(|renewal| renewal.number), Some(1));
        assert!(with(|effects| entry.gone(1, later + LEASE / 10, later + LEASE / 5, effects)).0);
        assert_eq!(entry.state_of(&outer, later), Err(LossReason::Gone));
    }
}

/// The token's lease is brief, but the lease in hand is still renewed for the outer hold.
#[test]
fn renewal_is_not_delayed_by_the_token_of_a_brief_inner_hold() {
    let (entry, now, _outer) = held();
    let brief = Request::new(1).shared_owner().lease(LEASE / 10).fenced();
    let later = now + LEASE / 4;
    let (_, extension) = inner_that_asks(&entry, &brief, later);
    let asked =
        with(|effects| entry.extending(extension, later, effects)).0.expect("the extension is in flight");
    assert!(with(|effects| entry.extended(1, later, asked, Some(7), later, effects)).0);
    assert_eq!(
        with(|effects| entry.tick(now + LEASE / 3, effects)).0,
        Some(Renewal { number: 1, lease: Some(LEASE) })
    );
}

fn named() -> (LockEntry, Moment, Ticket, NextHead) {
    let rules = Rules { policy: Policy::Queued { position: LEASE }, ..Rules::default() };
    let (entry, now) = (LockEntry::new(rules), Moment::from(Instant::now()));
    let head = head_of(&entry, &Request::new(1), now);
    let grant = granted(&entry, &head, 1, 0, now);
    let [ticket, _behind] = [2, 3].map(|owner| queued(&entry, &Request::new(owner).fenced(), now));
    let (left, effects) = with(|effects| entry.leave(grant, now, effects));
    assert_eq!(left, Ok(None));
    let (_, next) = effects.releases().next().expect("the lease goes back");
    let next = next.expect("the oldest waiter");
    assert!(told(&entry, &ticket, now).is_none());
    (entry, now, ticket, next)
}

#[test]
fn waiter_that_is_named_with_a_release_and_recalled_is_told() {
    let (entry, now, ticket, _) = named();
    drop(effects_of(|effects| entry.evict_owner(2, now, effects)));
    assert!(
        matches!(told(&entry, &ticket, now), Some(Turn::Superseded)),
        "expected the supersession of the waiter"
    );
}

#[test]
fn lock_whose_release_is_under_way_counts_as_held_for_the_waiter_that_gives_up() {
    let (entry, began, ticket, _) = named();
    let now = began + Duration::from_secs(1);
    drop(effects_of(|effects| entry.cancel(ticket, now, effects)));
    assert!(entry.was_known_held(began), "expected a lock known as held until the release's answer");
    assert!(!entry.was_known_held(now + Duration::from_nanos(1)));
}

#[test]
fn waiter_that_is_named_is_looked_after_from_the_answer_on() {
    let (entry, now, ticket, next) = named();
    let attempt = entry.attempt(&next.head, 2, now, LEASE).expect("the named waiter may ask");
    assert_eq!(attempt.tokens(), 1, "expected one token for a named waiter");
    let limit = Rules::default().unpolled_limit;
    // A message comes before the named waiter listens.
    drop(effects_of(|effects| entry.wake_head(now, effects)));
    assert_eq!(with(|effects| entry.tick(now + limit, effects)).1.superseded(), 0);
    let held = Answer::Held { kept: Some(LEASE) };
    let _ = with(|effects| entry.answered(&next.head, attempt, held, now + limit, effects));
    assert_eq!(with(|effects| entry.tick(now + limit, effects)).1.superseded(), 0);
    // Then the waiter behind, woken and not polled, is superseded as well.
    for looks in [2, 3] {
        let (_, effects) = with(|effects| entry.tick(now + limit * looks, effects));
        assert_eq!(effects.superseded(), 1, "expected the supersession of the waiter behind");
    }
    assert!(matches!(told(&entry, &ticket, now + limit * 2), Some(Turn::Superseded)));
}

const POSITION: Duration = Duration::from_secs(3);
const HAS_POSITION: Answer = Answer::Held { kept: Some(POSITION) };

fn competes_by_position(request: &Request) -> (LockEntry, Moment, HeadTicket) {
    let rules = Rules { policy: Policy::Queued { position: POSITION }, ..Rules::default() };
    let (entry, now) = (LockEntry::new(rules), Moment::from(Instant::now()));
    let head = head_of(&entry, request, now);
    (entry, now, head)
}

/// The command may have been sent after the rollback.
#[test]
fn token_without_a_read_answer_is_rolled_back_after_the_release() {
    let (entry, now) = idle();
    let head = head_of(&entry, &Request::new(1), now);
    let grant = granted(&entry, &head, 1, 0, now);
    let roll_back = PendingRelease { number: 1, until: now + LEASE, appoints: false, rolls_back: true };
    assert_eq!(
        released(&effects_of(|effects| entry.unread(roll_back, effects))),
        None,
        "expected no rollback beside the hold, which is released in the end"
    );
    assert!(matches!(with(|effects| entry.leave(grant, now, effects)).0, Ok(Some(_))));
    assert_eq!(released(&effects_of(|effects| entry.unread(roll_back, effects))), Some(roll_back));
}

fn asks(
    entry: &LockEntry,
    head: &HeadTicket,
    fresh: u64,
    (sent, heard): (Moment, Moment),
    answer: Answer,
) -> (u64, Option<Turn>, Effects) {
    let attempt = entry.attempt(head, fresh, sent, LEASE).expect("the queue head may ask");
    let (outcome, effects) = with(|effects| entry.answered(head, attempt, answer, heard, effects));
    (attempt.number(), outcome, effects)
}

#[test]
fn position_that_is_renewed_in_time_is_kept_for_ever() {
    let (entry, mut now, head) = competes_by_position(&Request::new(1));
    for fresh in 1..5 {
        let (number, outcome, effects) = asks(&entry, &head, fresh, (now, now), HAS_POSITION);
        assert!(outcome.is_none(), "{outcome:?}");
        assert_eq!((number, released(&effects)), (1, None), "expected the position to be kept");
        now = now + POSITION / 2;
    }
}

/// The store counts the position from the command, which may run as late as the answer comes.
#[test]
fn position_of_a_first_attempt_is_kept_despite_a_late_answer() {
    let (entry, now, head) = competes_by_position(&Request::new(1));
    let late = now + POSITION * 2;
    let (_, outcome, effects) = asks(&entry, &head, 1, (now, late), HAS_POSITION);
    assert!(outcome.is_none(), "{outcome:?}");
    assert_eq!(released(&effects), None, "expected the position to be kept");
    assert_eq!(asks(&entry, &head, 2, (late, late), Answer::Unsaid).0, 1);
}

/// If the second question runs, the lease may be longer.
#[test]
fn head_granted_unasked_holds_until_its_known_position_ends() {
    for is_answered in [false, true] {
        let (entry, now, head) = competes_by_position(&Request::new(1));
        let _ = asks(&entry, &head, 1, (now, now), HAS_POSITION);
        let (second, heard) = (now + POSITION / 3, now + POSITION / 2);
        let answer = if is_answered { HAS_POSITION } else { Answer::Unanswered };
        let _ = asks(&entry, &head, 2, (second, second), answer);
        let grant = with(|effects| entry.granted_by_message(&head, 1, heard, effects))
            .0
            .expect("expected the waiter's turn");
        let since = if is_answered { second } else { now };
        assert_eq!(entry.state_of(&grant, heard).map(|hold| hold.ends), Ok(since + POSITION));
        let Ok(Some(release)) = with(|effects| entry.leave(grant, heard, effects)).0 else {
            panic!("expected a release, as no task waits")
        };
        assert_eq!((release.number, release.until), (1, second + LEASE));
        assert_eq!(release.rolls_back, !is_answered, "expected a rollback only if a command may still run");
    }
}

#[test]
fn message_grants_nothing_without_a_lasting_sufficient_position() {
    let watched = Request::new(1);
    let soon = POSITION / 2;
    for (request, number, after) in [
        (watched, 1, POSITION),
        (watched, 9, soon),
        (watched.fenced(), 1, soon),
        (watched.lease(LEASE), 1, soon),
    ] {
        let (entry, now, head) = competes_by_position(&request);
        let _ = asks(&entry, &head, 1, (now, now), HAS_POSITION);
        let (grant, effects) = with(|effects| entry.granted_by_message(&head, number, now + after, effects));
        assert_eq!((grant, released(&effects)), (None, None), "{request:?}");
        let attempt = entry.attempt(&head, 2, now + after, LEASE);
        assert_eq!(attempt.map(|attempt| attempt.number()), Some(1), "{request:?}");
    }
}

fn readers() -> (LockEntry, Moment) {
    let policy = Rules::default().policy.shared();
    (LockEntry::new(Rules { policy, ..Rules::default() }), Moment::from(Instant::now()))
}

#[test]
fn waiters_with_the_first_ones_request_enter_by_its_lease() {
    let (entry, now) = readers();
    let lease = Rules::default().renewed_lease;
    let [first, second, third] = [1, 2, 3].map(|owner| Request::new(owner).lease(lease).fenced());
    let head = head_of(&entry, &first, now);
    let waits = [second, third].map(|request| queued(&entry, &request, now));
    let _first = granted(&entry, &head, 1, 1, now);
    for ticket in waits {
        let Some(Turn::Granted(grant, None)) = told(&entry, &ticket, now) else {
            panic!("expected the grant for the waiter")
        };
        assert_eq!(grant.token(), Some(1));
    }
    let newcomer = with(|effects| entry.enter(&Request::new(4), noop(), now, effects)).0;
    assert!(
        matches!(newcomer, Turn::Granted(_, None)),
        "expected the grant for the newcomer, and got {newcomer:?}"
    );
}

/// Waiters that came before the question get the whole lease of the queue head.
#[test]
fn sharer_with_a_lease_of_its_own_has_all_of_it_or_asks_itself() {
    let (entry, now) = readers();
    let request = |owner| Request::new(owner).lease(LEASE);
    let head = head_of(&entry, &request(1), now);
    let before = queued(&entry, &request(2), now);
    let attempt = entry.attempt(&head, 1, now, LEASE).expect("the queue head may ask");
    let later = now + Duration::from_secs(1);
    let [after, brief] = [request(3), Request::new(4).lease(LEASE / 2)].map(|it| queued(&entry, &it, later));
    let answered = now + Duration::from_secs(2);
    let (outcome, _) =
        with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, answered, effects));
    assert!(matches!(outcome, Some(Turn::Granted(_, _))), "{outcome:?}");
    for suffices in [before, brief] {
        let told = told(&entry, &suffices, answered);
        assert!(matches!(told, Some(Turn::Granted(_, None))), "{told:?}");
    }
    assert!(matches!(told(&entry, &after, answered), Some(Turn::Head(_))));
}

#[test]
fn returning_owner_acquires_at_the_end_of_the_tenure() {
    let (entry, now) = readers();
    let head = head_of(&entry, &Request::new(1), now);
    let _first = granted(&entry, &head, 1, 0, now);
    let joins = |now| inner(&entry, &Request::new(2).shared_owner(), now);
    assert_eq!(with(|effects| entry.leave(joins(now), now, effects)).0, Ok(None));
    let (_outer, _inner) = (joins(now), joins(now + Duration::from_secs(1)));
    assert_eq!(entry.holds_of(2, now), [(1, 2)]);
}

#[test]
fn newcomer_beside_older_leases_gets_the_current_leases_token() {
    let (entry, now) = readers();
    let request = |owner| Request::new(owner).fenced();
    let head = head_of(&entry, &request(1), now);
    let _first = granted(&entry, &head, 1, 1, now);
    let second = inner(&entry, &request(2), now);
    assert_eq!(second.token(), Some(1));
    let later = now + Duration::from_secs(1);
    let Turn::Head(head) = with(|effects| entry.enter(&request(3), noop(), later, effects)).0 else {
        panic!("the tenure is not over")
    };
    let attempt = entry.attempt(&head, 3, later, LEASE).expect("the queue head may ask");
    let (outcome, effects) =
        with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 2 }, later, effects));
    let Some(Turn::Granted(third, _)) = outcome else { panic!("expected the grant") };
    assert!(effects.has_older_leases() && released(&effects).is_none());
    let (_, effects) = with(|effects| entry.merge(3, &[1], later, effects));
    let older = released(&effects).expect("the older lease is left at the store");
    assert_eq!((older.number, older.appoints), (1, false));
    let fourth = inner(&entry, &request(4), later);
    assert_eq!((third.token(), fourth.token()), (Some(2), Some(2)));
    assert!(entry.state_of(&second, later).is_ok_and(|hold| hold.number == 3));
}

/// Queue head 2 asks for another lease meanwhile, and its answer serves the waiters.
#[test]
fn release_of_a_lease_beside_the_one_in_hand_is_no_waiters_turn() {
    let (entry, now) = readers();
    let head = head_of(&entry, &Request::new(1), now);
    let grant = granted(&entry, &head, 1, 0, now);
    let later = now + Duration::from_secs(1);
    let Turn::Head(_) = enter(&entry, 2, later) else { panic!("the tenure is not over") };
    let Ok(Some(release)) = with(|effects| entry.leave(grant, later, effects)).0 else {
        panic!("expected a release by the last hold")
    };
    assert_eq!((release.number, release.appoints), (1, false));
}

/// The lease is not renewed yet, and may end soon.
#[test]
fn hold_to_be_renewed_asks_for_more_if_the_lease_may_end_before_its_renewal() {
    let (entry, now) = readers();
    let own = |owner, lease| Request::new(owner).lease(lease).shared_owner();
    let head = head_of(&entry, &own(1, LEASE / 3), now);
    let _first = granted_for(LEASE / 3, &entry, &head, 1, 0, now);
    // The earlier hold is merged into a new hold whose lease is not renewed either.
    let later = now + Duration::from_secs(1);
    let Turn::Head(head) = with(|effects| entry.enter(&own(2, LEASE / 3), noop(), later, effects)).0 else {
        panic!("the tenure is not over")
    };
    let _second = granted_for(LEASE / 3, &entry, &head, 2, 0, later);
    assert_eq!(entry.older_leases(), (2, vec![1]));
    let _ = with(|effects| entry.merge(2, &[1], later, effects));
    assert_eq!(entry.lease_numbers(), [2]);
    let enters =
        |owner| with(|effects| entry.enter(&Request::new(owner).shared_owner(), noop(), later, effects)).0;
    let Turn::Granted(_, Some(extension)) = enters(1) else { panic!("expected an extension") };
    assert_eq!(extension, Extension { number: 2, lease: LEASE, fenced: false });
    let _ = inner(&entry, &own(3, LEASE / 4), later);
    // Owner 1's hold is renewed from now on.
    assert!(matches!(enters(3), Turn::Granted(_, None)));
    let brief = with(|effects| entry.enter(&own(1, LEASE / 4), noop(), later, effects)).0;
    assert!(matches!(brief, Turn::Granted(_, None)), "{brief:?}");
}

/// With one newcomer for each answer there is a queue head at any time, and no lease in hand.
#[test]
fn older_lease_is_merged_beside_a_queue_head() {
    let (entry, now) = readers();
    let own = |owner| Request::new(owner).lease(LEASE / 2);
    let head = head_of(&entry, &own(1), now);
    let _first = granted_for(LEASE / 2, &entry, &head, 1, 0, now);
    let [asked, comes, answered] = [1000, 1001, 1002].map(|at| now + Duration::from_millis(at));
    let head = head_of(&entry, &own(2), asked);
    let attempt = entry.attempt(&head, 2, asked, LEASE / 2).expect("the queue head may ask");
    let Turn::Queued(_third) = with(|effects| entry.enter(&own(3), noop(), comes, effects)).0 else {
        panic!("the question is under way")
    };
    let (_, effects) =
        with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, answered, effects));
    assert!(effects.has_older_leases());
    assert_eq!(entry.older_leases(), (2, vec![1]));
    let _ = with(|effects| entry.merge(2, &[1], answered, effects));
    assert_eq!(entry.lease_numbers(), [2]);
}

/// A waker that runs a function once, when cloned or when dropped.
struct Does {
    when_cloned: bool,
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Does {
    fn waker(when_cloned: bool, what: impl FnOnce() + Send + 'static) -> Waker {
        static VTABLE: RawWakerVTable = RawWakerVTable::new(
            |data| {
                // SAFETY: `data` is the box of the cloned waker, which keeps the box.
                unsafe { &*data.cast::<Does>() }.does(true);
                RawWaker::new(Waker::noop().data(), Waker::noop().vtable())
            },
            |_| {},
            |_| {},
            |data| {
                // SAFETY: `data` is the waker's own box, which the waker does not use after its drop.
                let this = unsafe { Box::from_raw(data.cast::<Does>().cast_mut()) };
                this.does(false);
            },
        );
        let what = Mutex::new(Some(Box::new(what) as Box<_>));
        let this: *const Does = Box::into_raw(Box::new(Self { when_cloned, what }));
        // SAFETY: the table's functions keep the contract. `wake` would leak the box, and is not called.
        unsafe { Waker::new(this.cast(), &VTABLE) }
    }

    fn does(&self, cloned: bool) {
        if cloned == self.when_cloned
            && let Some(what) = self.what.lock().take()
        {
            what();
        }
    }
}

/// Returns a waker, and the state of the entry at its drop: 1 if locked (a deadlock), or 2 if free.
fn asks_when_dropped(entry: &Arc<LockEntry>) -> (Waker, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let waker = Does::waker(false, {
        let (entry, asked) = (entry.clone(), asked.clone());
        // Ordering: Relaxed, on one thread.
        move || asked.store(entry.ownership.try_lock().map_or(1, |_| 2), Ordering::Relaxed)
    });
    (waker, asked)
}

#[test]
fn waker_of_an_immediate_call_is_dropped_outside_of_the_mutex() {
    let (entry, now) = idle();
    let entry = Arc::new(entry);
    let (waker, asked) = asks_when_dropped(&entry);
    let mut effects = Effects::default();
    let entered = entry.enter(&Request::new(1), Some(waker), now, &mut effects);
    assert!(matches!(entered, Turn::Head(_)));
    drop(effects);
    // Ordering: Relaxed, on one thread.
    assert_eq!(
        asked.load(Ordering::Relaxed),
        2,
        "expected 2, the drop outside of the mutex (1: under the mutex)"
    );
}

/// In each case, a drop of the waker under the mutex would deadlock.
#[test]
fn waker_of_a_queue_head_is_dropped_when_the_entry_is_free() {
    let gives_up = |entry: &LockEntry, head: &HeadTicket, now| {
        drop(effects_of(|effects| entry.abandon(head, now, effects)))
    };
    let gets_it = |entry: &LockEntry, head: &HeadTicket, now| {
        granted(entry, head, 1, 0, now);
    };
    let gets_it_too_late = |entry: &LockEntry, head: &HeadTicket, now| {
        let attempt = entry.attempt(head, 1, now, LEASE).expect("the queue head may ask");
        let told = with(|effects| {
            entry.answered(head, attempt, Answer::Granted { last_token: 0 }, now + LEASE, effects)
        })
        .0;
        assert!(matches!(told, Some(Turn::Head(_))));
        drop(effects_of(|effects| entry.abandon(head, now, effects)));
    };
    let none = |_: &LockEntry, _: &HeadTicket, _| {};
    type Event = fn(&LockEntry, &HeadTicket, Moment);
    let ends: [(Event, Event); 4] =
        [(gives_up, none), (none, gives_up), (none, gets_it), (none, gets_it_too_late)];
    for (case, (before, after)) in ends.into_iter().enumerate() {
        let (entry, now) = idle();
        let entry = Arc::new(entry);
        let (waker, asked) = asks_when_dropped(&entry);
        let head = head_of(&entry, &Request::new(1), now);
        before(&entry, &head, now);
        drop(effects_of(|effects| {
            entry.event(effects, |ownership, effects| ownership.register_head(head.serial, waker, effects))
        }));
        after(&entry, &head, now);
        // Ordering: Relaxed, on one thread.
        let asked = asked.load(Ordering::Relaxed);
        assert_eq!(asked, 2, "{case}: expected the drop outside of the mutex (0: kept, 1: under the mutex)");
    }
}

/// The first sending may run after the second was answered and its lease released.
#[test]
fn attempt_that_may_run_again_is_rolled_back_after_any_answer() {
    let asked = |entry: &LockEntry, now| {
        let Turn::Head(head) = enter(entry, 1, now) else {
            panic!("expected a queue head of the idle entry")
        };
        (head, entry.attempt(&head, 7, now, LEASE).expect("the queue head may ask"))
    };
    let may_run_again = |entry: &LockEntry, attempt: &Attempt| {
        released(&effects_of(|effects| entry.may_run_again(attempt.rollback(), effects)))
            .map(|roll_back| roll_back.number)
    };
    let (entry, now) = idle();
    let (head, attempt) = asked(&entry, now);
    assert_eq!(may_run_again(&entry, &attempt), None, "expected no rollback of an attempt in flight");
    drop(with(|effects| entry.answered(&head, attempt, Answer::Held { kept: None }, now, effects)));
    assert_eq!(
        released(&effects_of(|effects| entry.abandon(&head, now, effects))).map(|roll_back| roll_back.number),
        Some(7)
    );
    assert_eq!(may_run_again(&entry, &attempt), Some(7), "expected a rollback for the departed waiter");

    for (given_back, beside_the_queue) in [(now, false), (now + LEASE * 2, false), (now, true)] {
        let (entry, now) = idle();
        let (head, attempt) = asked(&entry, now);
        if !beside_the_queue {
            drop(effects_of(|effects| entry.may_run_again(attempt.rollback(), effects)));
        }
        let Some(Turn::Granted(grant, _)) =
            with(|effects| entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, now, effects)).0
        else {
            panic!("expected the grant by the store")
        };
        if beside_the_queue {
            drop(effects_of(|effects| entry.may_run_again(attempt.rollback(), effects)));
        }
        let (left, effects) = with(|effects| entry.leave(grant, given_back, effects));
        let release = match left {
            Ok(Some(release)) => Some(release),
            _ => released(&effects),
        };
        assert!(release.is_some_and(|release| release.number == 7 && release.rolls_back), "{left:?}");
    }
}

/// The grant comes while the waiter's waker is cloned, and no waker is registered yet.
#[test]
fn waiter_granted_between_two_steps_of_its_poll_has_the_lock() {
    let (entry, now) = idle();
    let entry = Arc::new(entry);
    assert!(entry.claim());
    let grant = taken(&entry, 1, now).expect("the entry is open");
    let ticket = queued(&entry, &Request::new(2), now);
    let waker = Does::waker(true, {
        let entry = entry.clone();
        move || drop(with(|effects| entry.leave(grant, now, effects)))
    });
    let told = with(|effects| entry.poll(&ticket, &waker, now, effects)).0;
    assert!(matches!(told, Some(Turn::Granted(..))), "expected the grant for the waiter");
}

#[test]
fn effects_of_several_events_name_each_release() {
    let policy = Policy::Exclusive { tenure: Duration::ZERO };
    let (entry, now) = (LockEntry::new(Rules { policy, ..Rules::default() }), Moment::from(Instant::now()));
    let head = head_of(&entry, &Request::new(1), now);
    let first = granted(&entry, &head, 1, 0, now);
    let [second, _third] = [2, 3].map(|owner| queued(&entry, &Request::new(owner), now));
    let mut effects = Effects::default();
    assert_eq!(entry.leave(first, now, &mut effects), Ok(None));
    entry.appoint_next(0, now, &mut effects);
    let Some(Turn::Head(head)) = entry.poll(&second, Waker::noop(), now, &mut effects) else {
        panic!("expected the waiter's turn")
    };
    let second = granted(&entry, &head, 2, 0, now);
    assert_eq!(entry.leave(second, now, &mut effects), Ok(None));
    assert_eq!(
        effects.releases().map(|(release, _)| release.number).collect::<Vec<_>>(),
        [1, 2],
        "expected releases of both leases"
    );
}
