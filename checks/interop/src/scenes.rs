//! The comparison of both sides: each scene has two roles, a holder and another owner that wants the lock.
//! The scenes are in `scenes.txt`; this module defines the words they are written in.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use fleet::{Member, java, this_program};

use crate::checks::{Checked, Checks, guarded};
use crate::server::{AT_ALL, SOON, Server};

/// Both sides' default.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(30);
/// Wait for the absence of an answer: long enough to ask the server many times.
const A_WHILE: Duration = Duration::from_millis(300);
/// A defect of our side, applied right after the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Twin {
    /// Our locks lack the mode field.
    NoMode,
    /// Our readers have no leases of their own.
    NoReadLease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Ours,
    Redisson,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Redisson => "Redisson's",
        })
    }
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Ours, Self::Redisson];

    /// Starts a process of this side; returns it with the prefix of its owners' ids.
    pub(crate) fn start(self, redisson: &Path, url: &str) -> (Member, String) {
        let mut command = match self {
            Self::Ours => this_program(["member"]),
            Self::Redisson => java(redisson, "Player"),
        };
        command.args([url, &WATCHDOG.as_millis().to_string()]);
        let member = Member::start(command);
        let greeting = member.greeting(AT_ALL).unwrap_or_else(|error| panic!("{self}: {error}"));
        let id = greeting.split(' ').nth(1).unwrap_or_default().to_owned();
        (member, id)
    }
}

#[derive(Clone, Copy, Debug)]
struct Role {
    side: Side,
    kind: &'static str,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.side, self.kind)
    }
}

struct Scene {
    what: String,
    is_slow: bool,
    holder: Role,
    other: Role,
    steps: String,
}

fn scenes() -> Vec<Scene> {
    let mut scenes: Vec<Scene> = Vec::new();
    let mut first = 0;
    for line in include_str!("scenes.txt").lines().filter(|line| !line.starts_with('#')) {
        let Some((shows, casts)) = line.split_once(" | ") else {
            scenes[first..].iter_mut().for_each(|scene| scene.steps += line);
            continue;
        };
        first = scenes.len();
        let (is_slow, casts) = casts.strip_prefix("slow ").map_or((false, casts), |casts| (true, casts));
        for (order, kinds) in casts.split("; ").filter_map(|cast| cast.split_once(' ')) {
            let (ours, others) = kinds.split_once('/').expect("kinds of two sides");
            for (ours, other) in ours.split(',').flat_map(|ours| others.split(',').map(move |it| (ours, it)))
            {
                let side = if order == "ours" { Side::Ours } else { Side::Redisson };
                let (ours, other) = (Role { side: Side::Ours, kind: ours }, Role { side, kind: other });
                let roles = match order {
                    "from" => vec![(other, ours)],
                    "both" => vec![(ours, other), (other, ours)],
                    _ => vec![(ours, other)],
                };
                scenes.extend(roles.into_iter().map(|(holder, other)| {
                    let what = format!("{holder} {shows} {other}");
                    Scene { what, is_slow, holder, other, steps: String::new() }
                }));
            }
        }
    }
    scenes
}

fn expect(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

struct Stage<'a> {
    server: Server,
    redisson: &'a Path,
    twin: Option<Twin>,
    members: HashMap<Side, [Member; 2]>,
    /// The prefixes of the ids of Redisson's owners.
    ids: [String; 2],
}

impl Stage<'_> {
    fn member(&self, side: Side, which: usize) -> &Member {
        &self.members[&side][which]
    }

    /// Checks that the name's keys go at once, except leases that Redisson leaves after a forced release.
    fn leaves_nothing_of(&self, name: &str) -> Checked {
        let theirs = |key: &str| self.ids.iter().any(|id| key.contains(id));
        let left = self.server.remains(name, SOON, |key| key.contains(":rwlock_timeout:") && theirs(key));
        expect(left.is_empty(), || format!("left: {left:?}"))
    }
}

