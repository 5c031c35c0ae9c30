//! Histories that are made up, sound ones and such as must not be. Times are milliseconds.

use super::check;
use crate::history::{By, Event, FaultKind, History, Life, Outcome, Record, Why, Wish, Without};
use crate::names::CROWDED;

const MS: u64 = 1_000_000;
const LEASE: u64 = 2400;
/// When all is over.
const END: u64 = 20_000;

/// A read-write lock.
const READ_WRITE: u32 = 16;

/// A history in the making: two workers and one lock.
struct Tale(History);

impl Tale {
    fn new() -> Self {
        let life = |worker| Life { worker, records: Vec::new(), killed: None };
        Self(History { stage: Vec::new(), workers: vec![life(0), life(1)] })
    }

    fn tell(&mut self, at: u64, worker: usize, event: Event) -> &mut Self {
        self.0.workers[worker].records.push(Record { at: at * MS, event });
        self
    }

    fn stage(&mut self, at: u64, event: Event) -> &mut Self {
        self.0.stage.push(Record { at: at * MS, event });
        self
    }

    fn fault(&mut self, from: u64, to: u64, kind: FaultKind, worker: Option<usize>) -> &mut Self {
        let number = self.0.stage.len() as u64;
        self.stage(from, Event::Fault { number, kind, worker }).stage(to, Event::Over { number })
    }

    fn forced(&mut self, at: u64) -> &mut Self {
        self.stage(at, Event::Forces { name: 0 }).stage(at + 1, Event::Forced { name: 0, free: true })
    }

    fn wants(&mut self, at: u64, worker: usize, id: u64) -> &mut Self {
        self.wants_of(at, worker, id, 0)
    }

    fn wants_of(&mut self, at: u64, worker: usize, id: u64, name: u32) -> &mut Self {
        self.wishes(at, worker, id, name, false)
    }

    /// To write the read-write lock.
    fn wants_to_write(&mut self, at: u64, worker: usize, id: u64) -> &mut Self {
        self.wishes(at, worker, id, READ_WRITE, false)
    }

    /// To read it.
    fn wants_to_read(&mut self, at: u64, worker: usize, id: u64) -> &mut Self {
        self.wishes(at, worker, id, READ_WRITE, true)
    }

    fn wishes(&mut self, at: u64, worker: usize, id: u64, name: u32, reads: bool) -> &mut Self {
        let (watched, explicit, fenced, unpolled) = (true, false, false, false);
        let wish = Wish { wait: None, lease: LEASE * MS, watched, explicit, fenced, unpolled, reads };
        self.tell(at, worker, Event::Wants { id, name, wish })
    }

    /// With a guard that is asked at once.
    fn has(&mut self, at: u64, worker: usize, id: u64) -> &mut Self {
        self.has_by(&format!("{worker}:{id}"), at, worker, id)
    }

    /// By that owner.
    fn has_by(&mut self, owner: &str, at: u64, worker: usize, id: u64) -> &mut Self {
        let owner = owner.to_owned();
        self.tell(at, worker, Event::Acquired { id, owner, token: None }).believes(at, worker, id)
    }

    fn believes(&mut self, at: u64, worker: usize, id: u64) -> &mut Self {
        self.tell(at, worker, Event::Believes { id, left: LEASE * MS })
    }

    fn lost(&mut self, at: u64, worker: usize, id: u64, why: Why) -> &mut Self {
        self.tell(at, worker, Event::Lost { id, why })
    }

    fn gives(&mut self, at: u64, worker: usize, id: u64, outcome: Outcome) -> &mut Self {
        self.tell(at, worker, Event::LetsGo { id, by: By::Unlock }).tell(
            at + 1,
            worker,
            Event::LetGo { id, outcome },
        )
    }

    fn killed(&mut self, at: u64, worker: usize) -> &mut Self {
        self.0.workers[worker].killed = Some(at * MS);
        self.fault(at, at, FaultKind::Killed, Some(worker))
    }

