//! The suite on itself, in simulated time: the store in memory keeps the contract, and each mutant of it is
//! found by the property that it breaks.

use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    QueuePosition, Registry, ReleaseOutcome,
};
use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{Holder, Lease, LeaseId};
use latchwork_conformance::{Part, Property, Store, Violation, drive, properties};

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    GivesWhatIsHeld,
    ForgetsWhatItGave,
    ReleasesForStrangers,
    KeepsWhatIsReleased,
    TellsNoRelease,
    LeasesForEver,
    EndsLeasesEarly,
    ShortensLeases,
    RenewsNothing,
    RenewsForStrangers,
    RepeatsTokens,
    FallsBehindItsTokens,
    ForcesNothing,
    FindsNothing,
    RollsNothingBack,
    MixesKinds,
    ReversesTheQueue,
    QueuesWhatDoesNotWait,
    GrantsInSilence,
    ReadsBesideAWriter,
    WritesBesideReaders,
    ForgetsReadersThatWait,
    ReadersComeFirst,
    ForgetsWhatIsReadUnderAWriter,
}

use Mutant::*;

/// Each with the locks of a property that finds it, and the property's name.
const FOUND_BY: [(Mutant, Mode, &str); 24] = [
    (GivesWhatIsHeld, Mode::Plain, "name_is_leased_to_one_id"),
    (ForgetsWhatItGave, Mode::Plain, "name_is_leased_to_one_id"),
    (ReleasesForStrangers, Mode::Plain, "release_by_another_id_finds_nothing"),
    (KeepsWhatIsReleased, Mode::Fair, "name_is_leased_to_one_id"),
    (TellsNoRelease, Mode::Plain, "release_is_published_to_subscribers"),
    (LeasesForEver, Mode::Plain, "lease_that_is_over_is_free_for_others"),
    (EndsLeasesEarly, Mode::Write, "lease_that_is_over_is_free_for_others"),
    (ShortensLeases, Mode::Plain, "no_command_but_a_release_shortens_a_lease"),
    (RenewsNothing, Mode::Read, "watchdog_keeps_what_is_read_and_written"),
    (RenewsForStrangers, Mode::Plain, "renewal_answers_for_each_lease_in_order"),
    (RepeatsTokens, Mode::Plain, "tokens_are_reserved_in_blocks_that_rise"),
    (FallsBehindItsTokens, Mode::Fair, "tokens_rise_however_the_lock_is_granted"),
    (ForcesNothing, Mode::Fair, "forced_release_frees_whichever_id_has_the_name"),
    (FindsNothing, Mode::Plain, "another_owner_is_kept_out"),
    (RollsNothingBack, Mode::Plain, "commands_that_run_twice_mean_the_same"),
    (MixesKinds, Mode::Fair, "kinds_refuse_each_other"),
    (ReversesTheQueue, Mode::Fair, "queue_is_ordered_by_how_long_each_has_waited"),
    (QueuesWhatDoesNotWait, Mode::Fair, "attempt_without_a_position_does_not_queue"),
    (GrantsInSilence, Mode::Fair, "forced_unlock_passes_on"),
    (ReadsBesideAWriter, Mode::Read, "readers_share_the_lock_and_keep_writers_out"),
    (WritesBesideReaders, Mode::Read, "readers_share_the_lock_and_keep_writers_out"),
    (ForgetsReadersThatWait, Mode::Read, "readers_that_wait_are_let_in_when_a_writer_leaves"),
    (ReadersComeFirst, Mode::Read, "reader_waits_behind_writers_that_came_before_it"),
    (ForgetsWhatIsReadUnderAWriter, Mode::Read, "writer_reads_beside_itself"),
];

/// The store in memory, with a clock that the suite advances.
struct Simulated {
    clock: ThreadRuntime,
    local: Local,
    mutant: Option<Mutant>,
}

impl Simulated {
    fn new(mutant: Option<Mutant>) -> Self {
        let clock = ThreadRuntime::paused();
        Self { local: Local::with_runtime(clock.clone()), clock, mutant }
    }
}

impl Store for Simulated {
    type Backend = Mutated;

    async fn connect(&self) -> Mutated {
        Mutated { local: self.local.clone(), mutant: self.mutant }
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        drive(property, || self.clock.advance(Duration::from_millis(1)))
    }
}

/// The backend in memory, sound or with something wrong.
struct Mutated {
    local: Local,
    mutant: Option<Mutant>,
}

impl Mutated {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn asks(&self, mode: Mode, request: &AcquireRequest) -> AcquireRequest {
        let mut request = request.clone();
        let waited = |position: QueuePosition, waited| Some(QueuePosition { waited, ..position });
        let hour = Duration::from_secs(3600);
        match (self.mutant, request.position) {
            (Some(LeasesForEver), _) => request.lease = Lease::MAX,
            (Some(EndsLeasesEarly), _) => request.lease = (request.lease / 3).max(Duration::from_millis(1)),
            (Some(ReversesTheQueue), Some(position)) if mode != Mode::Read => {
                request.position = waited(position, hour.saturating_sub(position.waited));
            }
            (Some(QueuesWhatDoesNotWait), None) if mode != Mode::Read => {
                request.position = Some(QueuePosition { waited: hour, kept: Duration::from_secs(1) });
            }
            (Some(ReadersComeFirst), Some(position)) if mode == Mode::Read => {
                request.position = waited(position, hour);
            }
            (Some(ForgetsReadersThatWait), _) if mode == Mode::Read => request.position = None,
            (Some(ForgetsWhatIsReadUnderAWriter), _) => request.under = None,
            _ => {}
        }
        request
    }

