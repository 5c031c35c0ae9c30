//! Programs of calls: their generation, and their printed form.

use latchwork::LeaseId;
use latchwork::backend::Mode;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

pub(super) const CLIENTS: u8 = 3;
/// Per client: this many ids that do not read, and as many readers.
const IDS: u8 = 2;

/// Capacity of a semaphore.
pub(super) const CAPACITY: u32 = 3;

/// Client number for the holder, or for a reader, at the time of the call.
pub(super) const HOLDER: u8 = 10;
/// Client number for the waiter at a given place in the queue, or among the waiting readers.
pub(super) const WAITER: u8 = 20;

/// A lease: the number of its client, and its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) u8, pub(super) u8);

/// An acquisition's request. All times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    pub(super) lease: u64,
    pub(super) tokens: u64,
    /// The time waited, and the life of the position.
    pub(super) place: Option<(u64, u64)>,
    /// Others that wait for a plain lock go first.
    pub(super) yields: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Acquire(Mode, Id, Asks),
    /// A read beside the writer of the same owner.
    ReadBeside(Id, Asks),
    Release(Mode, Id, Option<(Id, Asks)>),
    /// The last release with a next waiter is sent again.
    Repeat,
    Renew(Mode, Id, u64),
    Force(Mode),
    /// A client starts or stops listening.
    Listen(u8, bool),
    Pass(u64),
    /// Time passes to the end of the holder's lease, or of all readers' leases, if near.
    Outlast,
    SetBack(u64),
}

impl Id {
    pub(super) fn lease(self) -> LeaseId {
        super::id(self.0.into(), self.1.into())
    }

    pub(super) fn of_lease(id: &LeaseId) -> Self {
        let client = u8::from_str_radix(&id.client_id()[..8], 16);
        Self(client.expect("the number is small"), id.number().try_into().expect("the number is small"))
    }

    /// The count of permits that the id asks for.
    pub(super) fn permits(self) -> u32 {
        u32::from(self.0 + self.1) % CAPACITY + 1
    }

    pub(super) fn writer(self) -> Self {
        Self(self.0, self.1 - IDS)
    }

    pub(super) fn reader(self) -> Self {
        Self(self.0, self.1 + IDS)
    }

    pub(super) fn numbers(mode: Mode) -> std::ops::RangeInclusive<u8> {
        if mode == Mode::Read { IDS + 1..=2 * IDS } else { 1..=IDS }
    }

    /// The first ids are more frequent, so that calls meet.
    fn of(mode: Mode) -> impl Strategy<Value = Self> {
        let (first, other) = Self::numbers(mode).into_inner();
        let client = prop_oneof![4 => Just(1), 2 => Just(2), 1 => 3..=CLIENTS];
        (client, prop_oneof![3 => Just(first), 1 => Just(other)])
            .prop_map(|(client, number)| Self(client, number))
    }

    /// The weights of any id, the holder, and a waiter.
    fn mostly(mode: Mode, [any, holder, waiter]: [u32; 3]) -> impl Strategy<Value = Self> {
        prop_oneof![
            any => Self::of(mode),
            holder => (1..=2_u8).prop_map(|number| Self(HOLDER, number)),
            waiter => (1..=2_u8).prop_map(|number| Self(WAITER, number)),
        ]
    }

    pub(super) fn all(mode: Mode) -> impl Iterator<Item = Self> {
        (1..=CLIENTS).flat_map(move |client| Self::numbers(mode).map(move |number| Self(client, number)))
    }
}

fn asks() -> impl Strategy<Value = Asks> {
    let lease = prop_oneof![2 => Just(30_000), 2 => Just(200), 2 => Just(1_500), 1 => Just(600_000)];
    let tokens = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(3)];
    let waited = prop_oneof![2 => Just(0), 1 => Just(800), 1 => Just(2_000), 1 => Just(5_000)];
    let kept = prop_oneof![3 => Just(20_000), 1 => Just(100), 1 => Just(1_200)];
    let place = proptest::option::weighted(0.8, (waited, kept));
    let yields = proptest::bool::weighted(0.3);
    (lease, tokens, place, yields).prop_map(|(lease, tokens, place, yields)| Asks {
        lease,
        tokens,
        place,
        yields: yields && place.is_some(),
    })
}