    /// What is found when it comes to a good end.
    fn found(&mut self) -> Vec<String> {
        for worker in 0..2 {
            if self.0.workers[worker].killed.is_none() {
                self.tell(END, worker, Event::Quiet { entries: 0, interest: 0, subscriptions: 0 });
            }
        }
        self.stage(END, Event::Remains { keys: Vec::new(), channels: Vec::new() });
        self.judged()
    }

    fn judged(&self) -> Vec<String> {
        check(&self.0).violations.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn is_sound(&mut self) {
        assert_eq!(self.found(), [""; 0]);
    }

    /// This, and nothing else.
    #[track_caller]
    fn is_wrong(&mut self, what: &str) {
        let found = self.found();
        assert!(found.len() == 1 && found[0].contains(what), "{found:?}");
    }
}

/// One after the other, with a token each.
fn tokens(first: u64, second: u64) -> Tale {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).wants(1, 1, 2).has(2, 0, 1).gives(10, 0, 1, Outcome::Free).has(12, 1, 2);
    tale.gives(20, 1, 2, Outcome::Free);
    for (worker, is) in [(0, first), (1, second)] {
        for record in &mut tale.0.workers[worker].records {
            match &mut record.event {
                Event::Acquired { token, .. } => *token = Some(is),
                Event::Wants { wish, .. } => wish.fenced = true,
                _ => {}
            }
        }
    }
    tale
}

// === Exclusion ===

#[test]
fn turns_are_sound() {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 1, 1).believes(900, 0, 1).gives(1000, 0, 1, Outcome::Free);
    tale.has(1000, 1, 1).gives(1010, 1, 1, Outcome::Free).is_sound();
}

#[test]
fn two_believers_at_once_are_found() {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 1, 1).has(100, 1, 1).gives(110, 1, 1, Outcome::Free);
    tale.believes(101, 0, 1).gives(102, 0, 1, Outcome::Free).is_wrong("two holders");
}

#[test]
fn one_owner_may_hold_twice() {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 0, 2).has_by("0:1", 5, 0, 2).believes(6, 0, 1);
    tale.gives(10, 0, 1, Outcome::Free).gives(20, 0, 2, Outcome::Free).is_sound();
}

#[test]
fn lease_of_a_dead_holder_keeps_others_out_until_it_ends() {
    let next = |at| {
        let mut tale = Tale::new();
        tale.wants(0, 0, 1).has(2, 0, 1).killed(10, 0).wants(3, 1, 1);
        tale.has(at, 1, 1).gives(at + 10, 1, 1, Outcome::Free);
        tale
    };
    next(LEASE + 2).is_sound();
    next(LEASE - 10).is_wrong("two holders");
}

#[test]
fn what_the_stage_took_away_is_excused() {
    let two = |take: fn(&mut Tale)| {
        let mut tale = Tale::new();
        tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 1, 1).has(200, 1, 1).believes(201, 0, 1);
        take(&mut tale);
        tale.lost(600, 0, 1, Why::Gone).gives(601, 0, 1, Outcome::NotHeld).gives(210, 1, 1, Outcome::Free);
        tale
    };
    two(|tale| _ = tale.forced(100)).is_sound();
    two(|tale| _ = tale.fault(100, 150, FaultKind::ServerKilled, None)).is_sound();
    // Too late to be the reason.
    let mut late = two(|tale| _ = tale.forced(300));
    assert!(late.found()[0].contains("two holders"));
}

// === Tokens ===

#[test]
fn token_that_does_not_rise_is_found() {
    tokens(7, 9).is_sound();
    tokens(7, 7).is_wrong("do not rise");
    tokens(7, 6).is_wrong("do not rise");
}

#[test]
fn tokens_begin_anew_with_the_server() {
    let mut tale = Tale::new();
    tale.0 = tokens(7, 1).0;
    tale.fault(11, 11, FaultKind::ServerKilled, None);
    assert_eq!(tale.found(), [""; 0]);
}

