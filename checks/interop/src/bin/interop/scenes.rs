//! What the two sides have to show to each other: each scene with two roles, a holder and another that wants
//! the lock.

mod read_write;

use std::fmt;
use std::time::{Duration, Instant};

use crate::checks::{Checked, Checks, guarded};
use crate::player::{AT_ALL, Asked, Player, SOON, Side};
use crate::stage::{Stage, WATCHDOG};

/// For what is not to be answered: long enough to ask the server many times.
const A_WHILE: Duration = Duration::from_millis(300);
/// For the quickest of a few, on a busy machine: less than what is left after [`A_WHILE`] for a waiter that
/// asks each second.
const AT_ONCE: Duration = Duration::from_millis(250);

/// A player of a side, with a kind of lock.
#[derive(Clone, Copy)]
struct Role {
    side: Side,
    kind: &'static str,
}

impl Role {
    /// Whether it is one side of a read-write lock, which knows nothing of the other one, nor of other kinds.
    fn is_side(self) -> bool {
        ["read", "write"].contains(&self.kind)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.side, self.kind)
    }
}

const PLAIN: Role = Role { side: Side::Ours, kind: "plain" };
const FENCED: Role = Role { side: Side::Ours, kind: "fenced" };
const FAIR: Role = Role { side: Side::Ours, kind: "fair" };

fn redisson(kind: &'static str) -> Role {
    Role { side: Side::Redisson, kind }
}