/// Calls on a lock of these modes, and some of other modes, which have no place in its queue.
pub(super) fn calls(modes: &'static [Mode]) -> impl Strategy<Value = Vec<Call>> {
    let all = [Mode::Plain, Mode::Fair, Mode::Write, Mode::Read];
    let others: Vec<Mode> = all.into_iter().filter(|mode| !modes.contains(mode)).collect();
    let is_read = modes.contains(&Mode::Read);
    let mode = || proptest::sample::select(modes);
    let acquire = mode().prop_flat_map(|mode| (Just(mode), Id::mostly(mode, [6, 1, 2]), asks()));
    let beside = (Id::mostly(Mode::Read, [1, 3, 0]), asks());
    let release = mode().prop_flat_map(move |mode| {
        let next = proptest::option::of((Id::mostly(mode, [3, 0, 1]), asks()));
        (
            Just(mode),
            Id::mostly(mode, [3, 5, 3]),
            next.prop_map(move |next| next.filter(|_| matches!(mode, Mode::Fair | Mode::Write))),
        )
    });
    let renew = mode().prop_flat_map(|mode| {
        (Just(mode), Id::mostly(mode, [1, 4, 0]), prop_oneof![Just(400), Just(40_000)])
    });
    let strange = proptest::sample::select(others).prop_flat_map(|mode| {
        // After a lock of another kind, readers may share that lock's last token.
        let without = asks().prop_map(|asks| Asks { tokens: 0, place: None, yields: false, ..asks });
        // Any id, a holder or a waiter included.
        let id = || (1..=CLIENTS, 1..=2 * IDS).prop_map(|(client, number)| Id(client, number));
        prop_oneof![
            2 => (Id::of(mode), without).prop_map(move |(id, asks)| Call::Acquire(mode, id, asks)),
            2 => id().prop_map(move |id| Call::Release(mode, id, None)),
            2 => id().prop_map(move |id| Call::Renew(mode, id, 5_000)),
            1 => Just(Call::Force(mode)),
        ]
    });
    let pass =
        prop_oneof![3 => Just(10), 2 => Just(300), 2 => Just(1_000), 1 => Just(1_600), 1 => Just(31_000)];
    let call = prop_oneof![
        12 => acquire.prop_map(|(mode, id, asks)| Call::Acquire(mode, id, asks)),
        3 => beside.prop_map(move |(id, asks)| match is_read {
            true => Call::ReadBeside(id, asks),
            // With a clock that goes back, a turn's ended entries look valid.
            false => Call::SetBack(40_000),
        }),
        9 => release.prop_map(|(mode, id, next)| Call::Release(mode, id, next)),
        1 => Just(Call::Repeat),
        2 => Just(Call::Outlast),
        4 => renew.prop_map(|(mode, id, lease)| Call::Renew(mode, id, lease)),
        1 => mode().prop_map(Call::Force),
        3 => (1..=CLIENTS, any::<bool>()).prop_map(|(client, listens)| Call::Listen(client, listens)),
        4 => pass.prop_map(Call::Pass),
        2 => strange,
    ];
    // Most clients listen, as ours do.
    (0..8_u8, proptest::collection::vec(call, 8..40)).prop_map(|(deaf, calls)| {
        let listens = (1..=CLIENTS).map(move |client| Call::Listen(client, deaf != client));
        listens.chain(calls).collect()
    })
}

/// Plays numbered programs. `LATCHWORK_SEED` sets the seed, `LATCHWORK_DEEP` plays sixty times as many.
pub(super) fn check(
    programs: u32,
    modes: &'static [Mode],
    play: impl Fn(u32, &[Call]) -> Result<(), String>,
) {
    let seed =
        std::env::var("LATCHWORK_SEED").map_or(1, |seed| seed.parse::<u32>().expect("the text is a number"));
    let times = if std::env::var_os("LATCHWORK_DEEP").is_some() { 60 } else { 1 };
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let cases = programs * times;
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let number = std::cell::Cell::new(0);
    let played = TestRunner::new_with_rng(config, rng).run(&calls(modes), |calls| {
        play(number.replace(number.get() + 1), &calls).map_err(TestCaseError::fail)
    });
    match played {
        Ok(()) => {}
        Err(TestError::Fail(difference, calls)) => {
            let calls: String = calls.iter().map(|call| format!("    {call:?},\n")).collect();
            panic!("seed {seed}: {difference}\nThe program:\n[\n{calls}]");
        }
        Err(error) => panic!("seed {seed}: {error}"),
    }
}