#[test]
fn missing_token_is_found() {
    let mut tale = tokens(7, 9);
    let Event::Acquired { token, .. } = &mut tale.0.workers[1].records[1].event else { panic!() };
    *token = None;
    tale.is_wrong("got none");
}

// === Order ===

/// Three before a fair lock: one has it, the second comes at 10, the third at 400; and the holders after the
/// first.
fn third_comes(first_served: usize) -> Tale {
    const FAIR: u32 = 6;
    let mut tale = Tale::new();
    tale.wants_of(0, 0, 1, FAIR).has(2, 0, 1).wants_of(10, 1, 2, FAIR).wants_of(400, 0, 3, FAIR);
    tale.gives(500, 0, 1, Outcome::Free);
    let served = if first_served == 2 { [(1, 2), (0, 3)] } else { [(0, 3), (1, 2)] };
    for ((worker, id), at) in served.into_iter().zip([502, 512]) {
        tale.has(at, worker, id).gives(at + 8, worker, id, Outcome::Free);
    }
    tale
}

#[test]
fn overtaking_before_a_fair_lock_is_found() {
    third_comes(2).is_sound();
    third_comes(3).is_wrong("was overtaken before lock 6, which has a queue, by one that came 0.390 s later");
}

#[test]
fn process_with_a_fault_may_be_overtaken() {
    third_comes(3).fault(100, 150, FaultKind::SubscriptionsKilled, Some(1)).is_sound();
    third_comes(3).fault(100, 150, FaultKind::ServerKilled, None).is_sound();
    // Not by another's.
    third_comes(3).fault(100, 150, FaultKind::SubscriptionsKilled, Some(0)).is_wrong("was overtaken");
    // A waiter behind a hold of its own process does not know that it was taken away.
    let mut forced = third_comes(3);
    forced.stage(5, Event::Forces { name: 6 }).stage(6, Event::Forced { name: 6, free: false }).is_sound();
}

// === Patience ===

/// The second waits from 3 on, the first gives back at 10.
fn served(at: u64) -> Tale {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 1, 1).gives(10, 0, 1, Outcome::Free);
    tale.has(at, 1, 1).gives(at + 10, 1, 1, Outcome::Free);
    tale
}

#[test]
fn wait_beside_a_free_lock_is_found() {
    served(700).is_sound();
    served(900).is_wrong("was free for");
}

#[test]
fn lock_that_is_never_granted_again_is_found() {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 1, 1).gives(10, 0, 1, Outcome::Free);
    tale.is_wrong("was free for 19.989 s");
}

#[test]
fn process_with_a_fault_may_be_late() {
    let mut tale = served(1000);
    tale.fault(500, 600, FaultKind::SubscriptionsKilled, None).is_sound();
    // Not for ever.
    let mut tale = served(1200);
    tale.fault(500, 600, FaultKind::SubscriptionsKilled, None).is_wrong("was free for");
    // Nor by another's.
    let mut tale = served(1000);
    tale.fault(500, 600, FaultKind::Paused, Some(0)).is_wrong("was free for");
}

#[test]
fn what_gave_up_does_not_begin_the_wait_anew() {
    let mut tale = served(2500);
    for (id, at) in [(2, 500), (3, 1100), (4, 1700)] {
        tale.wants(at - 100, 0, id).tell(at, 0, Event::Without { id, why: Without::Dropped });
    }
    tale.is_wrong("was free for");
}

#[test]
fn what_may_still_come_keeps_the_lock() {
    let mut tale = Tale::new();
    // Its release was held back, and so may its last renewal have been.
    tale.wants(0, 0, 1).has(2, 0, 1).wants(3, 1, 1).fault(5, 1000, FaultKind::Silence, Some(0));
    tale.gives(10, 0, 1, Outcome::Failed).has(6000, 1, 1).gives(6010, 1, 1, Outcome::Free).is_sound();
}