    /// What the store is said to have answered.
    fn answers(&self, mode: Mode, request: &AcquireRequest, outcome: AcquireOutcome) -> AcquireOutcome {
        let taken = AcquireOutcome::Acquired { last_token: request.tokens };
        match (self.mutant, outcome) {
            (Some(GivesWhatIsHeld), AcquireOutcome::Held { .. }) => taken,
            (Some(ReadsBesideAWriter), AcquireOutcome::Held { .. }) if mode == Mode::Read => taken,
            (Some(WritesBesideReaders), AcquireOutcome::Held { .. }) if mode == Mode::Write => taken,
            (Some(RepeatsTokens), AcquireOutcome::Acquired { last_token: 1.. }) => taken,
            (Some(FallsBehindItsTokens), AcquireOutcome::Acquired { last_token: last @ 2.. }) => {
                AcquireOutcome::Acquired { last_token: last / 2 }
            }
            _ => outcome,
        }
    }
}

impl Backend for Mutated {
    type Error = OtherKind;
    type Transport = LocalTransport;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<LocalTransport> {
        self.local.registry()
    }

    fn runtime(&self) -> &ThreadRuntime {
        self.local.runtime()
    }

    fn supports(&self, mode: Mode) -> bool {
        self.local.supports(mode)
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        let mut channels = self.local.channels(mode, name, client);
        let is_silent = match mode {
            Mode::Plain => self.is(TellsNoRelease),
            Mode::Fair => self.is(GrantsInSilence),
            _ => false,
        };
        if is_silent {
            channels.own.push_str(":elsewhere");
        }
        channels
    }

    fn grants_suffice(&self) -> bool {
        self.local.grants_suffice()
    }

    fn failure(&self, error: &OtherKind) -> Failure {
        if self.is(MixesKinds) { Failure::Refused } else { self.local.failure(error) }
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, OtherKind> {
        let request = self.asks(mode, request);
        if self.is(ShortensLeases) && mode != Mode::Read {
            let holders = self.local.holders(mode, name).await?;
            if holders.iter().any(|holder| holder.id.as_ref() == Some(&request.id)) {
                self.local.release(mode, name, &request.id, None).await?;
            }
        }
        let outcome = self.local.acquire(mode, name, &request).await?;
        if self.is(ForgetsWhatItGave) && outcome == (AcquireOutcome::Acquired { last_token: 0 }) {
            self.local.release(mode, name, &request.id, None).await?;
        }
        Ok(self.answers(mode, &request, outcome))
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, OtherKind> {
        if self.is(KeepsWhatIsReleased) {
            return Ok(ReleaseOutcome::Released { receivers: 0 });
        }
        let released = self.local.release(mode, name, id, next).await?;
        if released == ReleaseOutcome::NotHeld && self.is(ReleasesForStrangers) {
            let was_held = self.local.force_release(mode, name).await?;
            return Ok(if was_held { ReleaseOutcome::Released { receivers: 0 } } else { released });
        }
        Ok(released)
    }

    async fn roll_back(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, OtherKind> {
        match self.is(RollsNothingBack) {
            true => Ok(ReleaseOutcome::NotHeld),
            false => self.release(mode, name, id, None).await,
        }
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, OtherKind> {
        match self.mutant {
            Some(RenewsNothing) => Ok(vec![true; leases.len()]),
            Some(RenewsForStrangers) => {
                self.local.renew(mode, leases, lease).await.map(|answers| vec![true; answers.len()])
            }
            _ => self.local.renew(mode, leases, lease).await,
        }
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, OtherKind> {
        match self.is(ForcesNothing) {
            true => Ok(!self.local.holders(mode, name).await?.is_empty()),
            false => self.local.force_release(mode, name).await,
        }
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, OtherKind> {
        match self.is(FindsNothing) {
            true => Ok(Vec::new()),
            false => self.local.holders(mode, name).await,
        }
    }
}

/// All but those that block a real thread, for which simulated time does not wait.
fn all() -> impl Iterator<Item = Property> {
    let all = Part::ALL.into_iter().flat_map(properties);
    all.filter(|property| property.name() != "threads_read_and_write")
}

fn violations(mutant: Option<Mutant>) -> Vec<Violation> {
    all().filter_map(|property| property.check(&Simulated::new(mutant)).err()).collect()
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
    let text = violations.iter().find(named).expect("it is broken").to_string();
    for part in [
        "`release_by_another_id_finds_nothing` does not hold for the plain locks of `mutants::Mutated`",
        "contract: A release, or a rollback, by an id that does not have the lock is answered by `NotHeld`, and changes \
         nothing.",
        "seen: ",
        "of a name that another id has",
        "Released",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