pub(crate) fn play(redisson: &Path, twin: Option<Twin>, checks: &mut Checks) {
    let server = Server::start();
    let url = server.server.url();
    let [ours, theirs] = Side::BOTH.map(|side| [(); 2].map(|()| side.start(redisson, &url)));
    let ids = theirs.each_ref().map(|(_, id)| id.clone());
    let members = [ours, theirs].map(|members| members.map(|(member, _)| member));
    let stage = Stage { server, redisson, twin, members: Side::BOTH.into_iter().zip(members).collect(), ids };
    let acts = scenes().into_iter().filter(|scene| checks.wants(&scene.what)).map(|scene| {
        let name = scene.what.replace(|it: char| !it.is_ascii_alphanumeric(), "-");
        let (token, begun) = (Cell::new(0), Cell::new(Instant::now()));
        let (quickest, more) = (Cell::new(Duration::MAX), Cell::new(0));
        Act { stage: &stage, scene, name, token, begun, quickest, more }
    });
    let (slow, quick): (Vec<_>, Vec<_>) = acts.partition(|act| act.scene.is_slow);
    std::thread::scope(|scope| {
        let plays = |act: Act<'_>| (guarded(|| act.play_all()), act.scene.what);
        let slow: Vec<_> = slow.into_iter().map(|act| scope.spawn(move || plays(act))).collect();
        let quick = quick.into_iter().map(plays);
        let slow = slow.into_iter().map(|running| running.join().expect("panics are caught in there"));
        quick.chain(slow).for_each(|(checked, what)| checks.note(&what, checked));
    });
    let what = "nothing is left on the server";
    if checks.wants(what) {
        let left = stage.server.remains("", AT_ALL, |_| false);
        checks.note(what, expect(left.is_empty(), || format!("{left:?}")));
    }
}

struct Act<'a> {
    stage: &'a Stage<'a>,
    scene: Scene,
    name: String,
    token: Cell<u64>,
    /// Time of the step `from here`, the shortest duration since then, and the number of repetitions left.
    begun: Cell<Instant>,
    quickest: Cell<Duration>,
    more: Cell<u32>,
}