/// Which side plays which role, for one kind of ours and some of Redisson's.
type Casting = fn(Role, &[&'static str]) -> Vec<(Role, Role)>;

/// Ours holds, then Redisson does.
fn both(ours: Role, kinds: &[&'static str]) -> Vec<(Role, Role)> {
    kinds.iter().flat_map(|kind| [(ours, redisson(kind)), (redisson(kind), ours)]).collect()
}

/// Redisson holds, ours comes.
fn theirs(ours: Role, kinds: &[&'static str]) -> Vec<(Role, Role)> {
    kinds.iter().map(|kind| (redisson(kind), ours)).collect()
}

/// Ours holds, Redisson comes.
fn to_them(ours: Role, kinds: &[&'static str]) -> Vec<(Role, Role)> {
    kinds.iter().map(|kind| (ours, redisson(kind))).collect()
}

/// One scene with its roles cast.
struct Act<'a> {
    stage: &'a Stage,
    holder: Role,
    other: Role,
    name: String,
}

type Scene = fn(&Act<'_>) -> Checked;

/// What it shows, between holder and other; the scene; and the players.
type Cast = (&'static str, Scene, Vec<(Role, Role)>);

fn scenes() -> Vec<Cast> {
    let (exclusive, shared) = (["plain", "fenced", "fair", "spin"], ["read", "write"]);
    let of_two = |cast: Casting, kinds: &[&'static str]| [cast(PLAIN, kinds), cast(FAIR, kinds)].concat();
    let kinds_of_ours = [(PLAIN, FAIR), (FAIR, PLAIN)];
    vec![
        ("keeps out", keeps_out, of_two(both, &exclusive)),
        ("keeps out, and is not freed by,", keeps_other_kind_out, of_two(to_them, &shared)),
        ("is another kind for", is_other_kind, [of_two(theirs, &shared), kinds_of_ours.into()].concat()),
        ("leaves nothing that counts for", leaves_nothing, of_two(theirs, &["plain", "read", "write"])),
        ("hands over to", hands_over, both(PLAIN, &["plain", "fenced"])),
        ("hands over to", hands_over, to_them(FAIR, &["plain", "fair"])),
        (
            "is found free by",
            is_found_free,
            [theirs(PLAIN, &["fair", "spin"]), to_them(PLAIN, &["spin"])].concat(),
        ),
        ("is found free by", is_found_free, [theirs(FAIR, &exclusive), to_them(FAIR, &["spin"])].concat()),
        ("shows its lease to", shows_its_lease, of_two(both, &["plain"])),
        ("ends with its lease for", lease_ends, of_two(both, &["plain", "spin"])),
        ("ends with its lease for", lease_ends, both(FAIR, &["fair"])),
        ("outlasts the wait of", outlasts_wait, of_two(both, &["plain", "fair"])),
        ("is entered again before", is_entered_again, of_two(both, &["plain", "fair"])),
        ("is forced free by", is_forced_free, both(PLAIN, &["plain"])),
        ("is forced free by", is_forced_free, both(FAIR, &["fair"])),
        ("rises its tokens with", tokens_rise, both(FENCED, &["fenced"])),
    ]
}

/// As [`scenes`], of those that wait for leases as they are by default. They are played beside the others.
fn slow_scenes() -> Vec<Cast> {
    vec![
        ("is renewed before", is_renewed, [both(PLAIN, &["plain"]), both(FAIR, &["fair"])].concat()),
        (
            "dies, and in time leaves its lock to",
            dies,
            [both(PLAIN, &["plain"]), both(FAIR, &["fair"])].concat(),
        ),
    ]
}

pub(crate) fn play(stage: &Stage, checks: &mut Checks) {
    let acts = |scenes: Vec<Cast>, checks: &Checks| {
        let mut acts = Vec::new();
        for (shows, scene, roles) in scenes {
            for (holder, other) in roles {
                let what = format!("{holder} {shows} {other}");
                let name = what.replace(|it: char| !it.is_ascii_alphanumeric(), "-");
                if checks.wants(&what) {
                    acts.push((what, scene, Act { stage, holder, other, name }));
                }
            }
        }
        acts
    };
    let slow = acts([slow_scenes(), read_write::slow_scenes()].concat(), checks);
    let quick = acts([scenes(), read_write::scenes()].concat(), checks);
    std::thread::scope(|scope| {
        let slow: Vec<_> =
            slow.into_iter().map(|(what, scene, act)| (what, scope.spawn(move || act.play(scene)))).collect();
        for (what, scene, act) in quick {
            checks.note(&what, act.play(scene));
        }
        for (what, running) in slow {
            checks.note(&what, running.join().expect("panics are caught in there"));
        }
    });
    let what = "nothing is left on the server";
    if checks.wants(what) {
        checks.note(what, guarded(|| stage.server.is_clean()));
    }
}

impl<'s> Act<'s> {
    fn play(&self, scene: Scene) -> Checked {
        guarded(|| scene(self))?;
        self.stage.leaves_nothing_of(&self.name)
    }

    /// The same threads, with other kinds of the same lock.
    fn of_kinds(&self, holder: &'static str, other: &'static str) -> Act<'s> {
        let (holder, other) = (Role { kind: holder, ..self.holder }, Role { kind: other, ..self.other });
        Act { stage: self.stage, holder, other, name: self.name.clone() }
    }

    /// The other as one that asks for the side that the holder has.
    fn as_holder(&self) -> Act<'s> {
        let kind = if self.other.is_side() { self.holder.kind } else { self.other.kind };
        self.of_kinds(self.holder.kind, kind)
    }

    /// Tells a thread of a player: a verb, and what comes after kind and name.
    fn tell<'a>(&self, player: &'a Player, thread: &str, role: Role, said: &str) -> Asked<'a> {
        let (verb, rest) = said.split_once(' ').unwrap_or((said, ""));
        let line = format!("{verb} {} {} {rest}", role.kind, self.name);
        player.begin(&format!("{}-{thread}", self.name), line.trim_end())
    }

    fn holder(&self, said: &str) -> Asked<'_> {
        self.tell(self.stage.player(self.holder.side, 0), "holder", self.holder, said)
    }

    fn other(&self, said: &str) -> Asked<'_> {
        self.tell(self.stage.player(self.other.side, 1), "other", self.other, said)
    }

    /// Another thread of the holder's process.
    fn second(&self, said: &str) -> Asked<'_> {
        self.tell(self.stage.player(self.holder.side, 0), "second", self.holder, said)
    }

    /// Another thread of the other's process.
    fn third(&self, said: &str) -> Asked<'_> {
        self.tell(self.stage.player(self.other.side, 1), "third", self.other, said)
    }

    /// Until a waiter is told what is published, and for a while longer.
    fn until_waiting(&self, asked: &Asked<'_>) -> Checked {
        let channel = match (self.other.side, self.other.kind) {
            (_, "spin") => None,
            // Each client has one of its own.
            (Side::Ours, "fair") => Some(format!("{0}:latchwork:{{{0}}}:fair_grant:*", self.name)),
            (_, "read" | "write") => Some(format!("redisson_rwlock:{{{}}}", self.name)),
            // In Redisson's fair lock, each thread.
            _ => Some(format!("redisson_lock__channel:{{{}}}*", self.name)),
        };
        if let Some(channel) = channel {
            self.stage.server.until("a subscription", |server| {
                !server.run::<Vec<String>>(&["PUBSUB", "CHANNELS", &channel]).is_empty()
            })?;
        }
        match asked.within(A_WHILE)? {
            None => Ok(()),
            Some(answer) => Err(format!("the other did not wait: {answer}")),
        }
    }

    fn left(&self) -> i64 {
        self.stage.server.left(&self.name)
    }

    /// Until a key of the lock has more time left than before.
    fn until_renewed(&self, key: &str) -> Checked {
        let left = || self.stage.server.left(key);
        let mut lowest = left();
        self.stage.server.until("a renewal", |_| {
            let left = left();
            lowest = lowest.min(left);
            left > lowest + 1000
        })?;
        expect(lowest > 0, || "the lease was over before it was renewed".to_owned())
    }
}