// === Losses ===

#[test]
fn loss_without_a_reason_is_found() {
    let lost = |at, why| {
        let mut tale = Tale::new();
        tale.wants(0, 0, 1).has(2, 0, 1).lost(at, 0, 1, why).gives(at + 1, 0, 1, Outcome::NotHeld);
        tale
    };
    lost(100, Why::Gone).is_wrong("it was not taken away");
    lost(100, Why::Expired).is_wrong("before it had");
    lost(LEASE + 10, Why::Expired).is_wrong("not renewed");
    let mut paused = lost(LEASE + 10, Why::Unreachable);
    paused.fault(500, 2300, FaultKind::Paused, Some(0)).is_sound();
}

#[test]
fn hold_that_the_store_does_not_know_is_found() {
    let mut tale = Tale::new();
    tale.wants(0, 0, 1).has(2, 0, 1).believes(10, 0, 1).gives(11, 0, 1, Outcome::NotHeld);
    tale.is_wrong("did not have");
}

#[test]
fn joined_reader_loses_the_lock_with_the_others() {
    let joins = |second: u64| {
        let mut tale = Tale::new();
        tale.wants_to_read(0, 0, 1).has(2, 0, 1).fault(10, 20, FaultKind::ServerKilled, None);
        tale.wants_to_read(second, 0, 2).has(second + 1, 0, 2).lost(second + 10, 0, 2, Why::Gone);
        tale.gives(second + 11, 0, 2, Outcome::NotHeld);
        tale
    };
    joins(25).is_sound();
    // By then the first one has known it.
    joins(3000).is_wrong("it was not taken away");
}

#[test]
fn loss_that_is_never_told_is_found() {
    let believed = |until| {
        let mut tale = Tale::new();
        tale.wants(0, 0, 1).has(2, 0, 1).forced(10).believes(until, 0, 1).gives(
            until,
            0,
            1,
            Outcome::NotHeld,
        );
        tale
    };
    believed(2000).is_sound();
    believed(3000).is_wrong("still believed in");
}

// === What is left ===

#[test]
fn leftovers_are_found() {
    let left = |worker: Event, stage: Event| {
        let mut tale = Tale::new();
        tale.tell(1, 0, worker)
            .tell(1, 1, Event::Quiet { entries: 0, interest: 0, subscriptions: 0 })
            .stage(2, stage);
        let found = tale.judged();
        assert!(found.len() <= 1, "{found:?}");
        found.concat()
    };
    let quiet = |entries, interest, subscriptions| Event::Quiet { entries, interest, subscriptions };
    let remains = |keys: &[&str], channels: &[&str]| {
        let [keys, channels] = [keys, channels].map(|all| all.iter().map(|it| (*it).to_owned()).collect());
        Event::Remains { keys, channels }
    };
    assert_eq!(left(quiet(0, 0, 0), remains(&[], &[])), "");
    for (entries, interest, subscriptions) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
        assert!(
            left(quiet(entries, interest, subscriptions), remains(&[], &[]))
                .contains("registry of process 0")
        );
    }
    assert!(left(quiet(0, 0, 0), remains(&["lock"], &[])).contains("the key lock"));
    assert!(left(quiet(0, 0, 0), remains(&[], &["channel"])).contains("subscription to channel"));
    assert!(left(quiet(0, 0, 0), Event::Over { number: 1 }).contains("was not looked at"));
    assert!(left(Event::Over { number: 1 }, remains(&[], &[])).contains("did not become quiet"));
}

#[test]
fn stuck_task_is_found() {
    let mut tale = Tale::new();
    tale.tell(1, 0, Event::Stuck { what: "acquisition 7".to_owned() }).is_wrong("acquisition 7");
}

// === Turns ===

