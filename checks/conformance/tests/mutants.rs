//! The suite on itself, in simulated time: the store in memory keeps the contract, and each mutant of the
//! store fails the property that it breaks.

use std::time::Duration;

use defects::twin::Twin::{self, *};
use defects::twin::{Always, Twinned};
use latchwork::backend::Mode;
use latchwork::local::{Local, ThreadRuntime};
use latchwork_conformance::{Intercept, Part, Property, Store, Violation, drive, properties};

/// Each mutant with the mode and the name of a property that finds it.
const FOUND_BY: [(Twin, Mode, &str); 32] = [
    (TakesWhatIsHeld, Mode::Plain, "name_is_leased_to_one_id"),
    (AcquiresInName, Mode::Plain, "name_is_leased_to_one_id"),
    (ReleasesForStrangers, Mode::Plain, "release_by_another_id_finds_nothing"),
    (KeepsWhatIsReleased, Mode::Fair, "name_is_leased_to_one_id"),
    (ListensElsewhere, Mode::Plain, "release_is_published_to_subscribers"),
    (LeasesForEver, Mode::Plain, "lease_that_is_over_is_free_for_others"),
    (EndsLeasesEarly, Mode::Write, "lease_that_is_over_is_free_for_others"),
    (ShortensLeases, Mode::Plain, "no_command_but_a_release_shortens_a_lease"),
    (RenewsNothing, Mode::Read, "watchdog_keeps_what_is_read_and_written"),
    (RenewsForStrangers, Mode::Plain, "renewal_answers_for_each_lease_in_order"),
    (TokensFall, Mode::Plain, "tokens_are_reserved_in_blocks_that_rise"),
    (FallsBehindItsTokens, Mode::Fair, "tokens_rise_however_the_lock_is_granted"),
    (ForcesNothing, Mode::Fair, "forced_release_frees_whichever_id_has_the_name"),
    (SaysItIsFree, Mode::Plain, "another_owner_is_kept_out"),
    (RollsNothingBack, Mode::Plain, "commands_that_run_twice_mean_the_same"),
    (MixesKinds, Mode::Fair, "kinds_refuse_each_other"),
    (ForgetsTheWait, Mode::Fair, "queue_is_ordered_by_how_long_each_has_waited"),
    (QueuesWhatDoesNotWait, Mode::Fair, "attempt_without_a_position_does_not_queue"),
    (GrantsInSilence, Mode::Fair, "forced_unlock_passes_on"),
    (ReadsBesideAWriter, Mode::Read, "readers_share_the_lock_and_keep_writers_out"),
    (WritesBesideReaders, Mode::Read, "readers_share_the_lock_and_keep_writers_out"),
    (ForgetsTheReaders, Mode::Read, "readers_that_wait_are_let_in_when_a_writer_leaves"),
    (ReadersComeFirst, Mode::Read, "reader_waits_behind_writers_that_came_before_it"),
    (ForgetsWhatIsReadUnderAWriter, Mode::Read, "writer_reads_beside_itself"),
    (AllowsOneMore, Mode::Permits, "permits_are_granted_up_to_the_capacity"),
    (AllowsOneMore, Mode::Permits, "tasks_of_two_clients_never_exceed_the_capacity"),
    (TakesOnePermit, Mode::Permits, "permits_are_granted_up_to_the_capacity"),
    (EndsLeasesEarly, Mode::Permits, "each_lease_of_permits_ends_by_itself"),
    (ForgetsTheWait, Mode::Permits, "permits_go_to_the_first_of_the_queue_that_fits"),
    (ShortensLeases, Mode::Permits, "commands_on_permits_that_run_twice_mean_the_same"),
    (ForcesNothing, Mode::Permits, "forced_release_of_permits_serves_the_waiters"),
    (SaysOneReader, Mode::Read, "holder_of_many_that_read_has_the_longest_lease"),
];

struct Simulated {
    clock: ThreadRuntime,
    local: Local,
    twin: Option<Twin>,
}

impl Simulated {
    fn new(twin: Option<Twin>) -> Self {
        let clock = ThreadRuntime::paused();
        Self { local: Local::with_runtime(clock.clone()), clock, twin }
    }
}

impl Store for Simulated {
    type Backend = Intercept<Local, Twinned<Always>>;

    async fn connect(&self) -> Self::Backend {
        Intercept::new(self.local.clone(), Twinned::new(self.twin, Always))
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        drive(property, || self.clock.advance(Duration::from_millis(1)))
    }
}

/// All properties but those blocking a real thread: simulated time does not wait for threads.
fn all() -> impl Iterator<Item = Property> {
    let all = Part::ALL.into_iter().flat_map(properties);
    all.filter(|property| property.name() != "threads_read_and_write")
}

fn violations(twin: Option<Twin>) -> Vec<Violation> {
    all().filter_map(|property| property.check(&Simulated::new(twin)).err()).collect()
}

#[test]
fn locks_in_memory_have_every_property() {
    let violations: Vec<_> = violations(None).iter().map(Violation::to_string).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert!(all().count() > 150, "{} properties", all().count());
}

#[test]
fn each_mutant_is_found_by_the_property_that_it_breaks() {
    let mut survivors = Vec::new();
    for (mutant, mode, name) in FOUND_BY {
        let violations = violations(Some(mutant));
        let list: Vec<_> = violations.iter().map(|it| format!("{}: {}", it.mode, it.property)).collect();
        println!("{mutant:?}: {} violations", list.len());
        let found = violations.iter().find(|it| (it.mode, it.property) == (mode, name));
        if found.is_none() {
            survivors.push(format!("{mutant:?} is not found by `{name}`, but by {list:#?}"));
        }
    }
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

#[test]
fn violation_says_what_the_contract_says_and_what_was_seen() {
    let violations = violations(Some(ReleasesForStrangers));
    let named = |it: &&Violation| it.property == "release_by_another_id_finds_nothing";
    let text = violations.iter().find(named).expect("the property is violated").to_string();
    for part in [
        "`release_by_another_id_finds_nothing` does not hold for the plain locks of `latchwork_conformance::intercept::Intercept<",
        "contract: A release, or a rollback, by an id that does not have the lock is answered by `NotHeld`, and changes \
         nothing.",
        "seen: ",
        "expected NotHeld for the release of another id's lease",
        "Released",
    ] {
        assert!(text.contains(part), "expected {part:?} in the report, and got {text}");
    }
}