fn expect(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

fn number(asked: &Asked<'_>) -> Checked<i64> {
    let answer = asked.answer(SOON)?;
    answer.parse().map_err(|_| format!("not a number: {answer}"))
}

// === The scenes ===

fn keeps_out(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    act.other("try 0 -1").is(AT_ALL, "held")?;
    act.other("try 300 -1").is(AT_ALL, "held")?;
    act.other("unlock").is(AT_ALL, "not-held")?;
    act.as_holder().other("locked").is(AT_ALL, "true")?;
    act.other("holds").is(AT_ALL, "0")?;
    act.holder("holds").is(AT_ALL, "1")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.holder("locked").is(AT_ALL, "false")?;
    act.other("try 0 -1").is(AT_ALL, "got")?;
    act.other("unlock").is(AT_ALL, "done")
}

fn keeps_other_kind_out(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    act.other("try 0 -1").is(AT_ALL, "held")?;
    act.other("try 300 -1").is(AT_ALL, "held")?;
    act.other("try 300 5000").is(AT_ALL, "held")?;
    act.other("force").is(AT_ALL, "free")?;
    act.holder("holds").is(AT_ALL, "1")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.other("try 0 -1").is(AT_ALL, "got")?;
    act.other("unlock").is(AT_ALL, "done")
}

fn is_other_kind(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    act.other("lock -1").is(SOON, "other-kind")?;
    act.other("try 0 -1").is(SOON, "other-kind")?;
    act.other("try 60000 5000").is(SOON, "other-kind")?;
    act.other("force").is(SOON, "other-kind")?;
    act.other("locked").is(SOON, if act.other.is_side() { "other-kind" } else { "true" })?;
    act.holder("holds").is(AT_ALL, "1")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.other("lock -1").is(SOON, "got")?;
    act.other("unlock").is(AT_ALL, "done")
}

/// The keys that Redisson leaves to their time to live: for each unlock in some versions, for a forced one of
/// a read lock in all.
fn leaves_nothing(act: &Act<'_>) -> Checked {
    for ends in ["unlock", "force"] {
        act.holder("lock -1").is(AT_ALL, "got")?;
        act.holder(ends).is(AT_ALL, if ends == "force" { "freed" } else { "done" })?;
        act.other("locked").is(AT_ALL, "false")?;
        act.other("force").is(AT_ALL, "free")?;
        act.other("try 0 -1").is(AT_ALL, "got")?;
        act.other("holds").is(AT_ALL, "1")?;
        act.other("unlock").is(AT_ALL, "done")?;
        act.other("locked").is(AT_ALL, "false")?;
    }
    Ok(())
}

fn hands_over(act: &Act<'_>) -> Checked {
    quickest(AT_ONCE, || turn_of_each(act))
}

/// By a waiter that is not told.
fn is_found_free(act: &Act<'_>) -> Checked {
    quickest(SOON, || turn_of_each(act))
}

/// How long the other waited after the holder's turn.
fn turn_of_each(act: &Act<'_>) -> Checked<Duration> {
    act.holder("lock -1").is(AT_ALL, "got")?;
    let waits = act.other("lock -1");
    act.until_waiting(&waits)?;
    let before = Instant::now();
    act.holder("unlock").is(AT_ALL, "done")?;
    waits.is(SOON, "got")?;
    let waited = before.elapsed();
    act.other("unlock").is(AT_ALL, "done")?;
    Ok(waited)
}

/// That one of three times is within the limit: the machine may be busy.
fn quickest(limit: Duration, mut one: impl FnMut() -> Checked<Duration>) -> Checked {
    let best = [one()?, one()?, one()?].into_iter().min().expect("there are three");
    expect(best <= limit, || format!("the quickest of three took {best:?}, and not {limit:?}"))
}

fn shows_its_lease(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    let (left, watchdog) = (number(&act.other("left"))?, WATCHDOG.as_millis() as i64);
    expect((watchdog - 5000..=watchdog).contains(&left), || format!("{left} ms left of a watched lease"))?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.holder("lock 8000").is(AT_ALL, "got")?;
    let left = number(&act.other("left"))?;
    expect((3000..=8000).contains(&left), || format!("{left} ms left of 8000"))?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.other("left").is(AT_ALL, "-2")
}

fn lease_ends(act: &Act<'_>) -> Checked {
    let before = Instant::now();
    act.holder("lock 1500").is(AT_ALL, "got")?;
    let waits = act.other("lock -1");
    waits.is(Duration::from_millis(1500) + SOON, "got")?;
    let waited = before.elapsed();
    expect(waited >= Duration::from_millis(1500), || format!("it ended after {waited:?}, and not 1.5 s"))?;
    act.holder("unlock").is(AT_ALL, "not-held")?;
    act.other("unlock").is(AT_ALL, "done")
}

fn outlasts_wait(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    let before = Instant::now();
    act.other("try 700 -1").is(Duration::from_millis(700) + SOON, "held")?;
    let waited = before.elapsed();
    expect(waited >= Duration::from_millis(700), || format!("it waited {waited:?}, and not 0.7 s"))?;
    act.holder("unlock").is(AT_ALL, "done")
}

fn is_entered_again(act: &Act<'_>) -> Checked {
    for _ in 0..2 {
        act.holder("lock -1").is(SOON, "got")?;
    }
    act.holder("holds").is(AT_ALL, "2")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.other("try 0 -1").is(AT_ALL, "held")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.other("try 0 -1").is(AT_ALL, "got")?;
    act.holder("unlock").is(AT_ALL, "not-held")?;
    act.other("unlock").is(AT_ALL, "done")
}

fn is_forced_free(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    let waits = act.third("lock -1");
    act.until_waiting(&waits)?;
    act.as_holder().other("force").is(AT_ALL, "freed")?;
    waits.is(SOON, "got")?;
    act.holder("unlock").is(AT_ALL, "not-held")?;
    act.third("unlock").is(AT_ALL, "done")?;
    act.other("force").is(AT_ALL, "free")
}

fn tokens_rise(act: &Act<'_>) -> Checked {
    let mut last = 0;
    let mut take = |asked: Asked<'_>| -> Checked {
        let answer = asked.answer(AT_ALL)?;
        let token: Option<u64> = answer.strip_prefix("got ").and_then(|token| token.parse().ok());
        let before = std::mem::replace(&mut last, token.unwrap_or(0));
        expect(token > Some(before), || format!("{answer} after {before}"))
    };
    for _ in 0..3 {
        take(act.holder("lock -1"))?;
        act.other("try 0 -1").is(AT_ALL, "held")?;
        act.holder("unlock").is(AT_ALL, "done")?;
        take(act.other("lock -1"))?;
        act.other("unlock").is(AT_ALL, "done")?;
    }
    Ok(())
}

fn is_renewed(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    act.until_renewed(&act.name)?;
    act.other("try 0 -1").is(AT_ALL, "held")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.other("try 0 -1").is(AT_ALL, "got")?;
    act.other("unlock").is(AT_ALL, "done")
}

fn dies(act: &Act<'_>) -> Checked {
    let victim = act.stage.victim(act.holder.side);
    act.tell(&victim, "victim", act.holder, "lock -1").is(AT_ALL, "got")?;
    let waits = act.other("lock -1");
    act.until_waiting(&waits)?;
    victim.kill_9();
    // In this order: on a busy machine the answer takes a while.
    let (asked, left) = (Instant::now(), act.left());
    let left = Duration::from_millis(left.try_into().map_err(|_| format!("no lease is left, but {left}"))?);
    waits.is(left + SOON, "got").map_err(|error| format!("{error}; {} ms are left", act.left()))?;
    let waited = asked.elapsed() + Duration::from_millis(20);
    expect(waited >= left, || format!("the lock was there after {waited:?}, and had {left:?} left"))?;
    act.other("unlock").is(AT_ALL, "done")
}