/// One process has the crowded lock turn after turn, while another one waits for three seconds; and at
/// `trouble` the server stands still.
fn one_process_has_all_turns(trouble: u64) -> Tale {
    let mut tale = Tale::new();
    tale.wants_of(1000, 1, 1, CROWDED);
    for turn in 0..50 {
        let (id, at) = (turn + 1, 1000 + turn * 60);
        tale.wants_of(at, 0, id, CROWDED).has(at + 5, 0, id).gives(at + 50, 0, id, Outcome::Free);
    }
    tale.has(4000, 1, 1).gives(4010, 1, 1, Outcome::Free);
    tale.fault(trouble, trouble, FaultKind::ServerPaused, None);
    tale
}

#[test]
fn process_that_has_no_turn_in_a_crowd_is_found() {
    one_process_has_all_turns(15_000).is_wrong("was kept waiting for 3.000 s");
}

#[test]
fn faults_excuse_a_long_wait_in_a_crowd() {
    one_process_has_all_turns(2000).is_sound();
}

// === Readers and writers ===

#[test]
fn readers_may_be_together_and_none_beside_a_writer() {
    let second = |reads| {
        let mut tale = Tale::new();
        tale.wants_to_read(0, 0, 1).has(2, 0, 1).wishes(3, 1, 1, READ_WRITE, reads).has(5, 1, 1);
        tale.believes(9, 0, 1).gives(10, 0, 1, Outcome::Free).gives(20, 1, 1, Outcome::Free);
        tale
    };
    second(true).is_sound();
    second(false).is_wrong(
        "acquisition 1 of process 1 (worker 1) has it, and acquisition 1 of process 0 (worker 0) reads it",
    );
}

#[test]
fn writer_may_read_as_well_and_then_read_on() {
    let mut tale = Tale::new();
    tale.wants_to_write(0, 0, 1).has(2, 0, 1).wants_to_read(3, 0, 2).has_by("0:1", 4, 0, 2);
    tale.wants_to_read(5, 1, 1).gives(10, 0, 1, Outcome::Free).has(12, 1, 1);
    tale.gives(20, 0, 2, Outcome::Free).gives(30, 1, 1, Outcome::Free).is_sound();
}

#[test]
fn reader_that_may_write_is_found() {
    let mut tale = Tale::new();
    tale.wants_to_read(0, 0, 1).has(2, 0, 1).wants_to_write(3, 0, 2).has_by("0:1", 4, 0, 2);
    tale.gives(10, 0, 2, Outcome::Free).gives(20, 0, 1, Outcome::Free).is_wrong("its owner reads already");
}

#[test]
fn writer_that_reads_may_write_once_more_though_it_learns_of_that_late() {
    let mut tale = Tale::new();
    tale.wants_to_write(0, 0, 1).has(2, 0, 1).wants_to_read(3, 0, 2).has_by("0:1", 4, 0, 2);
    tale.wants_to_write(5, 0, 3).gives(10, 0, 1, Outcome::Free).has_by("0:1", 20, 0, 3);
    tale.gives(30, 0, 3, Outcome::Free).gives(40, 0, 2, Outcome::Free).is_sound();
}

#[test]
fn readers_have_tokens_in_common_and_writers_have_not() {
    let second = |reads| {
        let mut tale = Tale::new();
        tale.wants_to_read(0, 0, 1).has(2, 0, 1).gives(10, 0, 1, Outcome::Free);
        tale.wishes(11, 1, 1, READ_WRITE, reads).has(12, 1, 1).gives(20, 1, 1, Outcome::Free);
        for record in tale.0.workers.iter_mut().flat_map(|worker| &mut worker.records) {
            match &mut record.event {
                Event::Acquired { token, .. } => *token = Some(7),
                Event::Wants { wish, .. } => wish.fenced = true,
                _ => {}
            }
        }
        tale
    };
    second(true).is_sound();
    second(false).is_wrong("do not rise");
}