impl Act<'_> {
    fn play_all(&self) -> Checked {
        let steps = self.scene.steps.trim();
        let (times, steps) = steps.strip_prefix("thrice;").map_or((1, steps), |steps| (3, steps));
        for more in (0..times).rev() {
            self.more.set(more);
            self.play(steps)?;
        }
        self.stage.leaves_nothing_of(&self.name)
    }

    fn thread(&self, role: &str) -> String {
        format!("{}-{role}", self.name)
    }

    /// Sends an order to a thread: a verb, and the words after kind and name. `role` is `holder` or `other`,
    /// or `second` or `third`: another thread of the holder's or the other's process. With a `/` and another
    /// kind, `holder` stands for another side of the holder's read-write lock.
    fn tell(&self, role: &str, said: &str) -> (Role, fleet::Asked<'_>) {
        let (thread, kind) = role.split_once('/').unwrap_or((role, ""));
        let (mut role, which) = match thread {
            "holder" | "second" => (self.scene.holder, 0),
            _ => (self.scene.other, 1),
        };
        role.kind = match kind {
            "read" => "read",
            "write" => "write",
            "holder" if ["read", "write"].contains(&role.kind) => self.scene.holder.kind,
            _ => role.kind,
        };
        let (member, thread) = (self.stage.member(role.side, which), self.thread(thread));
        if said.is_empty() {
            return (role, member.asked(&thread));
        }
        let (verb, rest) = said.split_once(' ').unwrap_or((said, ""));
        let line = format!("{verb} {} {} {rest}", role.kind, self.name);
        (role, member.begin(&thread, line.trim_end()))
    }

    /// Plays steps, each `ROLE WORDS: ANSWER`, or `! ANSWER` for a prompt answer. `ROLE WORDS waits` makes
    /// the thread a waiter without an answer; a later step without words has its answer.
    fn play(&self, steps: &str) -> Checked {
        let steps = steps.split(';').map(str::trim).filter(|step| !step.is_empty());
        steps.into_iter().try_for_each(|step| self.step(step).map_err(|error| format!("`{step}`: {error}")))
    }

    fn step(&self, step: &str) -> Checked {
        let server = &self.stage.server;
        let took = self.begun.get().elapsed();
        let millis = |number: &str| Duration::from_millis(number.parse().expect("a number"));
        match step {
            "from here" => {
                self.begun.set(Instant::now());
                return Ok(());
            }
            "covers its readers" => return self.covers_its_readers(),
            "keeps writers out" => {
                return self.play("second/write try 0 -1: held; third/write try 0 -1: held");
            }
            "lets writers in" => {
                return self.play(
                    "second/write try 0 -1: got; second/write unlock: done;
                    third/write try 0 -1: got; third/write unlock: done",
                );
            }
            "is renewed" => return self.until_renewed(&self.name),
            "shortest is renewed" => {
                let watched = self.leases().into_iter().min_by_key(|key| server.left(key));
                return self.until_renewed(&watched.ok_or("no reader is there")?);
            }
            "one lease is left" => return server.until("the end of a lease", || self.leases().len() == 1),
            // Of twice the watchdog's time.
            "lease is whole" => {
                return server.until("the whole lease", || {
                    let left = Duration::from_millis(self.left().unsigned_abs());
                    left + SOON >= (WATCHDOG * 2).saturating_sub(self.begun.get().elapsed())
                });
            }
            "dies" => return self.dies(),
            _ => {}
        }
        if let Some(least) = step.strip_prefix("at least ") {
            return expect(took >= millis(least), || format!("{took:?}"));
        }
        if let Some(most) = step.strip_prefix("at most ") {
            return expect(took <= millis(most), || format!("{took:?}"));
        }
        // One of three attempts has to meet the limit: the machine may be busy.
        if let Some(most) = step.strip_prefix("quickest ") {
            self.quickest.set(took.min(self.quickest.get()));
            let is_well = self.more.get() > 0 || self.quickest.get() <= millis(most);
            return expect(is_well, || format!("the quickest of three took {:?}", self.quickest.get()));
        }
        if let Some(said) = step.strip_suffix(" waits").or_else(|| step.strip_suffix(" waits still")) {
            return self.waits(said);
        }
        let (said, limit, expected) = match step.split_once(": ") {
            Some((said, expected)) => (said, AT_ALL, expected),
            None => {
                let (said, expected) = step.split_once("! ").ok_or("no such step")?;
                (said, SOON, expected)
            }
        };
        let (role, words) = said.split_once(' ').unwrap_or((said, ""));
        let (role, asked) = self.tell(role, words);
        let answer = asked.answer(limit)?;
        let is_it = match expected.split_once("..") {
            Some((least, most)) => {
                let number = |text: &str| text.parse::<i64>().ok();
                number(&answer).is_some() && (number(least)..=number(most)).contains(&number(&answer))
            }
            None if expected == "got" => answer.split(' ').next() == Some("got"),
            None if expected == "token" => {
                let token = answer.strip_prefix("got ").and_then(|token| token.parse().ok()).unwrap_or(0);
                token > self.token.replace(token)
            }
            None if expected == "upgrade" && role.side == Side::Redisson => answer == "held",
            None => answer == expected,
        };
        expect(is_it, || format!("{answer}, and not {expected}"))?;
        if expected == "got" && role.side == Side::Ours {
            self.break_it(role.kind);
        }
        Ok(())
    }

    fn break_it(&self, kind: &str) {
        let server = &self.stage.server;
        match self.stage.twin {
            Some(Twin::NoMode) => _ = server.run::<usize>(&["HDEL", &self.name, "mode"]),
            Some(Twin::NoReadLease) if kind == "read" => {
                let theirs = |key: &&String| self.stage.ids.iter().any(|id| key.contains(id));
                for key in self.leases().iter().filter(|key| !theirs(key)) {
                    server.run::<usize>(&["DEL", key]);
                }
            }
            _ => {}
        }
    }

    /// Waits until the thread has subscribed to its channel, and for a while longer.
    fn waits(&self, said: &str) -> Checked {
        let (role, words) = said.split_once(' ').unwrap_or((said, ""));
        let (role, asked) = self.tell(role, words);
        let channel = match (role.side, role.kind) {
            (_, "spin") => None,
            (_, "multi") => Some(format!("redisson_lock__channel:{{{}:a}}*", self.name)),
            // Each client has its own channel.
            (Side::Ours, "fair") => Some(format!("{0}:latchwork:{{{0}}}:fair_grant:*", self.name)),
            (_, "read" | "write") => Some(format!("redisson_rwlock:{{{}}}", self.name)),
            // In Redisson's fair lock, each thread has its own.
            _ => Some(format!("redisson_lock__channel:{{{}}}*", self.name)),
        };
        if let Some(channel) = channel {
            self.stage.server.until("a subscription", || {
                !self.stage.server.run::<Vec<String>>(&["PUBSUB", "CHANNELS", &channel]).is_empty()
            })?;
        }
        match asked.within(A_WHILE)? {
            None => Ok(()),
            Some(answer) => Err(format!("it did not wait: {answer}")),
        }
    }

    fn dies(&self) -> Checked {
        let Scene { holder, other, .. } = &self.scene;
        let (victim, _) = holder.side.start(self.stage.redisson, &self.stage.server.server.url());
        let asked = victim.begin("victim", &format!("lock {} {} -1", holder.kind, self.name));
        let answer = asked.answer(AT_ALL)?;
        expect(answer.starts_with("got"), || answer)?;
        self.waits("other lock -1")?;
        victim.kill();
        // In this order: the answer may take a while on a busy machine.
        let (asked, left) = (Instant::now(), self.left());
        let left = left.try_into().map_err(|_| format!("no lease is left, but {left}"))?;
        let left = Duration::from_millis(left);
        let answer = self.stage.member(other.side, 1).asked(&self.thread("other")).answer(left + SOON);
        let is_got = answer.as_ref().is_ok_and(|answer| answer.starts_with("got"));
        expect(is_got, || format!("{answer:?}; {} ms are left", self.left()))?;
        let waited = asked.elapsed() + Duration::from_millis(20);
        expect(waited >= left, || format!("the lock was there after {waited:?}, and had {left:?} left"))
    }

    fn left(&self) -> i64 {
        self.stage.server.left(&self.name)
    }

    fn leases(&self) -> Vec<String> {
        self.stage.server.run(&["KEYS", &format!("{{{}}}:*:rwlock_timeout:*", self.name)])
    }

    /// Checks that the lock lasts at least as long as each of its readers' leases.
    fn covers_its_readers(&self) -> Checked {
        let longest = self.leases().iter().map(|key| self.stage.server.left(key)).max();
        // The lock is read last, so its remaining time is the shortest.
        let left = self.left();
        let is_so = longest.is_some_and(|longest| left + 1000 >= longest);
        expect(is_so, || format!("{left} ms are left of the lock, and {longest:?} of its longest reader"))
    }

    /// Waits until a key of the lock has more time left than before.
    fn until_renewed(&self, key: &str) -> Checked {
        let left = || self.stage.server.left(key);
        let mut lowest = left();
        self.stage.server.until("a renewal", || {
            let left = left();
            lowest = lowest.min(left);
            left > lowest + 1000
        })?;
        expect(lowest > 0, || "the lease was over before it was renewed".to_owned())
    }
}