/// A reader comes at 10, beside a writer, and reads after `writers` others have written for 300 each.
fn reader_waits_for(writers: u64, outcome: Outcome) -> Tale {
    let mut tale = Tale::new();
    tale.wants_to_write(0, 0, 1).has(2, 0, 1).wants_to_read(10, 1, 1).believes(200, 0, 1).believes(400, 0, 1);
    tale.gives(400, 0, 1, Outcome::Free);
    let mut at = 402;
    for id in 2..2 + writers {
        tale.wants_to_write(at, 0, id).has(at + 1, 0, id).gives(at + 300, 0, id, outcome);
        at += 302;
    }
    tale.has(at + 10, 1, 1).gives(at + 20, 1, 1, Outcome::Free);
    tale
}

#[test]
fn reader_that_waits_for_one_writer_after_the_other_is_found() {
    reader_waits_for(1, Outcome::Free).is_sound();
    reader_waits_for(2, Outcome::Free).is_wrong("2 writers had it meanwhile");
    // An owner that has lost the lock lets no other in.
    reader_waits_for(2, Outcome::Failed).fault(350, 360, FaultKind::Paused, Some(0)).is_sound();
    reader_waits_for(2, Outcome::Free).fault(350, 360, FaultKind::Delay, Some(1)).is_sound();
}

/// There is a reader until 600, a writer waits from 10 on, and a reader that comes at 500 reads from `at` on.
fn reader_comes_later(at: u64, let_in: bool) -> Tale {
    let mut tale = Tale::new();
    if let_in {
        // There was a writer before, for which both wait.
        tale.wants_to_write(0, 0, 1).has(2, 0, 1).gives(at - 2, 0, 1, Outcome::Free);
    } else {
        tale.wants_to_read(0, 0, 1).has(2, 0, 1).gives(600, 0, 1, Outcome::Free);
    }
    tale.wants_to_write(10, 1, 2).wants_to_read(500, 0, 3).has(at, 0, 3).gives(at + 50, 0, 3, Outcome::Free);
    tale.has(at + 52, 1, 2).gives(at + 60, 1, 2, Outcome::Free);
    tale
}

#[test]
fn reader_that_goes_before_a_writer_is_found() {
    reader_comes_later(560, true).is_sound();
    reader_comes_later(560, false).is_wrong("which came 0.490 s later, reads before it out of its turn");
    reader_comes_later(560, false).fault(100, 110, FaultKind::SubscriptionsKilled, Some(1)).is_sound();
}

#[test]
fn reader_that_waits_beside_readers_is_found() {
    let second_reads = |at: u64, a_writer_waits: bool| {
        let mut tale = Tale::new();
        tale.wants_to_read(0, 0, 1).has(2, 0, 1).wants_to_read(10, 1, 1).gives(1500, 0, 1, Outcome::Free);
        if a_writer_waits {
            tale.wants_to_write(5, 0, 2).has(1502, 0, 2).gives(1503, 0, 2, Outcome::Free);
        }
        tale.has(at, 1, 1).gives(at + 1, 1, 1, Outcome::Free);
        tale
    };
    second_reads(500, false).is_sound();
    second_reads(1505, false).is_wrong("was free for");
    second_reads(1505, true).is_sound();
}

#[test]
fn lease_of_readers_lasts_as_long_as_the_longest_of_them() {
    let left_by_one_that_asked_for = |leases: u64| {
        let mut tale = Tale::new();
        tale.wants_to_read(0, 0, 1).has(2, 0, 1).wants_to_read(3, 0, 2).has(4, 0, 2);
        tale.gives(50, 0, 1, Outcome::Free).killed(100, 0);
        let Event::Wants { wish, .. } = &mut tale.0.workers[0].records[0].event else { panic!() };
        wish.lease = leases * LEASE * MS;
        tale.wants_to_write(200, 1, 1).has(9000, 1, 1).gives(9010, 1, 1, Outcome::Free);
        tale
    };
    left_by_one_that_asked_for(4).is_sound();
    left_by_one_that_asked_for(1).is_wrong("was free for");
}
